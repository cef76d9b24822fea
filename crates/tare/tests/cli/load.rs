//! `tare load`.

use std::process::{Command, Stdio};

use tare_report::load::guards::Severity;
use tare_report::load::{Interval, LoadReport};
use tare_target::behaviour::Behaviour;
use tare_target::stats::Counter;

use crate::util::{Folder, Server, load_json, own, str, tare};

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
    let report = load_json(&[&server.url(), "-n", "500", "--expect-status", "200-299,503"]);
    assert_eq!((report.requests.good, report.requests.started), (500, 500));
    assert_eq!(report.status["503"], server.target.stats.get(Counter::Errors));
    assert_eq!(report.bytes.received, server.target.stats.get(Counter::SentBytes));
    // On a busy machine a guard may warn of it.
    assert!(report.guards.iter().all(|guard| guard.severity != Severity::Void), "{report:?}");
    let series = report.latency.from_sent.unwrap();
    assert_eq!((series.count, series.ns_p99_9), (500, None), "500 values hold no p99.9");
}

#[test]
fn threads_poll_where_they_have_cpus_of_their_own_or_are_told_to() {
    let server = Server::start(Behaviour::default());
    let cpu = tare_io::system::allowed_cpus()[0].to_string();
    let polls = |more: &[&str]| {
        let url = server.url();
        let report = load_json(&[&[url.as_str(), "-n", "100"], more].concat());
        (report.requests.good, report.asked.polls)
    };
    assert_eq!(polls(&[]), (100, false));
    assert_eq!(polls(&["--cpus", &cpu]), (100, true));
    assert_eq!(polls(&["--cpus", &cpu, "--idle", "sleep"]), (100, false));
    assert_eq!(polls(&["--idle", "poll", "--reactor", "epoll"]), (100, true));
    let told = tare(&["load", &server.url(), "-n", "10", "--idle", "poll"]).success();
    assert!(told.stdout.contains(", polling, seed "), "{}", told.story());
}

#[test]
fn every_output_is_written_and_reads_back() {
    let server = Server::start(Behaviour::default());
    let folder = Folder::new("outputs");
    let [json, csv, hdr, hgrm, ndjson] =
        ["json", "csv", "hdr", "hgrm", "ndjson"].map(|kind| folder.file(&format!("a.{kind}")));
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
        "--hgrm",
        str(&hgrm),
        "--ndjson",
        str(&ndjson),
    ])
    .success();
    let read = |path| std::fs::read_to_string(path).unwrap();
    let report: LoadReport = serde_json::from_str(&read(&json)).unwrap();
    let rows = read(&csv).lines().count() - 1;
    assert_eq!(rows, report.intervals.len());
    assert!(rows > 0);
    let histograms = read(&hdr).lines().filter(|line| line.contains("HIST")).count();
    assert_eq!(histograms, rows);
    let lines = read(&ndjson);
    let lines = lines.lines().map(|line| serde_json::from_str(line).unwrap());
    assert_eq!(lines.collect::<Vec<Interval>>(), report.intervals);
    let total = format!("Total count    = {:12}]", report.requests.good);
    assert!(read(&hgrm).contains(&total), "{total}: {}", read(&hgrm));
    // Lines on standard output are there instead of the text.
    let told =
        tare(&["load", &server.url(), "-d", "300ms", "--interval", "100ms", "--ndjson", "-"]);
    let told = told.success().stdout;
    assert!(told.lines().count() >= 3, "{told}");
    assert!(told.lines().all(|line| serde_json::from_str::<Interval>(line).is_ok()), "{told}");
}

#[test]
fn lists_of_urls_are_asked_in_turn() {
    let server = Server::start(Behaviour::default());
    let folder = Folder::new("urls");
    let list = folder.file("urls.txt");
    std::fs::write(&list, "# paths\n/a\n\n/b?c=d\n/stats\n").unwrap();
    let report = load_json(&[&server.url(), "--urls", str(&list), "-n", "300", "-c", "3"]);
    assert_eq!(report.requests.good, 300);
    assert_eq!(server.target.stats.get(Counter::StatsRequests), 100);
    let report = load_json(&[&server.url(), "--urls", str(&list), "-n", "300", "--random-order"]);
    assert_eq!(report.requests.good, 300);
    // More paths than an experiment may list.
    let many: String = (0..500).map(|n| format!("/{n}\n")).collect();
    std::fs::write(&list, many).unwrap();
    let report = load_json(&[&server.url(), "--urls", str(&list), "-n", "500", "-b", "x"]);
    assert_eq!(report.requests.good, 500);
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
    let insecure = load_json(&[&server.url(), "-n", "100", "-k", "--new-connections"]);
    assert_eq!((insecure.requests.good, insecure.connections.handshakes_full), (100, 100));
}

#[test]
fn a_server_that_gives_nothing_good_is_the_targets_fault() {
    let server = Server::start(Behaviour { error_rate: 1.0, ..Default::default() });
    let ran = tare(&["load", &server.url(), "-n", "50"]);
    assert_eq!(ran.code, Some(4), "{}", ran.story());
    assert!(ran.stdout.contains("VOID errors: 50 requests (100.0 %) have an"), "{}", ran.story());
    assert!(ran.stderr.contains("every reply has status 503"), "{}", ran.story());
}

#[test]
fn an_interrupt_prints_what_was_measured() {
    let server = Server::start(Behaviour::default());
    let mut child = own()
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
