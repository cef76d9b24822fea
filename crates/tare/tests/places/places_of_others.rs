//! Places that others run: a container engine (podman), a host with sshd.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use tare_io::process::signal;
use tare_lab::machine::processes;
use tare_report::load::LoadReport;

use crate::left::{left_by, proven};
use crate::places::{endpoints, experiment};
use crate::places_ended::kill_and_clean;
use crate::runs::{Desk, read};
use crate::util::{can_run, not_void, own, str};
use crate::wait::{until, until_some};

/// Makes an image with nginx and its libraries, without a registry.
fn image(desk: &Desk, name: &str) {
    let root = desk.folder.file("image");
    let script = format!(
        "set -e; r={root}; mkdir -p $r/etc $r/tmp $r/run\n\
         for f in /usr/sbin/nginx /bin/sh; do for l in $f $(ldd $f | grep -o '/[^ ]*'); do\n\
         d=$(readlink -f $(dirname $l)); mkdir -p $r$d; cp -L $l $r$d/; done; done\n\
         printf 'root:x:0:0::/:/bin/sh\\n' >$r/etc/passwd; printf 'root:x:0:\\n' >$r/etc/group\n\
         for l in bin sbin lib lib64; do ln -sfn usr/$l $r/$l; done\n\
         tar -C $r -c . | podman import -q - {name}",
        root = root.display()
    );
    let made = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn podman_runs_an_image_made_here() {
    if !can_run("podman") {
        return;
    }
    let desk = Desk::new("podman");
    let name = format!("localhost/tare-test:{}", std::process::id());
    image(&desk, &name);
    let place = format!("container = {{ image = \"{name}\", runtime = \"runc\"");
    let report = desk.tare(&[
        "run",
        str(&desk.file(
            "podman.toml",
            &experiment(&[
                ("host", ""),
                ("podman", &format!("place = {{ {place} }} }}")),
                ("client", &format!("client = {{ {place} }} }}")),
                (
                    "limited",
                    &format!("place = {{ {place}, network = \"host\", cpus = 0.5, memory = \"128M\" }} }}"),
                ),
            ]),
        )),
        "--json",
        "-",
        "-q",
    ]);
    let killed = experiment(&[("host", ""), ("podman", &format!("place = {{ {place} }} }}"))]);
    let killed = desk.file("killed.toml", &killed.replace("rounds = 2", "rounds = 500"));
    kill_and_clean(&desk, &killed, 4, |pid| {
        let format = ["ps", "-a", "--format", "{{.Names}}", "--filter"];
        let filter = format!("name=tare-{pid}-");
        let listed = Command::new("podman").args(format).arg(filter).output().unwrap();
        let names = String::from_utf8_lossy(&listed.stdout).into_owned();
        left_by(&[pid]).into_iter().chain(names.lines().map(str::to_owned)).collect()
    });
    let removed = Command::new("podman").args(["rmi", "-f", &name]).output().unwrap();
    assert!(removed.status.success());
    let report = read(report.measured());
    not_void(&report);
    proven(&report, "podman", "is running by runc");
    proven(&report, "client", "client in podman runc");
    proven(&report, "limited", "address 127.0.0.1");
    let wanted = "container: podman has no image 'localhost/none:1': get it first";
    let text = experiment(&[
        ("host", ""),
        ("x", "place = { container = { image = \"localhost/none:1\", runtime = \"runc\" } }"),
    ]);
    let refused = desk.tare(&["run", str(&desk.file("none.toml", &text))]);
    refused.fails(3, wanted);
}

/// A real sshd in a separate network namespace.
struct Sshd {
    desk: Desk,
    namespace: String,
    child: Child,
}

impl Sshd {
    fn start() -> Self {
        let desk = Desk::new("ssh");
        // Its private folder must not be open to others.
        let mode = |path: &Path, mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(path, mode).unwrap();
        };
        mode(&desk.folder.0, 0o700);
        let namespace = format!("tare-test-{}", std::process::id());
        let folder = desk.folder.0.display();
        let script = format!(
            "set -e; cd {folder}; n={namespace}; ip netns add $n\n\
             ip link add {link} type veth peer name eth0 netns $n\n\
             ip addr add 10.199.7.1/24 dev {link}; ip link set {link} up\n\
             ip -n $n addr add 10.199.7.2/24 dev eth0; ip -n $n link set eth0 up\n\
             ip -n $n link set lo up; mkdir -p /run/sshd\n\
             ssh-keygen -q -t ed25519 -N '' -f host; ssh-keygen -q -t ed25519 -N '' -f key\n\
             cp key.pub authorized\n\
             printf 'HostKey %s/host\\nAuthorizedKeysFile %s/authorized\\nPidFile none\\n\
             ListenAddress 10.199.7.2:22\\nStrictModes no\\nPermitRootLogin yes\\nUsePAM no\\n' \
             {folder} {folder} >sshd_config",
            link = Self::link()
        );
        let made = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let config = desk.folder.file("sshd_config");
        let child = Command::new("ip")
            .args(["netns", "exec", &namespace, "/usr/sbin/sshd", "-D", "-e", "-f", str(&config)])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let sshd = Self { desk, namespace, child };
        until("sshd answers", || std::net::TcpStream::connect("10.199.7.2:22").is_ok());
        sshd
    }

    fn link() -> String {
        format!("ttest{}", std::process::id() % 100_000)
    }

    fn options(&self) -> String {
        let file = |name| self.desk.folder.file(name).display().to_string();
        let (key, known) = (file("key"), file("known"));
        format!("-i {key} -o UserKnownHostsFile={known} -o StrictHostKeyChecking=no -F none")
    }

    fn place(&self) -> String {
        let options: Vec<String> =
            self.options().split(' ').map(|word| format!("{word:?}")).collect();
        format!("{{ ssh = {{ host = \"root@10.199.7.2\", options = [{}] }} }}", options.join(", "))
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let end = |argv: &[&str]| drop(Command::new("ip").args(argv).output());
        end(&["link", "delete", &Self::link()]);
        end(&["netns", "delete", &self.namespace]);
    }
}

