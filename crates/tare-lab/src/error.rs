//! What goes wrong with servers and places, sorted by who must act.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tare_io::SetupError;
use tare_load::LoadError;
use tare_load::resolve::PlanError;

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LabError {
    /// The user's words.
    #[error("{0}")]
    Usage(String),
    /// A missing program or permission, a port taken, a disk full.
    #[error("{0}")]
    Environment(String),
    /// Whoever should answer.
    #[error("{0}")]
    Target(String),
    /// Ours.
    #[error("{0}")]
    Bug(String),
}

impl LabError {
    pub fn file(what: &str, path: &Path, error: std::io::Error) -> Self {
        Self::Environment(format!("cannot {what} {}: {error}", path.display()))
    }

    /// Says whom it is about, once.
    #[must_use]
    pub fn named(self, who: &str) -> Self {
        // A client of a variant is named with it: "a, client 2 of 4".
        let is_named = |text: &str| text.strip_prefix(who)?.chars().next();
        self.map(|text| match is_named(&text) {
            Some(':' | ',') => text,
            _ => format!("{who}: {text}"),
        })
    }

    /// The same with another text.
    #[must_use]
    pub fn map(self, change: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Usage(text) => Self::Usage(change(text)),
            Self::Environment(text) => Self::Environment(change(text)),
            Self::Target(text) => Self::Target(change(text)),
            Self::Bug(text) => Self::Bug(change(text)),
        }
    }
}

impl From<SetupError> for LabError {
    fn from(error: SetupError) -> Self {
        Self::Environment(error.to_string())
    }
}

impl From<PlanError> for LabError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Usage(text) => Self::Usage(text),
            PlanError::Environment(text) => Self::Environment(text),
        }
    }
}

impl From<LoadError> for LabError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Setup(error) => error.into(),
            LoadError::WorkerLost => Self::Bug(error.to_string()),
            _ => Self::Target(error.to_string()),
        }
    }
}

impl From<tare_model::Invalid> for LabError {
    fn from(invalid: tare_model::Invalid) -> Self {
        Self::Usage(invalid.0)
    }
}
