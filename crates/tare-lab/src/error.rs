//! What goes wrong with servers and places, sorted by who must act.

use std::path::Path;

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
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
}

impl LabError {
    pub fn file(what: &str, path: &Path, error: std::io::Error) -> Self {
        Self::Environment(format!("cannot {what} {}: {error}", path.display()))
    }

    /// Says whom it is about, once.
    #[must_use]
    pub fn named(self, who: &str) -> Self {
        let name = |text: String| match text.starts_with(&format!("{who}: ")) {
            true => text,
            false => format!("{who}: {text}"),
        };
        match self {
            Self::Usage(text) => Self::Usage(name(text)),
            Self::Environment(text) => Self::Environment(name(text)),
            Self::Target(text) => Self::Target(name(text)),
        }
    }
}

impl From<tare_model::Invalid> for LabError {
    fn from(invalid: tare_model::Invalid) -> Self {
        Self::Usage(invalid.0)
    }
}
