//! tare's agent: the only program that a place needs. It exchanges JSON lines over its standard
//! streams (docs/agent.md), starts servers and makes load in its place, and ends all of it when its
//! stream ends. tare starts it; people do not.

#![forbid(unsafe_code)]

mod cleanup;
mod endpoint;
mod guest;
mod pod;
mod seen;
mod target;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use tare_lab::agent::serve::{self, AgentSetup};
use tare_lab::journal::Journal;
use tare_lab::meters::groups::Group;

/// Drops capabilities of this process and of all that it starts.
const DROP: &str = "--drop-capabilities";
/// The agent runs in a pod, which ends with it. It also ends when tare sends nothing, since the
/// cluster may not report tare's end.
const POD: &str = "--pod";
/// Folder in which the agent records what it starts, because its machine outlives it.
const JOURNAL: &str = "--journal";

fn main() -> ExitCode {
    tare_io::owned::restrict_umask_and_path();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((word, rest)) = arguments.split_first() {
        match word.as_str() {
            endpoint::WORD => return endpoint::run(rest),
            cleanup::WORD => return cleanup::clean(rest),
            target::WORD => return target::run(rest),
            pod::INSTALL => return pod::install(rest),
            pod::HOLD if rest.is_empty() => return pod::hold(),
            _ => {}
        }
    }
    let Some(flags) = Flags::parse(&arguments) else {
        eprintln!(
            "tare-agent {}: runs inside the places of tare, which starts it and speaks with it on \
             its standard streams; its only flags are {DROP}, {POD} and {JOURNAL} FOLDER",
            tare_lab::agent::VERSION
        );
        return ExitCode::from(2);
    };
    match serve(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("tare-agent: {why}");
            guest::power_off();
            ExitCode::from(3)
        }
    }
}

#[derive(Default)]
struct Flags {
    drop_capabilities: bool,
    in_pod: bool,
    journal: Option<PathBuf>,
}

impl Flags {
    fn parse(arguments: &[String]) -> Option<Self> {
        let (mut flags, mut arguments) = (Self::default(), arguments.iter());
        while let Some(flag) = arguments.next() {
            match flag.as_str() {
                DROP => flags.drop_capabilities = true,
                POD => flags.in_pod = true,
                JOURNAL => flags.journal = Some(PathBuf::from(arguments.next()?)),
                _ => return None,
            }
        }
        Some(flags)
    }
}

/// No timeout: the end of a pipe is always noticed.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// The standard streams, with tare at the other end.
fn standard() -> (serve::AgentReader, serve::To) {
    (Box::new(io::stdin()), Box::new(io::stdout()))
}

/// Serves until the stream ends.
fn serve(flags: &Flags) -> Result<(), String> {
    let in_pod = flags.in_pod;
    let _in_use = in_pod.then(pod::lock_pod).transpose()?;
    let is_guest = guest::is_guest();
    let (from, to) = if is_guest { guest::set_up()? } else { standard() };
    // A guest drops capabilities without being asked.
    if flags.drop_capabilities || is_guest {
        // Without CAP_IPC_LOCK, clients share their user's limit of locked memory, and the rings of
        // the previous launch are not freed at once.
        tare_io::system::raise_locked_memory();
        tare_io::process::keep_capabilities(&tare_lab::places::oci::CAPABILITY_NUMBERS)
            .map_err(|error| format!("cannot give up capabilities: {error}"))?;
    }
    // Orphans of servers become this process's children, to be ended with them.
    let _ = tare_io::process::adopt_orphans();
    let journal = flags.journal.as_deref().map(Journal::create);
    let journal = journal.transpose().map_err(|error| error.to_string())?;
    let ended = serve::serve(
        from,
        to,
        AgentSetup {
            hello: seen::hello(in_pod),
            own_group: if in_pod { Group::own() } else { None },
            ends_orphans: true,
            lonely_after: if in_pod { pod::LONELY } else { FOR_EVER },
            journal,
        },
    );
    guest::power_off();
    ended
}
