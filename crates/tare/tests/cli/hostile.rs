//! Servers, endpoints and files of strangers: memory stays bounded, nothing hangs, and nothing that
//! they say reaches the terminal as a command.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tare_io::process::{Watched, is_root, signal};
use tare_io::{DurationNs, SocketOptions};
use tare_lab::agent::protocol::PROTOCOL;
use tare_target::endpoint::{EndpointPlan, Loss, NetEndpoint, Obeys};

use crate::runs::{BRIEF, Desk, launches, read};
use crate::util::{Folder, peak_kb_of, peak_of, ran, str, tare};

/// What any command may take, whoever it speaks to.
const PEAK_KB_MAX: u64 = 256 << 10;

/// A server that says the same to everybody, and goes on for as long as anybody listens.
struct Flood {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl Flood {
    fn of(head: &'static str, forever: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (own, forever) = (stop.clone(), Arc::new(forever));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (own, forever) = (own.clone(), forever.clone());
                if own.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::spawn(move || flood(stream, head, &forever, &own));
            }
        });
        Self { address, stop }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

fn flood(mut stream: TcpStream, head: &str, forever: &[u8], stop: &AtomicBool) {
    let mut request = [0; 4096];
    let _ = stream.set_write_timeout(Some(Duration::from_millis(200)));
    while stream.read(&mut request).is_ok_and(|n| n > 0)
        && stream.write_all(head.as_bytes()).is_ok()
    {
        while !forever.is_empty() && !stop.load(Ordering::Relaxed) {
            match stream.write(forever) {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

/// Replies without end, in each of the ways in which a body can be framed, and heads.
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

/// Answers to greetings, orders and questions that never end.
#[test]
fn an_endpoint_without_end_takes_no_memory() {
    for forever in [vec![0; 65536], vec![0xff; 65536], b"tarenet2".repeat(8192)] {
        let flood = Flood::of("", forever);
        let address = flood.address.to_string();
        for test in ["tcp_rr", "tcp_crr", "tcp_stream", "tcp_stream_reverse"] {
            let args = ["net", &address, test, "-d", "200ms", "--rounds", "2", "--timeout", "1s"];
            let mut command = Command::new(env!("CARGO_BIN_EXE_tare"));
            let (ran, peak_kb) = peak_of(command.args(args));
            assert!(peak_kb <= PEAK_KB_MAX, "{test}: {peak_kb} kB");
            assert!(matches!(ran.code, Some(0 | 4)), "{test}: {}", ran.story());
        }
    }
}

/// What loads in places, on the end of a pipe.
#[test]
fn agents_take_no_memory_for_replies_without_end() {
    use std::io::{BufRead, BufReader};
    for (kind, flood) in &floods() {
        let mut child = Command::new(tare_lab::places::agent_file::find().unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lane = serde_json::json!({
            "to": {"tcp": flood.address}, "protocol": "http", "nodelay": true,
            "buffer_bytes": null, "bind": [], "connections": 20, "max_connections": 20,
            "new_connections": false, "tls": null, "timeout_ns": 1_000_000_000u64,
            "expected": {"ranges": [[200, 299]]}, "batch_max": 1, "linger_ns": 0, "spin_ns": 0,
            "request": "R0VUIC8gSFRUUC8xLjENCkhvc3Q6IHgNCg0K", "rate_per_s": null,
            "poisson": false, "workers": 1, "cpus": [], "reactor": null, "tls_resume": false,
            "seed": 1
        });
        let stretch = serde_json::json!({
            "ramp_ns": 0, "window_ns": 500_000_000u64, "requests": null, "on_replies": false
        });
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut line = || out.next().unwrap().unwrap();
        assert!(line().contains("hello"));
        let mut to = child.stdin.take().unwrap();
        for (id, order) in [
            serde_json::json!({"probe": {"order": lane}}),
            serde_json::json!({"open": {"lanes": [lane]}}),
            serde_json::json!({"slice": {"lane": 0, "stretch": stretch}}),
        ]
        .into_iter()
        .enumerate()
        {
            let message = serde_json::json!({"tare": PROTOCOL, "id": id + 1, "do": order});
            writeln!(to, "{message}").unwrap();
            let answer = line();
            assert!(answer.contains("\"done\""), "{kind}: {answer}");
        }
        let peak_kb = peak_kb_of(child.id()).unwrap();
        drop(to);
        child.wait().unwrap();
        assert!(peak_kb <= PEAK_KB_MAX, "{kind}: {peak_kb} kB");
    }
}

/// An ssh host whose agent says yes to everything, and starts nothing.
#[test]
fn an_agent_that_says_yes_to_everything_does_not_keep_a_run() {
    let desk = Desk::new("hostile-agent");
    let bin = desk.folder.file("bin");
    std::fs::create_dir(&bin).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let script = format!(
        "#!/bin/sh\nfor last; do :; done\ncase \"$last\" in\n\
         'uname -sm') echo Linux x86_64;;\n\
         *'cat >'*) cat >/dev/null;;\n\
         exec*) echo '{{\"tare\":{PROTOCOL},\"hello\":{{\"version\":\"{version}\"}}}}'\n\
         while read -r line; do\n\
         id=$(printf %s \"$line\" | sed 's/.*\"id\":\\([0-9]*\\).*/\\1/')\n\
         echo \"{{\\\"tare\\\":2,\\\"done\\\":{{\\\"id\\\":$id,\\\"value\\\":null}}}}\"\n\
         done;;\nesac\n"
    );
    let ssh = bin.join("ssh");
    std::fs::write(&ssh, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&ssh, mode).unwrap();
    let toml = "name = \"x\"\n[load]\nconnections = 1\ntimeout = \"1s\"\n\
                [stop]\nmax_time = \"5s\"\n[server.web]\ncommand = \"true {port}\"\n\
                ready_within = \"2s\"\n\
                [[variant]]\nname = \"a\"\nserver = \"web\"\nbaseline = true\n\
                place = { ssh = { host = \"h\", address = \"127.0.0.1\" } }\n\
                [[variant]]\nname = \"b\"\nserver = \"web\"\n\
                place = { ssh = { host = \"h\", address = \"127.0.0.1\" } }\n";
    let path = desk.file("agent.toml", toml);
    let paths = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", bin.display());
    let mut command = desk.command(&["run", str(&path), "-q"]);
    command.env("PATH", paths).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let ended = Watched::new(child.id()).unwrap().ends_within(DurationNs::from_secs(60));
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(ended, "it waits for ever: {told}");
    assert!(told.contains("no good reply in time"), "{told}");
    assert_eq!(output.status.code(), Some(3), "{told}");
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

#[test]
fn lengths_that_say_two_things_are_a_defect() {
    for (head, words) in [
        ("Content-Length: 2\r\nContent-Length: 2", "two content-lengths, 2 and 2"),
        ("Content-Length: 2\r\nContent-Length: 3", "two content-lengths, 2 and 3"),
        ("Content-Length: 2\r\nTransfer-Encoding: chunked", "both content-length and chunked"),
    ] {
        let head: &'static str = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\nhi").leak();
        let flood = Flood::of(head, Vec::new());
        let ran = tare(&["load", &flood.url(), "-n", "2", "-c", "1", "-d", "5s"]);
        assert_eq!(ran.code, Some(4), "{}", ran.story());
        assert!((ran.stdout.clone() + &ran.stderr).contains(words), "{}", ran.story());
    }
}

/// Twenty clients that ask and never read.
#[test]
fn a_target_that_is_asked_by_clients_who_do_not_read_keeps_its_memory() {
    for (path, flags) in [
        ("/stats", &[][..]),
        ("/", &["--body", "1000000"]),
        ("/", &["--slow-head", "1s"]),
        ("/", &["--delay", "10s"]),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tare"));
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
                    // 8 MB of them, on another connection where the last one was ended.
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
        // Connections that have gone leave nothing behind that waits.
        let some = "GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(4000);
        for _ in 0..if flags.contains(&"--delay") { 4000 } else { 0 } {
            let mut stream = TcpStream::connect(&address).unwrap();
            let _ = stream.write_all(some.as_bytes());
        }
        let peak_kb = peak_kb_of(child.id()).unwrap();
        // It still serves those who read.
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

#[test]
fn imports_take_time_and_memory_by_their_length() {
    let desk = Desk::new("hostile-import");
    let long_json = format!("[{}0]", "0,".repeat((8 << 20) / 2 - 10));
    let nested = "[".repeat(1 << 20);
    let points = "metric_name,timestamp,metric_value,scenario\n".to_owned()
        + &(0..300)
            .map(|n| format!("http_req_duration,1,{n},s{n}\nhttp_reqs,1,1,s{n}\n"))
            .collect::<String>();
    for (name, text) in [
        ("blank.md", "\n".repeat(1_900_000)),
        ("blanks.md", "\n".repeat(4 << 20)),
        ("words.md", "Host\n\n".repeat(600_000)),
        ("fences.md", "```\n{\n".repeat(400_000)),
        ("zeros.json", long_json),
        ("nested.json", nested),
        ("line.md", "x".repeat(60 << 20)),
        ("scenarios.csv", points),
        (
            "names.csv",
            format!(
                "metric_name,timestamp,metric_value,scenario\nhttp_reqs,1,1,{}\n",
                "n".repeat(60_000)
            ),
        ),
    ] {
        let path = desk.file(name, &text);
        let (ran, peak_kb) = peak_of(&mut desk.command(&["import", str(&path), "--dry-run"]));
        ran.fails(2, name);
        assert!(peak_kb <= PEAK_KB_MAX, "{name}: {peak_kb} kB");
    }
}

/// Hundreds of outputs that are each as long as one may be.
#[test]
fn what_imports_keep_is_bounded_in_all() {
    let desk = Desk::new("hostile-kept");
    let long = format!("    {}\n", "x".repeat(290)).repeat(380);
    let output = format!(
        "Running 10s test @ http://h/\n  2 threads and 10 connections\n  Thread Stats   Avg      \
         Stdev     Max   +/- Stdev\n    Latency     1.00ms    1.00ms  10.00ms   90.00%\n    \
         Req/Sec     5.00k     1.00k   10.00k    90.00%\n{long}  100000 requests in 10.00s, \
         80.00MB read\nRequests/sec:  10000.00\nTransfer/sec:      8.00MB\n\n"
    );
    let path = desk.file("fill.txt", &output.repeat(500));
    let html = desk.folder.file("r.html");
    let args = ["import", str(&path), "--html", str(&html), "--json", "-"];
    let (ran, peak_kb) = peak_of(&mut desk.command(&args));
    assert!(peak_kb > 1000 && peak_kb <= PEAK_KB_MAX, "{peak_kb} kB");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[test]
fn a_body_nobody_could_hold_is_refused_when_it_is_read() {
    let desk = Desk::new("hostile-body-bytes");
    for server in ["nginx = { body_bytes = 4294967295 }", "httpd = { body_bytes = 4294967295 }"] {
        let toml = format!(
            "name = \"x\"\n[load]\nconnections = 1\n[server.web]\n{server}\n\
             [[variant]]\nname = \"a\"\nserver = \"web\"\nbaseline = true\n\
             [[variant]]\nname = \"b\"\nserver = \"web\"\n"
        );
        let path = desk.file("large.toml", &toml);
        desk.tare(&["run", str(&path), "-q"]).fails(2, "at most 67108864 (64 MiB)");
    }
}

#[test]
fn headers_with_line_ends_are_refused_when_they_are_read() {
    let desk = Desk::new("hostile-headers");
    for (load, variant) in [
        ("headers = [\"A: b\\r\\nX: y\"]", ""),
        ("", "headers = [\"A: b\\n\\nGET /admin HTTP/1.1\"]"),
    ] {
        let toml = format!(
            "name = \"x\"\n[load]\nconnections = 1\n{load}\n[server.web]\nnginx = {{}}\n\
             [[variant]]\nname = \"a\"\nserver = \"web\"\nbaseline = true\n\
             [[variant]]\nname = \"b\"\nserver = \"web\"\n{variant}\n"
        );
        let path = desk.file("headers.toml", &toml);
        let told = desk.tare(&["run", str(&path), "--dry-run"]);
        told.fails(2, "write it without control characters");
    }
}

/// A server whose log is a FIFO that nobody writes to.
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
    let ended = Watched::new(child.id()).unwrap().ends_within(DurationNs::from_secs(60));
    let _ = child.kill();
    let status = child.wait().unwrap();
    assert!(ended, "it waits for the other end of the FIFO");
    assert!(status.code().is_some(), "{status}");
    // One that the user names is waited for as other programs do, and Ctrl-C ends that.
    for args in
        [&["import", str(&fifo)][..], &["run", str(&fifo)], &["wrk", "-s", str(&fifo), "http://h/"]]
    {
        let mut command = desk.command(args);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::park_timeout(Duration::from_millis(100));
        signal(child.id(), libc::SIGINT).unwrap();
        let ended = Watched::new(child.id()).unwrap().ends_within(DurationNs::from_secs(10));
        let _ = child.kill();
        child.wait().unwrap();
        assert!(ended, "{args:?} is deaf");
    }
}

fn endpoint(connections_max: u32) -> (NetEndpoint, SocketAddr) {
    let plan = EndpointPlan {
        listen: ([127, 0, 0, 1], 0).into(),
        cpus: Vec::new(),
        sockets: SocketOptions::default(),
        connections_max,
        calls: false,
        obeys: Obeys::Nobody,
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
        // Another endpoint that got this reply under our address would be asked by it.
        let reply = heard[..n].to_vec();
        socket.send_to(&reply, address).unwrap();
    }
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(socket.recv(&mut heard).is_err(), "a reply was answered: {:?}", &heard[..8]);
}

#[test]
fn greetings_under_false_addresses_take_no_room() {
    let (_endpoint, address) = endpoint(8);
    // Each from an address of its own, which never hears what it is told.
    let mut greeting = [0u8; 32];
    greeting[..8].copy_from_slice(b"tarenet2");
    (greeting[8], greeting[12]) = (2, 64);
    for n in 0..5000u32 {
        let from = SocketAddr::from(([127, 1, (n >> 8) as u8, n as u8], 0));
        let socket = UdpSocket::bind(from).unwrap();
        greeting[24..28].copy_from_slice(&n.to_le_bytes());
        socket.send_to(&greeting, address).unwrap();
        if n % 64 == 0 {
            // Not faster than it takes them: what is lost on the way proves nothing.
            std::thread::park_timeout(Duration::from_millis(1));
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
    let words = "not one message came in a whole round (time limit 1s)";
    assert!(ran.stderr.contains(words), "{}", ran.story());
    // One connection, and one in its place when the reply did not come.
    let asked = asked.load(Ordering::Relaxed);
    assert!(asked <= 3, "{asked} connections: it was asked in several rounds");
}

/// The greeting of a stream waits for a count that does not come.
#[test]
fn ctrl_c_is_heeded_while_a_server_is_silent() {
    let desk = Desk::new("hostile-silent");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let (host, port) = (address.to_string(), address.port().to_string());
    let url = format!("http://{host}/");
    let other = format!("b={url}");
    for args in [
        &["load", &url, "--timeout", "100s"][..],
        &["wrk", &url, "--timeout", "100s"],
        &["compare", &url, &other, "--timeout", "100s", "-q"],
        &["net", &host, "tcp_rr", "--timeout", "100s"],
        &["net", &host, "tcp_stream", "--timeout", "100s"],
        &["net", &host, "udp_stream"],
        &["qperf", "127.0.0.1", "-lp", &port, "conf"],
    ] {
        let mut command = desk.command(args);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::park_timeout(Duration::from_millis(300));
        signal(child.id(), libc::SIGINT).unwrap();
        let ended = Watched::new(child.id()).unwrap().ends_within(DurationNs::from_secs(4));
        let _ = child.kill();
        child.wait().unwrap();
        assert!(ended, "{args:?} is deaf");
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
    let told = desk.tare(&["run", str(&path), "-q", "--json", "-"]).success();
    let sweep: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    let missing = sweep["missing"].as_array().unwrap();
    let (measured, reason) = (sweep["cells"].as_array().unwrap().len(), &missing[0]["reason"]);
    assert!(measured >= 1 && measured + missing.len() == 60, "{measured}, {}", missing.len());
    assert_eq!(reason, "the time limit came before its first round");
}

#[test]
fn ctrl_c_is_heeded_while_a_name_is_looked_up() {
    if !is_root() {
        println!("not run: a name server of its own needs root");
        return;
    }
    let folder = Folder::new("hostile-names");
    let silent = UdpSocket::bind("127.77.0.1:53").unwrap();
    let config = folder.file("resolv.conf");
    std::fs::write(&config, "nameserver 127.77.0.1\noptions timeout:30 attempts:5\n").unwrap();
    let script =
        format!("mount --bind {} /etc/resolv.conf && exec \"$0\" \"$@\"", config.display());
    for args in [&["net", "no.such.name"][..], &["load", "http://no.such.name/"]] {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_tare")]).args(args);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Once it has asked, it is looking up.
        silent.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        silent.recv(&mut [0; 512]).unwrap();
        signal(child.id(), libc::SIGINT).unwrap();
        let ended = Watched::new(child.id()).unwrap().ends_within(DurationNs::from_secs(10));
        let _ = child.kill();
        child.wait().unwrap();
        assert!(ended, "{args:?} waits for its name server");
        silent.set_nonblocking(true).unwrap();
        while silent.recv(&mut [0; 512]).is_ok() {}
        silent.set_nonblocking(false).unwrap();
    }
}

const ESCAPES: [char; 4] = ['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}'];

#[track_caller]
fn is_safe(text: &str, what: &str) {
    assert!(!text.contains(ESCAPES), "{what}: {text:?}");
}

#[test]
fn escape_sequences_are_shown_and_not_sent_to_the_terminal() {
    let desk = Desk::new("hostile-escapes");
    let evil = "printf '\\033]0;pwned\\007\\302\\2331m\\342\\200\\256'";
    let dies = format!("--launch=a={evil}; exit 1 {{port}}");
    let told = desk.tare(&["compare", &dies, &dies.replace("=a=", "=b="), "-q"]);
    told.fails(3, "\\u{1b}]0;pwned\\u{7}");
    is_safe(&told.stderr, "an error");
    // What servers say goes into the log of the run.
    let says = format!(
        "--launch=a={evil} >&2; echo >&2; exec {} target --listen 127.0.0.1:{{port}}",
        env!("CARGO_BIN_EXE_tare")
    );
    let pair = launches("", "");
    let mut args = vec!["compare", &says, &pair[1], "-q"];
    args.extend(BRIEF);
    desk.tare(&args).success();
    let events = desk.tare(&["runs", "--events", "last"]).success().stdout;
    assert!(events.contains("\\u{1b}]0;pwned\\u{7}\\u{9b}1m\\u{202e}"), "{events}");
    is_safe(&events, "events");
    // A server's reply, in the words of what is wrong with it.
    let flood = Flood::of("HTTP/1.1 200 OK\r\nContent-Length: \u{9b}31m\u{202e}\r\n\r\n", vec![]);
    let told = tare(&["load", &flood.url(), "-n", "1", "-c", "1", "-d", "5s"]);
    is_safe(&(told.stdout + &told.stderr), "a reply");
    let told = tare(&["load", &flood.url(), "-n", "1", "-c", "1", "-d", "5s", "--json", "-"]);
    is_safe(&told.stdout, "JSON");
    let report: serde_json::Value = serde_json::from_str(&told.stdout).expect("valid JSON");
    assert!(report.to_string().contains('\u{202e}'), "{report}");
}

#[test]
fn names_in_a_strangers_store_are_shown_and_not_sent_to_the_terminal() {
    let desk = Desk::new("hostile-store");
    let pair = launches("", "");
    let mut args = vec!["compare", &pair[0], &pair[1], "-q"];
    args.extend(BRIEF);
    desk.tare(&args).success();
    let path = desk.folder.file("tare/tare.db");
    let store = rusqlite::Connection::open(&path).unwrap();
    let name = "\u{1b}]0;pwned\u{7}\u{9b}1m\u{202e}";
    for (table, column) in [("run", "name"), ("run", "command"), ("variant", "name")] {
        store.execute(&format!("UPDATE {table} SET {column} = {column} || ?1"), [name]).unwrap();
    }
    let json = serde_json::to_string(name).unwrap();
    let quoted = format!("\"a{}\"", &json[1..json.len() - 1]);
    store.execute("UPDATE run SET plan = replace(plan, '\"a\"', ?1)", [&quoted]).unwrap();
    drop(store);
    is_safe(&desk.tare(&["runs"]).success().stdout, "runs");
    for form in ["text", "markdown", "csv", "json", "html", "openmetrics", "fortio-csv", "k6-csv"] {
        let told = desk.tare(&["report", "last", "--format", form]).success();
        is_safe(&told.stdout, form);
        assert!(form == "html" || told.stdout.contains("pwned"), "{form}: {}", told.stdout);
    }
    let report = read(desk.tare(&["report", "last", "--json"]).success());
    assert_eq!(report.variants[0].name, "a\\u{1b}]0;pwned\\u{7}\\u{9b}1m\\u{202e}");
}

#[test]
fn a_strangers_store_cannot_make_reports_compute_or_grow_without_end() {
    let desk = Desk::new("hostile-store-size");
    let pair = launches("", "");
    let mut args = vec!["compare", &pair[0], &pair[1], "-q"];
    args.extend(BRIEF);
    desk.tare(&args).success();
    let own = desk.folder.file("tare/tare.db");
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)";
    for (name, sql, words) in [
        (
            "view",
            format!(
                "DROP TABLE latency; CREATE VIEW latency AS {endless} \
                 SELECT i AS slice, 'x' AS series, '1' AS sum_ns, zeroblob(9) AS histogram FROM n"
            ),
            "not a tare store",
        ),
        (
            "histogram",
            "UPDATE latency SET histogram = zeroblob(60000000)".into(),
            "a histogram cannot be read",
        ),
        ("plan", "UPDATE run SET plan = zeroblob(300000000)".into(), "too big"),
        (
            "elements",
            "UPDATE run SET plan = '[' || replace(hex(zeroblob(1000000)), '00', '\"\",') || '0]'"
                .into(),
            "a value has over 500000 elements",
        ),
        (
            "slices",
            format!(
                "INSERT INTO slice (run, round, cycle, position, variant, window_ns, started, \
                 good, failed, counts) SELECT run, round, 100 + i, position, variant, window_ns, \
                 started, good, failed, counts FROM slice, \
                 ({endless} SELECT i FROM n LIMIT 20000) WHERE id = (SELECT min(id) FROM slice)"
            ),
            "has over 20000 slices",
        ),
        (
            "computed",
            "ALTER TABLE event ADD COLUMN more TEXT AS (printf('%.*c', 60000000, 'x'))".into(),
            "not a tare store",
        ),
    ] {
        let path = desk.folder.file(name);
        std::fs::copy(&own, &path).unwrap();
        rusqlite::Connection::open(&path).unwrap().execute_batch(&sql).unwrap();
        let args = ["report", "last", "--store", str(&path)];
        let (ran, peak_kb) = peak_of(&mut desk.command(&args));
        ran.fails(3, words);
        assert!(peak_kb <= PEAK_KB_MAX, "{name}: {peak_kb} kB");
        let (_, peak_kb) = peak_of(&mut desk.command(&["runs", "--store", str(&path)]));
        assert!(peak_kb <= PEAK_KB_MAX, "{name}: {peak_kb} kB");
    }
}

#[test]
fn how_a_strangers_run_ended_is_one_line() {
    let desk = Desk::new("hostile-end");
    let pair = launches("", "");
    let mut args = vec!["compare", &pair[0], &pair[1], "-q"];
    args.extend(BRIEF);
    desk.tare(&args).success();
    let store = rusqlite::Connection::open(desk.folder.file("tare/tare.db")).unwrap();
    store.execute_batch("UPDATE run SET stopped_by = 'x' || char(10) || 'forged'").unwrap();
    let listed = desk.tare(&["runs"]).success().stdout;
    assert!(listed.contains("x\\nforged") && !listed.contains("\nforged"), "{listed}");
}

/// What the first rounds found is no word of an experiment, and must fit the plan it goes on with.
#[test]
fn findings_that_do_not_fit_are_refused() {
    let desk = Desk::new("hostile-found");
    let [a, b] = launches("", "");
    desk.tare(&["compare", &a, &b, "--rounds", "1", "-q"]).success();
    let resume = ["run", "--resume", "1", "--rounds", "2", "-q"];
    for found in [
        r#"{"window":"20ms","ramp":"2ms","warmup":"20ms","warm":[]}"#,
        r#"{"window":"9000h","ramp":"2ms","warmup":"20ms"}"#,
        r#"{"window":"20ms"}"#,
        "no JSON",
    ] {
        let store = rusqlite::Connection::open(desk.folder.file("tare/tare.db")).unwrap();
        let changed = store.execute("UPDATE found SET found = ?1", [found]).unwrap();
        assert_eq!(changed, 1, "one run found something");
        drop(store);
        desk.tare(&resume).fails(3, "found");
    }
    let toml = "name = \"x\"\n[slices]\nfound = {}\n";
    let path = desk.file("found.toml", toml);
    desk.tare(&["run", str(&path), "-q"]).fails(2, "unknown key 'found'");
}

#[test]
fn numbers_without_their_unit_are_told_so() {
    let desk = Desk::new("units");
    for (table, wanted) in [
        ("[stop]\nmax_time = 20", "20 has no unit: write \"20s\""),
        ("[stop]\nprecision = 3", "3 has no unit: write \"3%\""),
        ("[slices]\nwarmup = 1.5", "1.5 has no unit: write \"1.5s\""),
    ] {
        let toml = format!("name = \"x\"\n{table}\n[[variant]]\nname = \"a\"\nserver = \"a\"\n");
        desk.tare(&["run", str(&desk.file("unit.toml", &toml))]).fails(2, wanted);
    }
}

/// Each in a session of its own; waiting for one after another took a tenth of a second each.
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
    let ended = Watched::new(child.id()).unwrap().ends_within(DurationNs::from_secs(30));
    let _ = signal(child.id(), libc::SIGINT);
    assert!(ended && child.wait().unwrap().success());
}

/// It says that it is longer than any disk.
#[test]
fn a_sparse_log_is_not_read_for_hours() {
    let desk = Desk::new("hostile-sparse");
    let own = env!("CARGO_BIN_EXE_tare");
    let log = desk.folder.file("log");
    std::fs::File::create(&log).unwrap().set_len(15 << 40).unwrap();
    let toml = format!(
        "name = \"x\"\n[load]\nconnections = 2\n[stop]\nrounds = 2\n\
         [slices]\ncycles = 2\nwindow = \"5ms\"\n\
         [server.web]\ncommand = \"exec {own} target --listen 127.0.0.1:{{port}}\"\n\
         access_log = \"{}\"\n\
         [[variant]]\nname = \"a\"\nserver = \"web\"\nbaseline = true\n\
         [[variant]]\nname = \"b\"\nserver = \"web\"\n",
        log.display()
    );
    let path = desk.file("sparse.toml", &toml);
    let mut command = desk.command(&["run", str(&path), "-q"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let ended = Watched::new(child.id()).unwrap().ends_within(DurationNs::from_secs(120));
    let _ = child.kill();
    child.wait().unwrap();
    assert!(ended, "it reads on and on");
}

#[test]
fn a_store_that_may_only_be_read_is_reported() {
    if !is_root() {
        println!("not run: a mount that is read-only needs root");
        return;
    }
    let desk = Desk::new("hostile-read-only");
    let pair = launches("", "");
    let mut args = vec!["compare", &pair[0], &pair[1], "-q", "--json", "-"];
    args.extend(BRIEF);
    let first = read(desk.tare(&args).success());
    let folder = desk.folder.file("tare");
    let script = format!(
        "mount --bind {0} {0} && mount -o remount,ro,bind {0} && exec \"$0\" \"$@\"",
        folder.display()
    );
    let on_read_only = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_tare")]).args(args);
        ran(command.env("XDG_DATA_HOME", &desk.folder.0).env_remove("TARE_STORE"))
    };
    let again = read(on_read_only(&["report", "last", "--json"]).success());
    assert_eq!(again, first);
    let listed = on_read_only(&["runs"]).success().stdout;
    assert!(listed.contains(&first.run.name), "{listed}");
    let mut more = vec!["compare", &pair[0], &pair[1], "-q"];
    more.extend(BRIEF);
    assert_eq!(on_read_only(&more).code, Some(3));
}
