//! The rulebook: reasons to doubt a number, each with its code, severity, threshold and sentence.
//! [`traffic`] has the rules that apply to any load, in single loads and in runs; all other rules
//! are for runs. The runner asks whether it is worth going on; reports show the findings.

#![forbid(unsafe_code)]

pub mod clients_summary;
pub mod code;
pub mod connections;
mod counts;
pub mod evidence;
pub mod filters;
pub mod format;
pub(crate) mod machine;
pub mod places;
pub mod proofs;
pub mod replies;
mod rounds;
pub mod rules;
pub mod steady;
pub mod traffic;

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};
use tare_model::plan::PlanParts;
use tare_stats::RoundDigest;
pub use tare_stats::Severity;
use tare_stats::designs::Rules;

pub use code::{Brief, Code, Family};
pub use evidence::{Circumstances, Evidence};

/// The rulebook, as measurement designs call it.
#[derive(Clone, Copy, Debug)]
pub struct Rulebook;

impl Rules for Rulebook {
    fn forbid_all(&self, plan: &PlanParts, rounds: &[RoundDigest]) -> bool {
        rules::forbid_all(plan, rounds)
    }

    fn replies_differ(&self, plan: &PlanParts, rounds: &[RoundDigest]) -> bool {
        rules::replies_differ(plan, rounds)
    }

    fn want_sustained(&self, plan: &PlanParts, rounds: &[RoundDigest]) -> bool {
        rules::wants_sustained(plan, rounds)
    }
}

/// A reason to doubt a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Doubt {
    pub code: Code,
    pub severity: Severity,
    pub text: String,
}

/// A reason to doubt a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunGuard {
    pub code: Code,
    pub severity: Severity,
    /// The variant concerned; null means all.
    pub variant: Option<String>,
    pub text: String,
    /// Replaces the code's words ([`Code::brief`]) in reports.
    #[serde(skip)]
    pub line: LineWords,
}

/// Words with figures that replace the code's words in the guard's line in reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineWords {
    pub seen: Option<String>,
    pub cure: Option<String>,
}

/// The first guard that forbids a verdict on a variant.
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

/// Wraps the fields in the type that rules return.
pub fn doubt(code: Code, severity: Severity, text: String) -> Option<Doubt> {
    Some(Doubt { code, severity, text })
}

/// Sorts by severity, the most severe first, and then by family; within a family, rules keep their
/// order.
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
