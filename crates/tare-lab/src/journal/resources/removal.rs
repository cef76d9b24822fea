//! What each kind of resource must tell of itself.

use tare_io::DurationNs;

use crate::machine::commands::Outcome;

/// What was done in words, `None` where it was gone already, or a complaint.
pub type Removed = Result<Option<String>, String>;

pub trait Removal {
    /// Removes it, if it bears tare's prefix.
    fn remove(&self) -> Removed;

    /// Whether a restart of the machine removes it, too.
    fn ends_with_the_boot(&self) -> bool;
}

/// How long a command that removes something may take.
pub(super) const TIMEOUT: DurationNs = DurationNs::from_secs(20);

pub(super) fn removed(outcome: Outcome, what: String) -> Removed {
    match outcome {
        Outcome { worked: true, .. } => Ok(Some(what)),
        Outcome { said, .. } => Err(format!("cannot remove {what}: {said}")),
    }
}
