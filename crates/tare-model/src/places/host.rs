//! This machine, with or without resource limits.

use serde::{Deserialize, Serialize};

use super::{Bytes, Limits, Network, PlaceFacts};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

impl PlaceFacts for HostSpec {
    fn name(&self) -> String {
        "host".into()
    }

    fn limits(&self) -> Limits {
        Limits::from_settings(self.cpus, self.memory)
    }

    fn is_limited_by_group(&self) -> bool {
        true
    }

    fn network(&self) -> Network {
        Network::Host
    }
}
