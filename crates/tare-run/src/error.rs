//! What ends a run before its time, sorted by who must act.

use tare_lab::LabError;
use tare_model::Invalid;
use tare_store::StoreError;

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum RunError {
    /// The user's words.
    #[error("{0}")]
    Usage(String),
    /// A missing program or permission, a port taken, a disk full.
    #[error("{0}")]
    Environment(String),
    /// The server: refused, reset, wrong answer.
    #[error("{0}")]
    Target(String),
    /// No verdict is allowed: replies differ in what was not declared.
    #[error("{0}")]
    Void(String),
    #[error("interrupted")]
    Interrupted,
    /// Ours.
    #[error("{0}")]
    Bug(String),
}

impl From<Invalid> for RunError {
    fn from(invalid: Invalid) -> Self {
        Self::Usage(invalid.0)
    }
}

impl From<LabError> for RunError {
    fn from(error: LabError) -> Self {
        match error {
            LabError::Usage(text) => Self::Usage(text),
            LabError::Environment(text) => Self::Environment(text),
            LabError::Target(text) => Self::Target(text),
            LabError::Bug(text) => Self::Bug(text),
        }
    }
}

impl From<StoreError> for RunError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoSuchRun { .. } => Self::Usage(error.to_string()),
            _ => Self::Environment(error.to_string()),
        }
    }
}
