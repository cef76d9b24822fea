//! A server run by this process: started in its own process group and control group, with its
//! output drained and its end enforced.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tare_io::owned;
use tare_io::process::PidFd;
use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant};

use crate::event::Event;
use crate::executor::log_file::LogFile;
use crate::executor::running::{Running, Start};
use crate::journal::Entries;
use crate::launch::companion::Companion;
use crate::launch::spec::{LaunchSpec, OWN_PROGRAM};
use crate::machine::cgroup::Cgroup;
use crate::machine::commands;
use crate::network::listening;
use tare_model::Failure;

/// Where and how a process is started.
#[derive(Clone, Debug)]
pub struct HostContext {
    pub who: String,
    pub cpus: Vec<usize>,
    pub cgroup: Option<Cgroup>,
    /// Records started processes; `None` for agents in a place that ends with them.
    pub journal: Option<Entries>,
    pub events: Sender<Event>,
}

/// A running server.
#[derive(Debug)]
pub struct LocalServer {
    launch_spec: LaunchSpec,
    started: Instant,
    who: String,
    /// `None` for a server that was already running: tare only ran the command that restarts it.
    running: Option<Running>,
    cgroup: Option<Cgroup>,
    /// Set once tare has asked the server to end; its end is then not reported.
    stopping: Arc<AtomicBool>,
    logs: Mutex<Vec<LogFile>>,
    /// Ended after the server.
    companion: Option<Companion>,
}

/// How a server ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HowEnded {
    /// Its exit status or signal, with a hint at the cause.
    pub how: String,
    pub output: Vec<String>,
    pub is_missing_program: bool,
}

impl HowEnded {
    /// Formats this to follow a server's name: "(exit status: 1), its last output:" and the lines.
    pub fn message(&self, more: &str) -> String {
        let Self { how, output, .. } = self;
        match output.as_slice() {
            [] => format!(" ({how}{more}); it wrote no output"),
            [line] => format!(" ({how}{more}); its output: {line}"),
            lines => format!(" ({how}{more}); its last output:\n    {}", lines.join("\n    ")),
        }
    }
}

/// Waits for the end of a server on a thread of its own.
#[derive(Debug)]
pub struct EndWatch {
    watched: PidFd,
    stopping: Arc<AtomicBool>,
}

impl EndWatch {
    /// Calls `on_end` once the server has ended, unless tare asked it to.
    pub fn call_at_end(self, on_end: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
        let wait = move || {
            while !self.watched.wait_timeout(WATCHED_FOR) {}
            if !self.stopping.load(Ordering::Relaxed) {
                on_end();
            }
        };
        let thread = std::thread::Builder::new().name("end-watch".into()).spawn(wait);
        thread.map(drop).map_err(|e| Failure::environment(format!("cannot start a thread: {e}")))
    }
}

/// Length of one wait of the [`EndWatch`] thread, which then waits again.
const WATCHED_FOR: DurationNs = DurationNs::from_secs(3600);

/// How long a server may take to end when asked; then it is killed.
const GRACE: DurationNs = DurationNs::from_secs(3);
const KILLED_WITHIN: DurationNs = DurationNs::from_secs(2);
/// Interval of attempts to connect to a server that is starting.
const READY_CHECK: DurationNs = DurationNs::from_us(500);
/// How often the port of a server that chooses it is looked for, and how long it must be the only
/// one: a server may open a second port after the first.
const PORT_CHECK: DurationNs = DurationNs::from_ms(20);
const PORT_SETTLED: DurationNs = DurationNs::from_ms(200);
/// The interval for a server that tare did not start.
const STANDING_CHECK: Duration = Duration::from_millis(20);

