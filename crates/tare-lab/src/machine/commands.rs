//! Runs short commands of other programs, with a time limit.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tare_io::process::{PidFd, end_with_starter, signal_group};
use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant};
use tare_model::plain;

use crate::machine::programs;
use tare_model::Failure;

/// The outcome of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub worked: bool,
    /// The command's standard output.
    pub out: String,
    /// The command's standard error.
    pub err: String,
    /// Its error output in one line; if it did not run to its end, the reason.
    pub said: String,
}

const OUTPUT_BYTES_MAX: u64 = 4 << 20;

/// Set when everything under way is to end ([`crate::Halt`]).
static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();
/// When the stop was first seen; `None` again once it is lifted.
static STOPPED: Mutex<Option<Instant>> = Mutex::new(None);
/// The longest that a command may take after a stop, even one that removes things.
const WITHIN_STOP: DurationNs = DurationNs::from_secs(3);
/// The longest that all commands together may take after a stop; each then has only [`MOMENT`].
const ALL_WITHIN_STOP: DurationNs = DurationNs::from_secs(6);
const MOMENT: DurationNs = DurationNs::from_ms(300);
const STOP_CHECK: DurationNs = DurationNs::from_ms(100);

/// Installs the flag that cuts commands short.
pub fn install_stop_flag(stop: &Arc<AtomicBool>) {
    let _ = STOP.set(stop.clone());
}

/// Returns whether everything under way is to end.
pub fn is_stopped() -> bool {
    STOP.get().is_some_and(|stop| stop.load(Ordering::Relaxed))
}

/// Returns how long an operation with this limit may take: less once a stop is requested.
pub fn remaining_time(limit: DurationNs) -> DurationNs {
    let mut stopped = STOPPED.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_stopped() {
        *stopped = None;
        return limit;
    }
    let since = monotonic_now().since(*stopped.get_or_insert_with(monotonic_now));
    let left = DurationNs::from_ns(ALL_WITHIN_STOP.as_ns().saturating_sub(since.as_ns()));
    limit.min(WITHIN_STOP).min(left.max(MOMENT))
}

/// Waits at most `limit`, or less once a stop is requested; returns whether the process ended.
fn ends_in_time(watched: &PidFd, limit: DurationNs) -> bool {
    let mut until = monotonic_now() + limit;
    let mut is_cut = false;
    loop {
        let now = monotonic_now();
        if !is_cut && is_stopped() {
            (is_cut, until) = (true, until.min(now + remaining_time(limit)));
        }
        if watched.wait_timeout(until.since(now).min(STOP_CHECK)) {
            return true;
        }
        if monotonic_now() >= until {
            return false;
        }
    }
}

/// Runs a command, for at most `limit`.
pub fn run(argv: &[&str], limit: DurationNs) -> Outcome {
    let program = argv.first().copied().unwrap_or_default();
    let failed = |said: String| Outcome { said, ..Outcome::default() };
    // System tools may be outside the PATH of ordinary users.
    let found = match program.contains('/') {
        true => Ok(PathBuf::from(program)),
        false => programs::need(&[program], program),
    };
    let found = match found {
        Ok(found) => found,
        Err(error) => return failed(error.to_string()),
    };
    let mut command = Command::new(found);
    command.args(&argv[1.min(argv.len())..]);
    run_as(command, program, limit)
}

/// Runs a command that messages call `program`.
pub fn run_as(mut command: Command, program: &str, limit: DurationNs) -> Outcome {
    let failed = |said: String| Outcome { said, ..Outcome::default() };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // The command has its own process group, so that it can be killed with its children.
    command.process_group(0);
    // It is killed when tare dies, so that it creates nothing after the cleanup.
    end_with_starter(&mut command);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return failed(format!("{program}: {error}")),
    };
    let read = |from: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(from) = from {
                let _ = from.take(OUTPUT_BYTES_MAX).read_to_end(&mut text);
            }
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let out = read(child.stdout.take().map(|out| Box::new(out) as Box<dyn Read + Send>));
    let err = read(child.stderr.take().map(|err| Box::new(err) as Box<dyn Read + Send>));
    let watched = PidFd::new(child.id());
    let ended = watched.is_ok_and(|watched| ends_in_time(&watched, limit));
    if !ended {
        let _ = signal_group(child.id(), libc::SIGKILL);
    }
    let worked = child.wait().is_ok_and(|status| status.success());
    if !ended {
        return failed(match is_stopped() {
            true => format!("{program} was ended, as tare was"),
            false => format!("{program} did not end within {limit}"),
        });
    }
    let (out, err) = (text_of(out), text_of(err));
    let lines: Vec<&str> = err.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let said = if lines.is_empty() { "it wrote no output".to_owned() } else { lines.join(" | ") };
    let said = plain::line(&said).into_owned();
    Outcome { worked, out, err, said }
}

/// Returns the output, or nothing if a process that outlived the command keeps the pipe open.
fn text_of(reader: JoinHandle<String>) -> String {
    for _ in 0..OUTPUT_CHECKS {
        if reader.is_finished() {
            return reader.join().unwrap_or_default();
        }
        std::thread::park_timeout(OUTPUT_CHECK);
    }
    String::new()
}

const OUTPUT_CHECKS: u32 = 1000;
const OUTPUT_CHECK: Duration = Duration::from_millis(1);

/// Returns the first line of a program's version output.
pub fn version(path: &Path, flag: &str) -> Option<String> {
    let Outcome { out, err, .. } = run(&[path.to_str()?, flag], VERSION_PATIENCE);
    let mut lines = out.lines().chain(err.lines()).map(str::trim);
    lines.find(|line| !line.is_empty()).map(|line| line.chars().take(VERSION_CHARS_MAX).collect())
}

/// How long a program may take to print its version.
const VERSION_PATIENCE: DurationNs = DurationNs::from_secs(10);
const VERSION_CHARS_MAX: usize = 200;

/// Runs a command; fails if it does not succeed.
pub fn run_checked(argv: &[&str], limit: DurationNs, what: &str) -> Result<String, Failure> {
    match run(argv, limit) {
        Outcome { worked: true, out, .. } => Ok(out),
        Outcome { said, .. } => Err(Failure::environment(format!("cannot {what}: {said}"))),
    }
}
