//! Servers that keep running while several tools load them in turn.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tare_stats::Estimate;

use crate::util::{command, load_json, ran};
use crate::wait;

/// The split that `tare compare` makes of two CPUs.
const SERVERS: &str = "0";
const CLIENTS: &str = "1";

pub fn program(name: &str) -> String {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "tests", "servers", "programs", name].iter().collect();
    path.display().to_string()
}

/// A server that has been loaded since its start; it ends when this is dropped.
pub struct Standing {
    child: Child,
    port: u16,
}

impl Standing {
    /// A shell runs `line` and is replaced by it; `{port}` is the port to listen on.
    pub fn start(line: &str, warm_up_s: u32) -> Self {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let line =
            format!("exec taskset -c {SERVERS} {}", line.replace("{port}", &port.to_string()));
        let mut shell = command("/bin/sh");
        shell.args(["-c", &line]).stdin(Stdio::null()).stdout(Stdio::null());
        let standing = Self { child: shell.spawn().unwrap(), port };
        wait::until("the server listens", || {
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
        });
        standing.wrk(10, &format!("{warm_up_s}s"));
        standing
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// Returns the requests per second that wrk sees.
    pub fn wrk(&self, connections: u32, time: &str) -> f64 {
        let mut wrk = Command::new("taskset");
        wrk.args(["-c", CLIENTS, "wrk", "-t1", "-c", &connections.to_string(), "-d", time]);
        let ran = ran(wrk.arg(self.url())).success();
        let line = ran.stdout.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
        line.and_then(|number| number.trim().parse().ok()).unwrap()
    }

    /// Returns the requests per second that `tare load` sees.
    pub fn load(&self, connections: u32, time: &str, more: &[&str]) -> f64 {
        let (url, connections) = (self.url(), connections.to_string());
        let args = [&url, "-c", &connections, "-d", time, "--cpus", CLIENTS];
        load_json(&[&args, more].concat()).throughput_per_s
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client's name, and the throughput that it sees.
pub type Client<'a> = (&'a str, &'a dyn Fn(&Standing) -> f64);

/// Rounds in which every client loads both servers in turn.
const ROUNDS: usize = 6;

/// Returns by how many percent each client sees the throughput of the second server drop.
pub fn losses(pair: [&Standing; 2], clients: &[Client<'_>]) -> Vec<(String, Estimate)> {
    let mut seen = vec![Vec::new(); clients.len()];
    for _ in 0..ROUNDS {
        for (at, (_, ask)) in clients.iter().enumerate() {
            let [plain, more] = pair.map(ask);
            seen[at].push((more / plain).ln());
        }
    }
    let losses = clients.iter().zip(seen).map(|((name, _), logs)| {
        let log = Estimate::of_mean(&logs, 0.95).unwrap();
        let loss = log.from_log().map(|ratio| (1.0 - ratio) * 100.0);
        println!("{name}: −{:.1} % ({:.1} to {:.1})", loss.point, loss.lower, loss.upper);
        ((*name).to_owned(), loss)
    });
    losses.collect()
}

/// All intervals overlap pairwise, or are at most a point apart.
#[track_caller]
pub fn agree(losses: &[(String, Estimate)]) {
    for (name, a) in losses {
        for (other, b) in losses {
            let gap = (a.lower - b.upper).max(b.lower - a.upper);
            assert!(gap <= 1.0, "{name} and {other} disagree: {losses:#?}");
        }
    }
}