impl LocalServer {
    pub fn start(launch_spec: LaunchSpec, host: &HostContext) -> Result<Self, Failure> {
        if !launch_spec.stands && is_taken(launch_spec.address) {
            return Err(Failure::environment(format!(
                "{}: something already answers on {}; stop it, or give the server another port",
                host.who, launch_spec.address
            )));
        }
        launch_spec.write_files()?;
        let started = monotonic_now();
        let companion = launch_spec
            .companion
            .as_ref()
            .map(|companion| Companion::start(companion, &launch_spec.folder, host));
        let companion = companion.transpose()?;
        let argv = own_program(&launch_spec.argv)?;
        if launch_spec.stands {
            relaunch(&host.who, &argv, launch_spec.ready_within())?;
        }
        let start = Start {
            who: &host.who,
            argv: &argv,
            env: &launch_spec.env,
            cpus: &host.cpus,
            journal: host.journal.as_ref(),
            entrances: &host.cgroup.as_ref().map(Cgroup::entrances).unwrap_or_default(),
            events: &host.events,
            talks: false,
        };
        let running = (!launch_spec.stands).then(|| Running::start(&start)).transpose()?;
        let cgroup = host.cgroup.clone();
        let who = host.who.clone();
        let logs =
            Mutex::new(launch_spec.log_files.iter().map(|path| LogFile::new(path)).collect());
        Ok(Self {
            launch_spec,
            started,
            who,
            running,
            cgroup,
            stopping: Arc::default(),
            logs,
            companion,
        })
    }

    /// Returns a watch for its end; `None` if tare did not start it.
    pub fn watch(&self) -> Result<Option<EndWatch>, Failure> {
        let Some(pid) = self.pid() else { return Ok(None) };
        let watched = PidFd::new(pid)
            .map_err(|error| Failure::environment(format!("cannot watch a process: {error}")))?;
        Ok(Some(EndWatch { watched, stopping: self.stopping.clone() }))
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Returns the PID of its first process.
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(Running::id)
    }

    pub fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    /// Kills processes that outlived the first one.
    fn kill_stragglers(&mut self) {
        let is_stopping = self.is_stopping();
        let Some(running) = &mut self.running else { return };
        let stragglers = |running: &Running| match &self.cgroup {
            Some(cgroup) => cgroup.processes(),
            None => running.members(),
        };
        for _ in 0..10 {
            let left = stragglers(running);
            if left.is_empty() {
                break;
            }
            let watched = left.iter().filter_map(|pid| Some((*pid, PidFd::new(*pid).ok()?)));
            let watched: Vec<(u32, PidFd)> = watched.collect();
            // Workers end by themselves once their master has ended.
            let patience = DurationNs::from_ms(if is_stopping { 100 } else { 0 });
            let alive = wait_for_survivors(&watched, patience);
            let members = stragglers(running);
            for (_, watched) in alive.iter().filter(|(pid, _)| members.contains(pid)) {
                let _ = watched.signal(libc::SIGKILL);
            }
            wait_for_survivors(&watched, KILLED_WITHIN);
        }
        running.forget_if_gone();
    }
}

/// Restarts a server that was already running. tare leaves it running, and cannot watch it.
fn relaunch(who: &str, argv: &[String], limit: DurationNs) -> Result<(), Failure> {
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let outcome = commands::run(&argv, limit);
    match outcome.worked {
        true => Ok(()),
        false => {
            let text = format!("{who}: relaunch did not work: {}", outcome.said);
            Err(Failure::environment(text))
        }
    }
}

/// Waits up to `patience` for all of them together; returns those still alive.
fn wait_for_survivors(all: &[(u32, PidFd)], patience: DurationNs) -> Vec<&(u32, PidFd)> {
    let until = monotonic_now() + patience;
    let lives = |watched: &PidFd| !watched.wait_timeout(until.since(monotonic_now()));
    all.iter().filter(|(_, watched)| lives(watched)).collect()
}

/// Names the folders that root skips, as a missing program may be there.
fn skipped_folders_hint() -> String {
    let folders = owned::removed_from_path().iter().filter(|(folder, _)| folder.is_dir());
    let folders: Vec<String> = folders.map(|(folder, _)| folder.display().to_string()).collect();
    match folders.is_empty() {
        true => String::new(),
        false => format!(
            " root passes over folders of PATH that others can write to: {}; name the program \
             with its path",
            folders.join(", ")
        ),
    }
}

