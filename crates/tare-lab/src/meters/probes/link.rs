//! Packets of a server: on its place's link, counted at this end, or on the loopback device that it
//! shares with its client.

use std::fs::{self, File};
use std::path::Path;

use tare_model::counters::{Counter, Counters};

use crate::meters::probe::{Probe, Seen, open, read_number};

#[derive(Debug)]
pub struct Link {
    received: File,
    /// `None` for the loopback device, where everything sent is also received.
    sent: Option<File>,
}

impl Link {
    pub fn attach(link: &str) -> Option<Self> {
        let statistics = Path::new("/sys/class/net").join(link).join("statistics");
        let of = |name: &str| open(&statistics.join(name));
        Some(Self { received: of("rx_packets")?, sent: Some(of("tx_packets")?) })
    }

    /// Attaches to the loopback device, if the process shares this one's network namespace. Traffic
    /// of other programs on it is counted too.
    pub fn attach_loopback(pid: u32) -> Option<Self> {
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
        let is_shared = namespace(&pid.to_string())? == namespace("self")?;
        let received = open(Path::new("/sys/class/net/lo/statistics/rx_packets"));
        is_shared.then(|| Some(Self { received: received?, sent: None })).flatten()
    }
}

impl Probe for Link {
    fn read(&self, _seen: &Seen<'_>) -> Counters {
        let sent = self.sent.as_ref().map_or(Some(0), read_number);
        let packets = read_number(&self.received).zip(sent);
        Counters::default().with(Counter::Packets, packets.map(|(a, b)| a.saturating_add(b)))
    }
}
