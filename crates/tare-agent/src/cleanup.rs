//! Ends what a killed agent left on a machine that continues without it.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tare_lab::journal::{self, Cleaned};

/// The subcommand; its only argument is the journal's folder.
pub const WORD: &str = "clean";

/// Number of checks whether a running agent has ended, for ten seconds in all.
const LOOKS: u32 = 200;
const LOOK: Duration = Duration::from_millis(50);

/// Ends what an agent left and prints it, one per line. It is called only when no agent is needed,
/// so it also ends an agent that has not noticed the end of its stream.
pub fn clean(arguments: &[String]) -> ExitCode {
    let [folder] = arguments else {
        eprintln!("tare-agent: {WORD} takes a folder");
        return ExitCode::from(2);
    };
    let folder = Path::new(folder);
    let mut complaints = Vec::new();
    for look in 0..=LOOKS {
        if look == LOOKS {
            journal::end_holders(folder);
        }
        let Cleaned { removed, complaints: more, running } = journal::clean(folder);
        // Ignore errors: the reader may be gone.
        let _ = removed.iter().try_for_each(|line| writeln!(std::io::stdout(), "{line}"));
        complaints = more;
        if running == 0 {
            break;
        }
        complaints.push("an agent is still at work there".into());
        std::thread::park_timeout(LOOK);
    }
    let _ = complaints.iter().try_for_each(|line| writeln!(std::io::stderr(), "{line}"));
    if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(3) }
}
