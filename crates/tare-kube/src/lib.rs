//! A Kubernetes cluster behind blocking calls.
//!
//! The runtime under it has no thread of its own: it turns while a call waits, and never while load
//! is measured. Who must speak with a pod meanwhile does so through a process made for that
//! ([`exec`]).
//!
//! Without the feature `client` there are the same names, and no cluster answers.

#[cfg(feature = "client")]
mod bounded;
#[cfg_attr(not(feature = "client"), path = "absent.rs")]
mod cluster;
mod error;
#[cfg(feature = "client")]
pub mod exec;
mod kind;
mod which;

pub use cluster::{Cluster, manifest};
pub use error::KubeError;
pub use kind::Kind;
pub use which::Which;
