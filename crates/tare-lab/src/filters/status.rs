//! Counts of nginx's filter module, from its status page.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tare_io::DurationNs;
use tare_io::time::monotonic_now;

use crate::lab::server::Server;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterStatus {
    pub address: SocketAddr,
}

/// Path of the status page.
pub const PAGE: &str = "/tare-filter";

/// Counts of all workers since nginx started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterCounts {
    /// Requests that the module saw, by its own count.
    pub seen: u64,
    /// Requests that the filter accepted, by its own count.
    pub accepted: u64,
    /// Requests that the filter refused, by its own count.
    pub refused: u64,
}

/// Workers publish their counts 20 ms after a change (the module's PUBLISH_MS), later on a busy
/// machine.
const SETTLED_WITHIN: DurationNs = DurationNs::from_ms(500);
const CHECK_EVERY: Duration = Duration::from_millis(5);

impl FilterStatus {
    pub fn read(&self, server: &Server) -> Option<FilterCounts> {
        parse(&server.page(self.address, PAGE)?)
    }

    /// Reads until the module has seen `seen` requests, for at most `SETTLED_WITHIN`.
    pub fn read_settled(
        &self,
        server: &Server,
        seen: u64,
        stop: &AtomicBool,
    ) -> Option<FilterCounts> {
        let limit = monotonic_now() + SETTLED_WITHIN;
        loop {
            let counts = self.read(server)?;
            if counts.seen >= seen || monotonic_now() > limit || stop.load(Ordering::Relaxed) {
                return Some(counts);
            }
            std::thread::park_timeout(CHECK_EVERY);
        }
    }
}

fn parse(page: &str) -> Option<FilterCounts> {
    let number = |name: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse().ok()
    };
    Some(FilterCounts {
        seen: number("seen")?,
        accepted: number("accepted")?,
        refused: number("refused")?,
    })
}

impl FilterCounts {
    pub fn since(self, earlier: Self) -> Self {
        Self {
            seen: self.seen.saturating_sub(earlier.seen),
            accepted: self.accepted.saturating_sub(earlier.accepted),
            refused: self.refused.saturating_sub(earlier.refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read() {
        let page = "HTTP/1.1 200 OK\r\n\r\nfilter shm\nprefix /a\nseen 3\naccepted 2\nrefused 1\nfailed 0\n";
        let counts = FilterCounts { seen: 3, accepted: 2, refused: 1 };
        assert_eq!(parse(page), Some(counts));
        assert_eq!(parse("HTTP/1.1 404 Not Found\r\n\r\n"), None);
    }
}