#[test]
fn ssh_is_a_place_for_servers_and_clients() {
    if !can_run("sshd in a namespace") {
        return;
    }
    let sshd = Sshd::start();
    let place = sshd.place();
    let report = sshd.desk.run(&experiment(&[
        ("host", ""),
        ("there", &format!("place = {place}")),
        ("from there", &format!("client = {place}\nurl = \"http://10.199.7.1:{{port}}/\"")),
        ("all there", &format!("place = {place}\nclient = \"same_as_server\"")),
    ]));
    not_void(&report);
    proven(&report, "there", "address 10.199.7.2");
    proven(&report, "from there", "client in ssh root@10.199.7.2");
    proven(&report, "all there", "this very machine");
    assert_eq!(sshd.desk.tare(&["clean"]).success().stdout, "nothing was left behind\n");
    let left = std::fs::read_dir("/tmp").unwrap().flatten();
    let left = left.filter(|entry| entry.path().join("tare-agent").exists());
    assert_eq!(left.count(), 0, "agents were left on the host");
    // The agent is the only program of tare there, so it is the endpoint.
    let network =
        endpoints("test = \"tcp_stream\"", &[("host", ""), ("there", &format!("place = {place}"))]);
    let report = sshd.desk.run(&network);
    not_void(&report);
    assert!(report.variant("there").unwrap().metrics["bandwidth_bytes_per_s"].point > 0.0);
    let killed = experiment(&[("host", ""), ("there", &format!("place = {place}"))]);
    let killed = sshd.desk.file("killed.toml", &killed.replace("rounds = 2", "rounds = 500"));
    kill_and_clean(&sshd.desk, &killed, 4, |pid| left_by(&[pid]));
    let nobody = place.replace("10.199.7.2", "10.199.7.77");
    let text = experiment(&[("host", ""), ("there", &format!("place = {nobody}"))]);
    let path = sshd.desk.file("nobody.toml", &text);
    sshd.desk.tare(&["run", str(&path)]).fails(3, "ssh root@10.199.7.77: cannot run a command");
}

