//! What a run says against itself: each guard looks at one thing, in one sentence. The runner asks
//! whether going on would help, reports show what was found.

#![forbid(unsafe_code)]

pub mod clients;
pub mod connections;
pub mod evidence;
pub mod filters;
pub mod places;
pub mod run;
pub mod sentences;
pub mod steady;
pub mod units;

use serde::{Deserialize, Serialize};
use tare_model::plan::PlanParts;
use tare_stats::RoundDigest;
pub use tare_stats::Severity;
use tare_stats::designs::Rules;

pub use evidence::{Circumstances, Evidence};

/// The rulebook, as designs of measurement ask it.
#[derive(Clone, Copy, Debug)]
pub struct Rulebook;

impl Rules for Rulebook {
    fn forbid_all(&self, plan: &PlanParts, rounds: &[RoundDigest]) -> bool {
        run::forbid_all(plan, rounds)
    }

    fn want_sustained(&self, plan: &PlanParts, rounds: &[RoundDigest]) -> bool {
        run::wants_sustained(plan, rounds)
    }
}

/// Something that speaks against a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunGuard {
    pub code: String,
    pub severity: Severity,
    /// Whom it concerns; null is all.
    pub variant: Option<String>,
    pub text: String,
}

/// The gravest guard that forbids a verdict on a variant.
pub fn why_void<'a>(
    guards: &'a [RunGuard],
    variant: &str,
    baseline: Option<&str>,
) -> Option<&'a RunGuard> {
    guards.iter().find(|guard| {
        let whom = guard.variant.as_deref();
        guard.severity == Severity::Void
            && whom.is_none_or(|whom| whom == variant || Some(whom) == baseline)
    })
}

pub(crate) fn guard(
    code: &str,
    severity: Severity,
    variant: Option<&str>,
    text: String,
) -> Vec<RunGuard> {
    let variant = variant.map(str::to_owned);
    vec![RunGuard { code: code.into(), severity, variant, text }]
}
