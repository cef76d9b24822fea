//! A process that tare started: in a process group of its own, its output drained, its number
//! written down before it becomes what it is to be.

use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use tare_io::DurationNs;
use tare_io::process::{Watched, pin_to, signal_group};

use crate::drain::{Written, drain};
use crate::error::LabError;
use crate::launch::Event;
use crate::programs;

/// What is started, and where.
#[derive(Debug)]
pub struct Start<'a> {
    pub who: &'a str,
    pub argv: &'a [String],
    pub env: &'a [(String, String)],
    pub cpus: &'a [usize],
    /// Where it notes its number before it becomes what it is to be.
    pub pidfile: Option<&'a Path>,
    /// Files that take a process into its control groups.
    pub entrances: &'a [PathBuf],
    pub events: &'a Sender<Event>,
    /// Its standard input and output are a conversation ([`Running::conversation`]); else it reads
    /// nothing, and what it writes is drained.
    pub talks: bool,
}

#[derive(Debug)]
pub struct Running {
    child: Child,
    watched: Watched,
    pub written: Arc<Written>,
    drains: Vec<JoinHandle<()>>,
}

/// The child notes its number and enters its groups itself, before it becomes the server: nothing
/// is started that is not written down. Where tare was gone before that, nobody will look for it:
/// it ends.
const BIRTH: &str = r#"echo $$ >"$0" || exit 125
{ read -r _ _ _ parent _ </proc/$$/stat; } 2>/dev/null && [ "$parent" != "$1" ] && exit 125
shift
while [ "$1" != -- ]; do echo $$ >"$1" || exit 125; shift; done
shift; exec "$@""#;
/// A millisecond each.
const DRAIN_CHECKS: u32 = 200;

impl Running {
    pub fn start(start: &Start<'_>) -> Result<Self, LabError> {
        let mut child = spawn(start)?;
        let watched = Watched::new(child.id())
            .map_err(|error| LabError::Environment(format!("cannot watch a process: {error}")))?;
        let written = Arc::new(Written::default());
        let mut drains = Vec::new();
        let failed = |error| LabError::Environment(format!("cannot start a thread: {error}"));
        let (who, events) = (start.who, start.events);
        if let Some(out) = child.stdout.take_if(|_| !start.talks) {
            let thread = drain(out, who.to_owned(), written.clone(), events.clone());
            drains.push(thread.map_err(failed)?);
        }
        if let Some(err) = child.stderr.take() {
            let thread = drain(err, who.to_owned(), written.clone(), events.clone());
            drains.push(thread.map_err(failed)?);
        }
        Ok(Self { child, watched, written, drains })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The ends of a conversation, once.
    pub fn conversation(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        Some((self.child.stdin.take()?, self.child.stdout.take()?))
    }

    /// Whether its first process has ended, waiting for that at most so long.
    pub fn ends_within(&self, limit: DurationNs) -> bool {
        self.watched.ends_within(limit)
    }

    /// Tells its whole group.
    pub fn signal(&self, signal: i32) {
        let _ = signal_group(self.child.id(), signal);
    }

    /// Of a process that has ended.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.wait().ok()
    }

    /// The newest lines that it wrote, for messages.
    pub fn last_words(&self) -> String {
        let lines = self.written.last_lines();
        if lines.is_empty() {
            ": it said nothing".into()
        } else {
            format!(": {}", lines.join(" | "))
        }
    }

    /// Drains end when the last process that holds its output does. One that got away must not keep
    /// tare waiting: its drain is left to itself.
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

fn spawn(start: &Start<'_>) -> Result<Child, LabError> {
    use std::os::unix::process::CommandExt;
    let program;
    let mut command;
    if let Some(pidfile) = start.pidfile {
        let _ = std::fs::remove_file(pidfile);
        program = PathBuf::from("/bin/sh");
        command = Command::new(&program);
        command.args(["-c", BIRTH]).arg(pidfile).arg(std::process::id().to_string());
        command.args(start.entrances).arg("--").args(start.argv);
    } else {
        let named = start.argv.first().map(String::as_str).unwrap_or_default();
        // Servers live where ordinary paths do not look.
        let found = if named.contains('/') { None } else { programs::find(&[named]) };
        program = found.unwrap_or_else(|| PathBuf::from(named));
        command = Command::new(&program);
        command.args(start.argv.iter().skip(1));
    }
    command
        .envs(start.env.iter().cloned())
        .stdin(if start.talks { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let cpus = start.cpus.to_vec();
    // Children inherit the CPUs of the thread that starts them; this one lives for that alone.
    let starter = std::thread::spawn(move || {
        if !cpus.is_empty() {
            pin_to(&cpus).map_err(|error| LabError::Environment(error.to_string()))?;
        }
        command.spawn().map_err(|e| LabError::file("start", &program, e))
    });
    starter.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_started_by_the_dead_ends_before_it_is_a_server() {
        let id = std::process::id();
        let pidfile = std::env::temp_dir().join(format!("tare-birth-{id}"));
        let born = |parent: u32| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", BIRTH]).arg(&pidfile).arg(parent.to_string());
            command.args(["--", "sh", "-c", "exit 7"]).status().unwrap().code()
        };
        assert_eq!(born(id), Some(7));
        // As it sees it where its parent has changed.
        assert_eq!(born(id + 1), Some(125));
        assert!(std::fs::read_to_string(&pidfile).unwrap().trim().parse::<u32>().is_ok());
        std::fs::remove_file(pidfile).unwrap();
    }
}
