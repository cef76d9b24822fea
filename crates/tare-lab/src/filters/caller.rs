//! Calls a filter without nginx: a helper process, `tare filter caller`, loads the library and
//! receives over a pipe which URL to check and how often.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;
use tare_io::owned::own_program;
use tare_io::process::{PidFd, readable_within, signal};
use tare_model::filters::FilterSpec;

use tare_model::Failure;

/// A request to the process, one per line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    pub url: String,
    pub calls: u64,
}

/// Its answer, one per line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallReport {
    /// Duration of all calls together.
    pub elapsed_ns: u64,
    /// Calls in which the filter accepted the URL.
    pub accepted: u64,
    /// Calls in which the filter neither accepted nor refused.
    pub failed: u64,
    /// The filter's own counters since it was started.
    pub counted_accepted: u64,
    pub counted_refused: u64,
}

/// First line of the process once it has loaded the library.
pub const READY: &str = "ready";
/// First line if the library cannot be loaded, followed by the reason.
pub const FAILED: &str = "failed: ";

#[derive(Debug)]
pub struct Caller {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

/// Calls are short; a filter that hangs is killed after this.
const TIMEOUT: DurationNs = DurationNs::from_secs(10);
/// Timeout for the end of a process that has closed its output.
const SOON: DurationNs = DurationNs::from_ms(500);

impl Caller {
    /// Starts a process on these CPUs; `env` is for the library ([`super::environment`]).
    pub fn start(
        spec: &FilterSpec,
        env: &[(String, String)],
        cpus: &[usize],
    ) -> Result<Self, Failure> {
        let library = super::library_path(spec)?;
        let cpus: Vec<String> = cpus.iter().map(usize::to_string).collect();
        let mut child = Command::new(own_program())
            .args(["filter", "caller", "--prefix", &spec.prefix, "--library"])
            .arg(&library)
            .args(if cpus.is_empty() { vec![] } else { vec!["--cpus".into(), cpus.join(",")] })
            .envs(env.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| Failure::environment(format!("cannot start tare: {error}")))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::environment("a process without pipes"));
        };
        let mut caller = Self { child, to, from: BufReader::new(from) };
        match caller.line() {
            Some(line) if line == READY => Ok(caller),
            Some(line) => {
                let why = line.strip_prefix(FAILED).unwrap_or(&line);
                let text = format!("filter {}: {why}", spec.filter.name());
                Err(Failure::environment(text))
            }
            None => Err(caller.failure(spec)),
        }
    }

    /// Calls the filter `calls` times.
    pub fn call(
        &mut self,
        spec: &FilterSpec,
        url: &str,
        calls: u64,
    ) -> Result<CallReport, Failure> {
        let asked = Calls { url: url.to_owned(), calls };
        let asked = serde_json::to_string(&asked).unwrap_or_default() + "\n";
        let sent = self.to.write_all(asked.as_bytes()).and_then(|()| self.to.flush());
        let answer = sent.ok().and_then(|()| self.line());
        match answer.and_then(|line| serde_json::from_str(&line).ok()) {
            Some(called) => Ok(called),
            None => Err(self.failure(spec)),
        }
    }

    /// Reads the process's next line; `None` if the process has ended or after the timeout.
    fn line(&mut self) -> Option<String> {
        if self.from.buffer().is_empty() && !readable_within(self.from.get_ref(), TIMEOUT) {
            return None;
        }
        let mut line = String::new();
        let n = self.from.read_line(&mut line).ok()?;
        (n > 0).then(|| line.trim_end().to_owned())
    }

    /// Returns why the process did not answer, and kills it.
    fn failure(&mut self, spec: &FilterSpec) -> Failure {
        let ended = PidFd::new(self.child.id()).is_ok_and(|watched| watched.wait_timeout(SOON));
        let _ = signal(self.child.id(), libc::SIGKILL);
        let status = self.child.wait().map_or(String::new(), |status| status.to_string());
        let name = spec.filter.name();
        Failure::environment(match ended {
            true => format!("filter {name}: its process ended in a call ({status})"),
            false => format!("filter {name}: a call did not return within {TIMEOUT}"),
        })
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = signal(self.child.id(), libc::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Returns how many calls take about `length`.
pub fn calls_within(length: DurationNs, elapsed_ns: u64, calls: u64) -> u64 {
    let each = (elapsed_ns as f64 / calls.max(1) as f64).max(0.1);
    ((length.as_ns() as f64 / each) as u64).clamp(1, CALLS_MAX)
}

pub const TRIAL_CALLS: u64 = 2_000;
const CALLS_MAX: u64 = 1_000_000_000;
