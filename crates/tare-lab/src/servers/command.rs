//! A server started by any command.

use std::path::{Path, PathBuf};

use tare_io::DurationNs;
use tare_model::servers::{CommandSpec, ServerFacts as _};

use super::ServerKind;
use crate::launch::context::{LaunchContext, utf8};
use crate::launch::spec::CountSource;
use crate::launch::spec::LaunchSpec;
use crate::machine::programs;
use tare_model::Failure;

/// The variable that many servers take their port from.
const PORT: &str = "PORT";

impl ServerKind for CommandSpec {
    fn describe(&self) -> Result<String, Failure> {
        Ok(format!("starts: {}", self.command))
    }

    fn describe_elsewhere(&self) -> String {
        format!("starts there: {}", self.command)
    }

    /// The shell, and the programs that the command's words name.
    fn needs(&self) -> Result<Vec<PathBuf>, Failure> {
        let words = self.command.split_whitespace().filter(|word| !word.contains(['=', '{', '$']));
        let found = words.filter_map(|word| match Path::new(word) {
            path if path.is_absolute() => path.is_file().then(|| path.to_owned()),
            _ => programs::find(&[word]),
        });
        Ok(std::iter::once(PathBuf::from("/bin/sh")).chain(found).collect())
    }

    fn launch_spec(&self, context: &LaunchContext<'_>) -> Result<LaunchSpec, Failure> {
        let address = context.address()?;
        let folder = utf8(context.folder)?;
        let fill = |text: &str| {
            let text = text.replace("{port}", &address.port().to_string());
            text.replace("{address}", &address.ip().to_string()).replace("{folder}", folder)
        };
        let argv = match self.argv.is_empty() {
            true => vec!["/bin/sh".into(), "-c".into(), fill(&self.command)],
            false => self.argv.clone(),
        };
        let mut env: Vec<(String, String)> =
            self.env.iter().map(|(name, value)| (name.clone(), fill(value))).collect();
        if !self.env.contains_key(PORT) {
            env.push((PORT.into(), address.port().to_string()));
        }
        // Layers' processes are started with the server's address.
        let is_free =
            context.fixed.is_none() && context.port.is_none() && context.layers.is_empty();
        let ready_within = DurationNs::from_ms(self.ready_within_ms);
        let log = self.access_log.as_deref().map(|path| PathBuf::from(fill(path)));
        Ok(LaunchSpec {
            env,
            chooses_port: is_free && !self.listens_on_given_port(),
            count: log.clone().map(CountSource::AccessLog),
            log_files: log.into_iter().collect(),
            ..context.launch_spec(argv, address, ready_within)
        })
    }
}
