//! A sweep as text: one row per value, one column per variant.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use tare_model::Metric;
use tare_stats::{Estimate, Verdict};

use crate::format::{bytes, count, counted, rate};
use crate::run::csv;
use crate::run::markdown;
use crate::run::table::{Table, cell};
use crate::run::terminal::{PAPER, answer, columns, items, prose};
use crate::run::trust::{ValueGuards, Warning, asked, warnings};
use crate::run::words::{
    Answer, SIGNS, VERDICTS, differs, in_metric, noun, overhead_of, point_of, sign, time,
    verdict_word,
};
use crate::run::{Comparison, RunGuard, RunReport, Variant};
use crate::sweep::cells;
use crate::sweep::cells::{Sweep, SweepCell};

pub fn render(sweep: &Sweep) -> String {
    let mut text = format!("{}\n\n", name(sweep));
    let answers = ranges(sweep);
    if !answers.is_empty() {
        let lines: Vec<String> = answers.iter().flat_map(answer).collect();
        text.push_str(&format!("{}\n\n", lines.join("\n")));
    }
    for (title, table) in tables(sweep) {
        text.push_str(&format!("{title}:\n{}\n\n", narrower(&table).join("\n")));
    }
    let against = brief(sweep).into_iter().map(|warning| warning.to_string());
    for line in against.chain(left_out(sweep)) {
        text.push_str(&format!("{}\n", prose("", &line).join("\n")));
    }
    let ending = [items("evidence", &evidence(sweep)), items("next", &next(sweep))].concat();
    text + &ending.join("\n") + "\n"
}

pub fn markdown(sweep: &Sweep) -> String {
    let mut text = format!("# {}\n\n", markdown::escaped(&[name(sweep)]).join(""));
    let row = |cells: &[String]| format!("| {} |\n", markdown::escaped(cells).join(" | "));
    for (title, table) in tables(sweep) {
        text.push_str(&format!("## {title}\n\n"));
        text.push_str(&row(&table.header));
        let marks = vec!["---:"; table.header.len().saturating_sub(1)].join("|");
        text.push_str(&format!("|---|{marks}|\n"));
        table.rows.iter().for_each(|cells| text.push_str(&row(cells)));
        text.push('\n');
    }
    let cells: Vec<String> =
        sweep.cells.iter().map(|cell| markdown::render(&cell.report)).collect();
    text + &cells.join("\n")
}

/// Writes the rows of all cells under one header.
pub fn csv(sweep: &Sweep) -> String {
    let keys = sweep.cells.iter().take(1).flat_map(|cell| cell.values.keys());
    let rows = sweep.cells.iter().map(|cell| csv::rows(&cell.report, &cell.values));
    csv::header(keys) + &rows.collect::<String>()
}

pub(crate) fn name(sweep: &Sweep) -> String {
    let first = sweep.cells.first();
    first.map_or("A sweep".into(), |cell| cells::name(&cell.report.run.name, &cell.values))
}

/// Returns a table's lines; a table too wide for most terminals is transposed if that is narrower.
fn narrower(table: &Table) -> Vec<String> {
    let width = |lines: &[String]| lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let lines = columns(table);
    if width(&lines) <= PAPER {
        return lines;
    }
    let row = |at: usize| table.rows.iter().map(move |row| row[at].clone());
    let mut header = vec![String::new()];
    header.extend(row(0));
    let rows = (1..table.header.len()).map(|at| {
        let mut own = vec![table.header[at].clone()];
        own.extend(row(at));
        own
    });
    let turned = columns(&Table { rows: rows.collect(), header });
    if width(&turned) < width(&lines) { turned } else { lines }
}

/// Returns the values of each variant, and the overheads over the baseline.
pub(crate) fn tables(sweep: &Sweep) -> Vec<(String, Table)> {
    if sweep.cells.is_empty() {
        return Vec::new();
    }
    let mut all = vec![values(sweep)];
    all.extend(metrics(sweep).into_iter().map(|metric| {
        let own = MetricCells::new(sweep, metric);
        let title = format!("Overhead in {}{} ({SIGNS})", noun(metric), own.shared_values());
        (title, overheads(sweep, metric, &own))
    }));
    all
}

