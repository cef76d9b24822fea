//! Any command.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;

use super::Kitchen;
use crate::count::CountSource;
use crate::error::LabError;
use crate::launch::Recipe;
use crate::programs;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandSpec {
    /// For the shell; `{port}` stands for a port that tare chooses, `{address}` for the address
    /// to listen on, `{folder}` for a folder of the server's own.
    pub command: String,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    pub ready_within_ms: u64,
    /// A file that gets a line with each request; `{folder}` and `{port}` as in the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_log: Option<String>,
}

impl CommandSpec {
    /// The shell, and the programs that the command's words name.
    pub(super) fn needs(&self) -> Vec<PathBuf> {
        let words = self.command.split_whitespace().filter(|word| !word.contains(['=', '{', '$']));
        let found = words.filter_map(|word| match Path::new(word) {
            path if path.is_absolute() => path.is_file().then(|| path.to_owned()),
            _ => programs::find(&[word]),
        });
        std::iter::once(PathBuf::from("/bin/sh")).chain(found).collect()
    }

    pub(super) fn recipe(&self, kitchen: &Kitchen<'_>) -> Result<Recipe, LabError> {
        let address = kitchen.address()?;
        let folder = super::utf8(kitchen.folder)?;
        let fill = |text: &str| {
            let text = text.replace("{port}", &address.port().to_string());
            text.replace("{address}", &address.ip().to_string()).replace("{folder}", folder)
        };
        let argv = vec!["/bin/sh".into(), "-c".into(), fill(&self.command)];
        let ready_within = DurationNs::from_ms(self.ready_within_ms);
        let log = self.access_log.as_deref().map(|path| PathBuf::from(fill(path)));
        Ok(Recipe {
            env: self.env.iter().map(|(name, value)| (name.clone(), fill(value))).collect(),
            count: log.clone().map(CountSource::AccessLog),
            log_files: log.into_iter().collect(),
            ..kitchen.recipe(argv, address, ready_within)
        })
    }
}
