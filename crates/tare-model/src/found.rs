//! What the first rounds of a run find for what its plan leaves open: a record of its own, so that
//! a run that is resumed goes on with the same.

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;

use crate::plan::{PlanParts, SLICE_LENGTHS};
use crate::sustained::WarmUp;
use crate::{Invalid, text};

/// The shape of all slices of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Found {
    #[serde(with = "text::duration")]
    pub window: DurationNs,
    #[serde(with = "text::duration")]
    pub ramp: DurationNs,
    #[serde(with = "text::duration")]
    pub warmup: DurationNs,
    /// Of each variant, until it does not change any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<Vec<WarmUp>>,
}

impl Found {
    /// A stranger may have written it.
    pub fn check<L>(&self, plan: &PlanParts<L>) -> Result<(), Invalid> {
        let Self { window, ramp, warmup, warm } = self;
        // A warm-up that was asked for is as long as the run allows.
        let longest = plan.stop.max_time.max(*SLICE_LENGTHS.end());
        let lengths = SLICE_LENGTHS.contains(window) && ramp <= SLICE_LENGTHS.end();
        let lengths = lengths && *warmup <= longest;
        let is_whole = warm.as_ref().is_none_or(|warm| warm.len() == plan.variants.len());
        // Longer than it may be, a warm-up is cut.
        match lengths && is_whole {
            true => Ok(()),
            false => Err("what its first rounds found does not fit its plan".into()),
        }
    }
}
