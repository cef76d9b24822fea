//! A check: whether a new version of a server is worse than the old one by more than its limits.

mod words;

use serde::Serialize;
use tare_guards::Code;
use tare_model::Metric;
use tare_model::variant::Skipped;
use tare_stats::stopping::{Finding, Limit};
use tare_stats::{Estimate, Verdict, analyse};

use crate::formats::{Document, Form};
use crate::run::document::RunDocument;
use crate::run::words::overhead;
use crate::run::{Bounds, RunGuard, RunReport};
use crate::sweep::cells;
use crate::{exports, html};

pub use words::{answer, table};

pub const SCHEMA: &str = "tare.check/1";

#[derive(Clone, Debug, Serialize)]
pub struct CheckDocument {
    pub schema: &'static str,
    pub name: String,
    pub outcome: Outcome,
    /// The answer as one sentence.
    pub sentence: String,
    /// The most significant excess first.
    pub findings: Vec<MetricFinding>,
    /// Experiments that could not be measured.
    pub missing: Vec<Skipped>,
    /// The runs in the store; each has the same findings in more detail.
    pub runs: Vec<i64>,
    pub elapsed_ms: u64,
    #[serde(skip)]
    pub(crate) documents: Vec<RunDocument>,
}

/// The answer to a check. Of several, the first in this order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Replies differ, so there is nothing to compare.
    RepliesDiffer,
    /// The old version differs from itself on this machine.
    Unfit,
    Worse,
    /// Guards forbid a verdict.
    Void,
    Undecided,
    NotWorse,
}

/// One metric under one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricFinding {
    /// The run that has it.
    pub run: i64,
    pub experiment: String,
    /// The rate, if it is fixed.
    pub rate_per_s: Option<f64>,
    pub metric: Metric,
    /// How much worse the new version may be.
    pub limit_percent: f64,
    pub base: Option<Estimate>,
    pub head: Option<Estimate>,
    /// Positive if the new version is worse; null if it was not measured.
    pub change_percent: Option<Bounds>,
    /// The old version against itself.
    pub again_percent: Option<Bounds>,
    pub outcome: Outcome,
    /// Why there is no answer, if it is not the width of the interval.
    pub reason: Option<String>,
}

impl CheckDocument {
    pub fn new(documents: Vec<RunDocument>, missing: Vec<Skipped>) -> Self {
        let mut findings: Vec<MetricFinding> = documents.iter().flat_map(findings_of).collect();
        findings.sort_by(|a, b| {
            a.outcome.cmp(&b.outcome).then(b.significance().total_cmp(&a.significance()))
        });
        let of_findings = findings.iter().map(|finding| finding.outcome).min();
        let of_missing = (!missing.is_empty()).then_some(Outcome::Undecided);
        let mut names: Vec<String> = documents.iter().map(experiment).collect();
        names.dedup();
        let mut document = Self {
            schema: SCHEMA,
            name: names.join(", "),
            outcome: of_findings.into_iter().chain(of_missing).min().unwrap_or(Outcome::Undecided),
            sentence: String::new(),
            findings,
            missing,
            runs: documents.iter().map(|document| document.report.run.id).collect(),
            elapsed_ms: documents.iter().map(|document| document.report.run.elapsed_ms).sum(),
            documents,
        };
        document.sentence = words::sentence(&document);
        document
    }
}

/// The experiment's name, which its runs share.
fn experiment(document: &RunDocument) -> String {
    cells::name(&document.report.run.name, &document.facts.plan.cell)
}

fn findings_of(document: &RunDocument) -> Vec<MetricFinding> {
    let (plan, report) = (&document.facts.plan, &document.report);
    let Some(check) = &plan.check else { return Vec::new() };
    let analysis = analyse(&document.digests, &document.facts.question());
    let base = report.baseline();
    let of = |limit: &Limit| {
        let found = analysis.comparisons.iter().find(|c| limit.is_about(c));
        let bounds_of = |variant: &str| {
            let mut own = report.asked_of(variant).filter(|c| c.metric == limit.metric);
            own.next().map(|comparison| (comparison.overhead_percent, comparison.verdict))
        };
        let (head, again) = (bounds_of(&check.head), bounds_of(&check.again));
        let (outcome, reason) = match (found.map(|found| limit.find(found)), head, again) {
            _ if let Some(guard) = differs(report, &check.head) => {
                // Replies that differ from start to start are not the change's.
                let is_unfit = differs(report, &check.again).is_some();
                let outcome = if is_unfit { Outcome::Unfit } else { Outcome::RepliesDiffer };
                (outcome, Some(guard.text.clone()))
            }
            (_, _, Some((_, Verdict::Slower | Verdict::Faster))) => (Outcome::Unfit, None),
            (_, Some((_, Verdict::Void)), _) => {
                let guard = report.why_void(&check.head);
                (Outcome::Void, guard.map(|guard| guard.text.clone()))
            }
            (Some(Finding::Exceeded), ..) => (Outcome::Worse, None),
            (Some(Finding::Kept), ..) => (Outcome::NotWorse, None),
            _ => {
                let mut own = report.asked_of(&check.head).filter(|c| c.metric == limit.metric);
                let sustained = own.next().and_then(|own| own.unconfirmed());
                (Outcome::Undecided, sustained.map(|sustained| unconfirmed(&sustained)))
            }
        };
        MetricFinding {
            run: report.run.id,
            experiment: experiment(document),
            rate_per_s: plan.load.rate(),
            metric: limit.metric,
            limit_percent: limit.percent,
            base: base.and_then(|base| base.metric(limit.metric)).copied(),
            head: report.variant(&check.head).and_then(|own| own.metric(limit.metric)).copied(),
            change_percent: head.map(|(bounds, _)| bounds),
            again_percent: again.map(|(bounds, _)| bounds),
            outcome,
            reason,
        }
    };
    Limit::from_check(plan).iter().map(of).collect()
}

fn unconfirmed(sustained: &Bounds) -> String {
    format!("sustained load, {}, does not confirm it", overhead(sustained))
}

/// The guard that says that the new version's replies differ.
fn differs<'a>(report: &'a RunReport, head: &str) -> Option<&'a RunGuard> {
    let own = |guard: &&RunGuard| guard.variant.as_deref() == Some(head);
    let mut grave = report.guards.iter().filter(own);
    grave.find(|guard| {
        guard.code == Code::UnequalReply && guard.severity == tare_guards::Severity::Void
    })
}

impl MetricFinding {
    /// Distance from the limit to the change, in half widths of its interval.
    fn significance(&self) -> f64 {
        self.change_percent.map_or(f64::NEG_INFINITY, |bounds| {
            let half = (bounds.upper - bounds.lower).max(f64::MIN_POSITIVE) / 2.0;
            (bounds.point - self.limit_percent) / half
        })
    }
}

impl Document for CheckDocument {
    fn kind(&self) -> &'static str {
        "a check"
    }

    fn form(&self, form: Form) -> Option<String> {
        match form {
            Form::Text => Some(words::text(self)),
            // Plain data: serialising it cannot fail.
            Form::Json => Some(serde_json::to_string_pretty(self).unwrap_or_default() + "\n"),
            Form::Markdown => Some(words::markdown(self)),
            Form::Html => Some(html::check::render(self)),
            Form::Junit => Some(exports::junit::render(self)),
            Form::Annotations => Some(exports::annotations::render(self)),
            _ => None,
        }
    }
}
