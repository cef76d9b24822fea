//! Real places: namespaces, containers, gVisor, emulated machines.

use std::process::{Command, Stdio};

use tare_io::DurationNs;
use tare_io::process::{PidFd, signal};
use tare_model::Metric;
use tare_report::load::guards::Severity;

use crate::left::proven;
use crate::runs::{Desk, guard};
use crate::util::{can_run, not_void, str};
use crate::wait::{let_pass, until_some};

const HEAD: &str = "name = \"places\"\n[load]\nconnections = 4\nthreads = 1\n[stop]\nrounds = 2\n\
    [slices]\nwindow = \"20ms\"\ncycles = 2\n[server.web]\nnginx = { workers = 1 }\n";

pub fn experiment(variants: &[(&str, &str)]) -> String {
    let tables = variants
        .iter()
        .map(|(name, keys)| format!("[[variant]]\nname = \"{name}\"\nserver = \"web\"\n{keys}\n"));
    HEAD.to_owned() + &tables.collect::<String>()
}

#[test]
fn containers_and_gvisor_serve_and_are_proven() {
    if !can_run("a container") {
        return;
    }
    let desk = Desk::new("places");
    let report = desk.run(&experiment(&[
        ("host", ""),
        ("netns", "place = \"netns\""),
        ("runc", "place = { oci = { runtime = \"runc\", cpus = 1, memory = \"512M\" } }"),
        ("crun", "place = { oci = \"crun\" }"),
        ("gvisor", "place = { oci = \"runsc\" }"),
        ("absent", "place = { oci = \"not-installed\" }\noptional = true"),
    ]));
    not_void(&report);
    proven(&report, "netns", "a network namespace of its own with the address 10.213.");
    proven(&report, "runc", "is running, under this machine's kernel");
    proven(&report, "crun", "is running, under this machine's kernel");
    proven(&report, "gvisor", "under a kernel of its own");
    // Exactly the capabilities that servers need: CHOWN, SETGID, SETUID, KILL and NET_BIND_SERVICE.
    for name in ["runc", "crun", "gvisor"] {
        let proofs = report.variant(name).unwrap().proofs.join("\n");
        assert!(proofs.contains("capabilities 00000000000004e1"), "{proofs}");
    }
    for variant in &report.variants {
        assert!(variant.metric(Metric::ServerCpu).is_some(), "{}", variant.name);
    }
    // A request, a reply, and their acknowledgements.
    let packets = |v: &str| report.variant(v).unwrap().metric(Metric::Packets).map(|e| e.point);
    for name in ["host", "netns", "runc", "crun", "gvisor"] {
        let packets = packets(name).unwrap();
        assert!((1.9..6.0).contains(&packets), "{name}: {packets} packets a request");
    }
    let places: Vec<u32> = report.variants.iter().map(|v| v.place_launches).collect();
    assert_eq!(places, [0, 1, 2, 2, 2], "a container is started afresh each round");
    assert_eq!(report.skipped.len(), 1);
    let reason = &report.skipped[0].reason;
    assert!(reason.contains("no runtime 'not-installed' is installed"), "{reason}");
    assert_eq!(desk.tare(&["clean"]).success().stdout, "nothing was left behind\n");
}

#[test]
fn an_emulated_machine_serves_and_holds_its_own_load() {
    if !can_run("a virtual machine") {
        return;
    }
    let desk = Desk::new("machines");
    let vm = "accel = \"tcg\", cpus = 1, memory = \"384M\"";
    let report = desk.run(&experiment(&[
        ("host", ""),
        ("vm", &format!("place = {{ vm = {{ {vm} }} }}")),
        ("inside", &format!("place = {{ vm = {{ {vm} }} }}\nclient = {{ same_as_server = true }}")),
    ]));
    not_void(&report);
    proven(&report, "vm", "a guest of its own boot");
    proven(&report, "inside", "emulated");
    assert!(guard(&report, "emulated").severity == Severity::Warn);
    assert_eq!(report.variant("inside").unwrap().client, "same as server");
    assert_eq!(report.variant("vm").unwrap().place_launches, 1);
    assert!(report.variant("inside").unwrap().metric(Metric::ServerCpu).is_some());
}

