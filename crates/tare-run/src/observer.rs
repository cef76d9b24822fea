//! Observers of a run: the live table, plain progress lines, a test's log.

use tare_model::plan::VariantId;
use tare_stats::RoundDigest;

use crate::schedule::CellId;

/// An event of a run.
pub enum Event<'a> {
    /// Something takes long to start; sent before the first round.
    Waiting(&'a str),
    /// A round began; its variants are launched in this order.
    RoundStarted {
        round: u32,
        order: &'a [VariantId],
    },
    /// A variant is up and has replied.
    Up {
        variant: VariantId,
    },
    SliceDone {
        cell: CellId,
        variant: VariantId,
        cycle: u32,
    },
    /// The results of a cell so far, after a round.
    EstimateChanged {
        cell: CellId,
        digests: &'a [RoundDigest],
    },
    /// A round failed and does not count.
    RoundLost {
        round: u32,
        why: &'a str,
    },
    Ended,
}

pub trait Observer {
    fn on_event(&mut self, event: &Event<'_>);
}

/// Ignores all events.
pub struct SilentObserver;

impl Observer for SilentObserver {
    fn on_event(&mut self, _: &Event<'_>) {}
}