/// Replaces the program by this process's own if it is [`OWN_PROGRAM`].
fn own_program(argv: &[String]) -> Result<Vec<String>, Failure> {
    let mut argv = argv.to_vec();
    if let Some(first) = argv.first_mut().filter(|first| *first == OWN_PROGRAM) {
        let own = owned::own_program().into_os_string().into_string();
        *first =
            own.map_err(|path| Failure::environment(format!("no path to itself: {path:?}")))?;
    }
    Ok(argv)
}

impl LocalServer {
    /// Waits until something accepts connections at its address, and returns the port. Returns at
    /// once when `stop` is set.
    pub fn wait_until_listening(&mut self, stop: &AtomicBool) -> Result<u16, Failure> {
        let limit = self.started + self.launch_spec.ready_within();
        let (mut seen, mut looked) = (None, self.started);
        loop {
            let address = self.launch_spec.address;
            if !self.launch_spec.chooses_port && answers(address) {
                return Ok(address.port());
            }
            // A server that ended is an error even if its end is what set `stop`.
            self.not_yet(limit)?;
            if stop.load(Ordering::Relaxed) {
                return Ok(address.port());
            }
            if self.launch_spec.chooses_port && monotonic_now().since(looked) > PORT_CHECK {
                looked = monotonic_now();
                seen = self.only_port(seen)?;
                let settled = |(port, since): (u16, Instant)| {
                    port == address.port() || looked.since(since) > PORT_SETTLED
                };
                if let Some((port, _)) = seen.filter(|seen| settled(*seen)) {
                    self.launch_spec.address.set_port(port);
                    return Ok(port);
                }
            }
        }
    }

    /// Returns the only port on which the server listens, and since when it has been the only one.
    fn only_port(&self, before: Option<(u16, Instant)>) -> Result<Option<(u16, Instant)>, Failure> {
        let found = listening::only_port(&self.members(), self.launch_spec.address.ip());
        let port = found.map_err(|why| {
            Failure::environment(format!(
                "{}: {why}, so that requests could reach that: use {{port}} or $PORT in the \
                 command, or --exclusive",
                self.who
            ))
        })?;
        let known = before.filter(|(known, _)| Some(*known) == port);
        Ok(known.or_else(|| Some((port?, monotonic_now()))))
    }

    /// Returns its live processes.
    fn members(&self) -> Vec<u32> {
        match (&self.cgroup, &self.running) {
            (Some(cgroup), _) => cgroup.processes(),
            (None, Some(running)) => running.members(),
            (None, None) => Vec::new(),
        }
    }

    /// Waits briefly for it to become ready; fails once it is dead or past `limit`.
    pub fn not_yet(&mut self, limit: Instant) -> Result<(), Failure> {
        let ended = match &self.running {
            Some(running) => running.ends_within(READY_CHECK),
            None => {
                std::thread::park_timeout(STANDING_CHECK);
                false
            }
        };
        if ended {
            // Signals the group before its number can be reused.
            self.running.iter().for_each(|running| running.signal(libc::SIGKILL));
            let how = self.how_it_ended();
            self.kill_stragglers();
            let how = how.unwrap_or_default();
            let is_taken = how.output.iter().any(|line| line.contains("ddress already in use"));
            let hint = match is_taken && self.launch_spec.chooses_port {
                true => {
                    "; variants that are up together need ports of their own: use {port} or \
                         $PORT in the command, or --exclusive"
                }
                false => "",
            };
            let text = format!(
                "{}: the server ended before it was ready{}{hint}",
                self.who,
                how.message("")
            );
            // A program that the shell did not find is missing here; any other end is the server's
            // failure.
            return Err(match how.is_missing_program {
                true => Failure::environment(text),
                false => Failure::target(text),
            });
        }
        if monotonic_now() > limit {
            let (most, waited) =
                (self.launch_spec.ready_within(), monotonic_now().since(self.started));
            let within = match waited < most {
                true => format!("after {:.1} s", waited.as_secs_f64()),
                false => format!("within {most} (--ready-within)"),
            };
            let place = self.where_it_listens();
            let words = match (&self.running, place.is_empty()) {
                (Some(running), true) => running.last_words(),
                _ => String::new(),
            };
            return Err(Failure::environment(format!(
                "{}: no good reply from {} {within}{place}{words}",
                self.who, self.launch_spec.address,
            )));
        }
        Ok(())
    }

