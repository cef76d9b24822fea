//! Runs the real program on real servers, in a data folder of the test.

use std::path::PathBuf;
use std::process::{Child, Command};

use tare_report::load::guards::Severity;
use tare_report::run::{Comparison, RunGuard, RunReport};
use tare_stats::Verdict;

use crate::util::{Folder, Ran, own, ran, str};

/// A folder for a test's runs.
pub struct Desk {
    pub folder: Folder,
}

impl Desk {
    pub fn new(name: &str) -> Self {
        Self { folder: Folder::new(name) }
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = own();
        command.args(args).env("XDG_DATA_HOME", &self.folder.0).env_remove("TARE_STORE");
        command
    }

    pub fn tare(&self, args: &[&str]) -> Ran {
        ran(&mut self.command(args))
    }

    /// Returns a `PATH` in which a shell script replaces a program.
    pub fn path_with(&self, program: &str, script: &str) -> String {
        let bin = self.folder.file("bin");
        std::fs::create_dir_all(&bin).unwrap();
        let path = bin.join(program);
        std::fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
        format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", bin.display())
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.file(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Waits until a running run has stored a round; `store` are flags that name its store.
    #[track_caller]
    pub fn wait_for_a_round(&self, child: &mut Child, store: &[&str]) {
        loop {
            let told = self.tare(&[&["report", "last", "--json"], store].concat());
            if told.code == Some(0) && read(told).run.rounds > 0 {
                return;
            }
            // The run has a time limit, which bounds this loop.
            if let Some(ended) = child.try_wait().unwrap() {
                let mut said = String::new();
                if let Some(mut stderr) = child.stderr.take() {
                    std::io::Read::read_to_string(&mut stderr, &mut said).unwrap();
                }
                panic!("it ended without a round: {ended}: {said}");
            }
        }
    }

    /// Runs `compare` with these arguments, and reads its JSON.
    #[track_caller]
    pub fn compare(&self, args: &[&str]) -> RunReport {
        let all: Vec<&str> = ["compare", "--json", "-", "-q"].iter().chain(args).copied().collect();
        read(self.tare(&all).measured())
    }

    /// Runs an experiment.
    #[track_caller]
    pub fn run(&self, toml: &str) -> RunReport {
        let path = self.file("experiment.toml", toml);
        read(self.tare(&["run", str(&path), "--json", "-", "-q"]).measured())
    }
}

/// Two launches of tare's own server with these flags.
pub fn launches(a: &str, b: &str) -> [String; 2] {
    let tare = env!("CARGO_BIN_EXE_tare");
    let launch = |name: &str, flags: &str| {
        format!("--launch={name}=exec {tare} target --listen 127.0.0.1:{{port}} {flags}")
    };
    [launch("a", a), launch("b", b)]
}

pub fn owned<'a>(launches: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    launches.iter().map(String::as_str).chain(more.iter().copied()).collect()
}

/// Few and short rounds: precision is not tested.
pub const BRIEF: [&str; 6] = ["--rounds", "2", "--slice", "5ms", "--cycles", "2"];

#[track_caller]
pub fn read(ran: Ran) -> RunReport {
    match serde_json::from_str(&ran.stdout) {
        Ok(report) => report,
        Err(error) => panic!("{error}: {}", ran.story()),
    }
}

#[track_caller]
pub fn guard<'a>(report: &'a RunReport, code: &str) -> &'a RunGuard {
    let found = report.guards.iter().find(|guard| guard.code == code);
    found.unwrap_or_else(|| panic!("no {code} among {:#?}", report.guards))
}

#[track_caller]
pub fn no_guard(report: &RunReport, code: &str) {
    let found = report.guards.iter().find(|guard| guard.code == code);
    assert_eq!(found, None);
}

/// Returns the first requested comparison.
#[track_caller]
pub fn asked(report: &RunReport) -> &Comparison {
    let found = report.comparisons.iter().find(|comparison| comparison.asked);
    found.unwrap_or_else(|| panic!("nothing compared: {report:#?}"))
}

/// Compares two of tare's servers with these flags, briefly.
#[track_caller]
pub fn between(name: &str, a: &str, b: &str, more: &[&str]) -> RunReport {
    let desk = Desk::new(name);
    let pair = launches(a, b);
    let mut args: Vec<&str> = pair.iter().map(String::as_str).collect();
    args.extend(BRIEF);
    args.extend(["-c", "4"]);
    args.extend(more);
    desk.compare(&args)
}

/// The guard is void, concerns `b`, and withholds the verdict.
#[track_caller]
pub fn voids(report: &RunReport, code: &str, text: &str) {
    let found = guard(report, code);
    assert_eq!(found.severity, Severity::Void, "{found:?}");
    assert_eq!(found.variant.as_deref(), Some("b"), "{found:?}");
    assert!(found.text.contains(text), "{found:?}");
    assert!(report.comparisons.iter().all(|c| c.verdict == Verdict::Void), "{report:#?}");
    assert!(report.variant("b").unwrap().guards.iter().any(|known| *known == code));
    assert_eq!(report.run.stopped_by, if report.run.rounds == 5 { "void" } else { "rounds" });
}
