//! Places beside each other, and after they end: nothing is left, and nobody else can reach them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tare_io::process::{PidFd, signal};
use tare_io::{DurationNs, Random};
use tare_lab::agent::protocol::{AgentCommand, PROTOCOL, ToAgent};
use tare_lab::executor::requests::Start;
use tare_lab::launch::spec::LaunchSpec;
use tare_report::run::RunReport;

use crate::left::left_by;
use crate::places::experiment;
use crate::runs::Desk;
use crate::util::{Temporary, can_run, command, not_void, str};
use crate::wait::until;

#[test]
fn two_runs_at_once_do_not_meet() {
    if !can_run("a namespace") {
        return;
    }
    let text = experiment(&[("host", ""), ("netns", "place = \"netns\"\nclient = \"netns\"")]);
    let text = text.replace("rounds = 2", "rounds = 6");
    let desks = [Desk::new("twin-a"), Desk::new("twin-b")];
    let children: Vec<Child> = desks
        .iter()
        .map(|desk| {
            let path = desk.file("twin.toml", &text);
            let mut command = desk.command(&["run", str(&path), "--json", "-", "-q"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut addresses = Vec::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let told = matches!(output.status.code(), Some(0 | 6));
        assert!(told, "{}", String::from_utf8_lossy(&output.stderr));
        let report: RunReport = serde_json::from_slice(&output.stdout).unwrap();
        not_void(&report);
        let proofs = report.variant("netns").unwrap().proofs.join("\n");
        addresses.push(proofs.split("the address ").nth(1).unwrap()[..12].to_owned());
    }
    assert_ne!(addresses[0], addresses[1], "both runs had one range of addresses");
}

/// Planted delays are found, and a place of an earlier launch is never taken for a new one.
#[test]
fn starts_are_timed_from_nothing() {
    if !can_run("a namespace") {
        return;
    }
    let desk = Desk::new("startup");
    let tare = env!("CARGO_BIN_EXE_tare");
    let target = format!("exec {tare} target --listen 127.0.0.1:{{port}}");
    let burn = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done";
    let variant = |name: &str, server: &str, place: &str| {
        format!("[[variant]]\nname = \"{name}\"\nserver = \"{server}\"\n{place}\n")
    };
    let report = desk.run(&format!(
        "name = \"startup\"\n[load]\nconnections = 1\n\
         [stop]\nrounds = 4\nmetrics = [\"startup\"]\n[slices]\nwindow = \"5ms\"\ncycles = 1\n\
         [server.plain]\ncommand = \"{target}\"\n[server.late]\ncommand = \"sleep 0.3; {target}\"\n\
         [server.busy]\ncommand = \"{burn}; {target}\"\n\
         [server.web]\nnginx = {{ workers = 1 }}\n{}{}{}{}",
        variant("plain", "plain", ""),
        variant("late", "late", ""),
        variant("busy", "busy", ""),
        variant("netns", "web", "place = \"netns\"\nmay_differ = [\"headers\", \"body\"]"),
    ));
    let of = |name: &str| report.variant(name).unwrap();
    let startup = |name: &str| of(name).metric(tare_model::Metric::Startup).unwrap();
    let late = startup("late");
    assert!(late.point > 300e6 && late.n == 4, "a sleep takes as long as it says: {late:?}");
    assert!(startup("plain").point < late.point, "{:?}", startup("plain"));
    // One start before the rounds, to see whether it is possible.
    assert_eq!(of("netns").place_launches, 5, "afresh for each launch");
    assert!(startup("netns").point > 0.0);
    // A CPU is busy throughout, with the start or with what it waits for.
    let cpu = of("busy").metric(tare_model::Metric::StartupCpu).unwrap();
    assert!(cpu.point > 0.5 * startup("busy").point, "{cpu:?} of {:?}", startup("busy"));
}

/// Kills runs of an experiment at random moments; after `tare clean` nothing of them is left.
pub fn kill_and_clean(desk: &Desk, path: &Path, kills: u64, left: impl Fn(u32) -> Vec<String>) {
    let mut random = Random::stream(u64::from(std::process::id()), str(path), 0);
    let temporary = Temporary::new();
    for kill in 0..kills {
        let mut command = desk.command(&["run", str(path), "-q"]);
        command.env("TMPDIR", &temporary.0);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        // Most of a run's life is its beginning.
        let most = if kill % 4 == 0 { 9000 } else { 700 };
        let ended =
            PidFd::new(pid).unwrap().wait_timeout(DurationNs::from_ms(5 + random.below(most)));
        let _ = signal(pid, libc::SIGKILL);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!ended, "kill {kill}: it ended by itself: {said}");
        let cleaned = desk.tare(&["clean"]).success();
        assert_eq!(left(pid), Vec::<String>::new(), "kill {kill}: {}", cleaned.story());
        assert_eq!(temporary.left(), Vec::<String>::new(), "kill {kill}: {}", cleaned.story());
        let journal = std::fs::read_dir(desk.folder.file("tare/journal"));
        assert_eq!(journal.map_or(0, Iterator::count), 0, "kill {kill}: {}", cleaned.story());
    }
}

#[test]
fn killed_at_any_moment_places_leave_nothing() {
    if !can_run("a place") {
        return;
    }
    let desk = Desk::new("killed-places");
    let text = experiment(&[
        ("host", "place = { host = { cpus = 1 } }"),
        ("runc", "place = { oci = \"runc\" }\nclient = \"netns\""),
        ("crun", "place = { oci = \"crun\" }"),
        ("gvisor", "place = { oci = \"runsc\" }"),
        ("vm", "place = { vm = { accel = \"tcg\", memory = \"256M\" } }"),
    ]);
    let path = desk.file("killed.toml", &text.replace("rounds = 2", "rounds = 50"));
    kill_and_clean(&desk, &path, 20, |pid| left_by(&[pid]));
}

/// An outsider with a route to the places of this machine.
#[test]
fn nobody_outside_reaches_a_place() {
    if !can_run("a namespace") {
        return;
    }
    let desk = Desk::new("outside");
    let outside = format!("tare-out-{}", std::process::id());
    let link = format!("tout{}", std::process::id() % 100_000);
    let sh = |script: &str| {
        let done = Command::new("sh").args(["-c", script]).output().unwrap();
        (done.status.success(), String::from_utf8_lossy(&done.stdout).into_owned())
    };
    let forwarding = std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap();
    let (made, _) = sh(&format!(
        "set -e; ip netns add {outside}; ip link add {link} type veth peer name eth0 netns {outside}\n\
         ip addr add 10.199.8.1/24 dev {link}; ip link set {link} up\n\
         ip -n {outside} addr add 10.199.8.2/24 dev eth0; ip -n {outside} link set eth0 up\n\
         ip -n {outside} route add 10.213.0.0/16 via 10.199.8.1; echo 1 >/proc/sys/net/ipv4/ip_forward"
    ));
    assert!(made);
    let text = experiment(&[("host", ""), ("runc", "place = { oci = \"runc\" }")]);
    let path = desk.file("outside.toml", &text.replace("rounds = 2", "rounds = 400"));
    let mut command = desk.command(&["run", str(&path), "-q"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Tries every listener in the place, from here and from outside, repeatedly.
    let try_from = |prefix: &str| {
        sh(&format!(
            "n=$(ip netns list | grep -o 'tare-{}-[^ ]*' | head -1); [ -n \"$n\" ] || exit 1\n\
             a=$(ip -n $n -4 -o addr show eth0 | grep -o '10[.0-9]*' | head -1)\n\
             p=$(ip netns exec $n ss -ltnH | grep -o \"$a:[0-9]*\" | head -1); [ -n \"$p\" ] || exit 1\n\
             {prefix} timeout 1 bash -c \"exec 3<>/dev/tcp/${{p%:*}}/${{p#*:}}\" 2>/dev/null && echo reached",
            child.id()
        ))
        .1
        .contains("reached")
    };
    let (mut here, mut there) = (0, 0);
    until("its servers are reached from here", || {
        here += u32::from(try_from(""));
        there += u32::from(try_from(&format!("ip netns exec {outside}")));
        here >= 5 || there > 0
    });
    let _ = signal(child.id(), libc::SIGINT);
    let _ = child.wait();
    std::fs::write("/proc/sys/net/ipv4/ip_forward", forwarding).unwrap();
    sh(&format!("ip link delete {link}; ip netns delete {outside}"));
    assert_eq!(there, 0, "the place was reached from outside");
}

fn agent() -> PathBuf {
    tare_lab::places::agent_file::find().unwrap()
}

#[test]
fn an_agent_follows_only_its_stream() {
    use std::io::Write;
    let start = || {
        let mut command = command(agent());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    for (said, complaint) in [
        (
            "{\"tare\":9,\"id\":1,\"do\":\"stop\"}\n".to_owned(),
            format!("protocol 9 is spoken there, {PROTOCOL} here"),
        ),
        ("hello\n".into(), format!("this is not a message of protocol {PROTOCOL}")),
        (
            format!("{{\"tare\":{PROTOCOL},\"id\":1,\"do\":{{\"ask\":{{\"start\":{{}}}}}}}}\n"),
            "missing field".into(),
        ),
        (String::new(), String::new()),
    ] {
        let mut child = start();
        child.stdin.take().unwrap().write_all(said.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(err.contains(&complaint) && err.lines().count() <= 1, "{err}");
        let greeting = format!("{{\"tare\":{PROTOCOL},\"hello\"");
        assert!(String::from_utf8_lossy(&output.stdout).starts_with(&greeting));
    }
    let words = command(agent()).arg("--help").output().unwrap();
    assert_eq!(words.status.code(), Some(2));
    // Programs that it started end with its stream.
    let mut child = start();
    let marker = format!("77{}", std::process::id());
    let launch_spec = LaunchSpec {
        argv: vec!["/bin/sleep".into(), marker.clone()],
        env: Vec::new(),
        folder: "/tmp".into(),
        files: Vec::new(),
        address: ([127, 0, 0, 1], 1).into(),
        tls: false,
        count: None,
        pages: None,
        companion: None,
        log_files: Vec::new(),
        ready_within_ms: 1000,
        stands: false,
        chooses_port: false,
    };
    let mut stdin = child.stdin.take().unwrap();
    let who = "sleeper".to_owned();
    let start = Start { who, launch_spec: Box::new(launch_spec), cpus: Vec::new(), cgroup: None };
    let message = ToAgent { tare: PROTOCOL, id: 1, word: AgentCommand::Ask(start.into()) };
    writeln!(stdin, "{}", serde_json::to_string(&message).unwrap()).unwrap();
    let running = || {
        tare_lab::machine::processes::all().into_iter().any(|pid| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&command) == format!("/bin/sleep\0{marker}\0")
        })
    };
    until("the agent has started it", running);
    drop(stdin);
    child.wait().unwrap();
    assert!(!running(), "it outlived its agent's stream");
}
