//! A pair of runs in words, tables and cells.

use std::collections::BTreeSet;

use tare_guards::{RunGuard, Severity};
use tare_model::Metric;
use tare_stats::Verdict;

use super::{Change, PairDocument, Side};
use crate::date;
use crate::exports::csv::quote;
use crate::format::digits;
use crate::run::Run;
use crate::run::markdown::{escape, escaped};
use crate::run::table::{Table, cell};
use crate::run::terminal::{answer as lines, columns, items, prose};
use crate::run::trust::{ValueGuards, warnings};
use crate::run::words::{
    Answer, TIMES, comparison_sentence, factor, in_metric, overhead_of, verdict_word, within, worse,
};

pub fn heading(document: &PairDocument) -> String {
    let (a, b) = (&document.before, &document.after);
    let at = |run: &Run| date::utc(run.started_unix_ms);
    match a.name == b.name {
        true => format!("{}: run {} of {} against run {} of {}", a.name, b.id, at(b), a.id, at(a)),
        false => {
            let one = |run: &Run| format!("{} (run {}, {})", run.name, run.id, at(run));
            format!("{} against {}", one(b), one(a))
        }
    }
}

/// Returns the requested changes, one row per variant and metric.
pub fn table(document: &PairDocument) -> Table {
    let side = |id: i64| format!("run {id}");
    let (a, b) = (&document.before, &document.after);
    let change = "change (+ worse)".to_owned();
    let header = vec![String::new(), side(a.id), side(b.id), change, "verdict".into()];
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
    format!("{}, {}", who(change), change.metric.row().title)
}

/// Names what is compared: a variant, or its ratio to the baseline.
pub fn who(change: &Change) -> String {
    match &change.relative_to {
        Some(baseline) => format!("{} / {baseline}", change.variant),
        None => change.variant.clone(),
    }
}

fn shown(change: &Change, side: &Side) -> String {
    match (&change.relative_to, &side.overhead_percent) {
        (Some(_), Some(bounds)) => share(change.metric, bounds.point),
        _ => cell(change.metric, side.value.as_ref()),
    }
}

/// Formats an overhead as a ratio to the baseline: `64.0 %`, and `11.1×` beyond twofold.
fn share(metric: Metric, percent: f64) -> String {
    let more = worse(metric, percent);
    let ratio = if metric.more_is_better() { more.recip() } else { more };
    match ratio < TIMES {
        true => format!("{} %", digits(ratio * 100.0)),
        false => format!("{}×", factor(ratio)),
    }
}

/// Returns the changes as sentences, one per variant and metric.
pub fn answers(document: &PairDocument) -> Vec<Answer> {
    let mut asked: Vec<&Change> = document.changes.iter().filter(|change| change.asked).collect();
    // A baseline's own change includes drift, so it is left out if its verdict is "same".
    let is_relative = |change: &&Change| change.relative_to.is_some();
    if asked.iter().any(is_relative) {
        asked.retain(|change| is_relative(change) || change.verdict != Verdict::Same);
    }
    asked.sort_by_key(|change| !is_relative(change));
    let mut all: Vec<Answer> = asked.into_iter().map(|c| answer(document, c)).collect();
    if !document.alone.is_empty() {
        all.push(Answer::new(format!("only in one of them: {}", document.alone.join(", "))));
    }
    all.extend(document.gates.iter().map(|gate| Answer::new(gate.sentence())));
    all
}

fn answer(document: &PairDocument, change: &Change) -> Answer {
    let (metric, bounds) = (change.metric, &change.overhead_percent);
    let earlier = document.before.id;
    let whom = match &change.relative_to {
        Some(_) => who(change),
        None if has_ratios(document) => format!("the baseline ({})", change.variant),
        None => change.variant.clone(),
    };
    let text = match change.verdict {
        Verdict::Void => format!("{whom} is void{}", why_void(document, change)),
        Verdict::Unresolved => {
            let by = overhead_of(metric, bounds);
            format!("{whom} against run {earlier}{} is unresolved: {by}", in_metric(metric))
        }
        verdict => match &change.relative_to {
            Some(_) => ratios(change, earlier, document.tolerance),
            None => {
                let earlier = format!("in run {earlier}");
                comparison_sentence(&whom, &earlier, metric, bounds, verdict, document.tolerance)
            }
        },
    };
    Answer { verdict: Some(change.verdict), text }
}

fn has_ratios(document: &PairDocument) -> bool {
    document.changes.iter().any(|change| change.relative_to.is_some())
}

/// Describes how a variant's ratio to its baseline has changed.
fn ratios(change: &Change, earlier: i64, tolerance: f64) -> String {
    let word = verdict_word(change.metric, change.verdict);
    let how = match change.verdict {
        Verdict::Same => format!("is the same as in run {earlier} {}", within(tolerance)),
        // "costs more" takes no "is".
        verdict if verdict.word() != word => format!("{word} than in run {earlier}"),
        _ => format!("is {word} than in run {earlier}"),
    };
    let noun = match change.metric {
        Metric::Throughput => "requests/s",
        metric => metric.row().noun,
    };
    let (before, after) = (shown(change, &change.before), shown(change, &change.after));
    format!("{} {how}: {after} of the {noun}, was {before}", who(change))
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
    let brief = warnings(&[ValueGuards::new(&document.guards)], variants(document));
    lines.extend(brief.iter().flat_map(|warning| prose("", &warning.to_string())));
    lines.extend(items("evidence", &evidence(document)));
    let (a, b) = (document.before.id, document.after.id);
    let next = ["--html report.html", "--why"].map(|form| format!("tare report {a} {b} {form}"));
    lines.extend(items("next", &next));
    lines.join("\n") + "\n"
}

/// Like [`text`], with every figure of the guards.
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

/// Returns what the change is based on.
pub fn evidence(document: &PairDocument) -> Vec<String> {
    let (a, b) = (&document.before, &document.after);
    let rounds = match a.rounds == b.rounds {
        true => format!("{} rounds each", a.rounds),
        false => format!("{} and {} rounds", a.rounds, b.rounds),
    };
    vec![rounds, format!("change: run {} over run {}, of values and of ratios", b.id, a.id)]
}

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

/// How to read a change.
pub const HOW: &str = "a change is the later run over the earlier, in values or in ratios to the \
baseline (it is no difference of two overheads); + is worse";

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