#[test]
fn clients_have_places_too() {
    if !can_run("a client in a namespace") {
        return;
    }
    let desk = Desk::new("clients");
    let report = desk.run(&experiment(&[
        ("host", ""),
        ("from netns", "client = \"netns\""),
        ("from runc", "place = \"netns\"\nclient = { oci = \"runc\" }"),
        ("within runc", "place = { oci = \"runc\" }\nclient = \"same_as_server\""),
    ]));
    not_void(&report);
    proven(&report, "from netns", "client in netns");
    proven(&report, "from runc", "client in runc");
    proven(&report, "within runc", "runc: held");
    // Latencies are the client's own, and none is lost in transfer.
    for variant in &report.variants {
        let p50 = variant.metric(tare_model::Metric::LatencyP50).unwrap().point;
        assert!((1_000.0..1e9).contains(&p50), "{}: {p50}", variant.name);
    }
}

#[test]
fn open_loop_and_tls_go_through_agents() {
    if !can_run("a client in a namespace") {
        return;
    }
    let desk = Desk::new("open");
    let text = experiment(&[("host", ""), ("netns", "place = \"netns\"\nclient = \"netns\"")]);
    let text = text.replace("connections = 4", "connections = 4\nrate = 1000");
    let mut report = desk.run(&text.replace("workers = 1", "workers = 1, tls = true"));
    // A slow machine may miss the rate.
    report.guards.retain(|guard| guard.code != "rate-missed");
    not_void(&report);
    proven(&report, "netns", "client in netns");
    let tls = |name: &str| report.variant(name).unwrap().probe.clone().unwrap().tls;
    assert!(tls("netns").is_some());
    assert_eq!(tls("netns"), tls("host"));
}

/// The example from the design: gVisor with a WebAssembly filter, and one with a controller.
#[test]
fn filters_work_and_are_proven_in_places() {
    if !can_run("a container") {
        return;
    }
    let desk = Desk::new("filters-in-places");
    let text = experiment(&[
        ("host", ""),
        (
            "gvisor wasm",
            "place = { oci = \"runsc\" }\nlayers = [{ filter = \"wasm\", prefix = \"/aaaa\" }]",
        ),
        (
            "runc shm",
            "place = { oci = \"runc\" }\nlayers = [{ filter = \"shm\", prefix = \"/aaaa\" }]",
        ),
    ]);
    let report = desk.run(&text.replace("[load]", "[load]\npath = \"/aaaa\""));
    not_void(&report);
    proven(&report, "gvisor wasm", "filter wasm: held");
    proven(&report, "runc shm", "filter shm: held");
}

/// Commands are counted by their logs, and files that are not tare's are not touched.
#[test]
fn a_command_in_a_place_is_counted_by_its_log() {
    if !can_run("a namespace") {
        return;
    }
    let desk = Desk::new("logs");
    let config = "daemon off; pid {folder}/p; error_log stderr; events {} http { access_log LOG; \
                  keepalive_requests 1000000; server { listen {address}:{port}; return 200 ok; } }";
    let outside = desk.file("outside.log", "a line of somebody's\n");
    let server = |log: &str| {
        let config = config.replace("LOG", log).replace('"', "\\\"");
        format!(
            "command = \"mkdir -p {{folder}} && echo '{config}' >{{folder}}/c && exec nginx -c \
             {{folder}}/c\"\naccess_log = \"{log}\"\n"
        )
    };
    let text = format!(
        "{}[server.inside]\n{}[server.outside]\n{}[[variant]]\nname = \"a\"\nserver = \
         \"inside\"\nplace = \"netns\"\n[[variant]]\nname = \"b\"\nserver = \"outside\"\n",
        HEAD.split_once("[server.web]").unwrap().0,
        server("{folder}/access.log"),
        server(str(&outside)),
    );
    let report = desk.run(&text);
    not_void(&report);
    let kept = std::fs::read_to_string(&outside).unwrap();
    assert!(kept.starts_with("a line of somebody's\n") && kept.lines().count() > 10);
    // If the log is elsewhere, the counts do not agree.
    let report = desk.run(&text.replace("access_log = \"{folder}", "access_log = \"{folder}/x"));
    assert_eq!(guard(&report, "count-mismatch").variant.as_deref(), Some("a"));
}

