//! One launch of one server: started in its own process group and control group, its output
//! drained, stopped for sure.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use tare_io::process::{Watched, pin_to, signal, signal_group};
use tare_io::time::{monotonic_now, wall_unix_ms};
use tare_io::{DurationNs, Instant};

use crate::count::CountSource;
use crate::drain::{Written, drain};
use crate::error::LabError;
use crate::meter::{Cgroup, Meter};
use crate::processes;

/// Something that happened, for the run's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub unix_ms: u64,
    /// A variant's name, or "tare".
    pub who: String,
    pub text: String,
}

/// Everything needed to start a server; made anew for each launch.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub folder: PathBuf,
    /// Where it will listen.
    pub address: SocketAddr,
    pub tls: bool,
    /// How it can be asked how many requests it served.
    pub count: Option<CountSource>,
    /// Log files that it writes beside its standard streams.
    pub log_files: Vec<PathBuf>,
    pub ready_within: DurationNs,
}

/// Where and how a launch runs.
#[derive(Clone, Debug)]
pub struct Site {
    pub who: String,
    pub cpus: Vec<usize>,
    pub cgroup: Option<Cgroup>,
    pub pidfile: PathBuf,
    pub events: Sender<Event>,
}

/// A server that runs.
#[derive(Debug)]
pub struct Launched {
    pub recipe: Recipe,
    pub started_unix_ms: u64,
    started: Instant,
    who: String,
    child: Child,
    watched: Watched,
    written: Arc<Written>,
    drains: Vec<JoinHandle<()>>,
    cgroup: Option<Cgroup>,
    stopping: bool,
}

/// The child notes its number and enters its group itself, before it becomes the server: nothing is
/// started that is not written down.
const BIRTH: &str = r#"echo $$ >"$0" || exit 125
[ -z "$1" ] || echo $$ >"$1" || exit 125
shift; exec "$@""#;
/// How long a server may take to end when asked; then it is killed.
const GRACE: DurationNs = DurationNs::from_secs(3);
const KILLED_WITHIN: DurationNs = DurationNs::from_secs(2);
/// A millisecond each.
const DRAIN_CHECKS: u32 = 200;
/// Between attempts to connect to a server that is starting.
const READY_CHECK: DurationNs = DurationNs::from_us(500);

impl Launched {
    pub fn start(recipe: Recipe, site: &Site) -> Result<Self, LabError> {
        if answers(recipe.address) {
            return Err(LabError::Environment(format!(
                "{}: something already answers on {}; stop it, or give the server another port",
                site.who, recipe.address
            )));
        }
        let started = monotonic_now();
        let started_unix_ms = wall_unix_ms();
        let mut child = spawn(&recipe, site)?;
        let watched = Watched::new(child.id())
            .map_err(|error| LabError::Environment(format!("cannot watch a process: {error}")))?;
        let written = Arc::new(Written::default());
        let mut drains = Vec::new();
        let failed = |error| LabError::Environment(format!("cannot start a thread: {error}"));
        if let Some(out) = child.stdout.take() {
            let thread = drain(out, site.who.clone(), written.clone(), site.events.clone());
            drains.push(thread.map_err(failed)?);
        }
        if let Some(err) = child.stderr.take() {
            let thread = drain(err, site.who.clone(), written.clone(), site.events.clone());
            drains.push(thread.map_err(failed)?);
        }
        let cgroup = site.cgroup.clone();
        let who = site.who.clone();
        Ok(Self {
            recipe,
            started_unix_ms,
            started,
            who,
            child,
            watched,
            written,
            drains,
            cgroup,
            stopping: false,
        })
    }

    /// Waits until something accepts connections at its address.
    /// Returns at once when `stop` is set.
    pub fn wait_until_listening(&mut self, stop: &AtomicBool) -> Result<(), LabError> {
        let limit = self.started + self.recipe.ready_within;
        loop {
            if answers(self.recipe.address) || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            self.not_yet(limit)?;
        }
    }

    /// Waits a little for the server to become ready; an error once it is dead, or too late.
    pub fn not_yet(&mut self, limit: Instant) -> Result<(), LabError> {
        if self.watched.ends_within(READY_CHECK) {
            let how = self.child.wait().map_or(String::new(), |status| status.to_string());
            let _ = signal_group(self.child.id(), libc::SIGKILL);
            self.kill_stragglers();
            self.end_drains();
            let hint = match how.as_str() {
                "exit status: 0" => {
                    "; if it went into the background, start it in the foreground (nginx: \
                     -g 'daemon off;')"
                }
                "exit status: 127" => "; is the program installed?",
                _ => "",
            };
            return Err(LabError::Environment(format!(
                "{}: the server ended before it was ready ({how}{hint}){}",
                self.who,
                self.last_words()
            )));
        }
        if monotonic_now() > limit {
            return Err(LabError::Environment(format!(
                "{}: no good reply from {} within {}{}",
                self.who,
                self.recipe.address,
                self.recipe.ready_within,
                self.last_words()
            )));
        }
        Ok(())
    }

