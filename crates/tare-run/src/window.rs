//! Turns the shape of a slice into stretches of load.

use tare_io::DurationNs;
use tare_load::{Edges, Stretch};
use tare_model::plan::Plan;
use tare_stats::design::CellOrder;
use tare_stats::slicing::{LONGEST, SliceShape};

use crate::schedule::{RAMP_JITTER, Shape};

/// The slices of one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub shape: SliceShape,
    pub edges: Edges,
}

impl Window {
    pub fn for_cell(shape: SliceShape, order: &CellOrder, plan: &Plan) -> Self {
        // Edges on replies would leave out the first reply of a cold server; and several workers
        // must count over the same time, which only the clock gives them.
        let by_replies = plan.load.workers() == 1 && !order.is_cold;
        Self { shape, edges: if by_replies { Edges::Replies } else { Edges::Clock } }
    }

    /// Returns the window of one cycle; a length that the user chose stays.
    pub fn shaped(self, drawn: &Shape, is_fixed: bool) -> Self {
        let SliceShape { length, ramp, .. } = self.shape;
        let most = length.as_ns() as f64 / RAMP_JITTER as f64;
        let longer = if is_fixed { 1.0 } else { drawn.longer };
        let longer = DurationNs::from_ns((length.as_ns() as f64 * longer) as u64);
        let shape = SliceShape {
            ramp: ramp + DurationNs::from_ns((most * drawn.ramp) as u64),
            length: longer.min(LONGEST.max(length)),
            ..self.shape
        };
        Self { shape, ..self }
    }

    /// Returns load without a ramp, with a window as long as the mean ramp of a slice.
    pub fn only_ramp(&self) -> Stretch {
        let jitter = self.shape.length.as_ns() / RAMP_JITTER / 2;
        Stretch {
            ramp: DurationNs::ZERO,
            window: self.shape.ramp + DurationNs::from_ns(jitter),
            edges: Edges::Clock,
            ..self.stretch()
        }
    }

    pub fn stretch(&self) -> Stretch {
        Stretch {
            ramp: self.shape.ramp,
            window: self.shape.length,
            requests: self.shape.requests,
            edges: self.edges,
            ..Stretch::NONE
        }
    }

    pub fn warmup(&self, length: DurationNs) -> Stretch {
        Stretch { window: length, ..self.stretch() }
    }
}
