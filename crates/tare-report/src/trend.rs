//! The runs of one experiment over time: their overheads, and where one of them changed.

mod words;

use serde::Serialize;
use tare_model::Metric;
use tare_stats::{Estimate, Verdict};

use crate::exports::{self, Part};
use crate::formats::{Document, Form};
use crate::html;
use crate::pair::{PairDocument, guards};
use crate::run::document::RunDocument;
use crate::run::{Bounds, RunReport};

pub(crate) use words::{HOW, note, title};
pub use words::{heading, table};

pub const SCHEMA: &str = "tare.trend/1";

#[derive(Clone, Debug, Serialize)]
pub struct TrendDocument {
    pub schema: &'static str,
    pub name: String,
    /// What is followed: variants in the metrics that the last run was to resolve.
    pub series: Vec<Series>,
    /// The runs, the oldest first.
    pub points: Vec<Point>,
    #[serde(skip)]
    documents: Vec<RunDocument>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Series {
    pub variant: String,
    pub metric: Metric,
    /// The baseline of its overheads; null if its own values are followed, drift included.
    pub relative_to: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Point {
    pub run: i64,
    pub started_unix_ms: u64,
    /// Commit of the repository in which the run was started.
    pub commit: Option<String>,
    pub tare_version: String,
    pub rounds: u32,
    /// Why it cannot be compared with the runs before it: another machine, another load.
    pub not_comparable: Option<String>,
    /// In the order of the series.
    pub values: Vec<Value>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Value {
    pub value: Option<Estimate>,
    pub overhead_percent: Option<Bounds>,
    /// Set if it differs from the reference run, the first one after the last change.
    pub change: Option<Changed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Changed {
    pub since_run: i64,
    /// Positive if it became worse.
    pub percent: Bounds,
    pub verdict: Verdict,
}

impl TrendDocument {
    /// Takes the runs of one experiment, the oldest first; `None` without runs.
    pub fn new(name: String, documents: Vec<RunDocument>) -> Option<Self> {
        let last = documents.last()?;
        let series = series_of(&last.report);
        let asked = last.facts.plan.stop.metrics.clone();
        // Index of each series' reference run.
        let mut since: Vec<usize> = vec![0; series.len()];
        let mut points = Vec::new();
        for (at, document) in documents.iter().enumerate() {
            let report = &document.report;
            let before = at.checked_sub(1).map(|before| &documents[before].report);
            let not_comparable = before.and_then(|before| apart(before, report));
            if not_comparable.is_some() {
                since.fill(at);
            }
            let values = series.iter().zip(&mut since).map(|(series, since)| {
                let change = changed(&documents[*since], document, series, &asked);
                // A run without an answer is nothing to compare others with.
                if change.is_some() || !is_known(&documents[*since].report, series) {
                    *since = at;
                }
                Value {
                    value: report
                        .variant(&series.variant)
                        .and_then(|v| v.metric(series.metric))
                        .copied(),
                    overhead_percent: overhead_of(report, series),
                    change,
                }
            });
            let values = values.collect();
            points.push(Point {
                run: report.run.id,
                started_unix_ms: report.run.started_unix_ms,
                commit: report.machine["commit"].as_str().map(str::to_owned),
                tare_version: report.run.tare_version.clone(),
                rounds: report.run.rounds,
                not_comparable,
                values,
            });
        }
        Some(Self { schema: SCHEMA, name, series, points, documents })
    }
}

fn series_of(report: &RunReport) -> Vec<Series> {
    let baseline = report.baseline().map(|baseline| baseline.name.clone());
    let followed = report.variants.iter().filter(|variant| !variant.baseline || report.is_single());
    let of = |variant: &str| {
        let relative_to = baseline.clone().filter(|_| !report.is_single());
        let series = move |metric| Series {
            variant: variant.to_owned(),
            metric,
            relative_to: relative_to.clone(),
        };
        report.asked().into_iter().map(series).collect::<Vec<_>>()
    };
    followed.flat_map(|variant| of(&variant.name)).collect()
}

/// Why a run cannot be compared with the one before it.
fn apart(before: &RunReport, after: &RunReport) -> Option<String> {
    let guards = [guards::other_machine(before, after), guards::other_load(before, after)];
    guards.into_iter().flatten().next().map(|guard| guard.text)
}

fn is_known(report: &RunReport, series: &Series) -> bool {
    match series.relative_to {
        Some(_) => overhead_of(report, series).is_some(),
        None => report.variant(&series.variant).is_some_and(|v| v.metric(series.metric).is_some()),
    }
}

fn overhead_of(report: &RunReport, series: &Series) -> Option<Bounds> {
    let baseline = series.relative_to.as_ref()?;
    let mut own = report.asked_of(&series.variant);
    let own = own.find(|c| c.metric == series.metric && c.baseline == *baseline)?;
    (own.verdict != Verdict::Void).then_some(own.overhead_percent)
}

/// The change from one run to another, if it is certain.
fn changed(
    since: &RunDocument,
    now: &RunDocument,
    series: &Series,
    asked: &[Metric],
) -> Option<Changed> {
    if since.report.run.id == now.report.run.id {
        return None;
    }
    let pair = PairDocument::new(since, now, asked).ok()?;
    let change = pair.changes.into_iter().find(|change| {
        change.variant == series.variant
            && change.metric == series.metric
            && change.relative_to == series.relative_to
    })?;
    matches!(change.verdict, Verdict::Slower | Verdict::Faster).then_some(Changed {
        since_run: since.report.run.id,
        percent: change.overhead_percent,
        verdict: change.verdict,
    })
}

impl Document for TrendDocument {
    fn kind(&self) -> &'static str {
        "a trend"
    }

    fn form(&self, form: Form) -> Option<String> {
        match form {
            Form::Text => Some(words::text(self)),
            // Plain data: serialising it cannot fail.
            Form::Json => Some(serde_json::to_string_pretty(self).unwrap_or_default() + "\n"),
            Form::Csv => Some(words::csv(self)),
            Form::Html => Some(html::trend::render(self)),
            Form::OtavaCsv => {
                let parts: Vec<Part<'_>> = self.documents.iter().map(Part::whole).collect();
                Some(exports::otava_csv::render(&parts))
            }
            _ => None,
        }
    }
}
