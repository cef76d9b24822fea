//! A check: whether a new version of a server is worse than the old one by more than a limit.

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;

use crate::{Invalid, Metric, text};

/// What a run contributes to a check. Its baseline is the old version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The new version.
    pub head: String,
    /// The old version once more: shows how small a difference this machine can detect.
    pub again: String,
    /// Limits for each metric that the run is to resolve.
    pub limits: Vec<CheckLimit>,
    /// Number of runs that are judged together.
    pub runs: u32,
    /// Time after which the run ends if it would not be decided within its time limit.
    #[serde(with = "text::duration")]
    pub screen: DurationNs,
}

/// How much worse a metric may become.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckLimit {
    pub metric: Metric,
    /// Percent of the old version's value.
    pub percent: f64,
}

impl Check {
    /// Checks it against the names of the plan's variants and the metrics that it resolves.
    pub(crate) fn check(
        &self,
        baseline: &str,
        names: &[&str],
        metrics: &[Metric],
    ) -> Result<(), Invalid> {
        let wanted = [self.head.as_str(), &self.again];
        if self.head == self.again || wanted.contains(&baseline) {
            return Err("check: base, base again and head must be three different variants".into());
        }
        if let Some(missing) = wanted.iter().find(|wanted| !names.contains(wanted)) {
            return Err(Invalid(format!("check: no variant named {missing}")));
        }
        let is_limited = |metric: &Metric| self.limits.iter().any(|limit| limit.metric == *metric);
        if !metrics.iter().all(is_limited) || self.limits.len() != metrics.len() {
            return Err("check: expected one limit for each metric".into());
        }
        Ok(())
    }
}