    /// When it counts as not having become ready.
    pub fn ready_limit(&self) -> Instant {
        self.started + self.recipe.ready_within
    }

    fn last_words(&self) -> String {
        let lines = self.written.last_lines();
        if lines.is_empty() {
            ": it said nothing".into()
        } else {
            format!(": {}", lines.join(" | "))
        }
    }

    pub fn is_alive(&self) -> bool {
        !self.watched.ends_within(DurationNs::ZERO)
    }

    /// Made when the server has given a reply: its processes are then all there.
    pub fn meter(&self) -> Meter {
        Meter::new(self.cgroup.as_ref(), self.child.id())
    }

    /// Lines and bytes that it wrote: to its standard streams, and to its log files.
    pub fn logged(&self) -> (u64, u64) {
        let lines = self.written.lines.load(Ordering::Relaxed);
        let bytes = self.written.bytes.load(Ordering::Relaxed);
        self.recipe.log_files.iter().fold((lines, bytes), |(lines, bytes), path| {
            let text = std::fs::read(path).unwrap_or_default();
            let more = text.iter().filter(|byte| **byte == b'\n').count();
            (lines + more as u64, bytes + text.len() as u64)
        })
    }

    /// Asks it to end; [`Launched::stop`] then waits. Servers that are stopped together are asked
    /// together.
    pub fn ask_to_stop(&mut self) {
        if !self.stopping {
            self.stopping = true;
            let _ = signal_group(self.child.id(), libc::SIGTERM);
        }
    }

    /// Ends it and all its processes.
    pub fn stop(&mut self) {
        self.ask_to_stop();
        if !self.watched.ends_within(GRACE) {
            let _ = signal_group(self.child.id(), libc::SIGKILL);
        }
        self.kill_stragglers();
        // By now it is dead, or beyond anybody's reach.
        if self.watched.ends_within(KILLED_WITHIN) {
            let _ = self.child.wait();
            self.end_drains();
        }
    }

    /// Drains end when the last process that holds the server's output does. One that got away
    /// must not keep tare waiting: its drain is left to itself.
    fn end_drains(&mut self) {
        for thread in self.drains.drain(..) {
            for _ in 0..DRAIN_CHECKS {
                if thread.is_finished() {
                    let _ = thread.join();
                    break;
                }
                std::thread::park_timeout(Duration::from_millis(1));
            }
        }
    }

    /// Whoever outlived the first process.
    fn kill_stragglers(&self) {
        let stragglers = || match &self.cgroup {
            Some(cgroup) => cgroup.processes(),
            None => processes::of_group(self.child.id()),
        };
        for _ in 0..10 {
            let left = stragglers();
            if left.is_empty() {
                return;
            }
            for pid in left {
                let watched = Watched::new(pid);
                // Workers end by themselves once their master has gone.
                let patience = DurationNs::from_ms(if self.stopping { 100 } else { 0 });
                if watched.as_ref().is_ok_and(|watched| watched.ends_within(patience)) {
                    continue;
                }
                let _ = signal(pid, libc::SIGKILL);
                if let Ok(watched) = watched {
                    watched.ends_within(KILLED_WITHIN);
                }
            }
        }
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether somebody accepts connections there. A port that nobody has may answer too: a connection
/// from it to itself, which TCP allows.
fn answers(address: SocketAddr) -> bool {
    // On loopback a refusal comes at once.
    TcpStream::connect_timeout(&address, Duration::from_millis(200))
        .is_ok_and(|stream| stream.local_addr().ok() != stream.peer_addr().ok())
}

fn spawn(recipe: &Recipe, site: &Site) -> Result<Child, LabError> {
    use std::os::unix::process::CommandExt;
    let _ = std::fs::remove_file(&site.pidfile);
    let entrance = site.cgroup.as_ref().map(Cgroup::entrance).unwrap_or_default();
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", BIRTH])
        .arg(&site.pidfile)
        .arg(entrance)
        .args(&recipe.argv)
        .envs(recipe.env.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let cpus = site.cpus.clone();
    // Children inherit the CPUs of the thread that starts them; this one lives for that alone.
    let starter = std::thread::spawn(move || {
        if !cpus.is_empty() {
            pin_to(&cpus).map_err(|error| LabError::Environment(error.to_string()))?;
        }
        command.spawn().map_err(|e| LabError::file("start", Path::new("/bin/sh"), e))
    });
    starter.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
