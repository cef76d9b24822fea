//! Any command.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ServerFacts;
use crate::Invalid;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandSpec {
    /// A shell command. `{port}` stands for a port that tare chooses, which is also in `$PORT`;
    /// `{address}` for the address to listen on, `{folder}` for a folder of the server's own.
    pub command: String,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    pub ready_within_ms: u64,
    /// A file that gets a line with each request; `{folder}` and `{port}` as in the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_log: Option<String>,
}

impl ServerFacts for CommandSpec {
    fn listens_on_given_port(&self) -> bool {
        let mut texts = self.env.values().chain([&self.command]);
        texts.any(|text| text.contains("{port}") || text.contains("$PORT"))
    }

    fn check_start_elsewhere(&self) -> Result<(), Invalid> {
        Ok(())
    }
}