/// Swept values of a row, without the test: the tests of a network share a row.
type Row = BTreeMap<String, String>;
const TEST: &str = "test";

/// Returns the table of measured values as it is usually published: one row per size or rate, one
/// column per variant.
fn values(sweep: &Sweep) -> (String, Table) {
    let names = variants(sweep);
    let mut header = vec![String::new()];
    header.extend(names.iter().cloned());
    let tests = tests(sweep);
    let mut rows: Vec<(Row, Vec<Vec<String>>)> = Vec::new();
    let all = sweep.cells.iter().map(|cell| (&cell.values, Some(&cell.report)));
    let all = all.chain(sweep.missing.iter().map(|missing| (&missing.values, None)));
    for (values, report) in all {
        let mut key = values.clone();
        let test = key.remove(TEST);
        let test = tests.iter().position(|own| *own == test).unwrap_or(0);
        let at = rows.iter().position(|(own, _)| *own == key).unwrap_or_else(|| {
            rows.push((key, vec![vec!["–".to_owned(); tests.len()]; names.len()]));
            rows.len() - 1
        });
        let Some(report) = report else { continue };
        for (place, name) in rows[at].1.iter_mut().zip(&names) {
            place[test] = value_text(report, name, values.contains_key("rate"));
        }
    }
    let rows = rows.into_iter().map(|(key, places)| {
        let mut row = vec![label(&key)];
        row.extend(places.into_iter().map(|place| place.join(", ")));
        row
    });
    (what(sweep), Table { rows: rows.collect(), header })
}

/// Returns the tests that were swept, in the order of their cells.
fn tests(sweep: &Sweep) -> Vec<Option<String>> {
    let mut all: Vec<Option<String>> = Vec::new();
    let values = sweep.cells.iter().map(|cell| &cell.values);
    for values in values.chain(sweep.missing.iter().map(|missing| &missing.values)) {
        let test = values.get(TEST).cloned();
        if !all.contains(&test) {
            all.push(test);
        }
    }
    all
}

/// Describes what the cells show.
fn what(sweep: &Sweep) -> String {
    if sweep.cells.iter().any(|cell| cell.values.contains_key("rate")) {
        return "Replies/s, bytes/s, timeouts, mean latency".into();
    }
    let mut words: Vec<String> = Vec::new();
    for cell in &sweep.cells {
        let Some(metric) = headline(&cell.report) else { continue };
        let test = cell.values.get(TEST).map_or(String::new(), |test| format!("{test} "));
        let word = format!("{test}{}", metric.row().title);
        if !words.contains(&word) {
            words.push(word);
        }
    }
    format!("Measured {}", words.join(", "))
}

/// Returns the first requested metric.
pub(crate) fn headline(report: &RunReport) -> Option<Metric> {
    report.asked().first().copied()
}

fn value_text(report: &RunReport, name: &str, by_rate: bool) -> String {
    let Some(variant) = report.variant(name) else { return "–".into() };
    if by_rate {
        return rate_text(variant);
    }
    let value = headline(report).and_then(|metric| Some((metric, variant.metric(metric)?)));
    value.map_or("–".into(), |(metric, value)| {
        format!("{}{}", cell(metric, Some(value)), within(value))
    })
}

/// Formats a half width: ` ± 0.4 %`.
fn within(value: &Estimate) -> String {
    if value.n < 2 {
        return String::new();
    }
    let percent = value.half_width() / value.point * 100.0;
    match percent {
        p if p < 9.95 => format!(" ± {p:.1} %"),
        p => format!(" ± {p:.0} %"),
    }
}

