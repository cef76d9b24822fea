//! A JVM: slow for its first seconds, with its own threads, and with Nagle's algorithm on.

use tare_report::run::{RunGuard, RunReport};
use tare_stats::{Estimate, Verdict};

use crate::processes::{Standing, losses, program};
use crate::runs::{Desk, asked, guard};
use crate::util::{Folder, command, ran};

const SENDS_AT_ONCE: &str = "-Dsun.net.httpserver.nodelay=true";
/// About 20 µs of computing.
const STEPS: &str = "10000";

/// The compiled program; its folder is removed with it.
struct Program(Folder);

impl Program {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let mut javac = command("javac");
        ran(javac.arg("-d").arg(&folder.0).arg(program("Pair.java"))).success();
        Self(folder)
    }

    fn line(&self, flags: &str, steps: &str) -> String {
        format!("java {flags} -cp {} Pair {{port}} {steps}", self.0.0.display())
    }

    fn pair(&self, flags: &str, [a, b]: [&str; 2]) -> [String; 2] {
        [("a", a), ("b", b)]
            .map(|(name, steps)| format!("--launch={name}={}", self.line(flags, steps)))
    }
}

/// Only the machine, the short run, and pauses of the garbage collector trip guards; no difference
/// is found.
#[track_caller]
pub fn are_twins(report: &RunReport) {
    let allowed = ["few-rounds", "noisy", "steal", "not-saturated", "pauses"];
    let found = report.guards.iter().filter(|guard| !allowed.contains(&guard.code.word()));
    let found: Vec<&RunGuard> = found.collect();
    assert!(found.is_empty(), "{found:#?}");
    let comparison = asked(report);
    let bounds = &comparison.overhead_percent;
    println!(
        "{} rounds: {:+.2} % ({:+.2} to {:+.2})",
        report.run.rounds, bounds.point, bounds.lower, bounds.upper
    );
    assert!(matches!(comparison.verdict, Verdict::Same | Verdict::Unresolved), "{comparison:#?}");
    // An interval may miss now and then, but not by much.
    assert!(bounds.lower <= 2.0 && -2.0 <= bounds.upper, "{bounds:?}");
}

/// Within three points of wrk's result after 15 s of load, or reported as not warm.
#[test]
fn a_pair_is_measured_warm_or_said_not_to_be() {
    let program = Program::new("jvm-pair");
    let pair = ["", STEPS].map(|steps| Standing::start(&program.line(SENDS_AT_ONCE, steps), 15));
    let wrk = |server: &Standing| server.wrk(10, "2s");
    let poll = |server: &Standing| server.load(10, "2s", &["--idle", "poll"]);
    let others = losses([&pair[0], &pair[1]], &[("wrk, sleeping", &wrk), ("polling", &poll)]);
    drop(pair);
    let desk = Desk::new("jvm");
    let launches = program.pair(SENDS_AT_ONCE, ["", STEPS]);
    let report = desk.compare(&[&launches[0], &launches[1], "-c", "10", "--max-time", "120s"]);
    let comparison = asked(&report);
    let bounds = &comparison.overhead_percent;
    println!("compare: −{:.1} % ({:.1} to {:.1})", bounds.point, bounds.lower, bounds.upper);
    // wrk sleeps, so its result includes the cost of waking it; `compare` polls.
    let is_near = |(_, loss): &(String, Estimate)| {
        bounds.lower - 3.0 <= loss.upper && loss.lower <= bounds.upper + 3.0
    };
    let is_near = others.iter().all(is_near) && (bounds.point - others[1].1.point).abs() <= 5.0;
    let told = report.guards.iter().find(|guard| guard.code == "not-warm");
    assert!(is_near || told.is_some(), "{others:#?}, compare: {bounds:?}");
    assert!(report.guards.iter().all(|guard| guard.code != "short-of-cpus"), "{report:#?}");
    println!("not-warm: {told:?}");
}

#[test]
fn identical_servers_are_the_same() {
    let program = Program::new("jvm-twins");
    let desk = Desk::new("jvm-twins");
    let [a, b] = program.pair(SENDS_AT_ONCE, ["", ""]);
    are_twins(&desk.compare(&[&a, &b, "-c", "10", "--max-time", "120s"]));
}

/// Head and body are written separately, and the body waits for an acknowledgement.
#[test]
fn replies_that_wait_for_an_acknowledgement_are_named() {
    let program = Program::new("jvm-nagle");
    let desk = Desk::new("jvm-nagle");
    let [a, b] = program.pair("", ["", ""]);
    let report = desk.compare(&[&a, &b, "-c", "4", "--rounds", "3", "--no-sustained"]);
    let found = guard(&report, "delayed-ack");
    assert!(found.text.contains("TCP_NODELAY"), "{found:?}");
}
