//! Values that the first rounds of a run determine because its plan leaves them open. They are a
//! record of their own, so that a resumed run continues with the same values.

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;

use crate::plan::{PlanParts, SLICE_LENGTHS};
use crate::sustained::WarmUp;
use crate::{Invalid, text};

/// The shape of every slice of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    #[serde(with = "text::duration")]
    pub window: DurationNs,
    #[serde(with = "text::duration")]
    pub ramp: DurationNs,
    #[serde(with = "text::duration")]
    pub warmup: DurationNs,
    /// Load that each variant needed before its costs stopped changing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<Vec<WarmUp>>,
}

impl Calibration {
    /// Checks the values: somebody else may have written the store.
    pub fn check<L>(&self, plan: &PlanParts<L>) -> Result<(), Invalid> {
        let Self { window, ramp, warmup, warm } = self;
        // A warm-up that was asked for may be as long as the run.
        let longest = plan.stop.max_time.max(*SLICE_LENGTHS.end());
        let lengths = SLICE_LENGTHS.contains(window) && ramp <= SLICE_LENGTHS.end();
        let lengths = lengths && *warmup <= longest;
        let is_whole = warm.as_ref().is_none_or(|warm| warm.len() == plan.variants.len());
        // Entries of `warm` may be too long: such a warm-up is cut.
        match lengths && is_whole {
            true => Ok(()),
            false => Err("what its first rounds found does not fit its plan".into()),
        }
    }
}
