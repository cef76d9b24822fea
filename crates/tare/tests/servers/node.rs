//! Node.js: an event loop that serves arrivals in batches.

use tare_stats::Verdict;

use crate::processes::{Standing, agree, losses, program};
use crate::runs::{Desk, asked};

fn line(what: &str) -> String {
    format!("node {} {{port}} {what}", program("pair.js"))
}

/// Clients that both sleep, or both poll, agree: none breaks up the server's batches.
fn every_client_sees_the_same(connections: u32) {
    let pair = ["plain", "more"].map(|what| Standing::start(&line(what), 3));
    let [plain, more] = &pair;
    let by = |reactor: &'static str, idle: &'static str| {
        move |server: &Standing| {
            server.load(connections, "700ms", &["--reactor", reactor, "--idle", idle])
        }
    };
    let wrk = move |server: &Standing| server.wrk(connections, "1s");
    let losses = losses(
        [plain, more],
        &[
            ("wrk, sleeping", &wrk),
            ("io_uring, sleeping", &by("io_uring", "sleep")),
            ("epoll, sleeping", &by("epoll", "sleep")),
            ("io_uring, polling", &by("io_uring", "poll")),
            ("epoll, polling", &by("epoll", "poll")),
        ],
    );
    agree(&losses[..3]);
    agree(&losses[3..]);
}

#[test]
fn every_client_sees_the_same_on_one_connection() {
    every_client_sees_the_same(1);
}

#[test]
fn every_client_sees_the_same_on_ten_connections() {
    every_client_sees_the_same(10);
}

#[test]
fn every_client_sees_the_same_on_fifty_connections() {
    every_client_sees_the_same(50);
}

/// `tare compare` agrees with its own client on servers that keep running.
#[test]
fn compare_says_what_its_client_sees() {
    let pair = ["plain", "more"].map(|what| Standing::start(&line(what), 3));
    let [plain, more] = &pair;
    let poll = |server: &Standing| server.load(10, "700ms", &["--idle", "poll"]);
    let mut both = losses([plain, more], &[("polling", &poll)]);
    drop(pair);
    let desk = Desk::new("node");
    let launch = |name: &str| format!("--launch={name}={}", line(name));
    let (plain, more) = (launch("plain"), launch("more"));
    let report = desk.compare(&[&plain, &more, "-c", "10", "--max-time", "60s"]);
    let comparison = asked(&report);
    assert_ne!(comparison.verdict, Verdict::Void, "{:#?}", report.guards);
    let bounds = &comparison.overhead_percent;
    let mut own = both[0].clone();
    (own.0, own.1.point, own.1.lower, own.1.upper) =
        ("compare".into(), bounds.point, bounds.lower, bounds.upper);
    println!("compare: −{:.1} % ({:.1} to {:.1})", bounds.point, bounds.lower, bounds.upper);
    both.push(own);
    agree(&both);
}

#[test]
fn identical_servers_are_the_same() {
    let desk = Desk::new("node-twins");
    let [a, b] = ["a", "b"].map(|name| format!("--launch={name}={}", line("plain")));
    let report = desk.compare(&[&a, &b, "-c", "10", "--max-time", "60s"]);
    crate::jvm::are_twins(&report);
}
