//! An executor does the same in this process and behind a byte stream: one table of load options,
//! run here and through an agent, and the same for metering and for several clients.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

mod there;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;

use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Endpoint, ReactorKind};
use tare_lab::executor::requests::{
    AskToStop, Attach, HowItEnded, IsAlive, Lines, Logged, Page, Processes, Quiesce, Read,
    ReadClocks, ReadFootprint, Request, Sample, Start, Stop,
};
use tare_lab::executor::{Executor, ExecutorPlan, Target as Metered};
use tare_lab::lab::load::Load;
use tare_lab::lab::site::Site;
use tare_lab::launch::spec::LaunchSpec;
use tare_lab::meters::Quiet;
use tare_lab::world::MakeLoad as _;
use tare_lab::{Halt, HaltReason};
use tare_load::measured::Measured;
use tare_load::pacer::RateProfile;
use tare_load::resolve;
use tare_load::{Edges, LoadPlan, Stretch};
use tare_model::layers::TlsVersion;
use tare_model::load::{Idle, LoadSpec};
use tare_model::net::NetTest;
use tare_model::samples::Counts;
use tare_model::status::StatusSet;
use tare_model::url::Url;
use tare_model::{Failure, Fault};
use tare_target::behaviour::{Behaviour, Http2Behaviour};
use tare_target::endpoint::{EndpointPlan, Loss, NetEndpoint, RemoteControl};
use tare_target::serve::{Target, TargetPlan};
use tare_target::tls::TlsServer;

use there::There;

const LOCALHOST: [u8; 4] = [127, 0, 0, 1];

/// Returns a site with an executor in this process.
fn here() -> Site {
    let (events, _unheard) = channel();
    Site::Here(Arc::new(Executor::new(ExecutorPlan {
        on_end: Arc::new(|_, _| {}),
        stop: Arc::default(),
        events,
        journal: None,
        own_group: None,
        ends_orphans: false,
    })))
}

/// Returns a spec of a shell script that listens nowhere.
fn shell(script: &str) -> Box<LaunchSpec> {
    Box::new(LaunchSpec {
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        env: Vec::new(),
        folder: std::env::temp_dir(),
        files: Vec::new(),
        address: (LOCALHOST, 1).into(),
        tls: false,
        count: None,
        pages: None,
        companion: None,
        log_files: Vec::new(),
        ready_within_ms: 5000,
        stands: false,
        chooses_port: false,
    })
}

fn target(http2: bool, tls: Option<TlsServer>) -> Target {
    Target::start(&TargetPlan {
        listen: Endpoint::Tcp((LOCALHOST, 0).into()),
        behaviour: Behaviour { http2: http2.then(Http2Behaviour::default), ..Behaviour::default() },
        tls,
        threads: 1,
        cpus: Vec::new(),
        reactor: None,
        slots: 256,
    })
    .unwrap()
}

fn endpoint() -> NetEndpoint {
    NetEndpoint::start(&EndpointPlan {
        listen: (LOCALHOST, 0).into(),
        cpus: Vec::new(),
        sockets: Default::default(),
        connections_max: 64,
        calls: true,
        obeys: RemoteControl::Nobody,
        delay: DurationNs::ZERO,
        loss: Loss::default(),
    })
    .unwrap()
}

/// A row of the table: a load and its target.
struct Row {
    name: &'static str,
    spec: LoadSpec,
    to: To,
    /// Options that a [`LoadSpec`] does not have.
    stages: Option<&'static str>,
    edges: Edges,
    interval: Option<DurationNs>,
}

#[derive(Clone, Copy, PartialEq)]
enum To {
    Plain,
    Http2,
    Tls,
    Endpoint,
}

fn row(name: &'static str, to: To, spec: LoadSpec) -> Row {
    Row { name, spec, to, stages: None, edges: Edges::Clock, interval: None }
}

