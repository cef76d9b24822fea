//! Real servers are started, counted, metered and stopped. `make test-real` runs this.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

use tare_lab::launch::Launched;
use tare_lab::machine::processes;
use tare_lab::world::Meter as _;
use tare_model::servers::{CaddySpec, HaproxySpec, HttpdSpec, NginxSpec, ServerSpec};

use bench::{Bench, get};

mod bench;

#[test]
fn nginx_and_httpd_serve_count_and_end() {
    let nginx = NginxSpec { body_bytes: 1234, access_log: true, ..NginxSpec::default() };
    let httpd = HttpdSpec { body_bytes: 1234, access_log: true, ..HttpdSpec::default() };
    let mut bench =
        Bench::new("real", vec![ServerSpec::Nginx(nginx), ServerSpec::Httpd(httpd)], None);
    for variant in [0, 1] {
        for _relaunch in 0..2 {
            let mut server = bench.start(variant);
            // Once it has replied, all its processes exist.
            get(server.launch_spec.address);
            let meter = server.meter();
            let before = meter.used().usage.unwrap();
            let source = server.launch_spec.count.clone().unwrap();
            let counted = server.server.count(&source).unwrap();
            for _ in 0..7 {
                let reply = get(server.launch_spec.address);
                assert!(reply.starts_with("HTTP/1.1 200 OK"), "{reply}");
                assert_eq!(reply.split_once("\r\n\r\n").unwrap().1.len(), 1234);
            }
            let served = server.server.count(&source).unwrap() - counted - source.own_requests();
            assert_eq!(served, 7, "variant {variant}");
            assert!(meter.used().usage.unwrap().since(&before).cpu_ns() > 0);
            assert!(meter.parts()[0].rss_bytes.unwrap() > 1_000_000);
            let pids = meter.processes();
            assert!(pids.len() >= 2, "master and worker: {pids:?}");
            for pid in &pids {
                let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
                assert!(status.contains("Cpus_allowed_list:\t0\n"), "pinned: {status}");
            }
            server.server.stop();
            // The requests, and a few lines that httpd logs at its end.
            let lines = server.server.logged().0;
            assert!((8..=12).contains(&lines), "variant {variant}: {lines} lines of log");
            for pid in pids {
                let gone = processes::Stat::read(pid).is_none_or(|stat| stat.zombie);
                assert!(gone, "variant {variant}: process {pid} is left");
            }
        }
    }
    bench.end();
}

#[test]
fn caddy_serves_a_file_and_logs() {
    let spec = CaddySpec { body_bytes: 1234, access_log: true, ..CaddySpec::default() };
    serves_and_counts("caddy", ServerSpec::Caddy(spec), 1234);
}

#[test]
fn haproxy_serves_from_memory_and_counts() {
    let spec = HaproxySpec { body_bytes: 100_000, ..HaproxySpec::default() };
    serves_and_counts("haproxy", ServerSpec::Haproxy(spec), 100_000);
}

/// Checks that a server replies with `body_bytes` bytes, counts requests, is metered, and ends.
fn serves_and_counts(name: &str, server: ServerSpec, body_bytes: usize) {
    let mut bench = Bench::new(name, vec![server], None);
    let mut server = bench.start(0);
    let address = server.launch_spec.address;
    let meter = server.meter();
    let before = meter.used().usage.unwrap();
    let count = server.launch_spec.count.clone();
    let read = |server: &Launched| count.as_ref().map(|c| server.server.count(c).unwrap());
    let counted = read(&server);
    for _ in 0..7 {
        let reply = get(address);
        assert!(reply.starts_with("HTTP/1.1 200 OK"), "{reply}");
        assert_eq!(reply.split_once("\r\n\r\n").unwrap().1.len(), body_bytes);
    }
    let served = read(&server).zip(counted).map(|(after, before)| after - before);
    assert!(served.is_none_or(|served| served == 7), "{served:?}");
    assert!(meter.used().usage.unwrap().since(&before).cpu_ns() > 0);
    server.server.stop();
    drop(server);
    bench.end();
}
