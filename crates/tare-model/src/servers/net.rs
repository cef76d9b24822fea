//! The endpoint of `tare net` and `tare sys`.

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;

use super::ServerFacts;
use crate::Invalid;

/// Each key is the flag of `tare net --serve` with that name; docs/net.md.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NetSpec {
    pub delay: Option<String>,
    pub loss: Option<f64>,
    pub socket_buffer: Option<u32>,
}

impl ServerFacts for NetSpec {
    fn check(&self) -> Result<(), Invalid> {
        if let Some(delay) = &self.delay
            && let Err(error) = DurationNs::parse(delay)
        {
            return Err(Invalid(format!("net: delay: {error}")));
        }
        match self.loss {
            Some(loss) if !(0.0..=1.0).contains(&loss) => {
                Err(Invalid(format!("net: loss = {loss}: write a share, 0 to 1")))
            }
            _ => Ok(()),
        }
    }

    fn speaks_http(&self) -> bool {
        false
    }

    /// It can start in any place, because the agent itself is the endpoint.
    fn check_start_elsewhere(&self) -> Result<(), Invalid> {
        Ok(())
    }
}
