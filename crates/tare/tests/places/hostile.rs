//! Hostile servers and agents: memory stays bounded, nothing hangs, and nothing that they send
//! reaches the terminal as a command.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tare_io::process::{PidFd, signal};
use tare_io::{DurationNs, Endpoint};
use tare_lab::Halt;
use tare_lab::agent::Agent;
use tare_lab::agent::protocol::PROTOCOL;
use tare_lab::lab::load::Load;
use tare_lab::lab::site::Site;
use tare_lab::world::MakeLoad as _;
use tare_load::Stretch;
use tare_load::resolve;
use tare_model::load::Load as Asked;
use tare_model::url::Url;

use crate::flood::{Flood, PEAK_KB_MAX};
use crate::runs::{BRIEF, Desk};
use crate::util::{command, own, peak_kb_of, peak_of, str};

/// Endless replies, for each way to frame a body, and endless heads.
fn floods() -> [(&'static str, Flood); 6] {
    let chunk = [b"10000\r\n".to_vec(), vec![b'x'; 0x10000], b"\r\n".to_vec()].concat();
    let header = format!("X-{}: {}\r\n", "a".repeat(100), "b".repeat(8000));
    [
        (
            "4 GB",
            Flood::of("HTTP/1.1 200 OK\r\nContent-Length: 4294967296\r\n\r\n", vec![b'x'; 65536]),
        ),
        ("chunks", Flood::of("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk)),
        ("until close", Flood::of("HTTP/1.1 200 OK\r\n\r\n", vec![b'x'; 65536])),
        ("headers", Flood::of("HTTP/1.1 200 OK\r\n", header.into_bytes())),
        ("one header", Flood::of("HTTP/1.1 200 OK\r\nX: ", vec![b'x'; 65536])),
        ("interim", Flood::of("", b"HTTP/1.1 100 Continue\r\n\r\n".repeat(1000))),
    ]
}

#[test]
fn replies_without_end_take_no_memory() {
    let desk = Desk::new("hostile-replies");
    let script = desk.file(
        "bodies.lua",
        "function response(status, headers, body) if #body > 1e8 then os.exit(9) end end",
    );
    for (kind, flood) in &floods() {
        let url = flood.url();
        let check = |what: &str, args: &[&str]| {
            let (ran, peak_kb) = peak_of(&mut desk.command(args));
            let story = ran.story();
            assert!(peak_kb <= PEAK_KB_MAX, "{what}, {kind}: {peak_kb} kB: {story}");
            assert!(matches!(ran.code, Some(0 | 4)), "{what}, {kind}: {story}");
            ran
        };
        let other = format!("b={url}");
        let args = ["compare", &url, &other, "-q", "--max-time", "1s", "--timeout", "1s"];
        let told = check("compare", &[&args[..], &BRIEF[..]].concat());
        assert_eq!(told.code, Some(4), "{kind}: {}", told.story());
        check("load", &["load", &url, "-c", "20", "-d", "1s", "--timeout", "1s"]);
        let args = ["wrk", "-c20", "-t2", "-d2s", "--timeout", "2s", "-s", str(&script), &url];
        check("wrk", &args);
    }
}

/// Endless answers to greetings, orders and questions.
#[test]
fn an_endpoint_without_end_takes_no_memory() {
    for forever in [vec![0; 65536], vec![0xff; 65536], b"tarenet2".repeat(8192)] {
        let flood = Flood::of("", forever);
        let address = flood.address.to_string();
        for test in ["tcp_rr", "tcp_crr", "tcp_stream", "tcp_stream_reverse"] {
            let args = ["net", &address, test, "-d", "200ms", "--rounds", "2", "--timeout", "1s"];
            let mut command = own();
            let (ran, peak_kb) = peak_of(command.args(args));
            assert!(peak_kb <= PEAK_KB_MAX, "{test}: {peak_kb} kB");
            assert!(matches!(ran.code, Some(0 | 4)), "{test}: {}", ran.story());
        }
    }
}

/// The agent that makes load in places, at the end of a pipe.
#[test]
fn agents_take_no_memory_for_replies_without_end() {
    for (kind, flood) in &floods() {
        let mut child = command(tare_lab::places::agent_file::find().unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (from, to) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
        let (events, _heard) = std::sync::mpsc::channel();
        let stream = (Box::new(from) as _, Box::new(to) as _);
        let (limit, halt) = (DurationNs::from_secs(10), Halt::default());
        let agent = Arc::new(Agent::connect(kind, stream, None, &events, limit, &halt).unwrap());
        let sites = vec![Site::There(agent.clone())];
        let url = Url::parse(&format!("http://{}/", flood.address)).unwrap();
        let asked =
            Asked { connections: 20, timeout: DurationNs::from_secs(1), ..Asked::default() };
        let plan = resolve(&asked, &url, Endpoint::Tcp(flood.address), 1).unwrap();
        let mut load = Load::default();
        assert!(load.ask(&sites, &plan).unwrap().is_err(), "{kind}: no whole reply comes");
        load.open(&sites, &plan).unwrap();
        let stretch = Stretch { window: DurationNs::from_ms(500), ..Stretch::NONE };
        assert_eq!(load.slice(stretch).unwrap().counts.good, 0, "{kind}");
        load.close().unwrap();
        let peak_kb = peak_kb_of(child.id()).unwrap();
        agent.end();
        child.wait().unwrap();
        assert!(peak_kb <= PEAK_KB_MAX, "{kind}: {peak_kb} kB");
    }
}

/// An ssh host with an agent that answers every question with the same word, and starts nothing.
#[test]
fn an_agent_that_says_yes_to_everything_does_not_keep_a_run() {
    for word in ["null", "1", "true", "[]"] {
        let (code, told) = run_with_agent_that_says(word);
        assert!(told.contains("its agent's answer is not understood"), "{word}: {told}");
        assert_eq!((code, told.lines().count()), (Some(3), 1), "{word}: {told}");
    }
}

fn run_with_agent_that_says(word: &str) -> (Option<i32>, String) {
    let desk = Desk::new("hostile-agent");
    let version = env!("CARGO_PKG_VERSION");
    let script = format!(
        "for last; do :; done\ncase \"$last\" in\n\
         'uname -sm') echo Linux x86_64;;\n\
         *'cat >'*) cat >/dev/null;;\n\
         exec*) echo '{{\"tare\":{PROTOCOL},\"hello\":{{\"version\":\"{version}\"}}}}'\n\
         while read -r line; do\n\
         id=$(printf %s \"$line\" | sed 's/.*\"id\":\\([0-9]*\\).*/\\1/')\n\
         echo \"{{\\\"tare\\\":{PROTOCOL},\\\"done\\\":{{\\\"id\\\":$id,\\\"value\\\":{word}}}}}\"\n\
         done;;\nesac\n"
    );
    let toml = "name = \"x\"\n[load]\nconnections = 1\ntimeout = \"1s\"\n\
                [stop]\nmax_time = \"5s\"\n[server.web]\ncommand = \"true {port}\"\n\
                ready_within = \"2s\"\n\
                [[variant]]\nname = \"a\"\nserver = \"web\"\nbaseline = true\n\
                place = { ssh = { host = \"h\", address = \"127.0.0.1\" } }\n\
                [[variant]]\nname = \"b\"\nserver = \"web\"\n\
                place = { ssh = { host = \"h\", address = \"127.0.0.1\" } }\n";
    let path = desk.file("agent.toml", toml);
    let mut command = desk.command(&["run", str(&path), "-q"]);
    command
        .env("PATH", desk.path_with("ssh", &script))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let ended = PidFd::new(child.id()).unwrap().wait_timeout(DurationNs::from_secs(60));
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(ended, "it waits for ever: {told}");
    (output.status.code(), told)
}

#[test]
fn a_body_that_a_script_is_to_see_has_a_limit_and_over_it_a_name() {
    let desk = Desk::new("hostile-bodies");
    let script = desk.file("bodies.lua", "function response(status, headers, body) end");
    let body = vec![b'x'; 3 << 20];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let body = body.clone();
            std::thread::spawn(move || {
                let mut request = [0; 4096];
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                while stream.read(&mut request).is_ok_and(|n| n > 0)
                    && stream.write_all(head.as_bytes()).is_ok()
                    && stream.write_all(&body).is_ok()
                {}
            });
        }
    });
    let wrk = |most: &str| {
        let args = ["wrk", "-c1", "-t1", "-d1s", "-s", str(&script), "--max-body", most, &url];
        desk.tare(&args)
    };
    assert!(!wrk("4M").success().stdout.contains("Socket errors"));
    let over = wrk("2M");
    assert!(over.stdout.contains("Socket errors: connect 0, read "), "{}", over.story());
    let words = "reply bodies kept for the script are over 2097152 bytes together (--max-body)";
    assert!(over.stderr.contains(words), "{}", over.story());
    desk.tare(&["wrk", "--max-body", "x", &url]).fails(2, "write bytes, 64K, 256M or 1G");
}

/// Twenty clients that send requests and never read.
#[test]
fn a_target_that_is_asked_by_clients_who_do_not_read_keeps_its_memory() {
    for (path, flags) in [
        ("/stats", &[][..]),
        ("/", &["--body", "1000000"]),
        ("/", &["--slow-head", "1s"]),
        ("/", &["--delay", "10s"]),
    ] {
        let mut command = own();
        command.args(["target", "--listen", "127.0.0.1:0"]).args(flags).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        let address = line.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
        let requests = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").repeat(2000);
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    // 8 MB of requests; on a new connection if the last one was closed.
                    let mut stream = TcpStream::connect(&address).unwrap();
                    for _ in 0..120 {
                        stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
                        if stream.write_all(requests.as_bytes()).is_err() {
                            stream = TcpStream::connect(&address).unwrap();
                        }
                    }
                });
            }
        });
        // Closed connections leave nothing waiting.
        let some = "GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(4000);
        for _ in 0..if flags.contains(&"--delay") { 4000 } else { 0 } {
            let mut stream = TcpStream::connect(&address).unwrap();
            let _ = stream.write_all(some.as_bytes());
        }
        let peak_kb = peak_kb_of(child.id()).unwrap();
        // It still serves clients that read.
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(b"GET /stats HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(reply.contains("\"requests\""), "{reply}");
        assert!(peak_kb <= PEAK_KB_MAX, "{path} {flags:?}: {peak_kb} kB");
    }
}

