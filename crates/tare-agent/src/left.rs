//! Ends what an agent left on a machine that goes on without it: one that was killed could not.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tare_lab::journal::{self, Cleaned};

/// The word that asks for it, before the folder of its journal.
pub const WORD: &str = "clean";

/// An agent whose stream has ended may take so long to end what it started: ten seconds.
const LOOKS: u32 = 200;
const LOOK: Duration = Duration::from_millis(50);

/// Prints what was ended, a line each.
pub fn clean(arguments: &[String]) -> ExitCode {
    let [folder] = arguments else {
        eprintln!("tare-agent: {WORD} takes a folder");
        return ExitCode::from(2);
    };
    let mut complaints = Vec::new();
    for _ in 0..LOOKS {
        let Cleaned { removed, complaints: more, running } = journal::clean(Path::new(folder));
        removed.iter().for_each(|line| println!("{line}"));
        complaints = more;
        if running == 0 {
            break;
        }
        complaints.push("an agent is still at work there".into());
        std::thread::park_timeout(LOOK);
    }
    complaints.iter().for_each(|line| eprintln!("{line}"));
    if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(3) }
}
