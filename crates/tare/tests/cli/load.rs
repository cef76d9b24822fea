//! `tare load`.

use std::process::{Command, Stdio};
use std::time::Duration;

use tare_load::pacer::RateProfile;
use tare_report::load::LoadReport;
use tare_target::behaviour::Behaviour;
use tare_target::stats::Counter;

use crate::util::{Folder, Server, peak_kb_of, str, tare};

fn json(args: &[&str]) -> LoadReport {
    let ran = tare(&[&["load", "--json", "-"], args].concat());
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}\n{}", ran.story()))
}

#[test]
fn text_names_what_was_done() {
    let server = Server::start(Behaviour::default());
    let ran = tare(&["load", &server.url(), "-n", "1000", "-c", "4", "--seed", "7"]).success();
    for part in ["GET http://127.0.0.1:", "4 kept connections", "seed 7", "1,000 good", "p99"] {
        assert!(ran.stdout.contains(part), "{part} is missing\n{}", ran.story());
    }
    assert!(!ran.stderr.contains('\x1b'), "no live display where there is no terminal");
    assert_eq!(server.target.stats.get(Counter::Requests), 1000);
}

#[test]
fn json_agrees_with_the_server() {
    let server = Server::start(Behaviour { error_rate: 0.2, ..Default::default() });
    let report = json(&[&server.url(), "-n", "500", "--expect-status", "200-299,503"]);
    assert_eq!((report.requests.good, report.requests.started), (500, 500));
    assert_eq!(report.status["503"], server.target.stats.get(Counter::Errors));
    assert_eq!(report.bytes.received, server.target.stats.get(Counter::SentBytes));
    // Half a thousand requests are over before a busy machine has calmed down.
    let guards: Vec<_> = report.guards.iter().filter(|g| g.code != "client-bound").collect();
    assert!(guards.is_empty(), "{guards:?}");
    let series = report.latency.from_sent.unwrap();
    assert_eq!((series.count, series.ns_p99_9), (500, None), "500 values hold no p99.9");
}

#[test]
fn the_open_loop_keeps_its_rate() {
    let server = Server::start(Behaviour::default());
    let report = json(&[&server.url(), "--rate", "2k", "-d", "1s"]);
    let due = RateProfile::constant(2000.0).unwrap().requests_within(1.0);
    assert_eq!((report.requests.started as f64, report.asked.due_requests), (due, Some(due)));
    assert_eq!(report.latency.headline, "from_due");
    let report = json(&[&server.url(), "--stages", "200ms:1000,300ms:0..2000", "--poisson"]);
    assert!((report.elapsed_ns as f64 / 1e9 - 0.5).abs() < 0.2, "{}", report.elapsed_ns);
    assert!((300..700).contains(&report.requests.started), "{}", report.requests.started);
}

#[test]
fn every_output_is_written_and_reads_back() {
    let server = Server::start(Behaviour::default());
    let folder = Folder::new("outputs");
    let [json, csv, hdr] = ["a.json", "a.csv", "a.hdr"].map(|name| folder.file(name));
    tare(&[
        "load",
        &server.url(),
        "-d",
        "500ms",
        "--interval",
        "100ms",
        "--json",
        str(&json),
        "--csv",
        str(&csv),
        "--hdr",
        str(&hdr),
    ])
    .success();
    let read = |path| std::fs::read_to_string(path).unwrap();
    let report: LoadReport = serde_json::from_str(&read(&json)).unwrap();
    let rows = read(&csv).lines().count() - 1;
    assert_eq!(rows, report.intervals.len());
    assert!((3..=6).contains(&rows), "{rows} intervals of 100 ms in 500 ms");
    let histograms = read(&hdr).lines().filter(|line| line.contains("HIST")).count();
    assert_eq!(histograms, rows);
}

#[test]
fn lists_of_urls_are_asked_in_turn() {
    let server = Server::start(Behaviour::default());
    let folder = Folder::new("urls");
    let list = folder.file("urls.txt");
    std::fs::write(&list, "# paths\n/a\n\n/b?c=d\n/stats\n").unwrap();
    let report = json(&[&server.url(), "--urls", str(&list), "-n", "300", "-c", "3"]);
    assert_eq!(report.requests.good, 300);
    assert_eq!(server.target.stats.get(Counter::StatsRequests), 100);
    let report = json(&[&server.url(), "--urls", str(&list), "-n", "300", "--random-order"]);
    assert_eq!(report.requests.good, 300);
    std::fs::write(&list, "/a\nhttp://other.example/\n").unwrap();
    let ran = tare(&["load", &server.url(), "--urls", str(&list)]);
    ran.fails(2, ":2 'http://other.example/': is on another server than 127.0.0.1:");
}

#[test]
fn tls_with_a_trusted_certificate() {
    let server = Server::with_tls(Behaviour::default());
    let ran = tare(&["load", &server.url(), "-n", "10"]);
    ran.fails(
        4,
        "TLS: the server's certificate is signed by an authority that is not trusted: --cacert",
    );
    let insecure = json(&[&server.url(), "-n", "100", "-k", "--new-connections"]);
    assert_eq!((insecure.requests.good, insecure.connections.handshakes_full), (100, 100));
}

#[test]
fn a_server_that_gives_nothing_good_is_the_targets_fault() {
    let server = Server::start(Behaviour { error_rate: 1.0, ..Default::default() });
    let ran = tare(&["load", &server.url(), "-n", "50"]);
    assert_eq!(ran.code, Some(4), "{}", ran.story());
    assert!(ran.stdout.contains("VOID unexpected-status: 50 replies (100.0 %)"), "{}", ran.story());
    assert!(ran.stderr.contains("every reply has status 503"), "{}", ran.story());
}

#[test]
fn an_interrupt_prints_what_was_measured() {
    let server = Server::start(Behaviour::default());
    let mut child = Command::new(env!("CARGO_BIN_EXE_tare"))
        .args(["load", &server.url(), "-d", "60s", "--json", "-"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    while server.target.stats.get(Counter::Requests) < 100 {
        std::thread::yield_now();
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let mut json = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut json).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let report: LoadReport = serde_json::from_str(&json).unwrap();
    assert!(report.interrupted && report.requests.good >= 100, "{json}");
    assert!(report.elapsed_ns < 60_000_000_000);
}

#[test]
fn ten_thousand_connections_in_a_hundred_megabytes() {
    // Client and target each hold a descriptor a connection, in processes of their own.
    assert!(tare_io::system::raise_open_files(12_000) >= 12_000, "ulimit -n 12000");
    let server = Server::with_slots(11_000);
    let folder = Folder::new("ten-thousand");
    let json = folder.file("load.json");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tare"))
        .args(["load", &server.url(), "-c", "10000", "-t", "1", "-n", "30000", "--json"])
        .arg(&json)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut peak_kb = 0;
    while child.try_wait().unwrap().is_none() {
        peak_kb = peak_kb_of(child.id()).unwrap_or(0).max(peak_kb);
        std::thread::park_timeout(Duration::from_millis(2));
    }
    let report: LoadReport =
        serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert!(peak_kb > 1000, "{peak_kb} kB: it was not looked at");
    assert_eq!((report.connections.opened, report.requests.good), (10_000, 30_000));
    assert!(peak_kb <= 100_000, "{peak_kb} kB");
}

#[test]
fn fifty_thousand_new_connections_in_a_row() {
    let server = Server::start(Behaviour { body_bytes: 1, ..Default::default() });
    let report = json(&[&server.url(), "--new-connections", "-n", "50000", "-c", "20"]);
    assert_eq!((report.requests.good, report.connections.opened), (50_000, 50_000));
}
