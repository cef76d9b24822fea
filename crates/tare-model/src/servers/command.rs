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
    /// The words to run, if not by the shell; `command` only shows them then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    pub ready_within_ms: u64,
    /// A file that gets a line with each request; `{folder}` and `{port}` as in the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_log: Option<String>,
}

impl CommandSpec {
    /// Whether the shell replaces `$PORT` or `${PORT…}` in it.
    fn expands_port(&self) -> bool {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut parts = self.command.split("$PORT").skip(1);
        let is_whole = parts.any(|after| !after.starts_with(is_name));
        self.argv.is_empty() && (is_whole || self.command.contains("${PORT"))
    }
}

impl ServerFacts for CommandSpec {
    fn listens_on_given_port(&self) -> bool {
        let mut texts = self.env.values().chain(self.argv.is_empty().then_some(&self.command));
        texts.any(|text| text.contains("{port}")) || self.expands_port()
    }

    fn check_start_elsewhere(&self) -> Result<(), Invalid> {
        Ok(())
    }
}
