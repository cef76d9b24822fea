//! Selects a cluster.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A context and its kubeconfig; kubectl's default is used for a missing one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClusterSelector {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,
}

impl ClusterSelector {
    pub fn from_context(context: Option<&str>) -> Self {
        Self { context: context.map(str::to_owned), kubeconfig: None }
    }
}
