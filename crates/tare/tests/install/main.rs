//! The packages of `make dist` in bare systems (target/roots): unpacked, installed and loaded, and
//! then used for a first verdict; and what the program says where something is missing. `make
//! test-install` runs it as root.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant};

/// Two servers that differ by 8 µs of 20 per request, and a comparison of them.
const COMPARE: &str = "compare 'a=exec tare target --listen 127.0.0.1:{port} --busy 20us' \
                       'b=exec tare target --listen 127.0.0.1:{port} --busy 28us' \
                       --precision 5% --max-time 40s -q";
/// What a system has beside its files.
const PROC: &str = "mount -t proc proc \"$root/proc\"; mount --rbind /dev \"$root/dev\"";
/// From the package to the verdict.
const WITHIN: DurationNs = DurationNs::from_secs(60);

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the file of `make dist` whose name ends so. It must be of these sources.
fn package(end: &str) -> PathBuf {
    let folder = project().join("target/dist");
    let mut git = Command::new("git");
    let head = git.args(["rev-parse", "--short=12", "HEAD"]).current_dir(&folder).output().unwrap();
    let head = format!(", commit {}", String::from_utf8(head.stdout).unwrap());
    let notes = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    let mut notes = notes.filter(|path| path.extension().is_some_and(|end| end == "BUILD"));
    let note = std::fs::read_to_string(notes.next().expect("a note on the build")).unwrap();
    assert!(note.contains(&head), "{note}is not of {head}: make dist");
    let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    let mut found = files.filter(|path| path.to_str().unwrap().ends_with(end));
    let one = found.next().unwrap_or_else(|| panic!("no {end} in {}", folder.display()));
    assert!(found.next().is_none(), "two files end with {end}");
    one
}

/// A copy of a bare system, removed at the end.
struct Root(PathBuf);

impl Root {
    fn new(name: &str, test: &str) -> Self {
        let path = project().join(format!("target/roots/{name}-{test}-{}", std::process::id()));
        let from = project().join("target/roots").join(name);
        let copied = Command::new("cp").arg("-a").args([&from, &path]).status().unwrap();
        assert!(copied.success(), "{} is made by make test-install", from.display());
        Self(path)
    }

    /// Runs a script in the system, in namespaces of its own, with /proc and loopback.
    fn run(&self, script: &str) -> Output {
        self.run_in(script, PROC)
    }