    /// Describes where it listens, if that is not the expected port; otherwise empty.
    fn where_it_listens(&self) -> String {
        let own = self.launch_spec.address;
        let ports = listening::ports_of(&self.members());
        if ports.is_empty() || ports.contains(&own.port()) {
            return String::new();
        }
        let only = self.launch_spec.chooses_port && ports.len() == 1;
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        match only {
            true => format!("; it listens on port {}, but not at {}", ports[0], own.ip()),
            false => format!(
                "; it listens on port {}, not {}: use {{port}} or $PORT in its command",
                ports.join(" and "),
                own.port()
            ),
        }
    }

    pub fn is_alive(&self) -> bool {
        self.running.as_ref().is_none_or(|running| !running.ends_within(DurationNs::ZERO))
    }

    /// Describes how it ended. Call it once it has ended.
    pub fn how_it_ended(&mut self) -> Option<HowEnded> {
        let running = self.running.as_mut()?;
        let status = running.status()?.to_string();
        running.end_drains();
        let hint = match status.as_str() {
            "exit status: 0" => "; if it went into the background, start it in the foreground \
                                 (nginx: -g 'daemon off;')"
                .to_owned(),
            "exit status: 127" => format!("; is the program installed?{}", skipped_folders_hint()),
            _ => String::new(),
        };
        Some(HowEnded {
            is_missing_program: status == "exit status: 127",
            how: status + &hint,
            output: self.running.as_ref()?.last_output(),
        })
    }

    /// Returns the lines and bytes that it wrote to its standard streams and log files.
    pub fn logged(&self) -> (u64, u64) {
        let Some(running) = &self.running else { return (0, 0) };
        let lines = running.written.lines.load(Ordering::Relaxed);
        let bytes = running.written.bytes.load(Ordering::Relaxed);
        let mut logs = self.logs.lock().unwrap_or_else(|e| e.into_inner());
        logs.iter_mut()
            .map(LogFile::count)
            .fold((lines, bytes), |sum, more| (sum.0 + more.0, sum.1 + more.1))
    }

    /// Asks it to end; [`LocalServer::stop`] then waits. Several servers can thus end at the same
    /// time.
    pub fn ask_to_stop(&mut self) {
        if !self.stopping.swap(true, Ordering::Relaxed) {
            self.running.iter().for_each(|running| running.signal(libc::SIGTERM));
        }
    }

    /// Ends it and all its processes.
    pub fn stop(&mut self) {
        self.ask_to_stop();
        if let Some(running) = self.running.as_ref().filter(|r| !r.ends_within(GRACE)) {
            running.signal(libc::SIGKILL);
        }
        self.kill_stragglers();
        // It is dead now, or cannot be killed.
        if let Some(running) = self.running.as_mut().filter(|r| r.ends_within(KILLED_WITHIN)) {
            running.status();
            running.end_drains();
        }
        self.companion = None;
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A predecessor's socket may outlive it briefly: io_uring closes it after the process has ended.
const FREE_WITHIN: DurationNs = DurationNs::from_ms(1000);
const FREE_CHECK: Duration = Duration::from_millis(10);

fn is_taken(address: SocketAddr) -> bool {
    let limit = monotonic_now() + FREE_WITHIN;
    while answers(address) {
        if monotonic_now() > limit {
            return true;
        }
        std::thread::park_timeout(FREE_CHECK);
    }
    false
}

/// Returns whether something accepts connections at the address. A connection of a free port to
/// itself, which TCP allows, does not count.
pub fn answers(address: SocketAddr) -> bool {
    // On loopback a refusal comes at once.
    TcpStream::connect_timeout(&address, Duration::from_millis(200))
        .is_ok_and(|stream| stream.local_addr().ok() != stream.peer_addr().ok())
}
