//! A process that tare started in a process group of its own. Its output is drained, and the
//! journal records it before it becomes the requested program.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use tare_io::DurationNs;
use tare_io::process::{PidFd, pin_to};

use crate::event::Event;
use crate::executor::drain::{Written, drain};
use crate::executor::ending;
use crate::journal::Entries;
use crate::journal::resources::Processes;
use crate::machine::processes::ProcessIdentity;
use crate::machine::programs;
use tare_model::Failure;

/// How a process is started.
#[derive(Debug)]
pub struct Start<'a> {
    pub who: &'a str,
    pub argv: &'a [String],
    pub env: &'a [(String, String)],
    pub cpus: &'a [usize],
    /// Records the process before it becomes the requested program; `None` for agents in a place
    /// that ends with them.
    pub journal: Option<&'a Entries>,
    /// Files to which the process writes its PID to enter its control groups.
    pub entrances: &'a [PathBuf],
    pub events: &'a Sender<Event>,
    /// Its standard input and output are a conversation ([`Running::conversation`]); otherwise it
    /// reads nothing, and its output is drained.
    pub talks: bool,
}

#[derive(Debug)]
pub struct Running {
    child: Child,
    watched: PidFd,
    birth: Option<ProcessIdentity>,
    /// The journal that records it.
    journal: Option<Entries>,
    /// Once set, its PID may belong to another process.
    reaped: bool,
    pub written: Arc<Written>,
    drains: Vec<JoinHandle<()>>,
}

/// The child waits until it is recorded, enters its groups, and only then becomes the server, so
/// that the journal has everything that was started. If tare dies before that, `go` never arrives
/// and the child exits.
const BIRTH: &str = r#"read -r word && [ "$word" = go ] || exit 125
talks=$0
while [ "$1" != -- ]; do echo $$ >"$1" || exit 125; shift; done
shift
if [ "$talks" = talks ]; then exec "$@"; else exec "$@" </dev/null; fi"#;
const GO: &[u8] = b"go\n";
/// Number of checks for a drain's end, one per millisecond.
const DRAIN_CHECKS: u32 = 200;

impl Running {
    pub fn start(start: &Start<'_>) -> Result<Self, Failure> {
        let mut child = spawn(start)?;
        let watched = PidFd::new(child.id())
            .map_err(|error| Failure::environment(format!("cannot watch a process: {error}")))?;
        let birth = ProcessIdentity::read(child.id());
        if start.is_held() {
            release(&mut child, &watched, start, birth)?;
        }
        let journal = start.journal.cloned();
        let written = Arc::new(Written::default());
        let mut drains = Vec::new();
        let failed = |error| Failure::environment(format!("cannot start a thread: {error}"));
        let (who, events) = (start.who, start.events);
        if let Some(out) = child.stdout.take_if(|_| !start.talks) {
            let thread = drain(out, who.to_owned(), written.clone(), events.clone());
            drains.push(thread.map_err(failed)?);
        }
        if let Some(err) = child.stderr.take() {
            let thread = drain(err, who.to_owned(), written.clone(), events.clone());
            drains.push(thread.map_err(failed)?);
        }
        Ok(Self { child, watched, birth, journal, reaped: false, written, drains })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the pipes to the process's standard input and output; `None` after the first call.
    pub fn conversation(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        Some((self.child.stdin.take()?, self.child.stdout.take()?))
    }

    /// Waits at most `limit`; returns whether its first process has ended.
    pub fn ends_within(&self, limit: DurationNs) -> bool {
        self.watched.wait_timeout(limit)
    }

    /// Signals its whole group.
    pub fn signal(&self, signal: i32) {
        if !self.reaped {
            let _ = self.watched.signal_group(self.child.id(), signal);
        }
    }

    /// Waits for its end and returns how it ended.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.reaped = true;
        self.child.wait().ok()
    }

    /// Returns the live processes of its group.
    pub fn members(&self) -> Vec<u32> {
        self.birth.as_ref().map_or_else(Vec::new, ending::members)
    }

