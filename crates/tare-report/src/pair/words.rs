//! A pair of runs in words, tables and cells.

use std::collections::BTreeSet;

use tare_guards::{RunGuard, Severity};
use tare_stats::Verdict;

use super::{Change, PairDocument, Side};
use crate::date;
use crate::exports::csv::quote;
use crate::run::Run;
use crate::run::markdown::{escape, escaped};
use crate::run::text::{answer as lines, columns, items, prose};
use crate::run::trust::warnings;
use crate::run::words::{Answer, Table, cell, of_metric, overhead_of, told, verdict_word};

pub fn heading(document: &PairDocument) -> String {
    let (a, b) = (&document.before, &document.after);
    let at = |run: &Run| date::utc(run.started_unix_ms);
    match a.name == b.name {
        true => format!("{}: run {} of {} and run {} of {}", a.name, a.id, at(a), b.id, at(b)),
        false => {
            format!("{} (run {}, {}) and {} (run {}, {})", a.name, a.id, at(a), b.name, b.id, at(b))
        }
    }
}

/// What was asked, a row a variant and metric.
pub fn table(document: &PairDocument) -> Table {
    let side = |id: i64| format!("run {id}");
    let (a, b) = (&document.before, &document.after);
    let header = vec![String::new(), side(a.id), side(b.id), "change".into(), "verdict".into()];
    let row = |change: &Change| {
        vec![
            name(change),
            shown(change, &change.before),
            shown(change, &change.after),
            overhead_of(change.metric, &change.overhead_percent),
            verdict_word(change.metric, change.verdict).to_owned(),
        ]
    };
    let asked = document.changes.iter().filter(|change| change.asked);
    Table { header, rows: asked.map(row).collect() }
}

fn name(change: &Change) -> String {
    match &change.relative_to {
        Some(baseline) => {
            format!("{} against {baseline}, {}", change.variant, change.metric.word())
        }
        None => format!("{}, {}", change.variant, change.metric.word()),
    }
}

fn shown(change: &Change, side: &Side) -> String {
    match (&change.relative_to, &side.overhead_percent) {
        (Some(_), Some(bounds)) => overhead_of(change.metric, bounds),
        _ => cell(change.metric, side.value.as_ref()),
    }
}

/// What may be said of each variant, a sentence each.
pub fn answers(document: &PairDocument) -> Vec<Answer> {
    let asked = document.changes.iter().filter(|change| change.asked);
    let mut all: Vec<Answer> = asked.map(|change| answer(document, change)).collect();
    if !document.alone.is_empty() {
        all.push(Answer::of(format!("only in one of them: {}", document.alone.join(", "))));
    }
    all.extend(document.gates.iter().map(|gate| Answer::of(gate.sentence())));
    all
}

fn answer(document: &PairDocument, change: &Change) -> Answer {
    let (metric, bounds) = (change.metric, &change.overhead_percent);
    let whom = match &change.relative_to {
        Some(baseline) => format!("{} relative to {baseline}", change.variant),
        None => format!("{} by itself (drift included)", change.variant),
    };
    let text = match change.verdict {
        Verdict::Void => format!("{whom}: no verdict{}", why_void(document, change)),
        Verdict::Unresolved => {
            let change = overhead_of(metric, bounds);
            format!("{whom}: its change{} is unresolved: {change}", of_metric(metric))
        }
        verdict => told(&whom, "before", metric, bounds, verdict),
    };
    Answer { verdict: Some(change.verdict), text }
}

fn why_void(document: &PairDocument, change: &Change) -> String {
    let grave = document.guards.iter().filter(|guard| guard.severity == Severity::Void);
    let mut own = grave.filter(|guard| {
        guard
            .variant
            .as_ref()
            .is_none_or(|name| *name == change.variant || Some(name) == change.relative_to.as_ref())
    });
    own.next().map_or(String::new(), |guard| format!(": {}", guard.text))
}

