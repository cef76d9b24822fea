//! The page of a trend: a line for each run, with its interval, and the changes.

use tare_stats::Verdict;

use super::forest::{self, Forest, Row};
use super::page::{self, Page, table as numbers};
use crate::date;
use crate::run::words::capital;
use crate::trend::{HOW, Series, TrendDocument, heading, note, table, title};

pub fn render(document: &TrendDocument) -> String {
    let mut page = Page::new(&heading(document));
    let notes = document.points.iter().filter_map(|point| {
        let note = note(document, point);
        (!note.is_empty()).then(|| format!("Run {}: {note}", point.run))
    });
    let notes: Vec<String> = notes.collect();
    let changes = match notes.is_empty() {
        true => page::paragraph("No significant change."),
        false => {
            page::list("changes", &notes.iter().map(|note| page::escape(note)).collect::<Vec<_>>())
        }
    };
    page.opening(&changes, &page::evidence(&HOW.map(str::to_owned)));
    for (at, series) in document.series.iter().enumerate() {
        page.section(&capital(&title(document, series)), &figure(document, at, series));
    }
    page.section("The numbers", &numbers("All runs", &table(document)));
    page.finish()
}

fn figure(document: &TrendDocument, at: usize, series: &Series) -> String {
    let rows = document.points.iter().filter_map(|point| {
        let value = &point.values[at];
        let day = date::utc(point.started_unix_ms);
        Some(Row {
            name: format!("{}, {}", point.run, day.split(' ').next().unwrap_or_default()),
            bounds: value.overhead_percent?,
            verdict: value.change.map_or(Verdict::Same, |change| change.verdict),
        })
    });
    forest::figure(&Forest {
        word: "overhead",
        metric: series.metric,
        rows: rows.collect(),
        tolerance: None,
    })
}
