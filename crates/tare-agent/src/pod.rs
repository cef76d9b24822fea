//! A pod that is held for tare: its first process ends a while after its last agent, and an agent
//! ends once tare sends nothing.

use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use tare_io::owned::{Lock, try_lock};
use tare_lab::machine::processes;

pub const HOLD: &str = "hold";
pub const INSTALL: &str = "install";

/// An agent in a pod ends after this long without a message; tare sends one every ten seconds.
pub const LONELY: Duration = Duration::from_secs(40);
const LOOK: Duration = Duration::from_secs(1);
/// Consecutive checks without an agent after which the pod ends, once it has had an agent.
const LOOKS: u32 = 45;
/// Checks before the pod ends if no agent ever came: other places of the run may start slowly.
const FIRST_LOOKS: u32 = 300;

/// Opens the lock file beside the program; agents lock it while they run.
fn lock_file() -> io::Result<File> {
    let folder = std::env::current_exe()?;
    let folder = folder.parent().unwrap_or(Path::new("/"));
    File::options().create(true).append(true).open(folder.join("in-use"))
}

/// Holds the lock until this process ends. Retries, since `hold` takes it briefly once a second.
pub fn lock_pod() -> Result<File, String> {
    let no = |why: String| format!("cannot hold its pod: {why}");
    let file = lock_file().map_err(|error| no(error.to_string()))?;
    for _ in 0..TRIES {
        match try_lock(&file) {
            Lock::Taken => return Ok(file),
            Lock::Held => std::thread::park_timeout(TRY),
            Lock::Unsupported => return Err(no("its file system has no locks".into())),
        }
    }
    Err(no("another agent is there".into()))
}

const TRIES: u32 = 100;
const TRY: Duration = Duration::from_millis(50);

/// Waits until there has been no agent for a while.
pub fn hold() -> ExitCode {
    let (mut alone, mut most) = (0, FIRST_LOOKS);
    while alone < most {
        std::thread::park_timeout(LOOK);
        // The first process of a pod is the parent of all orphans.
        for pid in processes::children(std::process::id()) {
            tare_io::process::reap(pid);
        }
        let held = lock_file().is_ok_and(|file| try_lock(&file) == Lock::Held);
        (alone, most) = if held { (0, LOOKS) } else { (alone + 1, most) };
    }
    ExitCode::SUCCESS
}

/// Copies this program to a path that a container of another image can run it from.
pub fn install(to: &[String]) -> ExitCode {
    let [to] = to else {
        eprintln!("tare-agent: {INSTALL} needs one path");
        return ExitCode::from(2);
    };
    let copy = || -> io::Result<()> {
        let part = PathBuf::from(format!("{to}.part"));
        std::fs::copy("/proc/self/exe", &part)?;
        // Executable for any user of the other container.
        std::fs::set_permissions(&part, PermissionsExt::from_mode(0o755))?;
        std::fs::rename(&part, to)
    };
    match copy() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tare-agent: cannot copy itself to {to}: {error}");
            ExitCode::from(3)
        }
    }
}
