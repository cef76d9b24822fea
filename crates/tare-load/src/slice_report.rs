//! What one worker saw in a slice.

use tare_io::system::CpuTime;
use tare_io::{DurationNs, Instant};

use crate::histogram::Histogram;
use crate::tally::Tally;

/// One worker's part of a slice.
#[derive(Debug, Default)]
pub struct SliceReport {
    /// When load began, by the clock of who made it: not before it was to.
    pub began: Instant,
    /// Counters of the window; its histograms are in the series below.
    pub tally: Tally,
    pub from_sent: Recorded,
    pub from_due: Recorded,
    pub send_lag: Recorded,
    pub connect: Recorded,
    pub tls: Recorded,
    pub first_byte: Recorded,
    /// In the window.
    pub cpu: CpuTime,
    pub elapsed: DurationNs,
    /// Over the whole stretch, ramp and drain included.
    pub answered: u64,
    pub sent: u64,
    pub closed_by_server: u64,
    /// Segments that streams sent again, and datagrams that came after a later one.
    pub retransmits: u64,
    pub disordered: u64,
    /// At the end of each interval of the stretch: nanoseconds since the window opened, and what
    /// had been answered in it by then.
    pub marks: Vec<(u64, u64)>,
    /// SHA-256 of the bodies that were looked at, with how many had each.
    pub bodies: Vec<(String, u64)>,
}

/// A histogram's buckets that hold something, in ascending order.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    pub counts: Vec<(u64, u64)>,
    pub sum_ns: u128,
}

impl Recorded {
    pub(crate) fn of(histogram: &Histogram) -> Self {
        let counts = histogram.recorded().map(|(value, n)| (value.as_ns(), n)).collect();
        Self { counts, sum_ns: histogram.sum_ns() }
    }
}
