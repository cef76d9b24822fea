//! What goes wrong with servers, sorted by who must act.

use std::path::Path;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LabError {
    /// The user's words.
    #[error("{0}")]
    Usage(String),
    /// A missing program or permission, a port taken, a disk full.
    #[error("{0}")]
    Environment(String),
}

impl LabError {
    pub fn file(what: &str, path: &Path, error: std::io::Error) -> Self {
        Self::Environment(format!("cannot {what} {}: {error}", path.display()))
    }
}
