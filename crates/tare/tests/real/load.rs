//! `tare load` with real time, and with very many connections.

use std::process::Stdio;
use std::time::Duration;

use tare_load::pacer::RateProfile;
use tare_report::load::LoadReport;
use tare_target::behaviour::Behaviour;

use crate::util::{Folder, Server, load_json, own, peak_kb_of};
use crate::wait::let_pass;

#[test]
fn the_open_loop_keeps_its_rate() {
    let server = Server::start(Behaviour::default());
    let report = load_json(&[&server.url(), "--rate", "2k", "-d", "1s"]);
    let due = RateProfile::constant(2000.0).unwrap().requests_within(1.0);
    assert_eq!((report.requests.started as f64, report.asked.due_requests), (due, Some(due)));
    assert_eq!(report.latency.headline, "from_due");
    let report = load_json(&[&server.url(), "--stages", "200ms:1000,300ms:0..2000", "--poisson"]);
    assert!((report.elapsed_ns as f64 / 1e9 - 0.5).abs() < 0.2, "{}", report.elapsed_ns);
    assert!((300..700).contains(&report.requests.started), "{}", report.requests.started);
}

#[test]
fn ten_thousand_connections_in_a_hundred_megabytes() {
    // Client and target each hold a descriptor per connection, in separate processes.
    assert!(tare_io::system::raise_open_files(12_000) >= 12_000, "ulimit -n 12000");
    let server = Server::with_slots(11_000);
    let folder = Folder::new("ten-thousand");
    let json = folder.file("load.json");
    let mut child = own()
        .args(["load", &server.url(), "-c", "10000", "-t", "1", "-n", "30000", "--json"])
        .arg(&json)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut peak_kb = 0;
    while child.try_wait().unwrap().is_none() {
        peak_kb = peak_kb_of(child.id()).unwrap_or(0).max(peak_kb);
        let_pass(Duration::from_millis(2));
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
    let report = load_json(&[&server.url(), "--new-connections", "-n", "50000", "-c", "20"]);
    assert_eq!((report.requests.good, report.connections.opened), (50_000, 50_000));
}
