//! Two stored runs compared: two dates, or two machines.

pub(crate) mod guards;
mod words;

use serde::Serialize;
use tare_model::Metric;
use tare_stats::change::{ChangeQuestion, Match, changes};
use tare_stats::{Estimate, Verdict};

use crate::formats::{Document, Form};
use crate::html;
use crate::run::document::RunDocument;
use crate::run::{Bounds, GateResult, Run, RunGuard, RunReport};

pub const SCHEMA: &str = "tare.change/1";

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PairDocument {
    pub schema: String,
    pub before: Run,
    pub after: Run,
    pub changes: Vec<Change>,
    /// Variants that gates cover: those of either run, except a baseline that both share.
    pub judged: Vec<String>,
    /// Variants that only one of the runs has.
    pub alone: Vec<String>,
    pub tolerance: f64,
    pub guards: Vec<RunGuard>,
    /// Results of the gates of the command that wrote this document.
    pub gates: Vec<GateResult>,
}

/// The change of one variant in one metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    pub variant: String,
    pub metric: Metric,
    pub asked: bool,
    /// The baseline of the variant's ratio in both runs; null if the values themselves are
    /// compared, drift included.
    pub relative_to: Option<String>,
    pub before: Side,
    pub after: Side,
    /// Later value over earlier value; if `relative_to` is set, both are ratios to the baseline.
    pub ratio: Estimate,
    pub overhead_percent: Bounds,
    pub verdict: Verdict,
}

/// Results of one of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Side {
    pub value: Option<Estimate>,
    pub overhead_percent: Option<Bounds>,
}

impl PairDocument {
    /// Fails with one line if the runs have no variant in common.
    pub fn new(
        before: &RunDocument,
        after: &RunDocument,
        asked: &[Metric],
    ) -> Result<Self, String> {
        let (a, b) = (&before.report, &after.report);
        let (ours, theirs) = (names(a), names(b));
        let base = |report: &RunReport| report.baseline().map(|b| b.name.clone());
        let baseline = base(a).filter(|name| Some(name) == base(b).as_ref());
        let is_relative = |name: &String| baseline.as_ref().is_some_and(|base| base != name);
        let shared = ours.iter().enumerate().filter_map(|(before, name)| {
            let after = theirs.iter().position(|own| own == name)?;
            Some(Match { before, after, relative: is_relative(name) })
        });
        let shared: Vec<Match> = shared.collect();
        if shared.is_empty() {
            return Err(format!(
                "runs {} and {} have no variant in common: {} against {}",
                a.run.id,
                b.run.id,
                ours.join(", "),
                theirs.join(", ")
            ));
        }
        let question = ChangeQuestion {
            matches: shared,
            metrics: asked.to_vec(),
            tolerance: a.run.tolerance.max(b.run.tolerance),
            level: before.facts.question().level,
        };
        let alone = |names: &[String], others: &[String], run: &Run| -> Vec<String> {
            let only = names.iter().filter(|name| !others.contains(name));
            only.map(|name| format!("{name} (run {})", run.id)).collect()
        };
        let guards = guards::pair_guards(before, after, baseline.as_deref());
        let found = changes(&before.digests, &after.digests, &question).into_iter().map(|found| {
            let Match { before: at, relative, .. } = question.matches[found.at];
            let variant = ours[at].clone();
            let is_void = guards::is_void(&guards, &variant, baseline.as_deref());
            Change {
                relative_to: baseline.clone().filter(|_| relative),
                before: Side::from_report(a, &variant, found.metric),
                after: Side::from_report(b, &variant, found.metric),
                metric: found.metric,
                asked: found.asked,
                ratio: found.ratio,
                overhead_percent: found.overhead_percent.into(),
                verdict: if is_void { Verdict::Void } else { found.verdict },
                variant,
            }
        });
        let mut judged: Vec<String> =
            ours.iter().filter(|name| Some(*name) != baseline.as_ref()).cloned().collect();
        let others = theirs.iter().filter(|name| Some(*name) != baseline.as_ref());
        judged.extend(others.filter(|name| !ours.contains(name)).cloned());
        // If both runs have only their baseline, gates cover it.
        if judged.is_empty() {
            judged.clone_from(&ours);
        }
        Ok(Self {
            schema: SCHEMA.into(),
            judged,
            changes: found.collect(),
            alone: [alone(&ours, &theirs, &a.run), alone(&theirs, &ours, &b.run)].concat(),
            tolerance: question.tolerance,
            before: a.run.clone(),
            after: b.run.clone(),
            guards,
            gates: Vec::new(),
        })
    }
}

fn names(report: &RunReport) -> Vec<String> {
    report.variants.iter().map(|variant| variant.name.clone()).collect()
}

impl Side {
    fn from_report(report: &RunReport, variant: &str, metric: Metric) -> Self {
        let comparison =
            report.comparisons.iter().find(|c| c.variant == variant && c.metric == metric);
        Self {
            value: report.variant(variant).and_then(|own| own.metric(metric)).copied(),
            overhead_percent: comparison.map(|comparison| comparison.overhead_percent),
        }
    }
}

impl Document for PairDocument {
    fn kind(&self) -> &'static str {
        "a pair of runs"
    }

    fn form(&self, form: Form) -> Option<String> {
        match form {
            Form::Text => Some(words::text(self)),
            Form::Why => Some(words::why(self)),
            // Plain data: serialising it cannot fail.
            Form::Json => Some(serde_json::to_string_pretty(self).unwrap_or_default() + "\n"),
            Form::Markdown => Some(words::markdown(self)),
            Form::Csv => Some(words::csv(self)),
            Form::Html => Some(html::pair::render(self)),
            _ => None,
        }
    }
}

pub(crate) use words::{HOW, answers, evidence, heading, table, variants, who};
