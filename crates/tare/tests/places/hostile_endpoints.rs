//! Network endpoints and servers that stay silent, and greetings from forged addresses.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tare_io::process::{PidFd, is_root, signal};
use tare_io::{DurationNs, SocketOptions};
use tare_target::endpoint::{EndpointPlan, Loss, NetEndpoint, RemoteControl};
use tare_tidy::skips::not_run;

use crate::runs::Desk;
use crate::util::{Folder, command, str, tare};
use crate::wait::{let_pass, until_it_catches};

fn endpoint(connections_max: u32) -> (NetEndpoint, SocketAddr) {
    let plan = EndpointPlan {
        listen: ([127, 0, 0, 1], 0).into(),
        cpus: Vec::new(),
        sockets: SocketOptions::default(),
        connections_max,
        calls: false,
        obeys: RemoteControl::Nobody,
        delay: DurationNs::ZERO,
        loss: Loss::default(),
    };
    let endpoint = NetEndpoint::start(&plan).unwrap();
    let address = endpoint.listens;
    (endpoint, address)
}

#[test]
fn endpoints_answer_requests_and_never_replies() {
    let (_endpoint, address) = endpoint(8);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut heard = [0; 64];
    for length in [1, 8, 40] {
        let request = vec![0x41; length];
        socket.send_to(&request, address).unwrap();
        let n = socket.recv(&mut heard).unwrap();
        assert_eq!((n, heard[0]), (length, 0xc1), "a reply is marked as one");
        // A reply must not be answered, or two endpoints could be made to answer each other.
        let reply = heard[..n].to_vec();
        socket.send_to(&reply, address).unwrap();
    }
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(socket.recv(&mut heard).is_err(), "a reply was answered: {:?}", &heard[..8]);
}

#[test]
fn greetings_under_false_addresses_take_no_room() {
    let (_endpoint, address) = endpoint(8);
    // Each from a different address, which never reads the reply.
    let mut greeting = [0u8; 32];
    greeting[..8].copy_from_slice(b"tarenet2");
    (greeting[8], greeting[12]) = (2, 64);
    for n in 0..5000u32 {
        let from = SocketAddr::from(([127, 1, (n >> 8) as u8, n as u8], 0));
        let socket = UdpSocket::bind(from).unwrap();
        greeting[24..28].copy_from_slice(&n.to_le_bytes());
        socket.send_to(&greeting, address).unwrap();
        if n % 64 == 0 {
            // Not faster than it reads them: lost greetings prove nothing.
            let_pass(Duration::from_millis(1));
        }
    }
    let args = ["net", &address.to_string(), "udp_stream", "--rounds", "2", "-d", "100ms"];
    tare(&args).success();
}

#[test]
fn connections_that_say_nothing_make_room() {
    let (_endpoint, address) = endpoint(8);
    let idle: Vec<TcpStream> = (0..16).map(|_| TcpStream::connect(address).unwrap()).collect();
    let args = ["net", &address.to_string(), "tcp_rr", "--rounds", "2", "-d", "100ms"];
    tare(&args).success();
    drop(idle);
}

#[test]
fn a_server_that_is_silent_is_asked_in_one_round_only() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let asked = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = asked.clone();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in silent.incoming().flatten() {
            counted.fetch_add(1, Ordering::Relaxed);
            kept.push(stream);
        }
    });
    let ran = tare(&["net", &address, "tcp_rr", "-d", "500ms", "--timeout", "1s"]);
    assert_eq!(ran.code, Some(4), "{}", ran.story());
    let words = "no complete reply within the time limit";
    assert!(ran.stderr.contains(words), "{}", ran.story());
    // One connection, and one to replace it when the reply did not come.
    let asked = asked.load(Ordering::Relaxed);
    assert!(asked <= 3, "{asked} connections: it was asked in several rounds");
}

