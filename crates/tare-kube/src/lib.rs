//! A Kubernetes cluster behind blocking calls.
//!
//! The async runtime has no thread of its own: it runs only during a call, and never while load is
//! measured. Talking to a pod meanwhile takes a process of its own ([`exec`]).
//!
//! Without the feature `client` the API is the same, and every call fails.

#[cfg(feature = "client")]
mod bounded;
#[cfg_attr(not(feature = "client"), path = "absent.rs")]
mod cluster;
mod error;
#[cfg(feature = "client")]
pub mod exec;
mod object_kind;
mod which;

pub use cluster::{Cluster, manifest};
pub use error::KubeError;
pub use object_kind::Kind;
pub use which::ClusterSelector;