/// Returns rows that together use every option of a load.
fn table(folder: &std::path::Path, certificate: PathBuf, key: PathBuf) -> Vec<Row> {
    let few = LoadSpec { connections: Some(4), threads: Some(1), ..LoadSpec::default() };
    let body_file = folder.join("body");
    std::fs::write(&body_file, "from a file").unwrap();
    let test = |test| LoadSpec { test: Some(test), ..few.clone() };
    let text = str::to_owned;
    vec![
        row("default", To::Plain, LoadSpec { connections: Some(10), ..few.clone() }),
        row("path", To::Plain, LoadSpec { path: Some(text("/x")), ..few.clone() }),
        row(
            "paths",
            To::Plain,
            LoadSpec { paths: ["/a", "/b", "/c"].map(text).to_vec(), ..few.clone() },
        ),
        row(
            "random paths",
            To::Plain,
            LoadSpec {
                paths: ["/a", "/b", "/c"].map(text).to_vec(),
                random_order: true,
                threads: Some(2),
                ..few.clone()
            },
        ),
        row(
            "a body",
            To::Plain,
            LoadSpec {
                method: Some(text("POST")),
                headers: vec![text("X-Own: 1")],
                body: Some(text("hello")),
                ..few.clone()
            },
        ),
        row(
            "a body of a file",
            To::Plain,
            LoadSpec {
                method: Some(text("PUT")),
                body_file: Some(body_file),
                expect_status: Some(StatusSet::parse("200").unwrap()),
                ..few.clone()
            },
        ),
        row("a rate", To::Plain, LoadSpec { rate: Some(2000.0), ..few.clone() }),
        row(
            "arrivals at random",
            To::Plain,
            LoadSpec {
                rate: Some(2000.0),
                poisson: true,
                max_connections: Some(8),
                spin: Some(DurationNs::from_us(50)),
                ..few.clone()
            },
        ),
        Row {
            stages: Some("100ms:1000..3000,1s:2000"),
            ..row("a rate that changes", To::Plain, few.clone())
        },
        row(
            "new connections",
            To::Plain,
            LoadSpec {
                new_connections: true,
                bind: vec![LOCALHOST.into()],
                timeout: Some(DurationNs::from_secs(5)),
                ..few.clone()
            },
        ),
        row(
            "epoll",
            To::Plain,
            LoadSpec {
                reactor: Some(ReactorKind::Epoll),
                idle: Some(Idle::Poll),
                cpus: Some(vec![0]),
                ..few.clone()
            },
        ),
        row(
            "replies that wait",
            To::Plain,
            LoadSpec { linger: Some(DurationNs::from_us(20)), ipv4: true, ..few.clone() },
        ),
        row("any address", To::Plain, LoadSpec { ipv6: true, ..few.clone() }),
        Row {
            interval: Some(DurationNs::from_ms(1)),
            edges: Edges::Replies,
            ..row("intervals", To::Plain, few.clone())
        },
        row(
            "TLS that is verified",
            To::Tls,
            LoadSpec {
                cacert: Some(certificate.clone()),
                sni: Some(text("localhost")),
                ..few.clone()
            },
        ),
        row(
            "HTTP/2",
            To::Http2,
            LoadSpec {
                http: Some(text("2")),
                streams: Some(5),
                no_hpack_table: true,
                ..few.clone()
            },
        ),
        row(
            "TLS with a certificate of its own",
            To::Tls,
            LoadSpec {
                insecure: true,
                cert: Some(certificate),
                key: Some(key),
                tls_version: Some(TlsVersion::V1_2),
                ..few.clone()
            },
        ),
        row(
            "TLS that is resumed",
            To::Tls,
            LoadSpec {
                insecure: true,
                new_connections: true,
                tls_resume: true,
                ciphers: vec![text("TLS_AES_128_GCM_SHA256")],
                tls_version: Some(TlsVersion::V1_3),
                ..few.clone()
            },
        ),
        row(
            "messages",
            To::Endpoint,
            LoadSpec {
                message_bytes: Some(64),
                reply_bytes: Some(256),
                nodelay: Some(false),
                socket_buffer: Some(65_536),
                ..test(NetTest::TcpRr)
            },
        ),
        row("messages on new connections", To::Endpoint, test(NetTest::TcpCrr)),
        row("a stream", To::Endpoint, test(NetTest::TcpStream)),
        row("a stream to here", To::Endpoint, test(NetTest::TcpStreamReverse)),
        row(
            "datagrams",
            To::Endpoint,
            LoadSpec { timeout: Some(DurationNs::from_secs(2)), ..test(NetTest::UdpRr) },
        ),
        row(
            "calls",
            To::Endpoint,
            LoadSpec { call: Some(serde_json::from_str("\"getpid\"").unwrap()), ..few.clone() },
        ),
    ]
}

