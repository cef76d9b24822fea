//! A trend as text and as CSV.

use super::{Point, Series, TrendDocument, Value};
use crate::date;
use crate::exports::csv::quote;
use crate::format::counted;
use crate::run::Bounds;
use crate::run::table::{Table, cell};
use crate::run::terminal::{columns, items, prose};
use crate::run::words::{overhead_of, sign};

pub fn heading(document: &TrendDocument) -> String {
    let runs = counted(document.points.len() as u64, "run", "runs");
    format!("{}: {runs}", document.name)
}

/// A row for each run.
pub fn table(document: &TrendDocument) -> Table {
    let mut header = vec!["run".to_owned(), "started (UTC)".into(), "commit".into(), "tare".into()];
    header.extend(document.series.iter().map(|series| title(document, series)));
    header.push(NOTE.into());
    let row = |point: &Point| {
        let commit = point.commit.clone().unwrap_or_else(|| "–".into());
        let mut row = vec![
            point.run.to_string(),
            date::utc(point.started_unix_ms),
            commit.chars().take(COMMIT).collect(),
            point.tare_version.clone(),
        ];
        let values = document.series.iter().zip(&point.values);
        row.extend(values.map(|(series, value)| shown(series, value)));
        row.push(note(document, point));
        row
    };
    Table { header, rows: document.points.iter().map(row).collect() }
}

/// Heading of the column of words.
const NOTE: &str = "notes";
/// Digits of a commit.
const COMMIT: usize = 8;

pub(crate) fn title(document: &TrendDocument, series: &Series) -> String {
    let is_one = document.series.iter().all(|other| other.metric == series.metric);
    match is_one {
        true => series.variant.clone(),
        false => format!("{}, {}", series.variant, series.metric.row().title),
    }
}

fn shown(series: &Series, value: &Value) -> String {
    match (&series.relative_to, &value.overhead_percent) {
        (Some(_), Some(bounds)) => overhead_of(series.metric, bounds),
        (Some(_), None) => "–".into(),
        (None, _) => cell(series.metric, value.value.as_ref()),
    }
}

/// What changed with a run.
pub(crate) fn note(document: &TrendDocument, point: &Point) -> String {
    let changes = document.series.iter().zip(&point.values).filter_map(|(series, value)| {
        let change = value.change?;
        let by = overhead_of(series.metric, &change.percent);
        let title = title(document, series);
        Some(format!("{} {title} {by} since run {}", sign(change.verdict), change.since_run))
    });
    let mut all: Vec<String> = changes.collect();
    all.extend(point.not_comparable.clone());
    all.join("; ")
}

pub(super) fn text(document: &TrendDocument) -> String {
    let mut lines = prose("", &heading(document));
    lines.push(String::new());
    let mut table = table(document);
    // Notes are long, and follow their lines.
    table.header.pop();
    let notes: Vec<String> = table.rows.iter_mut().filter_map(Vec::pop).collect();
    let mut rows = columns(&table).into_iter();
    lines.extend(rows.next());
    for (row, note) in rows.zip(notes) {
        lines.push(row);
        if !note.is_empty() {
            lines.extend(prose("      ", &note));
        }
    }
    lines.push(String::new());
    lines.extend(items("changes", &HOW.map(str::to_owned)));
    lines.join("\n") + "\n"
}

/// How to read a trend.
pub(crate) const HOW: [&str; 3] = [
    "+ is worse",
    "changes compare each run's ratio to its own baseline",
    "runs on different machines or under different loads are not compared",
];

const HEADER: &str = "run,started_unix_ms,commit,tare_version,rounds,variant,relative_to,metric,\
value,overhead_percent,overhead_percent_lower,overhead_percent_upper,changed_since_run,\
change_percent,change_percent_lower,change_percent_upper,apart\n";

pub(super) fn csv(document: &TrendDocument) -> String {
    let mut text = HEADER.to_owned();
    for point in &document.points {
        for (series, value) in document.series.iter().zip(&point.values) {
            let bounds = |bounds: Option<Bounds>| {
                let of = |number: f64| number.to_string();
                let all = bounds.map(|b| [b.point, b.lower, b.upper].map(of));
                all.unwrap_or_default().join(",")
            };
            let cells = [
                point.run.to_string(),
                point.started_unix_ms.to_string(),
                point.commit.as_deref().map_or_else(String::new, quote),
                quote(&point.tare_version),
                point.rounds.to_string(),
                quote(&series.variant),
                series.relative_to.as_deref().map_or_else(String::new, quote),
                series.metric.key().to_owned(),
                value.value.map_or_else(String::new, |value| value.point.to_string()),
                bounds(value.overhead_percent),
                value.change.map_or_else(String::new, |change| change.since_run.to_string()),
                bounds(value.change.map(|change| change.percent)),
                point.not_comparable.as_deref().map_or_else(String::new, quote),
            ];
            text.push_str(&(cells.join(",") + "\n"));
        }
    }
    text
}
