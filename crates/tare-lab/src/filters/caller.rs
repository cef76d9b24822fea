//! A filter called without nginx: a process made for that loads the library, and is told over a
//! pipe how often to call it with which URL. `tare filter caller` is that process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;
use tare_io::process::{Watched, signal};

use super::FilterSpec;
use crate::error::LabError;

/// What the process is told, one a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    pub url: String,
    pub calls: u64,
}

/// What it answers, one a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Called {
    /// Of all calls together.
    pub elapsed_ns: u64,
    /// How many said yes, and how many neither yes nor no.
    pub accepted: u64,
    pub failed: u64,
    /// The filter's own counters since it was started.
    pub counted_accepted: u64,
    pub counted_refused: u64,
}

/// What it says once it has loaded the library.
pub const READY: &str = "ready";

/// A running one.
#[derive(Debug)]
pub struct Caller {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

/// Calls are short; a filter that hangs is killed after this.
const PATIENCE: DurationNs = DurationNs::from_secs(10);

impl Caller {
    /// Starts one on these CPUs; `env` is what the library reads ([`FilterSpec::environment`]).
    pub fn start(
        spec: &FilterSpec,
        env: &[(String, String)],
        cpus: &[usize],
    ) -> Result<Self, LabError> {
        let program = std::env::current_exe()
            .map_err(|error| LabError::Environment(format!("where is tare? {error}")))?;
        let library = spec.library_path()?;
        let cpus: Vec<String> = cpus.iter().map(usize::to_string).collect();
        let mut child = Command::new(program)
            .args(["filter", "caller", "--prefix", &spec.prefix, "--library"])
            .arg(&library)
            .args(if cpus.is_empty() { vec![] } else { vec!["--cpus".into(), cpus.join(",")] })
            .envs(env.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| LabError::Environment(format!("cannot start tare: {error}")))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(LabError::Environment("a process without pipes".into()));
        };
        let mut caller = Self { child, to, from: BufReader::new(from) };
        match caller.line() {
            Some(line) if line == READY => Ok(caller),
            _ => Err(caller.why(spec)),
        }
    }

    /// Calls the filter so often.
    pub fn call(&mut self, spec: &FilterSpec, url: &str, calls: u64) -> Result<Called, LabError> {
        let asked = Calls { url: url.to_owned(), calls };
        let asked = serde_json::to_string(&asked).unwrap_or_default() + "\n";
        let sent = self.to.write_all(asked.as_bytes()).and_then(|()| self.to.flush());
        let answer = sent.ok().and_then(|()| self.line());
        match answer.and_then(|line| serde_json::from_str(&line).ok()) {
            Some(called) => Ok(called),
            None => Err(self.why(spec)),
        }
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let n = self.from.read_line(&mut line).ok()?;
        (n > 0).then(|| line.trim_end().to_owned())
    }

    /// It has ended, or does now: its last words.
    fn why(&mut self, spec: &FilterSpec) -> LabError {
        if let Ok(watched) = Watched::new(self.child.id())
            && !watched.ends_within(PATIENCE)
        {
            let _ = signal(self.child.id(), libc::SIGKILL);
        }
        let mut text = String::new();
        if let Some(err) = self.child.stderr.take() {
            let mut lines = BufReader::new(std::io::Read::take(err, 64 << 10)).lines();
            text = lines.by_ref().map_while(Result::ok).last().unwrap_or_default();
        }
        let status = self.child.wait().map_or(String::new(), |status| status.to_string());
        let text = text.trim_start_matches("tare: ");
        let what = if text.is_empty() { status.as_str() } else { text };
        LabError::Environment(format!("filter {}: {what}", spec.filter.name()))
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = signal(self.child.id(), libc::SIGKILL);
        let _ = self.child.wait();
    }
}

/// How many calls take about so long.
pub fn calls_within(length: DurationNs, elapsed_ns: u64, calls: u64) -> u64 {
    let each = (elapsed_ns as f64 / calls.max(1) as f64).max(0.1);
    ((length.as_ns() as f64 / each) as u64).clamp(1, CALLS_MAX)
}

pub const TRIAL_CALLS: u64 = 2_000;
const CALLS_MAX: u64 = 1_000_000_000;
