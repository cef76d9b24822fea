//! Real servers: started, counted, metered, stopped.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};

use tare_lab::count;
use tare_lab::lab::Placed;
use tare_lab::launch::Launched;
use tare_lab::{Event, Lab, LabError, LabPlan, processes};
use tare_model::places::HostSpec;
use tare_model::places::{ClientSpec, PlaceSpec};
use tare_model::servers::{CaddySpec, CommandSpec, HaproxySpec, HttpdSpec, NginxSpec, ServerSpec};

struct Bench {
    lab: Lab,
    events: Receiver<Event>,
    state: PathBuf,
}

impl Bench {
    fn new(name: &str, servers: Vec<ServerSpec>, fixed: Option<SocketAddr>) -> Self {
        let state = std::env::temp_dir().join(format!("tare-lab-{}-{name}", std::process::id()));
        let (sender, events) = channel();
        let servers = servers.into_iter().enumerate();
        let plan = LabPlan {
            state: &state,
            servers: servers
                .map(|(n, server)| Placed {
                    name: format!("v{n}"),
                    server,
                    fixed,
                    ip: None,
                    layers: Vec::new(),
                    place: PlaceSpec::Host(HostSpec::default()),
                    client: ClientSpec::Place(PlaceSpec::Host(HostSpec::default())),
                })
                .collect(),
            cpus: vec![0],
            load_cpus: Vec::new(),
            place_launches: 3,
            stop: Default::default(),
            connections: 10,
            events: sender,
        };
        Self { lab: Lab::open(plan).unwrap(), events, state }
    }

    fn start(&mut self, variant: usize) -> Launched {
        let mut launched = self.lab.launch(variant, 0).unwrap().unwrap();
        launched.server.wait_until_listening(&Default::default()).unwrap();
        launched
    }

    /// Ends it, and checks that nothing is left.
    fn end(self) {
        assert_eq!(self.lab.close(), Vec::<String>::new());
        assert_eq!(std::fs::read_dir(&self.state).unwrap().count(), 0, "journals");
        std::fs::remove_dir_all(&self.state).unwrap();
    }
}

