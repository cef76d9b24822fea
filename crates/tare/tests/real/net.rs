//! The network and its endpoint: `tare net`, `tare qperf`, the original, and experiments.

use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};

use tare_io::DurationNs;
use tare_report::net::NetReport;
use tare_report::sweep::cells::Sweep;
use tare_target::endpoint::{EndpointPlan, Loss, RemoteControl};

use crate::endpoints::{PAIR, TESTS, check_counts, endpoint, net, plan, stranger};
use crate::runs::Desk;
use crate::util::{own, str, tare};
use crate::wait::{let_pass, until};

const BRIEF: [&str; 4] = ["--rounds", "2", "-d", "100ms"];

#[test]
fn every_test_measures_every_size_and_checks_what_comes() {
    let (_endpoint, address) = endpoint(plan());
    let all: Vec<&str> = TESTS.iter().chain(&BRIEF).chain(&["-m", "1,100,8K"]).copied().collect();
    let report = net(&address, &all);
    assert_eq!(report.cells.len(), 18);
    report.cells.iter().for_each(check_counts);
    let large = ["tcp_rr", "tcp_stream", "tcp_stream_reverse", "-m", "300K,4M"];
    let report = net(&address, &[&large[..], &BRIEF].concat());
    report.cells.iter().for_each(check_counts);
    let datagrams = ["udp_rr", "udp_stream", "-m", "65507"];
    net(&address, &[&datagrams[..], &BRIEF].concat()).cells.iter().for_each(check_counts);
}

#[test]
fn several_connections_and_threads_and_both_reactors_and_an_open_loop() {
    let (_endpoint, address) = endpoint(plan());
    let many = ["-c", "8", "-t", "2"];
    let report = net(&address, &[&TESTS[..], &many, &BRIEF].concat());
    report.cells.iter().for_each(check_counts);
    assert!(report.cells.iter().all(|cell| cell.connections == 8 && cell.threads == 2));
    for reactor in ["epoll", "io_uring"] {
        let report = net(&address, &[&TESTS[..], &BRIEF, &["--reactor", reactor]].concat());
        report.cells.iter().for_each(check_counts);
        assert_eq!(report.cells[0].how, reactor);
    }
    let report = net(&address, &[&["tcp_rr", "udp_stream", "--rate", "500"], &BRIEF[..]].concat());
    for cell in &report.cells {
        assert!(cell.messages > 0 && cell.messages < 200, "500 a second for 100 ms: {cell:?}");
    }
    let options = ["tcp_stream", "--nodelay", "on", "--socket-buffer", "64K"];
    let report = net(&address, &[&options[..], &BRIEF].concat());
    assert_eq!(report.cells[0].nodelay, Some(true));
    assert_eq!(report.cells[0].socket_buffer_bytes, Some(65_536));
    let asymmetric =
        net(&address, &[&["tcp_rr", "-m", "1", "--reply", "5000"], &BRIEF[..]].concat());
    assert_eq!(asymmetric.cells[0].reply_bytes, Some(5000));
}

/// A delay is a lower bound; `bench` measures how far above it this machine is.
#[test]
fn a_known_delay_is_in_every_round_trip_and_loss_is_in_none() {
    let delay = DurationNs::from_ms(3);
    let (_endpoint, address) = endpoint(EndpointPlan { delay, ..plan() });
    let args = ["tcp_rr", "udp_rr", "tcp_crr", "--rounds", "2", "-d", "200ms"];
    for cell in net(&address, &args).cells {
        assert!(cell.latency_ns_p50.unwrap_or(u64::MAX) >= 3_000_000, "{cell:?}");
    }
    let loss = Loss { share: 0.05, seed: 1 };
    let (_endpoint, address) = endpoint(EndpointPlan { loss, ..plan() });
    let args = ["udp_rr", "-c", "50", "--timeout", "400ms", "--rounds", "2", "-d", "2s"];
    let report = net(&address, &args);
    let cell = &report.cells[0];
    let near = |share: f64| (share - 0.05).abs() < 6.0 * (0.05 / cell.sent as f64).sqrt() + 0.01;
    assert!(cell.sent > 500 && near(cell.lost_share()), "{cell:?}");
    assert!(cell.latency_ns_max.unwrap() < 400_000_000, "what is lost has no latency: {cell:?}");
    let report = net(&address, &["udp_stream", "--rate", "2000", "--rounds", "2", "-d", "2s"]);
    let cell = &report.cells[0];
    assert!(cell.lost_share() > 0.02 && cell.lost_share() < 0.12, "{cell:?}");
}

