//! Guards, provoked by real load. Those that only another machine could provoke (`steal`, and
//! `littles-law`, which is impossible) are tested in tare-guards on made-up rounds.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tare_report::load::guards::Severity;
use tare_report::run::{RunGuard, RunReport};
use tare_stats::Verdict;
use tare_tidy::skips::not_run;

use crate::runs::{BRIEF, Desk, between, guard, launches, no_guard, read, voids};
use crate::util::str;

#[test]
fn failed_requests() {
    let report = between("resets", "", "--reset-rate 0.05 --seed 3", &[]);
    voids(&report, "errors", "requests (");
    assert!(guard(&report, "errors").text.contains("failed (reset "), "{:#?}", report.guards);
    assert!(report.variant("b").unwrap().errors["reset"] > 0);
}

#[test]
fn somebody_else_talks_to_the_server() {
    let desk = Desk::new("others");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let stop = done.clone();
    let other = std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            if let Ok(mut stream) = TcpStream::connect(port) {
                let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
                let _ = stream.read_to_end(&mut Vec::new());
            }
        }
    });
    let report = desk.run(&format!(
        "name = 'others'\n[load]\nconnections = 2\n[stop]\nrounds = 5\n\
         [slices]\nwindow = '20ms'\ncycles = 2\n[server.a]\ntarget = {{}}\n\
         [server.b]\ntarget = {{}}\nurl = 'http://{port}/'\n\
         [[variant]]\nname = 'a'\nserver = 'a'\n[[variant]]\nname = 'b'\nserver = 'b'\n"
    ));
    done.store(true, Ordering::Relaxed);
    other.join().unwrap();
    voids(&report, "count-mismatch", "where ");
}

#[test]
fn a_server_that_closes_after_a_hundred_requests() {
    let report = between("reconnects", "", "--close-after 100", &[]);
    let found = guard(&report, "reconnects");
    assert!(found.text.contains("one for every ") && found.severity == Severity::Warn, "{found:?}");
    assert_eq!(found.variant.as_deref(), Some("b"));
}

#[test]
fn a_rate_that_cannot_be_reached() {
    let report = between("rate", "", "--service-time 2ms", &["--rate", "2000"]);
    // On a busy machine the other variant may miss it too.
    let of_b = |guard: &&RunGuard| guard.variant.as_deref() == Some("b");
    let missed = report.guards.iter().filter(of_b).find(|guard| guard.code == "rate-missed");
    let missed = missed.unwrap_or_else(|| panic!("{:?}", report.guards));
    assert!(missed.text.contains("of the requests due were answered in time"), "{missed:?}");
    assert!(report.comparisons.iter().all(|c| c.verdict == Verdict::Void), "{report:#?}");
}

/// Keeps a CPU fully busy until dropped.
struct Spinner(Child);

