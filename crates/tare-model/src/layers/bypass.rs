//! Bypasses TCP between processes of one network namespace, such as an application and its sidecar.

use serde::{Deserialize, Serialize};

use super::LayerFacts;
use crate::Invalid;
use crate::places::PlaceSpec;
use crate::variant::Variant;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BypassSpec {
    pub bypass: BypassKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BypassKind {
    /// Uses BPF programs of the types sockops and sk_msg.
    Sockmap,
}

impl LayerFacts for BypassSpec {
    fn name(&self) -> String {
        match self.bypass {
            BypassKind::Sockmap => "bypass sockmap".into(),
        }
    }

    fn check(&self, variant: &Variant) -> Result<(), Invalid> {
        let is_here = |place: &PlaceSpec| matches!(place, PlaceSpec::Netns(_));
        match is_here(&variant.place) && variant.clients.places().all(is_here) {
            true => Ok(()),
            false => Err(Invalid(format!(
                "{}: it watches what tare starts on this machine: it goes with place = \"netns\" \
                 and client = \"netns\"",
                self.name()
            ))),
        }
    }
}