fn rate_text(variant: &Variant) -> String {
    let point = |metric| variant.metric(metric).map(|estimate| estimate.point);
    let per_s = point(Metric::Throughput).map_or("–".into(), rate);
    let carried = point(Metric::Bandwidth).map_or("–".into(), |b| format!("{}/s", bytes(b)));
    let timeouts = variant.errors.get("timed_out").copied().unwrap_or(0);
    let latency = cell(Metric::LatencyMean, variant.metric(Metric::LatencyMean));
    format!("{per_s}, {carried}, {}, {latency}", count(timeouts))
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

pub(crate) fn variants(sweep: &Sweep) -> Vec<String> {
    sweep.cells.first().map_or_else(Vec::new, |cell| {
        cell.report.variants.iter().map(|variant| variant.name.clone()).collect()
    })
}

fn overheads(sweep: &Sweep, metric: Metric, own: &MetricCells<'_>) -> Table {
    let is_other =
        |cell: &RunReport, name: &str| cell.variant(name).is_some_and(|variant| !variant.baseline);
    let mut names = variants(sweep);
    names.retain(|name| sweep.cells.first().is_some_and(|cell| is_other(&cell.report, name)));
    let mut header = vec![String::new()];
    header.extend(names.iter().cloned());
    let rows = own.cells.iter().map(|cell| {
        let mut row = vec![own.label(cell)];
        row.extend(names.iter().map(|name| overhead_text(&cell.report, name, metric)));
        row
    });
    Table { rows: rows.collect(), header }
}

/// The cells in which a metric was requested.
struct MetricCells<'a> {
    cells: Vec<&'a SweepCell>,
    /// Values that all of these cells share, such as the test; empty if no other value differs.
    shared: BTreeMap<&'a str, &'a str>,
}

impl<'a> MetricCells<'a> {
    fn new(sweep: &'a Sweep, metric: Metric) -> Self {
        let asks = |cell: &&SweepCell| {
            cell.report.comparisons.iter().any(|c| c.asked && c.metric == metric)
        };
        let cells: Vec<&SweepCell> = sweep.cells.iter().filter(asks).collect();
        let first = cells.first().into_iter().flat_map(|cell| &cell.values);
        let is_shared = |(key, value): &(&String, &String)| {
            cells.iter().all(|cell| cell.values.get(*key) == Some(*value))
        };
        let shared = first.filter(is_shared).map(|(key, value)| (key.as_str(), value.as_str()));
        let mut shared: BTreeMap<&str, &str> = shared.collect();
        if cells.first().is_some_and(|cell| cell.values.len() == shared.len()) {
            shared.clear();
        }
        Self { cells, shared }
    }

    fn values(&self, cell: &SweepCell) -> BTreeMap<String, String> {
        let mut values = cell.values.clone();
        values.retain(|key, _| !self.shared.contains_key(key.as_str()));
        values
    }

    fn label(&self, cell: &SweepCell) -> String {
        label(&self.values(cell))
    }

    /// Returns a cell's value without its key, for use after another cell's label.
    fn short(&self, cell: &SweepCell) -> String {
        let values = self.values(cell);
        match values.len() {
            1 => values.into_values().collect(),
            _ => label(&values),
        }
    }

    /// Returns the shared values: " of test tcp_rr".
    fn shared_values(&self) -> String {
        let words = self.shared.iter().map(|(key, value)| format!(" of {key} {value}"));
        words.collect()
    }
}

fn overhead_text(report: &RunReport, variant: &str, metric: Metric) -> String {
    let found = report.asked_of(variant).find(|comparison| comparison.metric == metric);
    found.map_or("–".into(), |comparison| {
        let sign = sign(comparison.verdict);
        match comparison.verdict {
            Verdict::Void => format!("{sign} void"),
            _ => format!("{sign} {}", overhead_of(metric, &comparison.overhead_percent)),
        }
    })
}

/// Returns a sentence per variant and metric: the least and the largest overhead, and how many
/// values have which verdict.
pub(crate) fn ranges(sweep: &Sweep) -> Vec<Answer> {
    let mut all = Vec::new();
    for name in variants(sweep) {
        all.extend(metrics(sweep).into_iter().filter_map(|metric| range(sweep, &name, metric)));
    }
    all
}

