//! The page of one run: first the answer, then the figures, then how the run was measured.

use tare_model::Metric;
use tare_model::metric::Basis;
use tare_stats::Verdict;

use super::bars::{self, Bar};
use super::forest::{self, Forest, Row};
use super::page::{self, Page, details, table};
use super::{about, percentiles, rounds, timeline};
use crate::run::document::RunDocument;
use crate::run::table::{columns, table as measured};
use crate::run::trust::{ValueGuards, evidence, trust, warnings};
use crate::run::words::answers;
use crate::run::{Comparison, RunReport};

pub fn render(document: &RunDocument) -> String {
    let report = &document.report;
    let mut page = Page::new(&report.run.name);
    page.opening(&page::answers(&answers(report)), &trust_section(report));
    page.section("What each costs", &forests(report));
    let guards = about::guards(&report.guards) + &about::proofs(report);
    page.guards("May these numbers be compared?", &guards);
    page.section("The numbers", &table("Measured", &measured(report)));
    page.section("Latency", &percentiles::figure(document));
    let asked = report.asked();
    let dots: String = asked.iter().map(|metric| rounds::figure(document, *metric)).collect();
    page.section("Rounds", &dots);
    page.section("What each does and takes", &bars_of(report));
    page.section("The run", &timeline::figure(document));
    page.section("How it was measured", &about::facts(report));
    page.finish()
}

/// Returns why the answer can be trusted, the warnings, and the evidence.
fn trust_section(report: &RunReport) -> String {
    let warnings = warnings(&[ValueGuards::new(&report.guards)], report.variants.len());
    page::trust(&trust(report)) + &page::warnings(&warnings) + &page::evidence(&evidence(report))
}

/// Draws the overheads in the requested metrics, and folds those in other metrics.
pub(super) fn forests(report: &RunReport) -> String {
    let tolerance = report.run.tolerance * 100.0;
    let of = |metric: Metric, tolerance: Option<f64>| {
        let all = report.comparisons.iter().filter(|c| c.metric == metric);
        forest::figure(&Forest {
            word: "overhead",
            metric,
            rows: all.map(row).collect(),
            tolerance,
        })
    };
    let asked = report.asked();
    let first: String = asked.iter().map(|metric| of(*metric, Some(tolerance))).collect();
    let others = Metric::ALL.into_iter().filter(|metric| !asked.contains(metric));
    let others: String = others.map(|metric| of(metric, None)).collect();
    match others.is_empty() {
        true => first,
        false => first + &details("In what else was measured", &others),
    }
}

fn row(comparison: &Comparison) -> Row {
    Row {
        name: comparison.variant.clone(),
        bounds: comparison.overhead_percent,
        // Only the requested metrics have verdicts that hold jointly.
        verdict: comparison.verdict,
    }
}

fn bars_of(report: &RunReport) -> String {
    let of = |metric: Metric| {
        let bars = report.variants.iter().filter_map(|variant| {
            Some(Bar { name: variant.name.clone(), value: *variant.metric(metric)? })
        });
        bars::figure(metric, &bars.collect::<Vec<_>>())
    };
    // Latencies have their own figure.
    let is_latency = |metric: Metric| matches!(metric.basis(), Basis::Quantile(..));
    columns(report).into_iter().filter(|metric| !is_latency(*metric)).map(of).collect()
}

/// Whether a requested verdict is void.
pub(super) fn is_void(report: &RunReport) -> bool {
    let mut asked = report.comparisons.iter().filter(|c| c.asked);
    asked.any(|comparison| comparison.verdict == Verdict::Void)
}