/// The greeting of a stream waits for a count that never comes.
#[test]
fn ctrl_c_is_heeded_while_a_server_is_silent() {
    let desk = Desk::new("hostile-silent");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let (host, port) = (address.to_string(), address.port().to_string());
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let of_datagrams = datagrams.local_addr().unwrap().to_string();
    let url = format!("http://{host}/");
    let other = format!("b={url}");
    for args in [
        &["load", &url, "--timeout", "100s"][..],
        &["wrk", &url, "--timeout", "100s"],
        &["compare", &url, &other, "--timeout", "100s", "-q"],
        &["net", &host, "tcp_rr", "--timeout", "100s"],
        &["net", &host, "tcp_stream", "--timeout", "100s"],
        &["net", &of_datagrams, "udp_stream"],
        &["qperf", "127.0.0.1", "-lp", &port, "conf"],
    ] {
        let mut command = desk.command(args);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until_it_catches(child.id(), libc::SIGINT);
        // It waits for a reply that does not come; an immediate signal would be too early.
        let_pass(Duration::from_millis(300));
        signal(child.id(), libc::SIGINT).unwrap();
        let ended = PidFd::new(child.id()).unwrap().wait_timeout(DurationNs::from_secs(4));
        let _ = child.kill();
        let status = child.wait().unwrap();
        assert!(ended, "{args:?} is deaf");
        assert_eq!(status.code(), Some(130), "{args:?}");
    }
}

#[test]
fn a_sweep_ends_in_its_first_round_when_its_time_is_over() {
    let desk = Desk::new("hostile-sweep");
    let own = env!("CARGO_BIN_EXE_tare");
    let connections: Vec<String> = (1..=60).map(|n| n.to_string()).collect();
    let toml = format!(
        "name = \"x\"\n[load]\nconnections = 1\n[stop]\nmax_time = \"1s\"\n\
         [sweep]\nconnections = [{}]\n\
         [server.web]\ncommand = \"exec {own} target --listen 127.0.0.1:{{port}}\"\n\
         [[variant]]\nname = \"a\"\nserver = \"web\"\nbaseline = true\n\
         [[variant]]\nname = \"b\"\nserver = \"web\"\n",
        connections.join(", ")
    );
    let path = desk.file("sweep.toml", &toml);
    let told = desk.tare(&["run", str(&path), "-q", "--json", "-"]);
    let sweep: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    let missing = sweep["missing"].as_array().unwrap();
    let (measured, reason) = (sweep["cells"].as_array().unwrap().len(), &missing[0]["reason"]);
    assert!(measured + missing.len() == 60, "{measured}, {}", missing.len());
    assert_eq!(reason, "the time limit came before its first round");
}

#[test]
fn ctrl_c_is_heeded_while_a_name_is_looked_up() {
    if !is_root() {
        not_run("a name server of its own needs root");
        return;
    }
    let folder = Folder::new("hostile-names");
    let silent = UdpSocket::bind("127.77.0.1:53").unwrap();
    let config = folder.file("resolv.conf");
    std::fs::write(&config, "nameserver 127.77.0.1\noptions timeout:30 attempts:5\n").unwrap();
    let script =
        format!("mount --bind {} /etc/resolv.conf && exec \"$0\" \"$@\"", config.display());
    for args in [&["net", "no.such.name"][..], &["load", "http://no.such.name/"]] {
        let mut command = command("unshare");
        command.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_tare")]).args(args);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Once it has sent its query, it is looking up the name.
        silent.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        silent.recv(&mut [0; 512]).unwrap();
        signal(child.id(), libc::SIGINT).unwrap();
        let ended = PidFd::new(child.id()).unwrap().wait_timeout(DurationNs::from_secs(10));
        let _ = child.kill();
        let status = child.wait().unwrap();
        assert!(ended, "{args:?} waits for its name server");
        assert_eq!(status.code(), Some(130), "{args:?}");
        silent.set_nonblocking(true).unwrap();
        while silent.recv(&mut [0; 512]).is_ok() {}
        silent.set_nonblocking(false).unwrap();
    }
}