fn range(sweep: &Sweep, name: &str, metric: Metric) -> Option<Answer> {
    let found = sweep.cells.iter().filter_map(|cell| {
        let comparison = cell.report.asked_of(name).find(|c| c.metric == metric)?;
        Some((cell, comparison))
    });
    let all: Vec<(&SweepCell, &Comparison)> = found.collect();
    let baseline = &all.first()?.1.baseline;
    let values = MetricCells::new(sweep, metric);
    let of = |verdict: Verdict| {
        let own = all.iter().copied().filter(|(_, c)| c.verdict == verdict);
        (verdict, own.collect::<Vec<_>>())
    };
    let groups = VERDICTS.map(of).into_iter().filter(|(_, own)| !own.is_empty());
    let groups: Vec<(Verdict, Vec<(&SweepCell, &Comparison)>)> = groups.collect();
    if let [(verdict, own)] = groups.as_slice() {
        let told = everywhere(metric, *verdict, baseline);
        let text = match own.as_slice() {
            [(cell, _)] => {
                format!("{name} {told} at {}: {}", values.label(cell), span(metric, own, &values))
            }
            _ if sweep.missing.is_empty() => {
                format!("{name} {told} at each value: {}", span(metric, own, &values))
            }
            _ => format!("{name} {told} at each value measured: {}", span(metric, own, &values)),
        };
        return Some(Answer { verdict: Some(*verdict), text });
    }
    let words = groups.iter().map(|(verdict, own)| {
        let which = match verdict {
            Verdict::Slower | Verdict::Faster => span(metric, own, &values),
            _ => labels(own, &values),
        };
        format!("{} at {} of {} ({which})", verdict_word(metric, *verdict), own.len(), all.len())
    });
    let words = words.collect::<Vec<_>>().join(", ");
    Some(Answer::new(format!("{name} against {baseline}{}: {words}", in_metric(metric))))
}

/// Describes the least and the largest overhead, and where they were found.
fn span(metric: Metric, own: &[(&SweepCell, &Comparison)], values: &MetricCells<'_>) -> String {
    let percent = |at: &&(&SweepCell, &Comparison)| at.1.overhead_percent.point;
    let ends = (
        own.iter().min_by(|a, b| percent(a).total_cmp(&percent(b))),
        own.iter().max_by(|a, b| percent(a).total_cmp(&percent(b))),
    );
    let by = |at: &(&SweepCell, &Comparison)| point_of(metric, at.1.overhead_percent.point);
    match ends {
        _ if own.iter().any(|(_, c)| c.verdict == Verdict::Void) => labels(own, values),
        (Some(one), Some(other)) if by(one) == by(other) => by(one),
        (Some(least), Some(most)) => {
            let (at, to) = (values.label(least.0), values.short(most.0));
            format!("{} at {at} to {} at {to}", by(least), by(most))
        }
        _ => String::new(),
    }
}

/// Maximum number of values that a sentence names.
const NAMED: usize = 3;

/// Lists the values; only the first shows its key.
fn labels(own: &[(&SweepCell, &Comparison)], values: &MetricCells<'_>) -> String {
    let (named, more) = own.split_at(own.len().min(NAMED));
    let label = |(at, (cell, _)): (usize, &(&SweepCell, &Comparison))| match at {
        0 => values.label(cell),
        _ => values.short(cell),
    };
    let mut all: Vec<String> = named.iter().enumerate().map(label).collect();
    if !more.is_empty() {
        all.push(format!("{} more", more.len()));
    }
    all.join("; ")
}

fn everywhere(metric: Metric, verdict: Verdict, baseline: &str) -> String {
    let of_metric = in_metric(metric);
    match verdict {
        Verdict::Slower | Verdict::Faster => {
            differs(metric, verdict == Verdict::Slower, "", baseline)
        }
        Verdict::Same => format!("is the same as {baseline}{of_metric}"),
        Verdict::Unresolved => format!("is unresolved against {baseline}{of_metric}"),
        Verdict::Void => format!("is void against {baseline}{of_metric}"),
    }
}