#[test]
fn an_endpoint_outlives_what_strangers_send_it() {
    let (endpoint, address) = endpoint(EndpointPlan { obeys: RemoteControl::Nobody, ..plan() });
    let mut random = tare_io::Random::stream(5, "bad input", 0);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for at in 0..200u64 {
        let length = random.below(80) as usize;
        let mut bytes: Vec<u8> = (0..length).map(|_| random.next_u64() as u8).collect();
        if at % 2 == 0 && length >= 12 {
            // The beginning of a valid greeting.
            bytes[..8].copy_from_slice(b"tarenet2");
            bytes[8] = random.below(9) as u8;
        }
        let mut stream = TcpStream::connect(&address).unwrap();
        let _ = stream.write_all(&bytes);
        let _ = socket.send_to(&bytes, &address);
    }
    // Calls and orders to end were refused, and nothing else stopped the endpoint.
    drop(tare(&["qperf", "127.0.0.1", "-lp", &endpoint.listens.port().to_string(), "conf"]));
    let report = net(&address, &[&["tcp_rr", "udp_rr", "tcp_stream"], &BRIEF[..]].concat());
    report.cells.iter().for_each(check_counts);
}

/// Earlier results are reported, and marked as incomplete.
#[test]
fn an_endpoint_that_dies_ends_the_tests_but_not_the_report() {
    let (endpoint, address) = endpoint(plan());
    let args =
        ["net", &address, "tcp_rr", "tcp_stream", "-d", "4s", "--rounds", "40", "--json", "-"];
    let running = own().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // During its eight seconds.
    let_pass(std::time::Duration::from_millis(1500));
    drop(endpoint);
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let report: NetReport = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report.cells.iter().any(|cell| cell.failed.is_some()), "{report:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1, "{output:?}");
}

/// Parses the output of either program: test, name, number, unit.
fn parsed(text: &str) -> Vec<(String, String, f64, String)> {
    let mut test = String::new();
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_suffix(':').filter(|_| !line.starts_with(' ')) {
            test = name.to_owned();
            continue;
        }
        let (name, value) = line.split_once("  =  ").unwrap_or_else(|| panic!("{line:?}"));
        let value = value.trim();
        let (number, unit) = value.split_once(' ').unwrap_or((value, ""));
        let number: f64 = number.replace(',', "").parse().unwrap_or_else(|_| panic!("{line:?}"));
        found.push((test.clone(), name.trim().to_owned(), number, unit.to_owned()));
    }
    found
}

struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn peer(command: &mut Command, port: u16) -> Peer {
    let null = || Stdio::null();
    let child = command.stdout(null()).stderr(null()).stdin(null()).spawn();
    let child = child.expect("make setup installs qperf");
    until("qperf listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    Peer(child)
}

fn free_port() -> u16 {
    stranger().0.local_addr().unwrap().port()
}

/// Both take the same arguments and print the same format.
#[test]
fn qperf_and_tare_qperf_are_read_by_the_same_reader() {
    let own = env!("CARGO_BIN_EXE_tare");
    let folder = crate::util::Folder::new("qperf");
    let link = folder.file("qperf");
    std::os::unix::fs::symlink(own, &link).unwrap();
    let (theirs, ours) = (free_port(), free_port());
    let _theirs = peer(Command::new("qperf").args(["-lp", &theirs.to_string()]), theirs);
    let _ours = peer(Command::new(&link).args(["-lp", &ours.to_string()]), ours);
    let words = |port: u16, data: u16| {
        let text = format!(
            "127.0.0.1 -lp {port} -ip {data} -t 1 -oo msg_size:1:4K:*64 -vu tcp_lat -e 5 udp_lat \
             -uu udp_bw -oo time:1:1:1 tcp_bw"
        );
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let run = |program: &str, port: u16| {
        crate::util::ran(Command::new(program).args(words(port, free_port()))).success().stdout
    };
    let (theirs, ours) = (run("qperf", theirs), run(str(&link), ours));
    let (theirs, ours) = (parsed(&theirs), parsed(&ours));
    let shape = |all: &[(String, String, f64, String)]| -> Vec<(String, String)> {
        all.iter().map(|(test, name, ..)| (test.clone(), name.clone())).collect()
    };
    assert_eq!(shape(&theirs), shape(&ours));
    for (theirs, ours) in theirs.iter().zip(&ours) {
        let (name, number) = (ours.1.as_str(), ours.2);
        assert!(number > 0.0, "{ours:?}");
        match name {
            // Settings are printed alike, to the digit and the unit.
            "msg_size" | "time" => assert_eq!(theirs, ours),
            // Measured numbers vary, but the kind of unit is the same.
            "latency" => assert!(ours.3.ends_with('s') && theirs.3.ends_with('s'), "{ours:?}"),
            "bw" | "send_bw" | "recv_bw" => assert!(ours.3.ends_with("/sec"), "{ours:?}"),
            _ => assert_eq!(name, "port"),
        }
    }
}

#[test]
fn a_qperf_server_says_what_it_is_and_ends_when_told() {
    let port = free_port();
    let own = env!("CARGO_BIN_EXE_tare");
    let mut server = peer(Command::new(own).args(["qperf", "-lp", &port.to_string()]), port);
    let port = port.to_string();
    let conf = tare(&["qperf", "127.0.0.1", "-lp", &port, "conf"]).success().stdout;
    assert!(conf.starts_with("conf:\n    loc_node   =  "), "{conf}");
    assert!(conf.contains("    loc_qperf  =  tare "), "{conf}");
    let words = ["qperf", "127.0.0.1", "-lp", &port, "-t", "1", "-v", "-ub", "tcp_bw", "quit"];
    let text = tare(&words).success().stdout;
    assert!(text.contains("bits/sec") || text.contains("b/sec"), "{text}");
    assert!(text.contains("msg_rate") && text.ends_with("quit:\n"), "{text}");
    assert!(server.0.wait().unwrap().success());
    tare(&["qperf", "127.0.0.1", "-lp", &port, "tcp_lat"]).fails(4, "connection refused");
    tare(&["qperf", "h", "-q", "tcp_lat"]).fails(2, "-q is not a flag of qperf; supported are -lp");
    tare(&["qperf", "h", "rc_lat"]).fails(2, "rc_lat is not supported: only tcp_bw");
    let large = ["qperf", "127.0.0.1", "-lp", &port, "-m", "256K", "udp_bw"];
    tare(&large).fails(2, "qperf: udp_bw: udp_stream: messages of 262144 bytes: 1 to 65507");
    assert!(tare(&["qperf", "--help"]).success().stdout.contains("-oo VAR:FIRST:LAST:STEP"));
}

#[test]
fn an_experiment_sweeps_tests_and_sizes_on_the_same_launches() {
    let desk = Desk::new("net-sweep");
    let toml = format!(
        "name = \"n\"\n[sweep]\nmessage_bytes = \"1:64:*64\"\ntest = [\"tcp_rr\", \"tcp_stream\", \
         \"udp_rr\"]\n{PAIR}"
    );
    let path = desk.file("sweep.toml", &toml);
    let json = desk.tare(&["run", str(&path), "-q", "--json", "-"]).measured().stdout;
    let sweep: Sweep = serde_json::from_str(&json).unwrap();
    assert_eq!(sweep.cells.len(), 6);
    for cell in &sweep.cells {
        assert_eq!((cell.report.run.rounds, cell.report.variants[0].launches), (5, 5));
        let asked = &cell.report.comparisons.iter().find(|c| c.asked).unwrap().metric;
        let expected = if cell.values["test"] == "tcp_stream" { "bandwidth" } else { "p50" };
        assert_eq!(asked.word(), expected);
    }
    let text = desk.tare(&["run", str(&path), "-q"]).measured().stdout;
    assert!(text.contains("\nMeasured tcp_rr p50, tcp_stream bandwidth, udp_rr p50:\n"), "{text}");
    assert!(text.contains("5 launches a variant, each at 6 values"), "{text}");
}

#[test]
fn calls_are_swept_too_and_one_that_cannot_be_made_has_its_reason() {
    let desk = Desk::new("call-sweep");
    let toml = format!("name = \"c\"\n[sweep]\ncall = [\"getpid\", \"fork\"]\n{PAIR}");
    let path = desk.file("calls.toml", &toml);
    let json = desk.tare(&["run", str(&path), "-q", "--json", "-"]).measured().stdout;
    let sweep: Sweep = serde_json::from_str(&json).unwrap();
    for cell in &sweep.cells {
        let own = &cell.report.variants[0].metrics["system_call_ns"];
        assert!(own.point > 1.0 && own.n == 5, "{own:?}");
    }
    // An endpoint without --calls refuses them; its other tests still work.
    let (_endpoint, address) = endpoint(plan());
    let pair = PAIR.replace("net = {}", &format!("url = \"http://{address}/\""));
    let toml = format!("name = \"c\"\n[load]\ncall = \"getpid\"\n{pair}");
    let path = desk.file("refused.toml", &toml);
    desk.tare(&["run", str(&path), "-q"]).fails(4, "does not serve this (calls need --calls)");
}
