//! Resources that tare creates outside its memory: what the journal records of each, and how each
//! is removed. They are data, never a command line: a journal decides what root kills and removes.
//!
//! To add a kind, add a file here and a line in `resources!`.

mod blocked_range;
mod cgroup;
mod cluster_object;
mod engine_container;
mod folder;
mod link;
mod network_namespace;
mod oci_container;
mod processes;
mod reset_script;
mod shared_memory;
mod ssh_folder;

use serde::{Deserialize, Serialize};

pub use crate::journal::removal::Removal;

pub use blocked_range::{BLOCKED_METRIC, BlockedRange};
pub use cgroup::Cgroup;
pub use cluster_object::ClusterObject;
pub use engine_container::EngineContainer;
pub use folder::Folder;
pub use link::Link;
pub use network_namespace::NetworkNamespace;
pub use oci_container::OciContainer;
pub use processes::Processes;
pub use reset_script::ResetScript;
pub use shared_memory::SharedMemory;
pub use ssh_folder::SshFolder;

macro_rules! resources {
    ($($kind:ident;)*) => {
        /// A resource to be removed.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Resource { $($kind($kind),)* }

        impl Resource {
            pub fn removal(&self) -> &dyn Removal {
                match self { $(Self::$kind(thing) => thing,)* }
            }
        }

        $(impl From<$kind> for Resource {
            fn from(thing: $kind) -> Self {
                Self::$kind(thing)
            }
        })*
    };
}

resources! {
    Folder;
    Cgroup;
    SharedMemory;
    Processes;
    Link;
    NetworkNamespace;
    BlockedRange;
    OciContainer;
    EngineContainer;
    SshFolder;
    ClusterObject;
    ResetScript;
}