/// Returns the warnings, one per family.
pub(crate) fn brief(sweep: &Sweep) -> Vec<Warning> {
    let found = sweep.cells.iter();
    let found = found.map(|cell| ValueGuards { value: cell.label(), guards: &cell.report.guards });
    let found: Vec<ValueGuards<'_>> = found.collect();
    warnings(&found, variants(sweep).len())
}

/// Returns each guard once, with the values that it concerns.
pub(crate) fn guards(sweep: &Sweep) -> Vec<(&RunGuard, String)> {
    let mut said: Vec<(&RunGuard, usize, String)> = Vec::new();
    for cell in &sweep.cells {
        for guard in &cell.report.guards {
            let same = |known: &&mut (&RunGuard, usize, String)| {
                known.0.code == guard.code && known.0.variant == guard.variant
            };
            match said.iter_mut().find(same) {
                Some((_, times, _)) => *times += 1,
                None => said.push((guard, 1, cell.label())),
            }
        }
    }
    let total = sweep.cells.len();
    let scope = |times: usize, first: &str| match times {
        n if n == total => String::new(),
        1 => format!(" ({first})"),
        n => format!(" ({first} and {} more)", n - 1),
    };
    said.sort_by_key(|(guard, ..)| Reverse(guard.severity));
    said.into_iter().map(|(guard, times, first)| (guard, scope(times, &first))).collect()
}

/// Lists the values and variants that were not measured.
pub(crate) fn left_out(sweep: &Sweep) -> Vec<String> {
    let mut lines = Vec::new();
    for missing in &sweep.missing {
        lines.push(format!("✗ {} was not measured: {}", label(&missing.values), missing.reason));
    }
    if let Some(first) = sweep.cells.first() {
        let skipped = first.report.skipped.iter();
        lines.extend(skipped.map(|one| format!("! {} was skipped: {}", one.name, one.reason)));
    }
    lines
}

fn label(values: &BTreeMap<String, String>) -> String {
    let words: Vec<String> = values.iter().map(|(key, value)| format!("{key} {value}")).collect();
    words.join(", ")
}

/// Returns what the values are based on.
fn evidence(sweep: &Sweep) -> Vec<String> {
    let Some(first) = sweep.cells.first() else { return vec!["nothing was measured".into()] };
    let launches = sweep.cells.iter().filter_map(|cell| launches(&cell.report));
    let (fewest, most) = (launches.clone().min().unwrap_or(0), launches.max().unwrap_or(0));
    let launches = match fewest == most {
        true => counted(most.into(), "launch", "launches"),
        false => format!("{fewest} to {most} launches"),
    };
    let elapsed: u64 = sweep.cells.iter().map(|cell| cell.report.run.elapsed_ms).sum();
    let values = counted(sweep.cells.len() as u64, "value", "values");
    let asked: BTreeSet<String> =
        sweep.cells.iter().filter_map(|cell| asked(&cell.report)).collect();
    let mut items: Vec<String> =
        if asked.len() == 1 { asked.into_iter().collect() } else { vec![] };
    items.extend([
        format!("{launches} a variant, each at {values}"),
        format!("in {}", time(elapsed as f64 / 1000.0)),
    ]);
    let is_short = |cell: &&SweepCell| {
        !["precision", "gates", "exceeded", "void"].contains(&cell.report.run.stopped_by.as_str())
    };
    match sweep.cells.iter().filter(is_short).count() {
        0 => {}
        n => items.push(format!("{n} less precise than asked")),
    }
    items.push(format!("seed {}", first.report.run.seed));
    items
}

/// Returns the fewest launches of a variant, or the rounds if servers were not launched.
fn launches(report: &RunReport) -> Option<u32> {
    let fewest = report.variants.iter().map(|variant| variant.launches).min()?;
    Some(if fewest == 0 { report.run.rounds } else { fewest })
}

fn next(sweep: &Sweep) -> Vec<String> {
    let (Some(first), Some(last)) = (sweep.cells.first(), sweep.cells.last()) else {
        return Vec::new();
    };
    let (from, to) = (first.report.run.id, last.report.run.id);
    vec![
        format!("tare report {from}-{to} --html report.html"),
        format!("tare report {from} # {}", first.label()),
    ]
}
