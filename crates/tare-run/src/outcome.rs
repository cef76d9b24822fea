//! Why a run ended.

use crate::error::RunError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Every interval asked for is as narrow as asked.
    Precision,
    MaxTime,
    /// As many rounds as the user asked for.
    Rounds,
    /// No verdict is allowed anyway.
    Void,
    Interrupted,
    Failed(RunError),
}

impl Stopped {
    /// As it stands in the store and in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Precision => "precision",
            Self::MaxTime => "max-time",
            Self::Rounds => "rounds",
            Self::Void => "void",
            Self::Interrupted => "interrupted",
            Self::Failed(_) => "failed",
        }
    }
}