    /// Removes it from the journal once its whole group has ended.
    pub fn forget_if_gone(&mut self) {
        if let (Some(journal), Some(birth)) = (&self.journal, self.birth)
            && self.members().is_empty()
        {
            journal.forget(&Processes(birth).into());
            self.journal = None;
        }
    }

    /// Returns its newest lines of output, for messages.
    pub fn last_words(&self) -> String {
        let lines = self.written.last_lines();
        if lines.is_empty() {
            ": it wrote no output".into()
        } else {
            format!(": {}", lines.join(" | "))
        }
    }

    /// Returns the lines of output that show why it ended.
    pub fn last_output(&self) -> Vec<String> {
        self.written.telling_lines()
    }

    /// Waits for its drains, which end with the last process that holds the output. A process that
    /// escaped must not keep tare waiting, so its drain is abandoned.
    pub fn end_drains(&mut self) {
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
}

impl Start<'_> {
    /// Returns whether its process waits for `go` before it becomes the requested program.
    fn is_held(&self) -> bool {
        self.journal.is_some() || !self.entrances.is_empty()
    }
}

/// Records a new process and sends it `go`.
fn release(
    child: &mut Child,
    watched: &PidFd,
    start: &Start<'_>,
    birth: Option<ProcessIdentity>,
) -> Result<(), Failure> {
    let mut begin = || {
        let gone = || Failure::environment(format!("{}: it ended at its start", start.who));
        let born = Processes(birth.ok_or_else(gone)?);
        start.journal.map_or(Ok(()), |journal| journal.record_before_create(born))?;
        let said = child.stdin.as_mut().map(|to| to.write_all(GO));
        said.and_then(Result::ok).ok_or_else(gone)
    };
    let begun = begin();
    if begun.is_err() {
        let _ = watched.signal(libc::SIGKILL);
        let _ = child.wait();
    }
    if !start.talks {
        child.stdin = None;
    }
    begun
}

fn spawn(start: &Start<'_>) -> Result<Child, Failure> {
    use std::os::unix::process::CommandExt;
    let named = start.argv.first().map(String::as_str).unwrap_or_default();
    // Servers may be outside the PATH of ordinary users.
    let found = match named.contains('/') {
        true => PathBuf::from(named),
        false => programs::need(&[named], named)?,
    };
    let (program, mut command);
    if start.is_held() {
        program = PathBuf::from("/bin/sh");
        command = Command::new(&program);
        command.args(["-c", BIRTH, if start.talks { "talks" } else { "reads nothing" }]);
        command.args(start.entrances).arg("--").arg(found).args(start.argv.iter().skip(1));
    } else {
        program = found;
        command = Command::new(&program);
        command.args(start.argv.iter().skip(1));
    }
    command
        .envs(start.env.iter().cloned())
        .stdin(if start.talks || start.is_held() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let cpus = start.cpus.to_vec();
    // A child inherits the CPUs of the thread that starts it, so this thread does nothing else.
    let starter = std::thread::spawn(move || {
        if !cpus.is_empty() {
            pin_to(&cpus).map_err(|error| Failure::environment(error.to_string()))?;
        }
        command.spawn().map_err(|e| Failure::file("start", &program, e))
    });
    starter.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_started_by_the_dead_ends_before_it_is_a_server() {
        let born = |word: &str| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", BIRTH, "reads nothing", "--", "sh", "-c", "exit 7"]);
            let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
            // Dropping stdin closes it, as happens when tare dies.
            child.stdin.take().unwrap().write_all(word.as_bytes()).unwrap();
            child.wait().unwrap().code()
        };
        assert_eq!(born("go\n"), Some(7));
        assert_eq!(born(""), Some(125));
        assert_eq!(born("go"), Some(125), "a word that was cut short is none");
    }

    #[test]
    fn what_is_said_after_the_word_is_for_the_server() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", BIRTH, "talks", "--", "cat"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"go\nhello\n").unwrap();
        let said = child.wait_with_output().unwrap().stdout;
        assert_eq!(String::from_utf8(said).unwrap(), "hello\n");
    }
}
