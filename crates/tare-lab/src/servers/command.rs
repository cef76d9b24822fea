//! Any command.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;

use super::Kitchen;
use crate::error::LabError;
use crate::launch::Recipe;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandSpec {
    /// For the shell; `{port}` stands for a port that tare chooses, `{folder}` for a folder of the
    /// server's own.
    pub command: String,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    pub ready_within_ms: u64,
}

impl CommandSpec {
    pub(super) fn recipe(&self, kitchen: &Kitchen<'_>) -> Result<Recipe, LabError> {
        let address = kitchen.address()?;
        let folder = super::utf8(kitchen.folder)?;
        let fill = |text: &str| {
            text.replace("{port}", &address.port().to_string()).replace("{folder}", folder)
        };
        Ok(Recipe {
            argv: vec!["/bin/sh".into(), "-c".into(), fill(&self.command)],
            env: self.env.iter().map(|(name, value)| (name.clone(), fill(value))).collect(),
            folder: kitchen.folder.to_owned(),
            address,
            tls: false,
            count: None,
            filter: None,
            companion: None,
            log_files: Vec::new(),
            ready_within: DurationNs::from_ms(self.ready_within_ms),
        })
    }
}
