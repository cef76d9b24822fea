//! A pair of runs in words, tables and cells.

use tare_stats::Verdict;

use super::{Change, PairDocument, Side};
use crate::date;
use crate::exports::csv::quote;
use crate::run::markdown::{escape, escaped};
use crate::run::text::{columns, prose};
use crate::run::words::{Table, cell, noun, overhead, signed, verdict_word};
use crate::run::{Bounds, GateResult, Run};

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
            overhead(&change.overhead_percent),
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
        (Some(_), Some(bounds)) => overhead(bounds),
        _ => cell(change.metric, side.value.as_ref()),
    }
}

/// What may be said of each variant, a sentence each.
pub fn sentences(document: &PairDocument) -> Vec<String> {
    let asked = document.changes.iter().filter(|change| change.asked);
    let mut told: Vec<String> = asked.map(|change| sentence(document, change)).collect();
    if !document.alone.is_empty() {
        told.push(format!("only in one of them: {}", document.alone.join(", ")));
    }
    told.extend(document.gates.iter().map(GateResult::sentence));
    told
}

fn sentence(document: &PairDocument, change: &Change) -> String {
    let Bounds { point, lower, upper } = change.overhead_percent;
    let whom = match &change.relative_to {
        Some(baseline) => format!("{} relative to {baseline}", change.variant),
        None => format!("{} by itself, drift included,", change.variant),
    };
    let what = noun(change.metric);
    let by = format!("{} % ({} to {})", signed(point), signed(lower), signed(upper));
    match change.verdict {
        Verdict::Slower => format!("{whom} has become worse in {what}: {by}"),
        Verdict::Faster => format!("{whom} has become better in {what}: {by}"),
        Verdict::Same => format!(
            "{whom} is the same in {what} as before within ± {} %: {by}",
            document.tolerance * 100.0
        ),
        Verdict::Unresolved => {
            format!("{whom}: change in {what} unresolved: {by}")
        }
        Verdict::Void => {
            let guards = document.guards.iter();
            let grave = guards.filter(|guard| guard.severity == tare_stats::Severity::Void);
            let mut own = grave.filter(|guard| {
                guard.variant.as_ref().is_none_or(|name| {
                    *name == change.variant || Some(name) == change.relative_to.as_ref()
                })
            });
            let why = own.next().map_or(String::new(), |g| format!(" ({}): {}", g.code, g.text));
            format!("{}: no verdict{why}", change.variant)
        }
    }
}

fn guard_lines(document: &PairDocument) -> Vec<String> {
    let line = |guard: &crate::run::RunGuard| {
        let whom = guard.variant.as_ref().map_or(String::new(), |name| format!("{name}: "));
        format!("{} {}: {whom}{}", guard.severity.word(), guard.code, guard.text)
    };
    document.guards.iter().map(line).collect()
}

pub fn text(document: &PairDocument) -> String {
    let mut lines = prose("", &heading(document));
    lines.push(String::new());
    lines.extend(sentences(document).iter().flat_map(|text| prose("", text)));
    lines.push(String::new());
    lines.extend(columns(&table(document)));
    lines.push(String::new());
    lines.extend(guard_lines(document).iter().flat_map(|text| prose("  ", text)));
    lines.push(String::new());
    let (a, b) = (&document.before, &document.after);
    lines.extend(prose("", &format!("{} rounds before, {} after; {HOW}", a.rounds, b.rounds)));
    lines.join("\n") + "\n"
}

pub fn markdown(document: &PairDocument) -> String {
    let mut text = format!("## {}\n\n", escape(&heading(document)));
    let table = table(document);
    let row = |cells: &[String]| format!("| {} |\n", escaped(cells).join(" | "));
    text.push_str(&row(&table.header));
    text.push_str("|---|---:|---:|---:|---|\n");
    table.rows.iter().for_each(|cells| text.push_str(&row(cells)));
    text.push('\n');
    for line in sentences(document).iter().chain(&guard_lines(document)) {
        text.push_str(&format!("- {}\n", escape(line)));
    }
    text + "\n" + HOW + "\n"
}

/// How a change is to be read.
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
