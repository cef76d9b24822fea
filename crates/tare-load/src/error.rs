//! Errors of making load.

use tare_io::SetupError;
use tare_model::Failure;

use crate::request::RequestError;

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Not one connection could be opened.
    #[error("cannot connect to {endpoint}: {why}")]
    NoConnection { endpoint: String, why: String },
    /// An endpoint of `tare net` stopped answering.
    #[error("{endpoint}: {why}")]
    EndpointLost { endpoint: String, why: String },
    #[error("{pieces} pieces of the stream did not hold what was sent")]
    WrongContent { pieces: u64 },
    /// A system call fails on the machine that makes it.
    #[error("{call}: {why}")]
    Call { call: &'static str, why: String },
    #[error("a load worker ended unexpectedly; this is a bug in tare")]
    WorkerLost,
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Setup(error) => error.into(),
            LoadError::WorkerLost => Self::bug(error.to_string()),
            _ => Self::target(error.to_string()),
        }
    }
}