    /// Like [`Self::run`], after `before` outside of the root.
    fn run_in(&self, script: &str, before: &str) -> Output {
        let outside = format!(
            "set -e; ip link set lo up; root=$0; {before}; exec chroot \"$root\" \
             /usr/bin/env -i PATH=/opt/tare/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root /bin/sh \
             -c \"$1\""
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c"]);
        command.arg(outside).arg(&self.0).arg(script).output().unwrap()
    }

    /// Unpacks the tarball into /opt/tare.
    fn unpack(&self) {
        let folder = self.0.join("opt/tare");
        std::fs::create_dir_all(&folder).unwrap();
        let mut tar = Command::new("tar");
        tar.arg("-xzf").arg(package(".tar.gz")).args(["--strip-components=1", "-C"]).arg(&folder);
        assert!(tar.status().unwrap().success());
        // busybox has no /usr/bin/env where the scripts above look for it.
        let env = self.0.join("usr/bin/env");
        if !env.exists() {
            std::fs::create_dir_all(env.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink("/bin/busybox", env).unwrap();
        }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(output: &Output) -> String {
    let of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}\n{}", of(&output.stdout), of(&output.stderr), output.status)
}

/// Checks for a verdict within a minute of `began`.
fn reached_a_verdict(output: &Output, began: Instant) {
    let text = text(output);
    assert!(output.status.success() && text.contains("stored as run 1"), "{text}");
    assert!(text.starts_with("▼ b is slower than a: "), "{text}");
    let took = monotonic_now().since(began);
    println!("{:.1} s to the verdict:\n{text}", took.as_secs_f64());
    assert!(took < WITHIN, "{took}");
}

#[test]
fn from_the_tarball_to_a_verdict() {
    for name in ["bookworm", "trixie", "busybox"] {
        let root = Root::new(name, "tarball");
        let began = monotonic_now();
        root.unpack();
        reached_a_verdict(&root.run(&format!("tare {COMPARE}")), began);
        let listed = text(&root.run("tare run --list && tare --version"));
        assert!(listed.contains("nginx-access-log") && listed.contains("static"), "{listed}");
        let hint = match name {
            "busybox" => "nginx is not installed (Debian's package: nginx)",
            _ => "nginx is not installed (apt-get install nginx)",
        };
        assert!(listed.contains(hint), "{listed}");
    }
}

#[test]
fn from_debians_package_to_a_verdict_and_back() {
    for name in ["bookworm", "trixie"] {
        let root = Root::new(name, "deb");
        let began = monotonic_now();
        std::fs::copy(package(".deb"), root.0.join("tmp/tare.deb")).unwrap();
        let script = format!("dpkg -i /tmp/tare.deb >/dev/null && tare {COMPARE}");
        reached_a_verdict(&root.run(&script), began);
        let gone = root.run("dpkg -r tare >/dev/null; command -v tare; ls /root/.local/share/tare");
        assert!(text(&gone).contains("tare.db"), "the store stays: {}", text(&gone));
        assert!(!text(&gone).contains("bin/tare"), "{}", text(&gone));
    }
}

/// What a test made with podman, removed at its end.
struct Image {
    name: String,
    container: String,
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = Command::new("podman").args(["rm", "-f", "-t", "0", &self.container]).output();
        let _ = Command::new("podman").args(["rmi", "-f", &self.name]).output();
    }
}

/// The image has no shell to start servers with: it compares servers that are running.
#[test]
fn from_the_image_to_a_verdict() {
    let podman = |args: &[&str]| {
        let done = Command::new("podman").args(args).output().unwrap();
        assert!(done.status.success(), "podman {args:?}: {}", text(&done));
        text(&done)
    };
    let began = monotonic_now();
    let archive = package(".oci.tar");
    podman(&["load", "-q", "-i", archive.to_str().unwrap()]);
    let id = std::process::id();
    let image =
        Image { name: format!("localhost/tare-test:{id}"), container: format!("tare-test-{id}") };
    let loaded = format!("localhost/tare:{}", env!("CARGO_PKG_VERSION"));
    podman(&["tag", &loaded, &image.name]);
    podman(&["untag", &loaded, &loaded]);
    // This machine's root may not raise its limits, as podman wants to.
    let limits = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"];
    let run = [&["run", "--rm", "--runtime=runc", "--network=host"], &limits[..]].concat();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    drop(socket);
    let server = ["--detach", "--name", &image.container, &image.name, "target", "--listen"];
    podman(&[&run[..], &server, &[&address]].concat());
    let urls = ["a", "b"].map(|name| format!("{name}=http://{address}/"));
    let words = ["compare", &urls[0], &urls[1], "--precision", "10%", "--max-time", "20s", "-q"];
    let said = podman(&[&run[..], &[&image.name], &words].concat());
    assert!(said.contains("stored as run 1"), "{said}");
    // Podman's default profile forbids io_uring.
    let version = podman(&[&run[..], &[&image.name, "--version"]].concat());
    assert!(version.contains("reactor: epoll"), "{version}");
    let took = monotonic_now().since(began);
    println!("{:.1} s to the verdict:\n{said}", took.as_secs_f64());
    assert!(took < WITHIN, "{took}");
}

#[test]
fn what_is_missing_is_said_in_one_line() {
    let root = Root::new("busybox", "missing");
    root.unpack();
    let compare = format!("tare {COMPARE}");
    let one_line = |output: &Output, code: i32, part: &str| {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{}", text(output));
        assert!(said.lines().count() == 1 && said.contains(part), "{}", text(output));
    };
    // A home that cannot be written to.
    let read_only = format!(
        "mount --bind \"$root\" \"$root\"; mount -o remount,bind,ro \"$root\"; mount -t tmpfs \
         -o mode=755 tmp \"$root/tmp\"; {PROC}"
    );
    let home = root.run_in(&compare, &read_only);
    one_line(&home, 3, "--store");
    let elsewhere = format!("XDG_DATA_HOME=/tmp {compare}");
    let elsewhere = root.run_in(&elsewhere, &read_only);
    assert!(text(&elsewhere).contains("stored as run 1"), "{}", text(&elsewhere));
    // No /proc.
    one_line(&root.run_in(&compare, "mount --rbind /dev \"$root/dev\""), 3, "/proc");
    // A store that is none.
    let other = root.run("mkdir -p /root/.local/share/tare && echo hello > /root/.local/share/tare/tare.db; tare runs");
    one_line(&other, 3, "tare.db");
}

/// A user without any right in a system, with a home of its own.
#[test]
fn an_ordinary_user_needs_no_rights() {
    let root = Root::new("trixie", "user");
    root.unpack();
    let began = monotonic_now();
    let script = format!(
        "chmod 755 /; exec setpriv --reuid=4711 --regid=4711 --clear-groups --bounding-set=-all sh -c \
         \"export HOME=/tmp/home; mkdir /tmp/home; tare {COMPARE}\""
    );
    reached_a_verdict(&root.run(&script), began);
}
