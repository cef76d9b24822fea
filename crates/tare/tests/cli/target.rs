//! `tare target`.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use crate::util::{Folder, own, str, tare};

struct Running(Child, String);

/// Starts the program on a free port and reads its address.
fn start(args: &[&str]) -> Running {
    let mut child = own()
        .args(["target", "--listen", "127.0.0.1:0"])
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    Running(child, line.trim().to_owned())
}

impl Running {
    /// Ends the program as a user would, and reads the counts that it prints.
    fn stop(mut self) -> serde_json::Value {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let mut counts = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut counts).unwrap();
        assert_eq!(self.0.wait().unwrap().code(), Some(0));
        serde_json::from_str(&counts).unwrap()
    }
}

#[test]
fn counts_are_exact_over_threads_and_connections() {
    let target = start(&["-t", "2", "--close-after", "10"]);
    tare(&["load", &target.1, "-n", "1000", "-c", "4"]).success();
    let counts = target.stop();
    assert_eq!((counts["requests"].as_u64(), counts["replies"].as_u64()), (Some(1000), Some(1000)));
    // Ten requests per connection; the last of each of the four may have had fewer.
    let closed = counts["closed_by_target"].as_u64().unwrap();
    assert!((96..=100).contains(&closed), "{counts}");
}

#[test]
fn a_written_certificate_can_be_trusted() {
    let folder = Folder::new("target-cert");
    let pem = folder.file("cert.pem");
    let target = start(&["--tls", "--write-cert", str(&pem)]);
    let url = target.1.replace("127.0.0.1", "localhost");
    tare(&["load", &url, "-4", "--cacert", str(&pem), "-n", "100"]).success();
    let counts = target.stop();
    assert_eq!(
        (counts["handshakes_full"].as_u64(), counts["requests"].as_u64()),
        (Some(10), Some(100))
    );
}

#[test]
fn stats_answer_over_http() {
    let target = start(&[]);
    tare(&["load", &target.1, "-n", "50"]).success();
    let ran = tare(&["load", &format!("{}stats", target.1), "-n", "5"]).success();
    assert!(ran.stdout.contains("5 good"), "{}", ran.story());
    let counts = target.stop();
    assert_eq!(
        (counts["requests"].as_u64(), counts["stats_requests"].as_u64()),
        (Some(50), Some(5))
    );
}

#[test]
fn the_unix_socket_is_removed_at_the_end() {
    let folder = Folder::new("target-unix");
    let socket = folder.file("s");
    let listen = format!("unix:{}", str(&socket));
    let mut child = own()
        .args(["target", "--listen", &listen])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), listen);
    tare(&["load", "http://x/", "--unix-socket", str(&socket), "-n", "20"]).success();
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    assert!(!socket.exists());
}
