//! Another machine.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{Network, PlaceFacts};
use crate::Invalid;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SshSpec {
    /// The host as ssh knows it; ssh's own configuration applies.
    pub host: String,
    /// Address on which servers there listen and are reached; default: detected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Further arguments for ssh: `-p`, `2222`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

impl PlaceFacts for SshSpec {
    fn name(&self) -> String {
        format!("ssh {}", self.host)
    }

    fn check(&self) -> Result<(), Invalid> {
        let plain = |c: char| !c.is_control() && !c.is_whitespace();
        if self.host.is_empty() || self.host.starts_with('-') || !self.host.chars().all(plain) {
            let text = format!("ssh: '{}' is not the name of a host", self.host.escape_debug());
            return Err(Invalid(text));
        }
        Ok(())
    }

    fn shares_host_files(&self) -> bool {
        false
    }

    fn network(&self) -> Network {
        Network::Elsewhere
    }
}
