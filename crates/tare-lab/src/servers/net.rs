//! The endpoint of `tare net` and `tare sys`.

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;

use super::{Kitchen, utf8};
use crate::error::LabError;
use crate::launch::{OWN_PROGRAM, Recipe};
use crate::programs;

/// Each key is the flag of `tare net --serve` with that name; docs/net.md.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NetSpec {
    pub delay: Option<String>,
    pub loss: Option<f64>,
    pub socket_buffer: Option<u32>,
}

const READY_WITHIN: DurationNs = DurationNs::from_secs(5);

impl NetSpec {
    pub fn flags(&self) -> Vec<String> {
        let mut flags = vec!["--calls".to_owned()];
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                flags.extend([format!("--{name}"), value]);
            }
        };
        add("delay", self.delay.clone());
        add("loss", self.loss.map(|share| share.to_string()));
        add("socket-buffer", self.socket_buffer.map(|bytes| bytes.to_string()));
        flags
    }

    pub(super) fn check(&self) -> Result<(), LabError> {
        let usage = |text: String| Err(LabError::Usage(text));
        if let Some(delay) = &self.delay
            && let Err(error) = DurationNs::parse(delay)
        {
            return usage(format!("net: delay: {error}"));
        }
        match self.loss {
            Some(loss) if !(0.0..=1.0).contains(&loss) => {
                usage(format!("net: loss = {loss}: write a share, 0 to 1"))
            }
            _ => Ok(()),
        }
    }

    /// Where a place has programs of its own, its agent is the endpoint.
    pub(super) fn recipe(&self, kitchen: &Kitchen<'_>) -> Result<Recipe, LabError> {
        let program = match kitchen.our_programs {
            true => utf8(&programs::own()?)?.to_owned(),
            false => OWN_PROGRAM.to_owned(),
        };
        let address = kitchen.address()?;
        let mut argv: Vec<String> = vec![program];
        argv.extend(["net", "--serve", "--listen"].map(str::to_owned));
        argv.push(address.to_string());
        argv.extend(self.flags());
        Ok(kitchen.recipe(argv, address, READY_WITHIN))
    }
}
