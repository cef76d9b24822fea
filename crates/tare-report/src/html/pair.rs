//! The page of two runs.

use tare_model::Metric;

use super::about;
use super::forest::{self, Forest, Row};
use super::page::{self, Page, definitions, details, table};
use crate::date;
use crate::pair::{
    Change, HOW, PairDocument, answers, evidence, heading, table as numbers, variants, who,
};
use crate::run::Run;
use crate::run::trust::{ValueGuards, warnings};
use crate::run::words::ending_of;

pub fn render(document: &PairDocument) -> String {
    let mut page = Page::new(&heading(document));
    let warnings = warnings(&[ValueGuards::new(&document.guards)], variants(document));
    let how = page::warnings(&warnings) + &page::evidence(&evidence(document));
    page.opening(&page::answers(&answers(document)), &how);
    page.section("What has changed", &forests(document));
    let caption = format!("Both runs; {HOW}");
    page.guards("May these runs be compared?", &about::guards(&document.guards));
    page.section("The numbers", &table(&caption, &numbers(document)));
    let runs =
        definitions(&[run_row("Earlier", &document.before), run_row("Later", &document.after)]);
    page.section("The runs", &runs);
    page.finish()
}

fn run_row(title: &str, run: &Run) -> (String, String) {
    let began = date::utc_with_seconds(run.started_unix_ms);
    let told = format!(
        "run {}, begun {began} UTC by tare {}: {}",
        run.id,
        run.tare_version,
        ending_of(run)
    );
    (title.to_owned(), told)
}

fn forests(document: &PairDocument) -> String {
    let of = |metric: Metric, asked: bool| {
        let all = document.changes.iter().filter(|c| c.metric == metric && c.asked == asked);
        let tolerance = asked.then_some(document.tolerance * 100.0);
        forest::figure(&Forest { word: "change", metric, rows: all.map(row).collect(), tolerance })
    };
    let asked: String = Metric::ALL.into_iter().map(|metric| of(metric, true)).collect();
    let others: String = Metric::ALL.into_iter().map(|metric| of(metric, false)).collect();
    match others.is_empty() {
        true => asked,
        false => asked + &details("In what else was measured", &others),
    }
}

fn row(change: &Change) -> Row {
    Row { name: who(change), bounds: change.overhead_percent, verdict: change.verdict }
}
