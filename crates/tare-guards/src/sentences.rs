//! Sentences that reports of a single load and of a run share.

use crate::units::{counted, duration};

/// How often kept connections were closed, and by what a user may know it.
pub fn closed_by_server(closed: u64, requests: u64) -> String {
    let often = match requests / closed.max(1) {
        0 => "more often than once a request".to_owned(),
        each => format!("one for every {}", counted(each, "request", "requests")),
    };
    format!(
        "closed {}, {often}; they were reopened (nginx: keepalive_requests)",
        counted(closed, "kept connection", "kept connections"),
    )
}

/// What a client without CPU to spare does to an open loop.
pub fn sent_late(lag_ns_p99: u64, latest: Option<String>) -> String {
    let latest = latest.map_or(String::new(), |latest| format!("; {latest}"));
    format!(
        "requests were sent late (lag p99 {}{latest}) though connections were free: the client is \
         short of CPU",
        duration(lag_ns_p99)
    )
}

/// The same in a closed loop, of several clients.
pub fn busy_clients(busy: &str) -> String {
    format!(
        "of the clients that made its load, {busy} had a worker busy nearly all the time: they may \
         be what is measured; give them more CPUs, or take more clients"
    )
}