fn get(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /aaaa HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn command(text: &str) -> ServerSpec {
    let command = text.to_owned();
    ServerSpec::Command(CommandSpec {
        command,
        env: Default::default(),
        ready_within_ms: 5000,
        access_log: None,
    })
}

#[test]
fn nginx_and_httpd_serve_count_and_end() {
    let nginx = NginxSpec { body_bytes: 1234, access_log: true, ..NginxSpec::default() };
    let httpd = HttpdSpec { body_bytes: 1234, access_log: true, ..HttpdSpec::default() };
    let mut bench =
        Bench::new("real", vec![ServerSpec::Nginx(nginx), ServerSpec::Httpd(httpd)], None);
    for variant in [0, 1] {
        for _relaunch in 0..2 {
            let mut server = bench.start(variant);
            // Its first reply shows that all its processes are there.
            get(server.launch_spec.address);
            let meter = server.server.meter();
            let before = meter.read().unwrap();
            let source = server.launch_spec.count.clone().unwrap();
            let counted = count::read(&source, server.server.as_ref()).unwrap();
            for _ in 0..7 {
                let reply = get(server.launch_spec.address);
                assert!(reply.starts_with("HTTP/1.1 200 OK"), "{reply}");
                assert_eq!(reply.split_once("\r\n\r\n").unwrap().1.len(), 1234);
            }
            let served = count::read(&source, server.server.as_ref()).unwrap()
                - counted
                - source.own_requests();
            assert_eq!(served, 7, "variant {variant}");
            assert!(meter.read().unwrap().since(before).cpu_ns > 0);
            assert!(meter.rss_bytes().unwrap() > 1_000_000);
            let pids = meter.pids().to_vec();
            assert!(pids.len() >= 2, "master and worker: {pids:?}");
            for pid in &pids {
                let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
                assert!(status.contains("Cpus_allowed_list:\t0\n"), "pinned: {status}");
            }
            server.server.stop();
            // And the few that httpd says when it ends.
            let lines = server.server.logged().0;
            assert!((8..=12).contains(&lines), "variant {variant}: {lines} lines of log");
            for pid in pids {
                let gone = processes::Stat::of(pid).is_none_or(|stat| stat.zombie);
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

/// A server of that kind answers with so many bytes, counts what it served, is metered, and ends.
fn serves_and_counts(name: &str, server: ServerSpec, body_bytes: usize) {
    let mut bench = Bench::new(name, vec![server], None);
    let mut server = bench.start(0);
    let address = server.launch_spec.address;
    let meter = server.server.meter();
    let before = meter.read().unwrap();
    let count = server.launch_spec.count.clone();
    let read =
        |server: &Launched| count.as_ref().map(|c| count::read(c, server.server.as_ref()).unwrap());
    let counted = read(&server);
    for _ in 0..7 {
        let reply = get(address);
        assert!(reply.starts_with("HTTP/1.1 200 OK"), "{reply}");
        assert_eq!(reply.split_once("\r\n\r\n").unwrap().1.len(), body_bytes);
    }
    let served = read(&server).zip(counted).map(|(after, before)| after - before);
    assert!(served.is_none_or(|served| served == 7), "{served:?}");
    assert!(meter.read().unwrap().since(before).cpu_ns > 0);
    server.server.stop();
    drop(server);
    bench.end();
}

#[test]
fn output_is_drained_counted_and_told() {
    let noisy = command(
        "yes 'a line of log' | head -n 100000 >&2; \
         exec python3 -u -m http.server --bind 127.0.0.1 {port}",
    );
    let mut bench = Bench::new("output", vec![noisy], None);
    let mut server = bench.start(0);
    server.server.stop();
    assert!(server.server.logged().0 >= 100_000, "{:?}", server.server.logged());
    let told: Vec<Event> = bench.events.try_iter().collect();
    assert!(told.iter().any(|event| event.who == "v0" && event.text == "a line of log"));
    assert!(told.len() <= 60, "{} events kept", told.len());
    drop(server);
    bench.end();
}

#[test]
fn whatever_a_server_started_ends_with_it() {
    let forking = command(
        "setsid sleep 1000 & sh -c 'trap \"\" TERM; while :; do sleep 1000; done' & \
         exec python3 -u -m http.server --bind 127.0.0.1 {port}",
    );
    let mut bench = Bench::new("fork", vec![forking], None);
    let mut server = bench.start(0);
    let pids = server.server.meter().pids().to_vec();
    assert!(pids.len() >= 4, "{pids:?}");
    server.server.stop();
    for pid in pids {
        let gone = processes::Stat::of(pid).is_none_or(|stat| stat.zombie);
        // Without a control group nobody can know of a process that left its group.
        assert!(gone || bench.lab.cgroup_note.is_some(), "process {pid} is left");
    }
    drop(server);
    bench.end();
}

fn failure(name: &str, text: &str, fixed: Option<SocketAddr>) -> String {
    let mut bench = Bench::new(name, vec![command(text)], fixed);
    let outcome = bench.lab.launch(0, 0).and_then(|launched| {
        let mut launched = launched.unwrap();
        launched.server.wait_until_listening(&Default::default())
    });
    let error = outcome.unwrap_err();
    assert!(matches!(error, LabError::Environment(_)), "{error:?}");
    bench.end();
    error.to_string()
}

#[test]
fn servers_that_do_not_start_say_why() {
    let text = failure("missing", "no-such-program --port {port}", None);
    assert!(
        text.contains(
            "v0: the server ended before it was ready (exit status: 127; is the program installed?)"
        ),
        "{text}"
    );
    assert!(text.contains("no-such-program"), "its own words: {text}");
    let text = failure("daemon", "true", None);
    assert!(text.contains("if it went into the background, start it in the foreground"), "{text}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap();
    let text = failure("taken", "sleep 100", Some(taken));
    assert!(text.contains(&format!("something already answers on {taken}")), "{text}");
}
