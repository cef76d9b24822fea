//! `tare net` and experiments with it: mistakes, and servers that are not endpoints.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use tare_report::sweep::cells::Sweep;
use tare_target::endpoint::{EndpointPlan, Loss};

use crate::endpoints::{PAIR, TESTS, check_counts, endpoint, net, plan, stranger};
use crate::runs::Desk;
use crate::util::{str, tare};

#[test]
fn mistakes_are_told_in_one_line() {
    let (_endpoint, address) = endpoint(plan());
    let fails = |args: &[&str], code: i32, message: &str| {
        let all: Vec<&str> = ["net"].iter().chain(args).copied().collect();
        tare(&all).fails(code, message);
    };
    fails(&[&address, "tcp_lat"], 2, "'tcp_lat' is not a test; choose among tcp_rr, tcp_crr");
    fails(&[&address, "-m", "1:2"], 2, "'1:2' is not a size or loop; write 64, 4K");
    fails(&[&address, "-m", "5M"], 2, "tcp_rr: messages of 5242880 bytes: 1 to 4194304");
    fails(&[&address, "udp_rr", "-m", "64K"], 2, "1 to 65507 are allowed");
    fails(&[&address, "udp_rr", "--reply", "5"], 2, "datagrams come back as they are");
    fails(&[&address, "tcp_stream", "--reply", "5"], 2, "a stream has no replies");
    fails(&[&address, "tcp_stream_reverse", "--rate", "5"], 2, "leave out rate");
    fails(&[&address, "-d", "10ms"], 2, "--duration 10ms: with 10 rounds, write 100ms or more");
    fails(&["127.0.0.1:0"], 2, "is not where an endpoint can be");
    fails(&["http://localhost/"], 2, "is not where an endpoint can be");
    fails(&["127.0.0.1:1"], 4, "127.0.0.1:1: connection refused");
    fails(&["--serve", "--listen", &address], 3, "Address already in use");
    fails(&["--serve", &address], 2, "cannot be used with");
    fails(&["--serve", "--loss", "2"], 2, "write a share, 0 to 1");
    fails(&[], 2, "HOST");
}

#[test]
fn every_test_carries_whole_messages_and_checks_what_comes() {
    let (_endpoint, address) = endpoint(plan());
    let args = [&TESTS[..], &["-m", "100", "--rounds", "2", "-d", "400ms"]].concat();
    let report = net(&address, &args);
    assert_eq!(report.cells.len(), TESTS.len());
    report.cells.iter().for_each(check_counts);
}

#[test]
fn datagrams_that_are_lost_end_no_test() {
    let loss = Loss { share: 0.3, seed: 3 };
    let (_endpoint, address) = endpoint(EndpointPlan { loss, ..plan() });
    let args =
        ["tcp_rr", "udp_rr", "udp_stream", "--timeout", "50ms", "--rounds", "3", "-d", "900ms"];
    for cell in net(&address, &args).cells {
        assert!(cell.messages > 0 && cell.rounds == 3, "{cell:?}");
        assert!(cell.lost == 0 || cell.lost_share() < 1.0, "{cell:?}");
    }
    let (_endpoint, address) =
        endpoint(EndpointPlan { loss: Loss { share: 1.0, seed: 3 }, ..plan() });
    let ran = tare(&[&["net", &address][..], &args].concat());
    assert_eq!(ran.code, Some(4), "{}", ran.story());
    assert!(ran.stdout.contains("failed: udp_rr 1 B"), "{}", ran.story());
}

/// Other servers that listen there, and answer nothing, or something else.
#[test]
fn what_is_no_endpoint_is_told_from_one() {
    let (listener, address) = stranger();
    let deaf = std::thread::spawn(move || {
        // Accepts, reads, and closes: what HTTP servers do with a greeting.
        for stream in listener.incoming().take(2).flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
    tare(&["net", &address, "tcp_stream"]).fails(4, "it is not tare net --serve of this version");
    let _ = TcpStream::connect(&address);
    deaf.join().unwrap();
    let (listener, address) = stranger();
    std::thread::spawn(move || {
        // The load opens another connection for each that fails.
        for stream in listener.incoming().take(1_000_000).flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let args = ["net", &address, "tcp_rr", "--timeout", "300ms", "--rounds", "2", "-d", "20ms"];
    tare(&args).fails(4, "the message does not hold what it should");
}

/// Each start of the server writes a line.
#[test]
fn cells_of_a_sweep_share_launches() {
    let desk = Desk::new("shared");
    let (log, own) = (desk.folder.file("starts"), env!("CARGO_BIN_EXE_tare"));
    let command = format!("echo >> {}; exec {own} target --listen {{address}}:{{port}}", str(&log));
    let pair = PAIR.replace("net = {}", &format!("command = \"{command}\""));
    let toml = format!("name = \"s\"\n[sweep]\nconnections = [1, 2, 3]\n{pair}");
    let path = desk.file("shared.toml", &toml);
    let json = desk.tare(&["run", str(&path), "-q", "--json", "-"]).measured().stdout;
    let sweep: Sweep = serde_json::from_str(&json).unwrap();
    assert_eq!(sweep.cells.len(), 3);
    let starts = std::fs::read_to_string(&log).unwrap().lines().count();
    assert_eq!(starts, 2 * 5, "two variants, five rounds, however many cells");
}

#[test]
fn mistakes_in_experiments_name_their_line() {
    let desk = Desk::new("net-mistakes");
    let fails = |head: &str, code: i32, message: &str| {
        let path = desk.file("wrong.toml", &format!("name = \"n\"\n{head}{PAIR}"));
        desk.tare(&["run", str(&path), "-q"]).fails(code, message);
    };
    fails("", 2, "an endpoint of net answers no HTTP: give load.test or load.call");
    fails("[load]\ntest = \"tcp\"\n", 2, "wrong.toml:3: ");
    fails("[load]\ncall = \"getpit\"\n", 2, "'getpit' is not a call that tare makes");
    fails("[load]\nmessage_bytes = 5\n", 2, "message_bytes goes with a test of the network");
    fails("[load]\ntest = \"udp_rr\"\nmessage_bytes = 70000\n", 2, "1 to 65507 are allowed");
    fails("[load]\ntest = \"tcp_rr\"\nnew_connections = true\n", 2, "there is tcp_crr");
    fails("[load]\ntest = \"tcp_rr\"\ncall = \"getpid\"\n", 2, "choose one");
    fails("[sweep]\ntest = [\"tcp\"]\n", 2, "wrong.toml:3: sweep: test = tcp: 'tcp' is not a test");
    fails("[sweep]\ntest = [5]\n", 2, "sweep: test = 5: 5 is not a word");
    fails("[sweep]\nrate = [\"fast\"]\n", 2, "sweep: rate = fast: 'fast' is not a number");
    fails("[sweep]\nmessage_bytes = \"1:2\"\n", 2, "sweep: message_bytes: '1:2' is not a size");
    fails("[sweep]\nmessage_bytes = true\n", 2, "write a list of values, or sizes as");
    let path = desk.file("kind.toml", &format!("name = \"n\"\n[load]\ntest = \"tcp_rr\"\n{PAIR}"));
    let text = std::fs::read_to_string(&path).unwrap().replace("net = {}", "target = {}");
    let path = desk.file("kind.toml", &text);
    desk.tare(&["run", str(&path)]).fails(2, "load.test and load.call need a server of kind net");
    let text = text.replace("target = {}", "net = { loss = 3.0 }");
    let path = desk.file("kind.toml", &text);
    desk.tare(&["run", str(&path)]).fails(2, "net: loss = 3: write a share, 0 to 1");
}
