//! Sustained load as measured; `tare_stats::sustained` draws the conclusions.

use serde::{Deserialize, Serialize};

/// One variant's part of a stretch of sustained load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sustained {
    /// Whether it began with the launch's first request.
    pub cold: bool,
    /// Whether variants were loaded one after another, in turns of a second: servers that sleep
    /// between requests would not sleep while others run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_turns: bool,
    pub bins: Vec<Bin>,
    /// Whether one thread uses nearly all of the server's CPU time: while that thread waits for a
    /// CPU, so does the server.
    pub one_thread: bool,
}

/// A short piece of a stretch of load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bin {
    pub ns: u64,
    pub answered: u64,
    /// CPU time of the server; zero in all bins if the server is not metered.
    pub cpu_ns: u64,
    /// How long the busiest thread was ready to run but waited for a CPU.
    pub delay_ns: u64,
}

/// The load that a launch got before its costs stopped changing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmUp {
    pub ns: u64,
    pub requests: u64,
}

impl Bin {
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            ns: self.ns + more.ns,
            answered: self.answered + more.answered,
            cpu_ns: self.cpu_ns + more.cpu_ns,
            delay_ns: self.delay_ns + more.delay_ns,
        }
    }
}