#[test]
fn a_quota_holds_a_server_up() {
    if !can_run("a quota") {
        return;
    }
    let desk = Desk::new("quota");
    let text = experiment(&[
        ("host", ""),
        ("a tenth", "place = { host = { cpus = 0.1, memory = \"256M\" } }"),
    ]);
    // Longer than the quota's period of 100 ms, in which a server may use its share at once.
    let report = desk.run(&text.replace("window = \"20ms\"", "window = \"400ms\""));
    not_void(&report);
    let ratio = crate::runs::asked(&report).ratio.point;
    assert!(ratio < 0.6, "a tenth of a CPU: {ratio}");
    assert!(guard(&report, "throttled").variant.as_deref() == Some("a tenth"));
}

#[test]
fn httpd_and_targets_serve_in_containers_and_machines() {
    if !can_run("a container") {
        return;
    }
    let desk = Desk::new("other-servers");
    let text = experiment(&[
        ("host", ""),
        ("runc", "place = { oci = \"runc\" }"),
        ("gvisor", "place = { oci = \"runsc\" }"),
        // tare's target is the whole program, which is large if not optimised.
        ("vm", "place = { vm = { accel = \"tcg\", memory = \"1G\" } }"),
    ]);
    for server in ["httpd = { processes = 1, threads = 8 }", "target = { body_bytes = 612 }"] {
        let report = desk.run(&text.replace("nginx = { workers = 1 }", server));
        not_void(&report);
        for name in ["runc", "gvisor", "vm"] {
            proven(&report, name, "held in 2 of 2");
        }
    }
}

