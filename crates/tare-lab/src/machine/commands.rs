//! Short commands of other programs, run to their end within a time limit.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tare_io::process::{Watched, end_with_starter, signal_group};
use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant};
use tare_model::plain;

use crate::machine::programs;
use tare_model::Failure;

/// What came of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub worked: bool,
    /// Its standard output, and error output.
    pub out: String,
    pub err: String,
    /// Why it did not work, in one line.
    pub said: String,
}

const OUTPUT_BYTES_MAX: u64 = 4 << 20;

/// Set when everything under way is to end ([`crate::Halt`]).
static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();
/// When that was seen; `None` again once it is lifted.
static STOPPED: Mutex<Option<Instant>> = Mutex::new(None);
/// A command then has so long, those that remove things among them; …
const WITHIN_STOP: DurationNs = DurationNs::from_secs(3);
/// … and all together so long, after which each has only a moment.
const ALL_WITHIN_STOP: DurationNs = DurationNs::from_secs(6);
const MOMENT: DurationNs = DurationNs::from_ms(300);
const STOP_CHECK: DurationNs = DurationNs::from_ms(100);

/// Commands end soon once this is set.
pub fn install_stop_flag(stop: &Arc<AtomicBool>) {
    let _ = STOP.set(stop.clone());
}

/// Whether everything under way is to end.
pub fn is_stopped() -> bool {
    STOP.get().is_some_and(|stop| stop.load(Ordering::Relaxed))
}

/// How long something may take that would take so long: less once everything is to end.
pub fn patience(limit: DurationNs) -> DurationNs {
    let mut stopped = STOPPED.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_stopped() {
        *stopped = None;
        return limit;
    }
    let since = monotonic_now().since(*stopped.get_or_insert_with(monotonic_now));
    let left = DurationNs::from_ns(ALL_WITHIN_STOP.as_ns().saturating_sub(since.as_ns()));
    limit.min(WITHIN_STOP).min(left.max(MOMENT))
}

/// Whether it ends in time: at most so long, and soon once everything is to end.
fn ends_in_time(watched: &Watched, limit: DurationNs) -> bool {
    let mut until = monotonic_now() + limit;
    let mut is_cut = false;
    loop {
        let now = monotonic_now();
        if !is_cut && is_stopped() {
            (is_cut, until) = (true, until.min(now + patience(limit)));
        }
        if watched.ends_within(until.since(now).min(STOP_CHECK)) {
            return true;
        }
        if monotonic_now() >= until {
            return false;
        }
    }
}

/// Runs a command, at most so long.
pub fn run(argv: &[&str], limit: DurationNs) -> Outcome {
    let program = argv.first().copied().unwrap_or_default();
    let failed = |said: String| Outcome { said, ..Outcome::default() };
    // Tools of the system are where ordinary users' paths do not look.
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

/// Runs one that is known by that name in what is said of it.
pub fn run_as(mut command: Command, program: &str, limit: DurationNs) -> Outcome {
    let failed = |said: String| Outcome { said, ..Outcome::default() };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // With whatever it starts.
    command.process_group(0);
    // Nothing that it makes is made after tare's end, and its removal.
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
    let watched = Watched::new(child.id());
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

/// Who keeps the other end of an output open must not keep tare waiting.
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

/// The first line of what it says of itself.
pub fn version(path: &Path, flag: &str) -> Option<String> {
    let Outcome { out, err, .. } = run(&[path.to_str()?, flag], VERSION_PATIENCE);
    let mut lines = out.lines().chain(err.lines()).map(str::trim);
    lines.find(|line| !line.is_empty()).map(|line| line.chars().take(VERSION_CHARS_MAX).collect())
}

/// How long a program may take to tell its version.
const VERSION_PATIENCE: DurationNs = DurationNs::from_secs(10);
const VERSION_CHARS_MAX: usize = 200;

/// Runs one that must work.
pub fn must(argv: &[&str], limit: DurationNs, what: &str) -> Result<String, Failure> {
    match run(argv, limit) {
        Outcome { worked: true, out, .. } => Ok(out),
        Outcome { said, .. } => Err(Failure::environment(format!("cannot {what}: {said}"))),
    }
}
