//! Who watches a run: the live table, plain progress lines, a test's log.

use tare_stats::RoundDigest;

/// Something that happened.
pub enum Event<'a> {
    /// Before the first round, something takes its time.
    Waiting(&'a str),
    /// A round began; its variants are launched in this order.
    RoundStarted {
        round: u32,
        order: &'a [usize],
    },
    /// A variant is up, and answered.
    Up {
        variant: usize,
    },
    SliceDone {
        cell: usize,
        variant: usize,
        cycle: u32,
    },
    /// What a cell found so far; after a round.
    EstimateChanged {
        cell: usize,
        digests: &'a [RoundDigest],
    },
    /// Something failed in it, and it does not count.
    RoundLost {
        round: u32,
        why: &'a str,
    },
    Ended,
}

pub trait Observer {
    fn on_event(&mut self, event: &Event<'_>);
}

/// Nobody watches.
pub struct Nobody;

impl Observer for Nobody {
    fn on_event(&mut self, _: &Event<'_>) {}
}