/// Returns the processes in the namespace of this tare's first place.
fn in_namespace(tare: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let Some(name) = names.into_iter().find(|name| name.contains(&format!("tare-{tare}-"))) else {
        return Vec::new();
    };
    let listed = Command::new("ip").args(["netns", "pids", &name]).output().unwrap();
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

#[test]
fn a_place_that_dies_or_falls_silent_is_said_so() {
    if !can_run("a namespace") {
        return;
    }
    let desk = Desk::new("gone");
    let text = experiment(&[("host", ""), ("v", "place = \"netns\"")]);
    let path = desk.file("gone.toml", &text.replace("rounds = 2", "rounds = 1000"));
    let run = || {
        let mut command = desk.command(&["run", str(&path), "-q"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let agent = until_some("it is measuring", || {
            assert_eq!(child.try_wait().unwrap(), None);
            // The agent, and its server.
            let own = in_namespace(child.id());
            own.first().copied().filter(|_| own.len() > 2)
        });
        (child, agent)
    };
    let (child, agent) = run();
    signal(agent, libc::SIGKILL).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("v: the place is gone: signal: 9"), "{said}");
    let (child, agent) = run();
    signal(agent, libc::SIGSTOP).unwrap();
    // Long enough for the agent to be missed.
    let_pass(std::time::Duration::from_millis(300));
    let tare = PidFd::new(child.id()).unwrap();
    signal(child.id(), libc::SIGTERM).unwrap();
    assert!(tare.wait_timeout(DurationNs::from_secs(30)), "it waits for an agent that is silent");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    assert_eq!(desk.tare(&["clean"]).success().stdout, "nothing was left behind\n");
}

/// A runtime that is not the one its name says.
#[test]
fn a_runtime_that_is_not_what_was_asked_is_void() {
    if !can_run("a container") {
        return;
    }
    let desk = Desk::new("impostor");
    let runc = tare_lab::machine::programs::find(&["runc"]).unwrap();
    let script = format!(
        "#!/bin/sh\nfor a in \"$@\"; do shift; case \"$a\" in --platform=*) ;; *) set -- \"$@\" \
         \"$a\";; esac; done\nexec {} \"$@\"\n",
        runc.display()
    );
    let path = desk.file("runsc", &script);
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let place = format!("place = {{ oci = \"{}\" }}", str(&path));
    let report = desk.run(&experiment(&[("host", ""), ("fake", &place)]));
    let found = guard(&report, "not-proven");
    assert!(found.text.contains("is not gVisor's"), "{found:?}");
    assert_eq!(found.severity, Severity::Void);
}

#[test]
fn a_runtime_may_be_late_to_know_its_container_but_not_silent() {
    if !can_run("a container") {
        return;
    }
    let desk = Desk::new("late-runtime");
    let crun = tare_lab::machine::programs::find(&["crun"]).unwrap();
    // Like a crun held up before it has written its state; `late` fails only the first time.
    let runtime = |name: &str, asked_before: &str| {
        let folder = desk.folder.file(name);
        std::fs::create_dir(&folder).unwrap();
        let script = format!(
            "#!/bin/sh\ncase \" $* \" in *' state '*) {asked_before} || {{ echo 'no status file' >&2; \
             exit 1; }};; esac\nexec {} \"$@\"\n",
            crun.display()
        );
        let path = folder.join("crun");
        std::fs::write(&path, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
        format!("place = {{ oci = \"{}\" }}", str(&path))
    };
    let asked = desk.folder.file("asked");
    let late = runtime("late", &format!("! mkdir {} 2>/dev/null", str(&asked)));
    let mute = runtime("mute", "false");
    let report = desk.run(&experiment(&[("host", ""), ("late", &late), ("mute", &mute)]));
    assert!(asked.is_dir(), "nobody asked");
    proven(&report, "late", "is running");
    let found = guard(&report, "not-proven");
    assert_eq!(found.variant.as_deref(), Some("mute"), "{found:?}");
    assert!(found.text.contains("its runtime says 'no status file' of it"), "{found:?}");
}

/// Returns variants with endpoints of `tare net` as servers.
pub fn endpoints(load: &str, variants: &[(&str, &str)]) -> String {
    let head = HEAD.replace("threads = 1", &format!("threads = 1\n{load}"));
    let head = head.replace("nginx = { workers = 1 }", "net = {}");
    experiment(variants).replace(HEAD, &head)
}

#[test]
fn endpoints_answer_in_every_place_and_make_calls_there() {
    if !can_run("a place") {
        return;
    }
    let desk = Desk::new("endpoints");
    let variants = [
        ("host", ""),
        ("netns from another", "place = \"netns\"\nclient = \"netns\""),
        ("runc", "place = { oci = \"runc\" }"),
        ("gVisor", "place = { oci = \"runsc\" }"),
        ("VM", "place = \"vm\""),
    ];
    let sweep = |keys: &str, metrics: &[&str]| {
        // An emulated machine is slow beside other tests.
        let toml = endpoints("", &variants).replace("20ms", "150ms") + "[sweep]\n" + keys;
        let path = desk.file("sweep.toml", &toml);
        let json = desk.tare(&["run", str(&path), "-q", "--json", "-"]).measured().stdout;
        let sweep: tare_report::sweep::cells::Sweep = serde_json::from_str(&json).unwrap();
        assert_eq!(sweep.cells.len(), metrics.len(), "{:?}", sweep.missing);
        for (cell, metric) in sweep.cells.iter().zip(metrics) {
            not_void(&cell.report);
            for (name, _) in &variants {
                let value = cell.report.variant(name).unwrap().metrics.get(*metric);
                let label = cell.label();
                assert!(value.is_some_and(|v| v.point > 0.0), "{label}: {name}: {value:?}");
            }
        }
    };
    let tests =
        "test = [\"tcp_rr\", \"tcp_crr\", \"tcp_stream\", \"tcp_stream_reverse\", \"udp_rr\"]\n";
    let (rate, bytes) = ("throughput_per_s", "bandwidth_bytes_per_s");
    sweep(tests, &[rate, rate, bytes, bytes, rate]);
    sweep("call = [\"getpid\", \"exec\", \"page-fault\"]\n", &["system_call_ns"; 3]);
    assert_eq!(desk.tare(&["clean"]).success().stdout, "nothing was left behind\n");
}

#[test]
fn what_is_absent_gets_one_line_that_says_what_to_do() {
    if !can_run("a place") {
        return;
    }
    let desk = Desk::new("absent");
    let kernel = desk.file("not-a-kernel", &"x".repeat(100_000));
    let empty = desk.file("vmlinuz", "");
    for (keys, code, complaint) in [
        ("place = { oci = \"youki\" }".to_owned(), 3, "no runtime 'youki' is installed"),
        ("place = { oci = \"/no/runc\" }".into(), 2, "/no/runc is not a file"),
        ("place = { vm = { kernel = \"/no\" } }".into(), 2, "/no is not a file"),
        ("place = { vm = { memory = \"64M\" } }".into(), 2, "a guest needs 256M"),
        (
            format!(
                "place = {{ vm = {{ kernel = \"{}\", accel = \"tcg\", boot_within_s = 3 }} }}",
                str(&kernel)
            ),
            3,
            "the place did not start",
        ),
        (format!("place = {{ vm = {{ kernel = \"{}\" }} }}", str(&empty)), 3, "did not start"),
        ("place = { netns = { rate = \"; rm\" } }".into(), 2, "write it as tc does"),
        ("place = { netns = { rate = \"0gbit\" } }".into(), 2, "a number above 0"),
        ("place = { oci = \"\" }".into(), 2, "write its name or path"),
        ("place = { oci = \"a\\u001b\" }".into(), 2, "write its name or path"),
        ("place = { oci = { runtime = \"runc\", root = \"/\" } }".into(), 2, "this machine itself"),
        (
            "place = { oci = { runtime = \"runc\", programs = [\"/no\"] } }".into(),
            2,
            "programs: there is no /no",
        ),
        ("place = { container = \"\" }".into(), 2, "name an image"),
        ("place = { vm = { memory = 2.5 } }".into(), 2, "write memory as 512M"),
        ("place = { vm = { boot_within_s = 0 } }".into(), 2, "write a number of seconds"),
        ("place = { ssh = \"-oProxyCommand=x\" }".into(), 2, "is not the name of a host"),
        ("place = { host = { cpus = 0 } }".into(), 2, "write 0.01 to 1024"),
        ("client = \"same_as_server\"".into(), 2, "same_as_server needs a place"),
        (
            "place = { ssh = \"h\" }\nclient = \"netns\"".into(),
            2,
            "a client in netns cannot reach a server in ssh h",
        ),
        ("client = { ssh = \"h\" }".into(), 2, "a client elsewhere does not reach 127.0.0.1"),
        (
            "place = { oci = { runtime = \"runc\", platform = \"kvm\" } }".into(),
            2,
            "platform goes with the runtime runsc",
        ),
        (
            format!(
                "place = {{ oci = {{ runtime = \"runc\", root = \"{}\" }} }}",
                desk.folder.0.display()
            ),
            2,
            "to mount on",
        ),
        ("place = \"netns\"\nurl = \"http://127.0.0.1:80/\"".into(), 2, "leave out url"),
        ("place = { container = { image = \"x\", engine = \"lxc\" } }".into(), 2, "'lxc' is not"),
    ] {
        let path = desk.file("absent.toml", &experiment(&[("host", ""), ("x", &keys)]));
        desk.tare(&["run", str(&path), "-q"]).fails(code, complaint);
    }
    assert_eq!(desk.tare(&["clean"]).success().stdout, "nothing was left behind\n");
}

/// Two images, of which one answers other bytes; what the images run is found, and their port.
#[test]
fn images_are_compared_by_what_they_run() {
    if !can_run("a container") {
        return;
    }
    let desk = Desk::new("images");
    let folder = &desk.folder.0;
    let images =
        ["one", "other"].map(|name| format!("localhost/tare-{name}:{}", std::process::id()));
    let make = format!(
        "set -e; mkdir -p root/bin root/www root/tmp; cp /bin/busybox root/bin; ln -s busybox \
         root/bin/sh; echo hello >root/www/index.html; for image in {}; do tar -C root -c . | \
         podman import -q --change 'ENTRYPOINT [\"/bin/busybox\", \"httpd\"]' --change 'CMD \
         [\"-f\", \"-p\", \"8080\", \"-h\", \"/www\"]' - $image; echo something else \
         >root/www/index.html; done",
        images.join(" ")
    );
    let mut shell = Command::new("sh");
    let made = shell.args(["-c", &make]).current_dir(folder).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let words = images.each_ref().map(|image| format!("docker://{image}"));
    let same = format!("same=podman://{}", images[0]);
    let all = ["compare", &words[0], &words[1], &same, "--rounds", "2", "--cycles", "2"];
    let report =
        crate::runs::read(desk.tare(&[&all[..], &["--allow-void", "--json", "-", "-q"]].concat()));
    let none = desk.tare(&["compare", "docker://localhost/tare-none:1"]);
    let _ = Command::new("podman").args(["rmi", "-f"]).args(&images).output();
    let unequal = guard(&report, "unequal-reply");
    assert_eq!(unequal.variant.as_ref(), Some(&images[1]), "{unequal:?}");
    let same = report.variant("same").unwrap();
    assert!(same.requests > 0 && same.metric(Metric::ServerCpu).is_some(), "{same:?}");
    none.fails(3, "image localhost/tare-none:1: not known to podman");
}