/// Returns the options that a row changes from their defaults, and all options.
fn options_set(spec: &LoadSpec) -> [BTreeSet<&'static str>; 2] {
    macro_rules! differing {
        ($($field:ident),* $(,)?) => {{
            // A new option does not compile until it is listed here.
            let LoadSpec { $($field),* } = spec;
            let default = LoadSpec::default();
            let mut set = BTreeSet::new();
            $(if *$field != default.$field { set.insert(stringify!($field)); })*
            [set, BTreeSet::from([$(stringify!($field)),*])]
        }};
    }
    differing!(
        path,
        paths,
        random_order,
        http,
        streams,
        no_hpack_table,
        test,
        message_bytes,
        reply_bytes,
        nodelay,
        socket_buffer,
        call,
        connections,
        threads,
        rate,
        poisson,
        max_connections,
        new_connections,
        timeout,
        method,
        headers,
        body,
        body_file,
        expect_status,
        bind,
        ipv4,
        ipv6,
        insecure,
        cacert,
        cert,
        key,
        sni,
        tls_version,
        ciphers,
        tls_resume,
        spin,
        linger,
        idle,
        cpus,
        reactor,
    )
}

const REQUESTS: u64 = 120;

/// Formats what must be the same wherever a load is made: its requests, its replies, and which
/// measurements exist.
fn facts(measured: &Measured, exact: bool) -> String {
    let Counts { started, completed, good, failed, status, errors, body_bytes, .. } =
        &measured.counts;
    let series: Vec<_> = measured.latencies.iter().map(|(series, _)| series.name()).collect();
    let due = measured.counts.due.is_some();
    // The kernel may not have accounted yet for a worker that never slept.
    let cpu = exact || measured.counts.client_cpu_ns > 0;
    let bodies: Vec<_> = measured.counts.bodies.iter().map(|(hash, _)| hash).collect();
    let numbers = match exact {
        true => format!("{started} {completed} {good} {status:?} {body_bytes}"),
        false => format!("{}", *good > 0),
    };
    let has_marks = measured.marks.len() > 1;
    format!(
        "{numbers}; failed {failed} {errors:?}; {series:?}; due {due}; CPU {cpu}; bodies {bodies:?}; \
         marks {has_marks}"
    )
}

fn planned(row: &Row, to: std::net::SocketAddr) -> LoadPlan {
    let scheme = if row.to == To::Tls { "https" } else { "http" };
    let url = Url::parse(&format!("{scheme}://{to}/")).unwrap();
    let asked = row.spec.clone().try_into().unwrap();
    let mut made = resolve(&asked, &url, Endpoint::Tcp(to), 7).unwrap();
    made.rate = row.stages.map(|text| RateProfile::parse(text).unwrap()).or(made.rate);
    made
}

fn slice(site: &Site, row: &Row, to: std::net::SocketAddr) -> (Measured, bool) {
    let by_requests = row.to != To::Endpoint && row.interval.is_none();
    let stretch = Stretch {
        window: DurationNs::from_ms(if by_requests { 20_000 } else { 60 }),
        requests: by_requests.then_some(REQUESTS),
        interval: row.interval.unwrap_or(Stretch::NONE.interval),
        edges: row.edges,
        ..Stretch::NONE
    };
    let mut load = Load::default();
    let made_by = load.open(&vec![site.clone()], &planned(row, to)).unwrap();
    assert_eq!(made_by.polls, row.spec.idle == Some(Idle::Poll), "{}", row.name);
    let measured = load.slice(stretch).unwrap();
    let life = load.close().unwrap();
    assert!(life.sent >= measured.counts.completed, "{}: {life:?}", row.name);
    (measured, by_requests)
}

