//! How each kind of resource is removed.

use tare_io::DurationNs;

use crate::machine::commands::Outcome;

/// A description of what was removed, `None` if it was already gone, or a complaint.
pub type Removed = Result<Option<String>, String>;

pub trait Removal {
    /// Removes the resource, if its name has tare's prefix.
    fn remove(&self) -> Removed;

    /// Whether a restart of the machine removes the resource, too.
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
