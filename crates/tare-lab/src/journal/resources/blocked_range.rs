//! An unreachable route, with lower priority than a bridge's own.

use serde::{Deserialize, Serialize};

use crate::journal::removal::{Removal, Removed, TIMEOUT, removed};
use crate::machine::commands::run;

/// Lower priority than any other route for the range.
pub const BLOCKED_METRIC: &str = "4000000000";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedRange {
    pub range: String,
    pub bridge: String,
    pub mac: String,
}

impl Removal for BlockedRange {
    fn remove(&self) -> Removed {
        let Self { range, bridge, mac } = self;
        // If the bridge has another MAC address by now, the range and its route are another run's.
        let address = std::fs::read_to_string(format!("/sys/class/net/{bridge}/address"));
        if address.is_ok_and(|address| address.trim() != mac) {
            return Ok(None);
        }
        let shown = run(&["ip", "route", "show", "type", "unreachable", range], TIMEOUT);
        if shown.worked && shown.out.trim().is_empty() {
            return Ok(None);
        }
        let argv = ["ip", "route", "del", "unreachable", range, "metric", BLOCKED_METRIC];
        removed(run(&argv, TIMEOUT), format!("route for {range}"))
    }

    fn ends_with_the_boot(&self) -> bool {
        true
    }
}
