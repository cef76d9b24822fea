//! The bypass on this machine's kernel.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tare_bypass::Bypass;

/// A control group of this test, removed at its end.
struct Group(PathBuf);

impl Group {
    fn make() -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
        let path = PathBuf::from(line.split(' ').nth(4)?);
        let path = path.join(format!("tare-bypass-test-{}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        Some(Self(path))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Set in the copy of this program that runs in the group.
const TALKS: &str = "TARE_BYPASS_TALKS";
const MESSAGES: usize = 10;

/// Exchanges short messages with itself over TCP.
fn talk() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut dialled = TcpStream::connect(listener.local_addr()?)?;
    let (mut accepted, _) = listener.accept()?;
    let mut heard = [0; 5];
    for _ in 0..MESSAGES {
        dialled.write_all(b"hello")?;
        accepted.read_exact(&mut heard)?;
        assert_eq!(&heard, b"hello");
        accepted.write_all(b"there")?;
        dialled.read_exact(&mut heard)?;
        assert_eq!(&heard, b"there");
    }
    Ok(())
}

#[test]
fn both_ways_of_a_local_connection_go_past_tcp() {
    if std::env::var_os(TALKS).is_some() {
        talk().unwrap();
        return;
    }
    let Some(group) = Group::make() else {
        tare_tidy::skips::not_run("no control group of version 2 can be made");
        return;
    };
    let bypass = Bypass::attach(std::slice::from_ref(&group.0)).unwrap();
    let before = bypass.counts().unwrap();
    // Enter the group before the first socket is created.
    let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", group.0.display());
    let own = std::env::current_exe().unwrap();
    let mut copy = Command::new("sh")
        .args(["-c", &enter, "sh"])
        .arg(own)
        .env(TALKS, "1")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(copy.wait().unwrap().success(), "what was sent must arrive");
    let counts = bypass.counts().unwrap().since(before);
    assert_eq!((counts.paired, counts.redirected), (1, 2 * MESSAGES as u64), "{counts:?}");
    assert_eq!(counts.refused, 0, "{counts:?}");
}
