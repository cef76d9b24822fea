//! Who watches a run: the live table, plain progress lines, a test's log.

use tare_model::plan::VariantId;
use tare_stats::RoundDigest;

use crate::schedule::CellId;

/// Something that happened.
pub enum Event<'a> {
    /// Before the first round, something takes its time.
    Waiting(&'a str),
    /// A round began; its variants are launched in this order.
    RoundStarted {
        round: u32,
        order: &'a [VariantId],
    },
    /// A variant is up, and answered.
    Up {
        variant: VariantId,
    },
    SliceDone {
        cell: CellId,
        variant: VariantId,
        cycle: u32,
    },
    /// What a cell found so far; after a round.
    EstimateChanged {
        cell: CellId,
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
