//! A server that already runs: each launch runs a command that restarts it, and waits for its end.

use std::path::PathBuf;

use tare_model::servers::StandingSpec;

use super::ServerKind;
use crate::launch::context::LaunchContext;
use crate::launch::spec::LaunchSpec;
use tare_model::Failure;

const SHELL: &str = "/bin/sh";

impl ServerKind for StandingSpec {
    fn describe(&self) -> Result<String, Failure> {
        Ok(format!("stands already; at each launch: {}", self.relaunch))
    }

    fn needs(&self) -> Result<Vec<PathBuf>, Failure> {
        Ok(Vec::new())
    }

    fn launch_spec(&self, context: &LaunchContext<'_>) -> Result<LaunchSpec, Failure> {
        let argv = vec![SHELL.into(), "-c".into(), self.relaunch.clone()];
        let launch_spec = context.launch_spec(argv, context.address()?, self.limit()?);
        Ok(LaunchSpec { stands: true, ..launch_spec })
    }
}
