//! The page of a check: the answer, every metric with its interval, and each run in short.

use tare_stats::Verdict;

use super::forest::{self, Forest, Row};
use super::page::{self, Page, details};
use super::{about, run};
use crate::check::{CheckDocument, MetricFinding, Outcome, answer, table};
use crate::run::document::RunDocument;
use crate::run::trust::{ValueGuards, warnings};
use crate::run::words::answers;

pub fn render(document: &CheckDocument) -> String {
    let mut page = Page::new(&document.name);
    let guards: Vec<ValueGuards<'_>> =
        document.documents.iter().map(|own| ValueGuards::new(&own.report.guards)).collect();
    let variants = document.documents.first().map_or(0, |own| own.report.variants.len());
    let how = page::warnings(&warnings(&guards, variants)) + &page::evidence(&document.basis());
    page.opening(&page::paragraph(&answer(document)), &how);
    page.section("The findings", &page::table("Clearest violation first", &table(document)));
    let missing: Vec<String> = document
        .missing
        .iter()
        .map(|one| page::escape(&format!("{}: {}", one.name, one.reason)))
        .collect();
    if !missing.is_empty() {
        page.section("Not measured", &page::list("missing", &missing));
    }
    let figures: String = document.findings.iter().map(|one| figure(document, one)).collect();
    page.section("The changes", &figures);
    page.section("Each run", &document.documents.iter().map(short).collect::<String>());
    if let Some(first) = document.documents.first() {
        page.guards("May these numbers be compared?", &about::guards(&first.report.guards));
        page.section("How it was measured", &about::facts(&first.report));
    }
    page.finish()
}

fn figure(document: &CheckDocument, finding: &MetricFinding) -> String {
    let verdict = match finding.outcome {
        Outcome::Worse => Verdict::Slower,
        Outcome::NotWorse => Verdict::Same,
        Outcome::Undecided => Verdict::Unresolved,
        Outcome::RepliesDiffer | Outcome::Unfit | Outcome::Void => Verdict::Void,
    };
    let [_, head, again] = document.names();
    let rows = [
        finding.change_percent.map(|bounds| Row { name: head.into(), bounds, verdict }),
        finding.again_percent.map(|bounds| Row {
            name: again.into(),
            bounds,
            verdict: Verdict::Same,
        }),
    ];
    forest::figure(&Forest {
        word: "change",
        metric: finding.metric,
        rows: rows.into_iter().flatten().collect(),
        tolerance: Some(finding.limit_percent),
    })
}

fn short(document: &RunDocument) -> String {
    let report = &document.report;
    let inner = page::answers(&answers(report))
        + &page::table("Measured", &crate::run::table::table(report))
        + &run::forests(report)
        + &page::paragraph(&format!("In full: tare report {} --html FILE", report.run.id));
    details(&report.run.name, &inner)
}
