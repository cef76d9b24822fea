//! Packets on a place's link, as this end of it counts them.

use std::fs::File;
use std::path::Path;

use tare_model::counters::{Counter, Counters};

use crate::probe::{Probe, Seen, open, read_number};

#[derive(Debug)]
pub struct Link {
    received: File,
    sent: File,
}

impl Link {
    pub fn attach(link: &str) -> Option<Self> {
        let statistics = Path::new("/sys/class/net").join(link).join("statistics");
        let of = |name: &str| open(&statistics.join(name));
        Some(Self { received: of("rx_packets")?, sent: of("tx_packets")? })
    }
}

impl Probe for Link {
    fn read(&self, _seen: &Seen<'_>) -> Counters {
        let packets = read_number(&self.received).zip(read_number(&self.sent));
        Counters::default().with(Counter::Packets, packets.map(|(a, b)| a.saturating_add(b)))
    }
}