impl Spinner {
    fn on(cpu: usize) -> Self {
        let script = "while :; do :; done";
        let child = Command::new("taskset")
            .args(["-c", &cpu.to_string(), "sh", "-c", script])
            .stdin(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_neighbour_that_takes_cpu_and_a_client_that_lacks_it() {
    let cpus = tare_io::system::allowed_cpus();
    let (Some(first), Some(last)) = (cpus.first(), cpus.last()) else { panic!("no CPU") };
    let load = last.to_string();
    let _neighbours = [Spinner::on(*last), Spinner::on(*last)];
    let desk = Desk::new("noisy");
    let [a, b] = launches("", "");
    let servers = first.to_string();
    let report = desk.compare(&[
        &a,
        &b,
        "--rate",
        "2000",
        "-c",
        "64",
        "--cpus",
        &load,
        "--server-cpus",
        &servers,
        "--rounds",
        "4",
        "--slice",
        "100ms",
        "--cycles",
        "2",
    ]);
    let noisy = guard(&report, "noisy");
    assert!(noisy.text.contains("other processes used ") && noisy.variant.is_none(), "{noisy:?}");
    let bound = guard(&report, "client-bound");
    assert!(bound.text.contains("though connections were free"), "{bound:?}");
}

#[test]
fn a_server_under_a_cpu_quota() {
    let group = format!("/sys/fs/cgroup/cpu/tare-test-{}", std::process::id());
    let quota = format!("{group}/cpu.cfs_quota_us");
    if std::fs::create_dir(&group).is_err() || std::fs::write(&quota, "5000").is_err() {
        let _ = std::fs::remove_dir(&group);
        not_run("needs root and the cpu controller of control groups version 1");
        return;
    }
    let desk = Desk::new("quota");
    let [a, b] = launches("--busy 20us", "--busy 20us");
    let b = b.replacen("exec ", &format!("echo $$ >{group}/cgroup.procs; exec "), 1);
    let mut args = vec![a.as_str(), b.as_str(), "-c", "4"];
    args.extend(BRIEF);
    let report = desk.compare(&args);
    std::fs::remove_dir(&group).unwrap();
    let found = guard(&report, "throttled");
    assert_eq!(found.variant.as_deref(), Some("b"));
    assert!(found.text.starts_with("a CPU quota stopped its server in "), "{found:?}");
}

#[test]
fn a_server_that_logs_each_request() {
    let desk = Desk::new("chatty");
    let report = desk.run(
        "name = 'log'\n[load]\nconnections = 4\n[stop]\nrounds = 4\n\
         [slices]\nwindow = '5ms'\ncycles = 2\n\
         [server.a]\nnginx = {}\n[server.b]\nnginx = { access_log = true }\n\
         [[variant]]\nname = 'a'\nserver = 'a'\n[[variant]]\nname = 'b'\nserver = 'b'\n",
    );
    let found = guard(&report, "chatty");
    assert_eq!(found.variant.as_deref(), Some("b"));
    assert!(found.text.contains("log lines per request, the baseline's 0.00"), "{found:?}");
    no_guard(&report, "count-mismatch");
}

#[test]
fn sessions_that_are_not_resumed_though_asked() {
    let desk = Desk::new("resumed");
    let folder = desk.folder.0.display();
    std::fs::set_permissions(&desk.folder.0, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let certificate = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    desk.file("cert.pem", &certificate.cert.pem());
    desk.file("key.pem", &certificate.signing_key.serialize_pem());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    desk.file(
        "own.conf",
        &format!(
            "user root; error_log stderr; pid {folder}/pid; events {{}}\n\
             http {{ access_log off; ssl_session_tickets off; ssl_session_cache off;\n\
             ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem;\n\
             server {{ listen {port} ssl; location / {{ return 200 hello; }} }} }}\n"
        ),
    );
    let report = desk.run(&format!(
        "name = 'tls'\n[load]\nconnections = 4\nnew_connections = true\ntls_resume = true\n\
         insecure = true\n[stop]\nrounds = 4\n[slices]\nwindow = '50ms'\ncycles = 2\n\
         [server.a]\ntarget = {{ tls = true }}\n\
         [server.b]\nnginx = {{ config = 'own.conf' }}\nurl = 'https://{port}/'\n\
         [[variant]]\nname = 'a'\nserver = 'a'\n\
         [[variant]]\nname = 'b'\nserver = 'b'\nmay_differ = ['body', 'headers', 'tls']\n"
    ));
    let found = guard(&report, "resumed");
    assert_eq!(found.variant.as_deref(), Some("b"), "{:#?}", report.guards);
    assert!(found.text.contains("were full although resumption was requested"), "{found:?}");
}

/// Runs tare with a setup script in a separate network namespace; `None` if that is forbidden.
fn in_namespace(desk: &Desk, setup: &str, args: &[&str]) -> Option<RunReport> {
    let probe = Command::new("unshare").args(["-n", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        not_run("needs root for a network namespace");
        return None;
    }
    let mut command = Command::new("unshare");
    let script = format!("ip link set lo up && {setup} && exec \"$@\"");
    command
        .args(["-n", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_tare")])
        .args(["compare", "--json", "-", "-q"])
        .args(args)
        .env("XDG_DATA_HOME", &desk.folder.0)
        .env_remove("TARE_STORE");
    // If all ports are used up, the run fails and still reports.
    Some(read(crate::util::ran(&mut command)))
}

#[test]
fn segments_that_are_lost() {
    let desk = Desk::new("retransmits");
    let pair = launches("--body 60000", "--body 60000");
    let mut args: Vec<&str> = pair.iter().map(String::as_str).collect();
    args.extend(["--rounds", "3", "--slice", "100ms", "--cycles", "2", "-c", "20"]);
    // Bursts of twenty replies do not fit the queue of a slow link.
    let setup = "tc qdisc add dev lo root tbf rate 200mbit burst 64kb limit 128kb";
    let Some(report) = in_namespace(&desk, setup, &args) else { return };
    let found = guard(&report, "retransmits");
    assert!(found.text.starts_with("the kernel retransmitted "), "{found:?}");
}

#[test]
fn ports_that_run_out() {
    let desk = Desk::new("ports");
    let (a, b) = ("python3 server.py {port}", "python3 server.py {port}");
    // It lets the client close first, so that ports of the client stay in TIME_WAIT.
    let script = desk.file(
        "server.py",
        "import socket, sys\ns = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n\
         while True:\n    c, _ = s.accept()\n    c.recv(4096)\n    \
         c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok')\n    c.recv(1)\n    c.close()\n",
    );
    let at = |text: &str| text.replace("server.py", str(&script));
    let (a, b) = (format!("--launch=a={}", at(a)), format!("--launch=b={}", at(b)));
    let args = [
        a.as_str(),
        b.as_str(),
        "--new-connections",
        "-c",
        "2",
        "--rounds",
        "2",
        "--slice",
        "100ms",
        "--cycles",
        "2",
    ];
    let setup = "sysctl -qw net.ipv4.ip_local_port_range='40000 40999'";
    let Some(report) = in_namespace(&desk, setup, &args) else { return };
    let of_ports = report.guards.iter().filter(|guard| guard.code == "ports");
    let says = |text: &str| of_ports.clone().any(|guard| guard.text.contains(text));
    assert!(says("of the local ports were in use; widen"), "{:#?}", report.guards);
    // Requests failed for lack of a port; that is reported for each variant.
    assert!(says("the local ports for this destination are used up"), "{:#?}", report.guards);
}

#[test]
fn connections_that_a_server_is_too_slow_to_accept() {
    let desk = Desk::new("drops");
    let script = desk.file(
        "server.py",
        "import socket, sys\ns = socket.socket()\n\
         s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n\
         s.bind(('127.0.0.1', int(sys.argv[1])))\ns.listen(1)\n\
         while True:\n    c, _ = s.accept()\n    c.recv(4096)\n    \
         c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok')\n    c.close()\n",
    );
    let launch = |name: &str| format!("--launch={name}=python3 {} {{port}}", str(&script));
    let report = desk.compare(&[
        &launch("a"),
        &launch("b"),
        "--new-connections",
        "-c",
        "40",
        "--rounds",
        "2",
        "--slice",
        "20ms",
        "--cycles",
        "2",
    ]);
    let found = guard(&report, "listen-drops");
    assert!(found.text.contains("accepted too slowly"), "{found:?}");
}

#[test]
fn a_server_that_becomes_slower_with_every_launch() {
    let desk = Desk::new("unstable");
    let count = desk.file("count", "0");
    let tare = env!("CARGO_BIN_EXE_tare");
    // Each launch takes 0.3 ms longer per request than the one before.
    let b = format!(
        "--launch=b=n=$(($(cat {0})+1)); echo $n >{0}; exec {tare} target \
         --listen 127.0.0.1:{{port}} --service-time $((1000+n*300))us",
        count.display()
    );
    let [a, _] = launches("--service-time 1ms", "");
    let report =
        desk.compare(&[&a, &b, "--rounds", "20", "--slice", "20ms", "--cycles", "1", "-c", "4"]);
    let found = guard(&report, "unstable");
    assert!(found.text.contains("its ratio of throughput falls from round to round"), "{found:?}");
}

#[test]
fn a_server_that_is_of_two_kinds() {
    let desk = Desk::new("modes");
    let count = desk.file("count", "0");
    let tare = env!("CARGO_BIN_EXE_tare");
    let b = format!(
        "--launch=b=n=$(($(cat {0})+1)); echo $n >{0}; exec {tare} target \
         --listen 127.0.0.1:{{port}} --service-time $((1+4*(n%2)))ms",
        count.display()
    );
    let [a, _] = launches("--service-time 1ms", "");
    let report =
        desk.compare(&[&a, &b, "--rounds", "20", "--slice", "40ms", "--cycles", "1", "-c", "4"]);
    let found = guard(&report, "unstable");
    assert!(found.text.contains("its rounds have two modes in throughput"), "{found:?}");
}

#[test]
fn a_server_that_stalls_now_and_then_does_not_look_free() {
    let desk = Desk::new("pauses");
    let [a, b] = launches("--service-time 1ms", "--service-time 1ms --stall 170ms --every 900ms");
    let report =
        desk.compare(&[&a, &b, "--rounds", "8", "--slice", "20ms", "--cycles", "20", "-c", "4"]);
    let found = guard(&report, "pauses");
    assert!(found.text.contains("its overhead in throughput is +"), "{found:?}");
}

#[test]
fn a_quiet_pair_trips_no_guard_that_voids() {
    let report = between("quiet", "", "", &[]);
    assert!(
        report.guards.iter().all(|guard| guard.severity != Severity::Void),
        "{:#?}",
        report.guards
    );
}