fn guard_lines(document: &PairDocument) -> Vec<String> {
    let line = |guard: &RunGuard| {
        let whom = guard.variant.as_ref().map_or(String::new(), |name| format!("{name}: "));
        format!("{} {}: {whom}{}", guard.severity.word(), guard.code, guard.text)
    };
    document.guards.iter().map(line).collect()
}

pub fn text(document: &PairDocument) -> String {
    let mut lines = opening(document);
    lines.extend(columns(&table(document)));
    lines.push(String::new());
    let brief = warnings(&[&document.guards], variants(document));
    lines.extend(brief.iter().flat_map(|text| prose("", text)));
    lines.extend(items("evidence", &evidence(document)));
    let (a, b) = (document.before.id, document.after.id);
    let next = ["--html report.html", "--why"].map(|form| format!("tare report {a} {b} {form}"));
    lines.extend(items("next", &next));
    lines.join("\n") + "\n"
}

/// The same with every figure of the guards.
pub fn why(document: &PairDocument) -> String {
    let mut lines = opening(document);
    lines.extend(columns(&table(document)));
    lines.push(String::new());
    lines.extend(guard_lines(document).iter().flat_map(|text| prose("", text)));
    lines.extend(prose("", HOW));
    lines.join("\n") + "\n"
}

fn opening(document: &PairDocument) -> Vec<String> {
    let mut lines = prose("", &heading(document));
    lines.push(String::new());
    lines.extend(answers(document).iter().flat_map(self::lines));
    lines.push(String::new());
    lines
}

pub fn variants(document: &PairDocument) -> usize {
    let names: BTreeSet<&str> =
        document.changes.iter().map(|change| change.variant.as_str()).collect();
    names.len()
}

/// What the change rests on.
pub fn evidence(document: &PairDocument) -> Vec<String> {
    let (a, b) = (&document.before, &document.after);
    vec![format!("{} rounds before, {} after", a.rounds, b.rounds), CHANGE.to_owned()]
}

/// How a change is to be read.
const CHANGE: &str = "change: later over earlier; + is worse";

pub fn markdown(document: &PairDocument) -> String {
    let mut text = format!("## {}\n\n", escape(&heading(document)));
    let table = table(document);
    let row = |cells: &[String]| format!("| {} |\n", escaped(cells).join(" | "));
    text.push_str(&row(&table.header));
    text.push_str("|---|---:|---:|---:|---|\n");
    table.rows.iter().for_each(|cells| text.push_str(&row(cells)));
    text.push('\n');
    let answers = answers(document).into_iter().map(|answer| answer.text);
    for line in answers.chain(guard_lines(document)) {
        text.push_str(&format!("- {}\n", escape(&line)));
    }
    text + "\n" + HOW + "\n"
}

/// The same at length.
pub const HOW: &str = "a change is later over earlier, of values or of ratios to the baseline (not \
the difference of two overheads); positive is worse";

const HEADER: &str = "variant,relative_to,metric,asked,before,after,before_overhead_percent,\
after_overhead_percent,ratio,ratio_lower,ratio_upper,ratio_level,change_percent,\
change_percent_lower,change_percent_upper,verdict\n";

pub fn csv(document: &PairDocument) -> String {
    let mut text = HEADER.to_owned();
    for change in &document.changes {
        let value = |side: &Side| side.value.map_or(String::new(), |value| value.point.to_string());
        let percent = |side: &Side| {
            side.overhead_percent.map_or(String::new(), |bounds| bounds.point.to_string())
        };
        let cells = [
            quote(&change.variant),
            change.relative_to.as_deref().map_or(String::new(), quote),
            change.metric.key().into(),
            change.asked.to_string(),
            value(&change.before),
            value(&change.after),
            percent(&change.before),
            percent(&change.after),
            change.ratio.point.to_string(),
            change.ratio.lower.to_string(),
            change.ratio.upper.to_string(),
            change.ratio.level.to_string(),
            change.overhead_percent.point.to_string(),
            change.overhead_percent.lower.to_string(),
            change.overhead_percent.upper.to_string(),
            change.verdict.word().into(),
        ];
        text.push_str(&(cells.join(",") + "\n"));
    }
    text
}
