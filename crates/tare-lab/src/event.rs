//! Events of servers, for the run's log.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    pub unix_ms: u64,
    /// A variant's name, or "tare".
    pub who: String,
    pub text: String,
}
