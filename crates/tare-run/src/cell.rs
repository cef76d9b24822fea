//! One load while it is measured: where its slices are kept, and its results so far. A run has one
//! cell; a sweep has one for each of its values, all on the same launches.

use tare_model::calibration::Calibration;
use tare_model::plan::Plan;
use tare_model::samples::Round;
use tare_model::sustained::WarmUp;
use tare_stats::design::CellHistory;
use tare_stats::slicing::SliceShape;
use tare_stats::{RoundDigest, add_round};
use tare_store::RunId;

use crate::outcome::Stopped;

pub struct Cell<'a> {
    pub plan: &'a Plan,
    /// Where its slices are kept.
    pub run: RunId,
    /// The shape of its slices, once trials have found it.
    pub shape: Option<SliceShape>,
    /// The warm-up that each variant needs, once launches have shown it.
    pub warm: Option<Vec<WarmUp>>,
    pub digests: Vec<RoundDigest>,
    /// Why the cell is no longer measured, if something other than the design ended it.
    pub stopped: Option<Stopped>,
}

impl<'a> Cell<'a> {
    /// `found` and `digests` are those of the earlier part of a resumed run.
    pub fn new(
        plan: &'a Plan,
        run: RunId,
        found: Option<&Calibration>,
        digests: Vec<RoundDigest>,
    ) -> Self {
        let shape = found.map(|found| SliceShape {
            length: found.window,
            ramp: found.ramp,
            warmup: found.warmup,
            requests: None,
        });
        let warm = found.and_then(|found| found.warm.clone());
        Self { plan, run, shape, warm, digests, stopped: None }
    }

    pub fn take(&mut self, round: &Round) {
        add_round(&mut self.digests, round, self.plan.variants.len(), self.plan.baseline());
    }

    pub fn history(&self) -> CellHistory<'_> {
        CellHistory {
            rounds: &self.digests,
            shape: self.shape,
            warm: self.warm.as_deref(),
            is_over: self.stopped.is_some(),
        }
    }
}
