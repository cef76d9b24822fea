//! A sweep in words: a row a value, a column a variant.

use tare_stats::{Metric, Verdict};

use crate::run::RunReport;
use crate::run_sweep::Sweep;
use crate::run_text::columns;
use crate::run_words::{Table, overhead};
use crate::{run_csv, run_markdown};

pub fn render(sweep: &Sweep) -> String {
    let parts = metrics(sweep).into_iter().map(|metric| {
        let lines = columns(&table(sweep, metric)).join("\n");
        format!("overhead, {} (~ is unresolved):\n{lines}\n", metric.word())
    });
    parts.collect::<Vec<_>>().join("\n")
}

pub fn markdown(sweep: &Sweep) -> String {
    let mut text = String::new();
    for metric in metrics(sweep) {
        let table = table(sweep, metric);
        let row = |cells: &[String]| format!("| {} |\n", run_markdown::escaped(cells).join(" | "));
        text.push_str(&format!("## Overhead, {} (~ is unresolved)\n\n", metric.word()));
        text.push_str(&row(&table.header));
        let marks = vec!["---:"; table.header.len().saturating_sub(1)].join("|");
        text.push_str(&format!("|---|{marks}|\n"));
        table.rows.iter().for_each(|cells| text.push_str(&row(cells)));
        text.push('\n');
    }
    let cells: Vec<String> =
        sweep.cells.iter().map(|cell| run_markdown::render(&cell.report)).collect();
    text + &cells.join("\n")
}

/// The cells' rows under one header; the run's number tells them apart.
pub fn csv(sweep: &Sweep) -> String {
    let mut text = String::new();
    for (at, cell) in sweep.cells.iter().enumerate() {
        let own = run_csv::render(&cell.report);
        let skip = if at == 0 { 0 } else { own.find('\n').map_or(0, |end| end + 1) };
        text.push_str(&own[skip..]);
    }
    text
}

fn metrics(sweep: &Sweep) -> Vec<Metric> {
    let mut found = Vec::new();
    for comparison in sweep.cells.iter().flat_map(|cell| &cell.report.comparisons) {
        if comparison.asked && !found.contains(&comparison.metric) {
            found.push(comparison.metric);
        }
    }
    found
}

fn table(sweep: &Sweep, metric: Metric) -> Table {
    let variants: Vec<&str> = sweep.cells.first().map_or_else(Vec::new, |cell| {
        let others = cell.report.variants.iter().filter(|variant| !variant.baseline);
        others.map(|variant| variant.name.as_str()).collect()
    });
    let mut header = vec![String::new()];
    header.extend(variants.iter().map(|name| (*name).to_owned()));
    let rows = sweep.cells.iter().map(|cell| {
        let mut row = vec![cell.label()];
        row.extend(variants.iter().map(|name| cell_text(&cell.report, name, metric)));
        row
    });
    Table { rows: rows.collect(), header }
}

fn cell_text(report: &RunReport, variant: &str, metric: Metric) -> String {
    let found = report.asked_of(variant).find(|comparison| comparison.metric == metric);
    found.map_or("–".into(), |comparison| {
        let text = overhead(&comparison.overhead_percent);
        match comparison.verdict {
            Verdict::Void => "void".into(),
            Verdict::Unresolved => format!("~ {text}"),
            _ => text,
        }
    })
}