/// A load made elsewhere has every output of a load made here.
#[test]
fn load_by_ssh_has_the_outputs_of_load() {
    if !can_run("sshd in a namespace") {
        return;
    }
    let sshd = Sshd::start();
    let server =
        own().args(["target", "--listen", "10.199.7.1:18086"]).stdout(Stdio::null()).spawn();
    let server = Ended(server.unwrap());
    until("the target answers", || std::net::TcpStream::connect("10.199.7.1:18086").is_ok());
    let file = |name: &str| sshd.desk.folder.file(name);
    let (json, csv, hdr, urls) = (file("l.json"), file("l.csv"), file("l.hdr"), file("urls.txt"));
    std::fs::write(&urls, "/a\n/b\n/c\n").unwrap();
    let ssh = format!("exec /usr/bin/ssh {} \"$@\"", sshd.options());
    let paths = sshd.desk.path_with("ssh", &ssh);
    let load = |args: &[&str]| {
        let mut command = sshd.desk.command(&["load", "http://10.199.7.1:18086/"]);
        command.env("PATH", &paths);
        command.args(["--ssh", "root@10.199.7.2"]).args(args);
        let output = command.args(["--json", str(&json)]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = std::fs::read_to_string(&json).unwrap();
        serde_json::from_str::<LoadReport>(&text).unwrap()
    };
    let two = ["--ssh", "root@10.199.7.2"];
    let stages = ["--stages", "1s:200,1s:400", "--interval", "500ms", "--urls", str(&urls)];
    let report = load(&[&two, &stages[..], &["--csv", str(&csv), "--hdr", str(&hdr)]].concat());
    assert_eq!((report.requests.started, report.requests.failed), (600, 0));
    assert_eq!(report.stages.len(), 2);
    let rates: Vec<f64> = report.stages.iter().filter_map(|stage| stage.good_per_s).collect();
    assert!((150.0..250.0).contains(&rates[0]) && (330.0..450.0).contains(&rates[1]), "{rates:?}");
    let rows = std::fs::read_to_string(&csv).unwrap().lines().count() - 1;
    assert!(rows == report.intervals.len() && (4..=5).contains(&rows), "{rows}");
    let log = std::fs::read_to_string(&hdr).unwrap();
    assert_eq!(log.lines().filter(|line| line.contains("HIST")).count(), rows);
    assert_eq!(report.connections.opened, u64::from(report.asked.connections));
    let counted = load(&["--requests", "501", "-c", "3"]);
    assert_eq!((counted.requests.started, counted.requests.good), (501, 501));
    let alone = counted.clients.unwrap().each;
    assert_eq!((alone.len(), alone[0].good), (1, 501));
    drop(server);
}

/// Ends the process with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_a_killed_agent_leaves_on_an_ssh_host_is_ended_there() {
    if !can_run("sshd in a namespace") {
        return;
    }
    let sshd = Sshd::start();
    let there = format!("place = {}", sshd.place());
    let text = experiment(&[("host", ""), ("there", &there)]).replace("rounds = 2", "rounds = 500");
    let path = sshd.desk.file("killed-agent.toml", &text);
    let mut command = sshd.desk.command(&["run", str(&path), "-q"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    sshd.desk.wait_for_a_round(&mut child, &[]);
    let own = format!("/tmp/tare-{}-", child.id());
    let is_agent = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command);
        command.starts_with(&own) && command.contains("--journal")
    };
    let agent = until_some("the agent", || processes::all().into_iter().find(is_agent));
    until("a server of its own", || !processes::children(agent).is_empty());
    signal(agent, libc::SIGKILL).unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert_eq!(left_by(&[pid]), Vec::<String>::new(), "{said}");
    assert_eq!(sshd.desk.tare(&["clean"]).success().stdout, "nothing was left behind\n");
}