/// A server with a FIFO as its log, which nobody writes to.
#[test]
fn a_fifo_as_a_log_keeps_nobody_waiting() {
    let desk = Desk::new("hostile-fifo");
    let fifo = desk.folder.file("log");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let own = env!("CARGO_BIN_EXE_tare");
    let toml = format!(
        "name = \"x\"\n[load]\nconnections = 2\n[stop]\nrounds = 2\n[slices]\ncycles = 2\nwindow = \"5ms\"\n\
         [server.web]\ncommand = \"exec {own} target --listen 127.0.0.1:{{port}}\"\n\
         access_log = \"{}\"\n\
         [[variant]]\nname = \"a\"\nserver = \"web\"\nbaseline = true\n\
         [[variant]]\nname = \"b\"\nserver = \"web\"\n",
        fifo.display()
    );
    let path = desk.file("fifo.toml", &toml);
    let mut command = desk.command(&["run", str(&path), "-q"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let ended = PidFd::new(child.id()).unwrap().wait_timeout(DurationNs::from_secs(60));
    let _ = child.kill();
    let status = child.wait().unwrap();
    assert!(ended, "it waits for the other end of the FIFO");
    assert!(status.code().is_some(), "{status}");
}

/// Each child has a separate session; ending them one by one took a tenth of a second each.
#[test]
fn many_children_of_a_server_are_ended_together() {
    let desk = Desk::new("hostile-children");
    let own = env!("CARGO_BIN_EXE_tare");
    let server = |name: &str| {
        format!(
            "--launch={name}=for i in $(seq 100); do setsid sleep 1000 & done; exec {own} target \
             --listen 127.0.0.1:{{port}}"
        )
    };
    let (a, b) = (server("a"), server("b"));
    let brief = ["--rounds", "2", "--slice", "5ms", "--cycles", "2"];
    let args = [&["compare", &a, &b, "-q"], &brief[..]].concat();
    let mut command = desk.command(&args);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let ended = PidFd::new(child.id()).unwrap().wait_timeout(DurationNs::from_secs(30));
    let _ = signal(child.id(), libc::SIGINT);
    assert!(ended && child.wait().unwrap().success());
}
