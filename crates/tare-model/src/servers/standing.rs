//! A server that is already running and that a command of the user's restarts: a Deployment, a
//! system service, a container of a compose file.

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;

use super::ServerFacts;
use crate::Invalid;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandingSpec {
    /// A shell command, run at each launch; it exits with 0 once the new server has replaced the
    /// old one.
    pub relaunch: String,
    /// Longest time that the command may take.
    #[serde(default = "within")]
    pub within: String,
}

fn within() -> String {
    "2m".into()
}

impl StandingSpec {
    pub fn limit(&self) -> Result<DurationNs, Invalid> {
        let limit = DurationNs::parse(&self.within)
            .map_err(|why| Invalid(format!("standing: within = {:?}: {why}", self.within)))?;
        match limit > DurationNs::ZERO && limit <= DurationNs::from_secs(3600) {
            true => Ok(limit),
            false => Err(Invalid(format!(
                "standing: within = {:?}: write more than 0 and at most 1h",
                self.within
            ))),
        }
    }
}

impl ServerFacts for StandingSpec {
    fn check(&self) -> Result<(), Invalid> {
        if self.relaunch.trim().is_empty() {
            return Err("standing: relaunch is empty: write the command that starts the server \
                        afresh and waits for it"
                .into());
        }
        self.limit().map(drop)
    }

    fn listens_on_given_address(&self) -> bool {
        false
    }

    fn listens_on_given_port(&self) -> bool {
        false
    }

    fn check_start_elsewhere(&self) -> Result<(), Invalid> {
        Err("a server that stands already is where it is: leave out place".into())
    }
}
