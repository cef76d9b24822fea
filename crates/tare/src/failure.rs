//! Why a command ends without success: sorted by who must act, which is also the exit code.

use std::fmt;

use tare_io::SetupError;
use tare_lab::LabError;
use tare_load::LoadError;
use tare_load::resolve::PlanError;
use tare_model::Invalid;
use tare_results::ResultsError;
use tare_run::RunError;
use tare_store::StoreError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The user's words or file.
    Usage(String),
    /// A missing program or permission, a port taken, a disk full.
    Environment(String),
    /// The server: refused, reset, wrong answer.
    Target(String),
    /// A `--fail-if` gate failed: not an error, but what was asked to be told.
    Gate(String),
    /// A `--fail-if` gate that the run is too imprecise to decide; or `--fail-if unresolved` was given,
    /// and something is.
    Unresolved(String),
    /// Guards forbid a verdict that was asked for.
    Void(String),
    /// The user stopped it; what was measured has been printed.
    Interrupted,
    /// Ours.
    Bug(String),
}

impl Failure {
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Gate(_) => 1,
            Self::Unresolved(_) => 5,
            Self::Void(_) => 6,
            Self::Usage(_) => 2,
            Self::Environment(_) => 3,
            Self::Target(_) => 4,
            Self::Bug(_) => 70,
            Self::Interrupted => 130,
        }
    }

    /// The user gave `value` for `flag`, and it cannot be used.
    pub fn flag(flag: &str, value: &str, allowed: impl fmt::Display) -> Self {
        Self::Usage(format!("{flag} {value}: {allowed}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text)
            | Self::Environment(text)
            | Self::Target(text)
            | Self::Gate(text)
            | Self::Unresolved(text)
            | Self::Void(text)
            | Self::Bug(text) => f.write_str(text),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// What ends a run, or something of the lab's, ends a command in the same way.
macro_rules! as_of {
    ($of:ty: $($error:ty),*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                <$of>::from(error).into()
            }
        })*
    };
}

as_of!(RunError: Invalid, LabError, StoreError);
as_of!(LabError: SetupError, PlanError, LoadError);

impl From<ResultsError> for Failure {
    fn from(error: ResultsError) -> Self {
        match error {
            ResultsError::Unreadable(text) => Self::Environment(text),
            ResultsError::Store(error) => error.into(),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Usage(text) => Self::Usage(text),
            RunError::Environment(text) => Self::Environment(text),
            RunError::Target(text) => Self::Target(text),
            RunError::Void(text) => Self::Void(text),
            RunError::Interrupted => Self::Interrupted,
            RunError::Bug(text) => Self::Bug(text),
        }
    }
}