#[test]
fn every_option_of_a_load_does_the_same_here_and_elsewhere() {
    let folder = std::env::temp_dir().join(format!("tare-parity-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = TlsServer::from_files(&certificate, &key).unwrap();
    let (plain, tls, net) = (target(false, None), target(false, Some(tls)), endpoint());
    let http2 = target(true, None);
    let rows = table(&folder, certificate, key);
    let set: BTreeSet<&str> =
        rows.iter().flat_map(|row| options_set(&row.spec)[0].clone()).collect();
    assert_eq!(set, options_set(&LoadSpec::default())[1], "every option is in the table");

    let (here, there) = (here(), There::new("there"));
    for row in &rows {
        let to = match row.to {
            To::Plain => plain.listens.clone(),
            To::Http2 => http2.listens.clone(),
            To::Tls => tls.listens.clone(),
            To::Endpoint => Endpoint::Tcp(net.listens),
        };
        let Endpoint::Tcp(to) = to else { unreachable!("all listen on TCP") };
        let seen = [&here, &there.site].map(|site| {
            let (measured, exact) = slice(site, row, to);
            facts(&measured, exact)
        });
        assert_eq!(seen[0], seen[1], "{}", row.name);
        if row.to != To::Endpoint && row.interval.is_none() {
            assert!(
                seen[0].starts_with(&format!("{REQUESTS} {REQUESTS} {REQUESTS} ")),
                "{}",
                seen[0]
            );
        }
        let probes = [&here, &there.site].map(|site| {
            let mut load = Load::default();
            let probe = load.ask(&vec![site.clone()], &planned(row, to)).unwrap().unwrap();
            (serde_json::to_string(&probe).unwrap(), load.take_sent() >= 2)
        });
        assert_eq!(probes[0], probes[1], "{}", row.name);
    }
    there.end();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn servers_are_started_metered_and_ended_alike() {
    let (here, there) = (here(), There::new("there"));
    let seen = [&here, &there.site].map(|site| {
        let busy = "echo one; echo two; while :; do :; done";
        let launch_spec = shell(busy);
        let start = Start { who: "busy".into(), launch_spec, cpus: vec![0], cgroup: None };
        let server = site.ask(start).unwrap();
        let meter = site.ask(Attach { target: Metered::Server(server) }).unwrap();
        // Attached again, the meter keeps its number.
        assert_eq!(site.ask(Attach { target: Metered::Server(server) }), Ok(meter));
        assert_eq!(site.ask(Processes { meter }).unwrap().len(), 1);
        let before = site.ask(Read { meter }).unwrap();
        let rows = || {
            let (from, interval) =
                (monotonic_now() + DurationNs::from_ms(5), DurationNs::from_ms(10));
            site.set_clock().unwrap();
            let from = site.clock().there(from);
            site.ask(Sample { meters: vec![meter], from, interval, times: 4 }).unwrap()
        };
        let mut row = rows().remove(0);
        // Another process may have the CPU for that long.
        while row[3].cpu_ns == row[0].cpu_ns {
            row = rows().remove(0);
        }
        assert!(row.iter().enumerate().all(|(at, reading)| reading.ns >= at as u64 * 10_000_000));
        assert_eq!(row[3].threads.len(), 1);
        let after = site.ask(Read { meter }).unwrap();
        let used = after.counters.unwrap().since(before.counters.unwrap());
        assert!(used.cpu_ns() > 0 && after.threads[0][0] > before.threads[0][0]);
        assert!(site.ask(ReadFootprint { meter }).unwrap().rss_bytes.unwrap() > 0);
        let quiet = Quiet {
            time: DurationNs::from_ms(2),
            cpu_ns: 0,
            look: DurationNs::from_us(250),
            limit: DurationNs::from_ms(50),
        };
        while site.ask(Logged { server }).unwrap() != (2, 8) {
            std::thread::yield_now();
        }
        assert_eq!(site.ask(IsAlive { server }), Ok(true));
        let pid = site.ask(Processes { meter }).unwrap()[0];
        tare_io::process::PidFd::new(pid).unwrap().signal(libc::SIGSTOP).unwrap();
        let stopped = || site.ask(Quiesce { meters: vec![meter], quiet }).unwrap();
        while !stopped() {}
        site.ask(AskToStop { server }).unwrap();
        tare_io::process::PidFd::new(pid).unwrap().signal(libc::SIGCONT).unwrap();
        while site.ask(IsAlive { server }).unwrap() {
            std::thread::yield_now();
        }
        let how = site.ask(HowItEnded { server }).unwrap();
        let logged = site.ask(Stop { server }).unwrap();
        let gone = site.ask(Read { meter }).is_err() && site.ask(IsAlive { server }).is_err();
        let lines = site.ask(Lines { path: "/proc/self/status".into() }).unwrap().is_some();
        let page = site.ask(Page { address: (LOCALHOST, 1).into(), path: "/".into() }).unwrap();
        format!("{how:?} {logged:?} {gone} {lines} {page:?}")
    });
    assert_eq!(seen[0], seen[1]);
    assert!(seen[0].contains("signal: 15"), "{}", seen[0]);
    there.end();
}

#[test]
fn a_server_that_ends_by_itself_is_heard_of_at_once_here_and_there() {
    let halt = Halt::default();
    let on_end = halt.on_end();
    let (events, _unheard) = channel();
    let here = Site::Here(Arc::new(Executor::new(ExecutorPlan {
        on_end: Arc::new(move |_, name| on_end(name)),
        stop: Arc::default(),
        events,
        journal: None,
        own_group: None,
        ends_orphans: false,
    })));
    let there = There::new("there");
    for (site, halt) in [(&here, &halt), (&there.site, &there.halt)] {
        let start = |script: &str| {
            let (who, launch_spec) = ("it".to_owned(), shell(script));
            site.ask(Start { who, launch_spec, cpus: Vec::new(), cgroup: None }).unwrap()
        };
        // A server that was asked to end does not halt the run.
        let asked = start("exec sleep 100");
        site.ask(Stop { server: asked }).unwrap();
        assert_eq!(halt.reason(), None);
        let server = start("echo one; echo two >&2; exit 7");
        while halt.reason().is_none() {
            std::thread::yield_now();
        }
        assert_eq!(halt.reason(), Some(HaltReason::ServerEnded));
        assert_eq!(site.ask(IsAlive { server }), Ok(false));
        let how = site.ask(HowItEnded { server }).unwrap().unwrap();
        assert!(how.starts_with(" (exit status: 7); its last output:\n    "), "{how}");
        site.ask(Stop { server }).unwrap();
    }
    there.end();
}

#[test]
fn requests_of_different_handles_do_not_wait_for_each_other() {
    let (target, there) = (target(false, None), There::new("there"));
    let Endpoint::Tcp(to) = target.listens.clone() else { unreachable!("it listens on TCP") };
    let plan = planned(&row("long", To::Plain, LoadSpec::default()), to);
    let stretch = Stretch { window: DurationNs::from_secs(20), ..Stretch::NONE };
    let client = vec![there.site.clone()];
    let mut load = Load::default();
    load.open(&client, &plan).unwrap();
    std::thread::scope(|scope| {
        let slice = scope.spawn(|| load.slice(stretch));
        // All of this runs during a slice of 20 s.
        let meter = there.site.ask(Read { meter: 77.into() });
        assert!(meter.unwrap_err().to_string().contains("nothing of that number"));
        let probe = Load::default().ask(&client, &plan).unwrap().unwrap();
        assert_eq!(probe.status, 200);
        let other = Row { interval: None, ..row("beside", To::Plain, LoadSpec::default()) };
        assert_eq!(self::slice(&there.site, &other, to).0.counts.good, REQUESTS);
        assert!(there.site.ask(ReadClocks {}).unwrap().unix_ns > 0);
        assert!(!slice.is_finished());
        there.stream.shutdown(std::net::Shutdown::Both).unwrap();
        let error = slice.join().unwrap().unwrap_err();
        assert!(matches!(error, Failure { fault: Fault::Environment, .. }), "{error:?}");
        assert!(error.to_string().starts_with("there: the place is gone"), "{error}");
    });
}

#[test]
fn several_clients_make_one_load() {
    let target = target(false, None);
    let Endpoint::Tcp(to) = target.listens.clone() else { unreachable!("it listens on TCP") };
    for n in [2u32, 8] {
        let all: Vec<There> =
            (0..n).map(|client| There::new(&format!("client {client}"))).collect();
        let clients: Vec<Site> = all.iter().map(|there| there.site.clone()).collect();
        let spec = LoadSpec { connections: Some(11), threads: Some(1), ..LoadSpec::default() };
        for rate in [None, Some(2000.0)] {
            let plan = planned(&row("several", To::Plain, LoadSpec { rate, ..spec.clone() }), to);
            let mut load = Load::default();
            let made_by = load.open(&clients, &plan).unwrap();
            assert_eq!(made_by.clients, n as usize);
            let stretch = Stretch {
                // A client may begin late by a share of this.
                window: DurationNs::from_secs(600),
                requests: Some(REQUESTS + 3),
                ..Stretch::NONE
            };
            let measured = load.slice(stretch).unwrap();
            let counts = &measured.counts;
            assert_eq!((counts.started, counts.good), (REQUESTS + 3, REQUESTS + 3));
            assert_eq!(measured.latencies[0].1.count(), REQUESTS + 3, "all samples are in it");
            let together = counts.together.as_ref().unwrap();
            assert_eq!((together.clients.len(), together.skews_ns.len()), (n as usize, 1));
            let (least, most) = together.spread();
            assert_eq!(most - least, 1, "as even as can be");
            let life = load.close().unwrap();
            assert_eq!(life.sent, REQUESTS + 3);
            assert_eq!(life.replies.len(), 11, "connections are divided, none is lost");
        }
        all.into_iter().for_each(There::end);
    }
}

#[test]
fn a_client_that_dies_in_its_slice_is_named() {
    let target = target(false, None);
    let Endpoint::Tcp(to) = target.listens.clone() else { unreachable!("it listens on TCP") };
    let all = ["first", "second"].map(There::new);
    let clients: Vec<Site> = all.iter().map(|there| there.site.clone()).collect();
    let plan = planned(&row("two", To::Plain, LoadSpec::default()), to);
    let mut load = Load::default();
    load.open(&clients, &plan).unwrap();
    let stretch = Stretch { window: DurationNs::from_ms(500), ..Stretch::NONE };
    let error = std::thread::scope(|scope| {
        let slice = scope.spawn(|| load.slice(stretch));
        // The slice is under way once the first client replies to another request.
        all[0].site.ask(ReadClocks {}).unwrap();
        all[1].stream.shutdown(std::net::Shutdown::Both).unwrap();
        slice.join().unwrap().unwrap_err()
    });
    assert!(error.to_string().starts_with("second: the place is gone"), "{error}");
    let [first, _second] = all;
    first.end();
}

#[test]
fn every_request_is_documented() {
    let text = std::fs::read_to_string("../../docs/agent.md").unwrap();
    for name in Request::NAMES {
        let mut snake = String::new();
        for c in name.chars() {
            if c.is_uppercase() && !snake.is_empty() {
                snake.push('_');
            }
            snake.extend(c.to_lowercase());
        }
        assert!(text.contains(&format!("`{snake}`")), "docs/agent.md does not tell of {snake}");
    }
}
