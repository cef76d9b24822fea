//! The rulebook: reasons to doubt a number, each with its code, severity, threshold and sentence. Of
//! load in itself they are in [`traffic`], whoever made it; the others are of runs. The runner asks
//! whether going on would help, reports show what was found.

#![forbid(unsafe_code)]

pub mod clients;
pub mod code;
pub mod connections;
pub mod evidence;
pub mod filters;
pub mod places;
pub mod run;
pub mod steady;
pub mod traffic;
pub mod units;

use serde::{Deserialize, Serialize};
use tare_model::plan::PlanParts;
use tare_stats::RoundDigest;
pub use tare_stats::Severity;
use tare_stats::designs::Rules;

pub use code::{Code, Family};
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

/// Something that speaks against a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Found {
    pub code: Code,
    pub severity: Severity,
    pub text: String,
}

/// Something that speaks against a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunGuard {
    pub code: Code,
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

pub(crate) fn found(code: Code, severity: Severity, text: String) -> Option<Found> {
    Some(Found { code, severity, text })
}

pub(crate) fn guard(
    code: Code,
    severity: Severity,
    variant: Option<&str>,
    text: String,
) -> Vec<RunGuard> {
    vec![RunGuard { code, severity, variant: variant.map(str::to_owned), text }]
}
