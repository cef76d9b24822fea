//! The rulebook: reasons to doubt a number, each with its code, severity, threshold and sentence. Of
//! load in itself they are in [`traffic`], for single loads and for runs; the others are of runs. The
//! runner asks whether going on would help, reports show what was found.

#![forbid(unsafe_code)]

pub mod clients;
pub mod code;
pub mod connections;
pub mod evidence;
pub mod filters;
pub mod places;
pub mod replies;
pub mod run;
pub mod steady;
pub mod traffic;
pub mod units;

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};
use tare_model::plan::PlanParts;
use tare_stats::RoundDigest;
pub use tare_stats::Severity;
use tare_stats::designs::Rules;

pub use code::{Brief, Code, Family};
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
pub struct Doubt {
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
    /// What reports say in its line instead of the code's words ([`Code::brief`]).
    #[serde(skip)]
    pub line: LineWords,
}

/// A guard's own words for its line in reports, where the figures are worth it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineWords {
    pub seen: Option<String>,
    pub cure: Option<String>,
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

/// What rules give back.
pub fn doubt(code: Code, severity: Severity, text: String) -> Option<Doubt> {
    Some(Doubt { code, severity, text })
}

/// Gravest first, and then what belongs together; of a family in the order of the rules.
pub fn in_order(guards: &mut [RunGuard]) {
    guards.sort_by_key(|guard| (Reverse(guard.severity), guard.code.family()));
}

pub(crate) fn guard(
    code: Code,
    severity: Severity,
    variant: Option<&str>,
    text: String,
) -> Vec<RunGuard> {
    let line = LineWords::default();
    vec![RunGuard { code, severity, variant: variant.map(str::to_owned), text, line }]
}
