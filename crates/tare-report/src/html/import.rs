//! The page of an import: the numbers, the verdicts, the audit's findings, and the source lines.

use tare_import::Sample;
use tare_import::audit::{Finding, by_kind};
use tare_import::compare::Compared;
use tare_model::Metric;
use tare_stats::{Severity, Verdict};

use super::about::badge;
use super::forest::{self, Forest, Row};
use super::page::{self, Page, details, escape, list, paragraph, table};
use crate::date;
use crate::import::{
    ImportDocument, about_all, compared_with, ending, footnote, sentences, table as numbers,
};
use crate::run::Bounds;
use crate::run::words::capital;

pub fn render(document: &ImportDocument) -> String {
    let mut page = Page::new(&document.import.name);
    let told: Vec<String> = compared_with(document)
        .into_iter()
        .chain(sentences(document))
        .map(|t| capital(&t))
        .collect();
    page.opening(&page::sentences(&told), "");
    page.section("What each costs, where repetitions tell", &forests(document));
    let numbers = numbers(document);
    let note = footnote(&numbers).map_or(String::new(), |note| paragraph(&note));
    page.section("The numbers", &(table("As the tools print them", &numbers) + &note));
    page.section("What speaks against them", &findings(document));
    let sources: String = document.import.samples.iter().map(source).collect();
    page.section("The lines they were read from", &sources);
    let kept = match document.run {
        0 => "not kept (--dry-run)".to_owned(),
        run => format!("stored as run {run}"),
    };
    let facts = format!(
        "{}; read {} UTC by tare {}, {kept}.",
        ending(document),
        date::utc(document.imported_unix_ms),
        document.tare_version
    );
    page.section("How it was made", &paragraph(&facts));
    page.finish()
}

/// Draws only overheads with intervals: a bare difference would look more certain than it is.
fn forests(document: &ImportDocument) -> String {
    let of = |metric: Metric| {
        let all = document.comparisons.iter().filter(|c| c.metric == metric);
        let rows: Vec<Row> = all.filter_map(|compared| row(document, compared)).collect();
        forest::figure(&Forest { word: "overhead", metric, rows, tolerance: None })
    };
    Metric::ALL.into_iter().map(of).collect()
}

fn row(document: &ImportDocument, compared: &Compared) -> Option<Row> {
    let interval = compared.interval?;
    let case = match document.import.cases().len() {
        1 => String::new(),
        _ => format!("{}: ", compared.case),
    };
    Some(Row {
        name: format!("{case}{}", compared.variant),
        bounds: Bounds {
            point: compared.overhead_percent,
            lower: interval.lower,
            upper: interval.upper,
        },
        verdict: compared.verdict.unwrap_or(Verdict::Unresolved),
    })
}

fn findings(document: &ImportDocument) -> String {
    if document.findings.is_empty() {
        return paragraph("The audit found nothing.");
    }
    let kinds = by_kind(&document.findings);
    let items = kinds.iter().map(|kind| {
        let Finding { severity, code, means, .. } = kind[0];
        format!(
            "{} <code>{}</code> {} <span class=\"note\">{}</span>",
            badge(*severity),
            escape(code.word()),
            escape(&about_all(document, kind)),
            escape(means)
        )
    });
    let grave = kinds.iter().filter(|kind| kind[0].severity == Severity::Void).count();
    let told = match grave {
        0 => String::new(),
        n => paragraph(&format!("{n} of these forbid a verdict on what they concern.")),
    };
    told + &list("guards", &items.collect::<Vec<_>>())
}

fn source(sample: &Sample) -> String {
    let case = if sample.case.is_empty() { String::new() } else { format!(" ({})", sample.case) };
    let title = format!("{}{case}: {}, {}", sample.variant, sample.tool.name(), sample.place());
    let command = sample.command.as_ref().map_or(String::new(), |c| paragraph(&format!("$ {c}")));
    let lines = format!("<pre>{}</pre>", escape(&sample.source.text));
    details(&title, &(command + &lines))
}
