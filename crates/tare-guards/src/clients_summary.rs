//! Several clients that made one load together, for load and run reports.

use serde::{Deserialize, Serialize};
use tare_model::samples::{ClientPart, ConcurrentClients, Counts};

use crate::format::{duration, percent};
use crate::traffic::CLIENT_BUSY;

/// Results of each client, and how well they were synchronised.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientsSummary {
    /// Time from the first client's start to the last one's; 99 of 100 slices do not exceed it.
    pub start_skew_ns_p99: u64,
    /// Largest possible error of the clock estimates that the skew is based on.
    pub clock_error_ns: u64,
    /// Results of each client, in the order in which the clients were given.
    pub each: Vec<ClientSummary>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientSummary {
    /// Description of the client's place, as seen from inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    pub good: u64,
    /// Delay of its start after the agreed instant; the longest of all slices.
    pub late_ns_max: u64,
    pub busiest_worker_share: f64,
    /// Open loop: mean send lag.
    pub send_lag_ns_mean: Option<u64>,
}

impl From<&ClientPart> for ClientSummary {
    fn from(part: &ClientPart) -> Self {
        Self {
            seen: None,
            good: part.good,
            late_ns_max: part.late_ns,
            busiest_worker_share: part.busiest,
            send_lag_ns_mean: part.lag_ns.checked_div(part.sent),
        }
    }
}

impl ClientsSummary {
    pub fn new(together: &ConcurrentClients) -> Self {
        Self {
            start_skew_ns_p99: together.skew_p99_ns(),
            clock_error_ns: together.clock_ns,
            each: together.clients.iter().map(ClientSummary::from).collect(),
        }
    }

    /// Includes a load made by a single client, and what each client's place looks like.
    pub fn with_places(counts: &Counts, seen: Vec<String>) -> Self {
        let mut found = counts.together.as_ref().map(Self::new).unwrap_or_else(|| {
            let (good, busiest_worker_share) = (counts.good, counts.client_busiest);
            let alone = ClientSummary { good, busiest_worker_share, ..ClientSummary::default() };
            Self { each: vec![alone], ..Self::default() }
        });
        for (client, seen) in found.each.iter_mut().zip(seen) {
            client.seen = Some(seen);
        }
        found
    }

    /// Fewest and most good replies of any client.
    pub fn spread(&self) -> (u64, u64) {
        let good = || self.each.iter().map(|client| client.good);
        (good().min().unwrap_or(0), good().max().unwrap_or(0))
    }

    fn name(&self, at: usize) -> String {
        format!("client {} of {}", at + 1, self.each.len())
    }

    /// Names the clients that had no CPU time to spare.
    pub fn busy(&self) -> Option<String> {
        let clients = self.each.iter().enumerate();
        let busy = clients.filter(|(_, client)| client.busiest_worker_share >= CLIENT_BUSY);
        let words = busy.map(|(at, client)| {
            format!("{} ({})", self.name(at), percent(client.busiest_worker_share))
        });
        let words: Vec<String> = words.collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// Names the client with the largest send lag.
    pub fn latest(&self) -> Option<String> {
        let clients = self.each.iter().enumerate();
        let lags = clients.filter_map(|(at, client)| Some((client.send_lag_ns_mean?, at)));
        let (lag, at) = lags.max()?;
        Some(format!("largest mean lag: {}, {}", self.name(at), duration(lag)))
    }
}
