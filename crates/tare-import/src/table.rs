//! Reads tables of results: which side names the variants, what each number is, and which
//! differences the table itself states.

mod cell;
mod grid;
mod meaning;

use tare_model::Metric;

use crate::claim::{Change, Claim, Says, fitted};
use crate::numbers::whole;
use crate::sample::{Draft, Tool};
use cell::{Number, is_decimal_comma, is_grouped_by_comma, numbers};
use grid::Grid;
use meaning::{Quantity, Unit};

pub use grid::found;
pub use meaning::{Quantity as Kind, Unit as KindOfUnit, meaning, unit};

/// Contents of a table: one draft per variant and case, and the differences that it states.
#[derive(Default)]
pub struct TableContents {
    pub drafts: Vec<Draft>,
    pub claims: Vec<Claim>,
    /// Rows, counted from the head, that state differences without the values behind them.
    pub unchecked: Vec<usize>,
    /// Rows and columns that are not compared.
    pub left_out: Option<String>,
}

/// Bytes of text after which no more rows are kept of one result.
const TEXT_MAX: usize = 2000;
/// Most characters of a name in a stated difference.
const NAME_MAX: usize = 60;

/// Tools by which tests are named.
const TOOLS: [&str; 16] = [
    "ab",
    "ping",
    "fortio",
    "h2load",
    "hey",
    "iperf",
    "iperf3",
    "k6",
    "netperf",
    "oha",
    "qperf",
    "sockperf",
    "unixbench",
    "vegeta",
    "wrk",
    "wrk2",
];

/// A number, its place, and its meaning.
struct Value {
    row: usize,
    column: usize,
    variant: String,
    case: String,
    quantity: Quantity,
    /// In tare's units.
    value: f64,
    step: f64,
    spread: Option<f64>,
    /// Connections of the load.
    connections: Option<u64>,
}

/// `first` is the line of the table's head; `above` is the text above it.
pub fn read(grid: &Grid, first: usize, above: &str) -> TableContents {
    let table = Table::from_grid(grid, above);
    let values = table.values();
    let mut told = TableContents::default();
    for value in &values {
        let case = Some(value.case.clone()).filter(|case| !case.is_empty());
        // A second value of the same kind begins another draft: a repetition, or an unknown load.
        let is_of = |draft: &Draft| {
            draft.own_name.as_ref() == Some(&value.variant)
                && draft.own_case == case
                && draft.asked.connections == value.connections
                && !has(draft, value)
        };
        let known = told.drafts.iter().rposition(is_of);
        let at = known.unwrap_or_else(|| {
            let own_name = Some(value.variant.clone());
            let mut draft = Draft { own_name, own_case: case, ..Draft::new(Tool::Table) };
            draft.asked.connections = value.connections;
            told.drafts.push(draft);
            told.drafts.len() - 1
        });
        let draft = &mut told.drafts[at];
        enter(draft, value);
        let (line, cells) = &grid.rows[value.row];
        let (line, text) = ((first + line) as u32, cells.join(" | "));
        let source = &mut draft.source;
        source.first_line = if source.first_line == 0 { line } else { source.first_line.min(line) };
        source.last_line = source.last_line.max(line);
        if source.text.len() < TEXT_MAX && !source.text.contains(&text) {
            let more = if source.text.is_empty() { "" } else { "\n" };
            source.text = format!("{}{more}{text}", source.text);
        }
    }
    told.drafts.retain(|draft| !draft.values.is_empty() || !draft.percentiles.is_empty());
    // A single result is a remark.
    if told.drafts.len() < 2 {
        let is_change = |head: &meaning::Meaning| head.quantity == Some(Quantity::Change);
        let is_of_changes = table.heads.iter().any(is_change);
        // A table of other things may be full of percentages.
        let unchecked = if is_of_changes { table.unchecked(&[], first) } else { Vec::new() };
        return TableContents { unchecked, ..TableContents::default() };
    }
    told.claims = table.changes(&values, first);
    told.unchecked = table.unchecked(&told.claims, first);
    told.left_out = table.left_out(&values);
    told
}

/// Whether a draft has a value of that quantity.
fn has(draft: &Draft, value: &Value) -> bool {
    match value.quantity {
        Quantity::Of(metric) => draft.values.contains_key(metric.key()),
        Quantity::Percentile(percent) => draft.percentiles.iter().any(|p| p.percent == percent),
        _ => false,
    }
}

fn enter(draft: &mut Draft, value: &Value) {
    let before: Vec<String> = draft.values.keys().cloned().collect();
    match value.quantity {
        Quantity::Of(metric) => {
            draft.put(metric, value.value);
            if let Some(spread) = value.spread {
                draft.put_moments(metric, value.value, spread, None);
            }
        }
        Quantity::Percentile(percent) => draft.put_percentile(percent, value.value),
        Quantity::Errors => draft.put_errors("errors", value.value as u64),
        Quantity::Index => {
            draft.seen.other.insert("index".into(), value.value);
        }
        Quantity::Change | Quantity::Other => {}
    }
    for key in draft.values.keys().filter(|key| !before.contains(key)) {
        draft.steps.insert(key.clone(), value.step);
    }
}

struct Table<'a> {
    grid: &'a Grid,
    heads: Vec<meaning::Meaning>,
    /// Meaning of the words above the table.
    caption: meaning::Meaning,
    /// Whether each column has decimal commas.
    decimal_comma: Vec<bool>,
    /// Whether at least half of each column's filled cells are numbers.
    numeric: Vec<bool>,
}

impl<'a> Table<'a> {
    fn from_grid(grid: &'a Grid, above: &str) -> Self {
        let columns = grid.head.len();
        let cells =
            |at: usize| grid.rows.iter().filter_map(move |(_, r)| r.get(at)).map(String::as_str);
        // If one column has decimal commas, all have, except those that group thousands by commas.
        let is_any = (0..columns).any(|at| is_decimal_comma(cells(at)));
        let decimal_comma: Vec<bool> =
            (0..columns).map(|at| is_any && !is_grouped_by_comma(cells(at))).collect();
        let is_numeric = |column: usize| {
            let own = grid.rows.iter().filter_map(|(_, row)| row.get(column));
            let filled: Vec<_> = own
                .map(|cell| numbers(cell, decimal_comma[column]))
                .filter(|n| n.as_ref().is_none_or(|n| !n.is_empty()))
                .collect();
            let known = filled.iter().filter(|n| n.is_some()).count();
            known > 0 && known * 2 >= filled.len()
        };
        let numeric: Vec<bool> = (0..columns).map(is_numeric).collect();
        let corner = grid.head.first().map_or("", String::as_str);
        let caption = [corner].into_iter().chain(above.lines().rev()).map(meaning);
        let caption = caption.into_iter().find(|m| m.quantity.is_some_and(is_value));
        // "test (lps)": in the corner, a unit alone is enough.
        let caption = caption.unwrap_or_else(|| meaning(corner));
        // "all ms" or "in ms" above the table is the unit of latencies without one of their own.
        let words: Vec<&str> = above.split([' ', ',', '.', '(', ')', ':', '\n']).collect();
        let leads = |word: &str| {
            ["all", "in", "alle", "en", "单位"].contains(&word.to_lowercase().as_str())
        };
        let is_short = |unit: &Unit| matches!(unit, Unit::Time(ns) if *ns < 1e9);
        let said = words.windows(2).rev().take(60).filter(|two| leads(two[0]) && two[1] != "us");
        let said = said.filter_map(|two| unit(two[1])).find(is_short);
        let with_unit = |head: meaning::Meaning| match (head.quantity, head.unit) {
            (Some(Quantity::Percentile(_) | Quantity::Of(Metric::LatencyMean)), None) => {
                meaning::Meaning { unit: said, ..head }
            }
            _ => head,
        };
        let heads = grid.head.iter().map(|head| with_unit(meaning(head)));
        Self { grid, heads: heads.collect(), caption, decimal_comma, numeric }
    }

    /// Returns columns with heads that say what their numbers are; none if all are error counts.
    fn metric_columns(&self) -> Vec<usize> {
        let is = |at: &usize, wanted: fn(Quantity) -> bool| {
            *at > 0 && self.numeric[*at] && self.heads[*at].quantity.is_some_and(wanted)
        };
        let is_any = (0..self.heads.len()).any(|at| is(&at, is_value));
        let wanted = |at: &usize| is(at, |q| is_value(q) || q == Quantity::Errors);
        (0..self.heads.len()).filter(|at| is_any && wanted(at)).collect()
    }

    fn cells(&self, row: usize, column: usize) -> Vec<Number> {
        let cell = self.grid.rows[row].1.get(column).map_or("", String::as_str);
        numbers(cell, self.decimal_comma.get(column).copied().unwrap_or(false)).unwrap_or_default()
    }

    /// Returns the label of a row; an empty cell means the one above.
    fn label(&self, row: usize, column: usize) -> String {
        let cell = |row: usize| self.grid.rows[row].1.get(column).map_or("", String::as_str);
        let above = (0..=row).rev().map(cell).find(|cell| !cell.is_empty());
        above.unwrap_or_default().to_owned()
    }

    fn values(&self) -> Vec<Value> {
        let columns = self.metric_columns();
        match columns.is_empty() {
            true => self.by_columns(),
            false => self.by_rows(&columns),
        }
    }

    /// Reads one variant per row; if several columns hold the same quantity, one per such column.
    fn by_rows(&self, columns: &[usize]) -> Vec<Value> {
        let first = columns[0];
        let labels: Vec<usize> = (0..first).filter(|at| !self.numeric[*at]).collect();
        let numbers: Vec<usize> = (0..first).filter(|at| self.numeric[*at]).collect();
        let (loads, counts): (Vec<usize>, Vec<usize>) =
            numbers.iter().partition(|at| is_connections(&self.grid.head[**at]));
        let shares = |at: usize| {
            columns.iter().filter(|o| self.heads[**o].quantity == self.heads[at].quantity).count()
                > 1
        };
        let mut found = Vec::new();
        for row in 0..self.grid.rows.len() {
            let words: Vec<String> =
                labels.iter().map(|at| self.label(row, *at)).filter(|l| !l.is_empty()).collect();
            let count = |at: &usize| match self.label(row, *at) {
                own if own.contains(char::is_alphabetic) => own,
                own => format!("{own} {}", self.grid.head[*at]).trim().to_owned(),
            };
            let counts: Vec<String> = counts.iter().map(count).collect();
            let connections = loads.first().and_then(|at| whole(&self.label(row, *at)));
            let known = found.len();
            // "static lookup (ns)" is not a rate, even if the head says so.
            let in_time = labels
                .iter()
                .any(|at| matches!(meaning(&self.label(row, *at)).unit, Some(Unit::Time(_))));
            for column in columns {
                let is_rate =
                    self.heads[*column].quantity == Some(Quantity::Of(Metric::Throughput));
                if in_time && is_rate {
                    continue;
                }
                let (mut names, mut case) = (words.clone(), counts.clone());
                if shares(*column) {
                    let rest = &self.heads[*column].rest;
                    // "p99 before" and "p99 after" are variants, and the row is the case; "1k" and
                    // "5k" are rates.
                    match rest.chars().next() {
                        None => {}
                        Some(first) if !first.is_ascii_digit() => {
                            let row = std::mem::replace(&mut names, vec![rest.clone()]);
                            case = [row, case].concat();
                        }
                        Some(_) => case.push(rest.clone()),
                    }
                }
                if names.is_empty() {
                    continue;
                }
                let place = (row, *column, names.join(", "), case.join(", "));
                self.enter(&mut found, place, &self.heads[*column]);
            }
            found[known..].iter_mut().for_each(|value| value.connections = connections);
        }
        found
    }

    /// Reads one variant per column.
    fn by_columns(&self) -> Vec<Value> {
        // A number is not the name of a variant.
        let is_own = |at: &usize| {
            let is_name = numbers(&self.grid.head[*at], false).is_none();
            *at > 0 && self.numeric[*at] && self.heads[*at].quantity.is_none() && is_name
        };
        let Some(first) = (0..self.heads.len()).find(is_own) else { return Vec::new() };
        let columns: Vec<usize> = (first..self.heads.len()).filter(is_own).collect();
        let mut found = Vec::new();
        let is_tool = |column: &usize| {
            let head = self.grid.head[*column].to_lowercase();
            TOOLS.contains(&head.split_whitespace().next().unwrap_or(""))
        };
        let of_tools = columns.iter().filter(|column| is_tool(column)).count() > 1;
        // If some rows name their quantity, the caption does not apply to the others.
        let names_metrics = (0..self.grid.rows.len())
            .any(|row| meaning(&self.label(row, 0)).quantity.is_some_and(is_value));
        for row in 0..self.grid.rows.len() {
            let labels: Vec<String> = (0..first).map(|at| self.label(row, at)).collect();
            let of_labels: Vec<meaning::Meaning> =
                labels.iter().map(|label| meaning(label)).collect();
            let is_other = |m: &meaning::Meaning| {
                matches!(m.quantity, Some(Quantity::Other | Quantity::Change))
            };
            // "CPU" is not throughput, even under a heading about throughput.
            if of_labels.iter().any(is_other) {
                continue;
            }
            let is_told = |m: &meaning::Meaning| {
                m.quantity.is_some_and(|q| is_value(q) || q == Quantity::Errors)
            };
            let said = of_labels.into_iter().find(is_told);
            if said.is_none() && names_metrics {
                continue;
            }
            let case: Vec<String> = match &said {
                Some(said) => {
                    let others = labels.iter().filter(|label| meaning(label).quantity.is_none());
                    others.cloned().chain([said.rest.clone()]).filter(|l| !l.is_empty()).collect()
                }
                None => labels.into_iter().filter(|label| !label.is_empty()).collect(),
            };
            for column in &columns {
                let own = said.as_ref().unwrap_or(&self.caption);
                let (head, case) = (self.grid.head[*column].clone(), case.join(", "));
                // Columns named after tools are tests: then each row is a variant.
                let is_of_test = of_tools && said.is_none() && !case.is_empty();
                let (name, case) = if is_of_test { (case, head) } else { (head, case) };
                let place = (row, *column, name, case);
                if !place.2.is_empty() {
                    self.enter(&mut found, place, own);
                }
            }
        }
        found
    }

    fn enter(
        &self,
        found: &mut Vec<Value>,
        (row, column, variant, case): (usize, usize, String, String),
        said: &meaning::Meaning,
    ) {
        for number in self.cells(row, column) {
            let labelled = meaning(&number.label);
            let said = if labelled.quantity.is_some() { &labelled } else { said };
            let unit = unit(&number.unit);
            if unit.is_none() && !number.unit.is_empty() {
                continue;
            }
            // A cell's own unit counts first ("45.3k" in a column of requests/s), then its column's
            // ("3.2" in a column of ms).
            let Some((quantity, factor)) = resolved(said, unit.or(said.unit)) else { continue };
            found.push(Value {
                row,
                column,
                variant: variant.clone(),
                case: case.clone(),
                quantity,
                value: number.value * factor,
                step: number.step * factor,
                spread: number.spread.map(|spread| spread * factor),
                connections: None,
            });
        }
    }

    /// Returns the differences that the table states, with the values behind them.
    fn changes(&self, values: &[Value], first: usize) -> Vec<Claim> {
        let mut claims = Vec::new();
        for column in (1..self.heads.len()).filter(|at| self.numeric[*at]) {
            let is_change = self.heads[column].quantity == Some(Quantity::Change);
            let stated = |row: usize| {
                let of = |n: &Number| match unit(&n.unit).or(self.heads[column].unit) {
                    Some(Unit::Percent) if is_change => Some((n.value, n.step, false)),
                    Some(Unit::Times) => Some((n.value, n.step, true)),
                    _ if is_change && n.unit.is_empty() && self.is_of_times(column) => {
                        Some((n.value, n.step, true))
                    }
                    _ if !is_change && n.label.is_empty() => {
                        n.percent.map(|(value, step)| (value, step, false))
                    }
                    _ => None,
                };
                self.cells(row, column).iter().find_map(of)
            };
            // A percentage after a value belongs to that value.
            let to = (!is_change).then_some(column);
            let (mut told, mut bare) = (Vec::new(), None);
            for row in 0..self.grid.rows.len() {
                match stated(row) {
                    None => bare = Some(row),
                    Some((value, step, is_times)) => {
                        let all = candidates(values, (row, bare), to, is_times);
                        told.push((row, (value, step, all)));
                    }
                }
            }
            let all: Vec<_> = told.iter().map(|(_, told)| told.clone()).collect();
            let fitted = fitted(&all);
            // Parentheses may hold anything, such as deviations or shares.
            if !is_change && !fitted.iter().flatten().any(Change::holds) {
                continue;
            }
            // If only a few of many fit, that may be chance, and the others are not differences.
            let fit = fitted.iter().flatten().filter(|change| change.holds()).count();
            let is_of_these = fit * 2 >= told.len() || told.len() < 3;
            let fitted = fitted
                .into_iter()
                .map(|change| change.filter(|change| is_of_these || change.holds()));
            claims.extend(told.iter().zip(fitted).filter_map(|((row, _), change)| {
                let (at, cells) = &self.grid.rows[*row];
                let (line, text) = ((first + at) as u32, cells.join(" | "));
                Some(Claim { file: String::new(), line, text, says: Says::Change(change?) })
            }));
        }
        claims
    }

    /// Whether a column's head, such as "Speedup" or "×", says that numbers without a unit are
    /// factors.
    fn is_of_times(&self, column: usize) -> bool {
        let head = self.grid.head[column].to_lowercase();
        ["speedup", "speed-up", "slowdown", "factor", "×"].iter().any(|word| head.contains(word))
    }

    fn unchecked(&self, claims: &[Claim], first: usize) -> Vec<usize> {
        let claimed =
            |row: usize| claims.iter().filter(|claim| claim.line as usize == first + row).count();
        let states = |(at, cell): &(usize, &String)| {
            let is_other = self.heads.get(*at).is_some_and(|head| {
                matches!(head.quantity, Some(Quantity::Other | Quantity::Errors))
            });
            !is_other && states_a_difference(cell)
        };
        let stated = |cells: &[String]| cells.iter().enumerate().filter(states).count();
        let rows = self.grid.rows.iter().filter(|(row, cells)| stated(cells) > claimed(*row));
        rows.map(|(row, _)| *row).collect()
    }

    /// Lists rows and columns of numbers that are not compared.
    fn left_out(&self, values: &[Value]) -> Option<String> {
        const SHOWN: usize = 8;
        let is_number = |row: usize, column: usize| !self.cells(row, column).is_empty();
        let columns = 0..self.heads.len();
        let has_numbers = |row: &usize| columns.clone().skip(1).any(|at| is_number(*row, at));
        let is_change = |at: &usize| self.heads[*at].quantity == Some(Quantity::Change);
        let rows = (0..self.grid.rows.len())
            .filter(|row| values.iter().all(|value| value.row != *row))
            .filter(has_numbers)
            .map(|row| format!("row '{}'", self.label(row, 0)));
        let first = values.iter().map(|value| value.column).min().unwrap_or(0);
        let of_columns = (first..self.heads.len())
            .filter(|at| values.iter().all(|value| value.column != *at) && !is_change(at))
            .filter(|at| (0..self.grid.rows.len()).any(|row| is_number(row, *at)))
            .map(|at| format!("column '{}'", self.grid.head[at]));
        let all: Vec<String> = rows.chain(of_columns).collect();
        let more = match all.len() {
            n if n > SHOWN => format!(" and {} more", n - SHOWN),
            _ => String::new(),
        };
        let shown: Vec<&str> = all.iter().take(SHOWN).map(String::as_str).collect();
        (!all.is_empty()).then(|| format!("{}{more}", shown.join(", ")))
    }
}

/// Whether a cell states a difference: "12 %", "1.8x", "30–50×".
pub fn states_a_difference(cell: &str) -> bool {
    cell.match_indices(['%', '×', 'x']).any(|(at, mark)| {
        let ends = !cell[at + mark.len()..].starts_with(char::is_alphanumeric);
        ends && cell[..at].trim_end().ends_with(|c: char| c.is_ascii_digit())
    })
}

fn is_connections(head: &str) -> bool {
    const WORDS: [&str; 9] =
        ["conn", "verbindung", "conexi", "conex", "连接", "接続", "clients", "concurrency", "vus"];
    let lower = head.to_lowercase();
    WORDS.iter().any(|word| lower.contains(word))
}

fn is_value(quantity: Quantity) -> bool {
    !matches!(quantity, Quantity::Change | Quantity::Other | Quantity::Errors)
}

/// Returns a number's quantity, and its factor to tare's unit.
fn resolved(said: &meaning::Meaning, unit: Option<Unit>) -> Option<(Quantity, f64)> {
    let is_latency = |q: Quantity| match q {
        Quantity::Percentile(_) => true,
        Quantity::Of(metric) => metric == Metric::LatencyMean,
        _ => false,
    };
    match (said.quantity, unit) {
        (Some(Quantity::Change | Quantity::Other), _) | (_, Some(Unit::Percent | Unit::Times)) => {
            None
        }
        (Some(quantity), Some(Unit::Time(ns))) if is_latency(quantity) => Some((quantity, ns)),
        // Seconds may be any time; shorter units mean a latency.
        (None | Some(Quantity::Of(_)), Some(Unit::Time(ns))) if ns < 1e9 => {
            Some((Quantity::Of(Metric::LatencyMean), ns))
        }
        (None | Some(Quantity::Of(_)), Some(Unit::Bytes(factor))) => {
            Some((Quantity::Of(Metric::Bandwidth), factor))
        }
        (Some(Quantity::Of(Metric::Throughput)), Some(Unit::Count(factor))) => {
            Some((Quantity::Of(Metric::Throughput), factor))
        }
        (Some(Quantity::Of(Metric::Throughput)), None) => {
            Some((Quantity::Of(Metric::Throughput), 1.0))
        }
        (Some(quantity @ (Quantity::Errors | Quantity::Index)), None | Some(Unit::Count(_))) => {
            Some((quantity, 1.0))
        }
        (None, Some(Unit::Count(factor))) if factor == 1.0 => {
            Some((Quantity::Of(Metric::Throughput), factor))
        }
        _ => None,
    }
}

/// Returns a title such as "p99" or "requests/s".
fn title(quantity: Quantity) -> String {
    match quantity {
        Quantity::Percentile(percent) => format!("p{percent}"),
        Quantity::Of(Metric::LatencyMean) => "mean latency".into(),
        Quantity::Of(metric) => metric.row().title.to_owned(),
        Quantity::Errors => "errors".into(),
        Quantity::Index => "index".into(),
        Quantity::Change | Quantity::Other => String::new(),
    }
}

/// Returns the pairs of values that a change stated in this row may compare: two values of the row,
/// or one of another row and one of this row, in the same column. A pair's key describes where its
/// values are, and is the same in every row. `bare` is the last row above that states no change.
fn candidates(
    values: &[Value],
    (row, bare): (usize, Option<usize>),
    to: Option<usize>,
    is_times: bool,
) -> Vec<(String, Change)> {
    const MOST: usize = 400;
    let (mut found, mut first) = (Vec::new(), Vec::new());
    let several = values.iter().any(|value| value.quantity != values[0].quantity);
    let is_own =
        |value: &&Value| value.row == row && to.is_none_or(|column| column == value.column);
    let own: Vec<&Value> = values.iter().filter(is_own).collect();
    let change = |from: &Value, to: &Value| Change {
        is_times,
        from: from.value,
        to: to.value,
        slack: Change::slack((from.value, from.step), (to.value, to.step)),
        names: [from, to].map(|value| {
            let name: String = value.variant.chars().take(NAME_MAX).collect();
            match several {
                true => format!("{name}, {}", title(value.quantity)),
                false => name,
            }
        }),
        ..Change::default()
    };
    'all: for from in values {
        for to in own.iter().filter(|to| to.quantity == from.quantity) {
            if found.len() == MOST {
                break 'all;
            }
            let key = match (from.row == row, from.column == to.column) {
                (true, false) => format!("columns {} {}", from.column, to.column),
                (false, true) => format!("row {} column {}", from.row, to.column),
                _ => continue,
            };
            found.push((key, change(from, to)));
            // In a table of several parts, the base of each part may be its row without a change.
            if Some(from.row) == bare && from.column == to.column {
                first.push((format!("bare column {}", to.column), change(from, to)));
            }
        }
    }
    first.into_iter().chain(found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> TableContents {
        let lines: Vec<&str> = text.lines().collect();
        read(&found(&lines).unwrap(), 1, "")
    }

    fn values(told: &TableContents) -> Vec<String> {
        let of = |draft: &Draft| {
            let values: Vec<String> =
                draft.values.iter().map(|(k, v)| format!("{k}={v}")).collect();
            let name = draft.own_name.clone().unwrap_or_default();
            format!("{name}|{}|{}", draft.own_case.clone().unwrap_or_default(), values.join(" "))
        };
        told.drafts.iter().map(of).collect()
    }

    #[test]
    fn variants_in_rows() {
        let told = told(
            "| placement | conns | req/s | mean latency (ms) | timeouts | overhead |\n\
             |---|---|---|---|---|---|\n\
             | host | 100 | 162,588.64 | 0.65 | 0 | |\n\
             | TDX VM | 100 | 34,951.73 | 3.22 | 7 | 78.5 % |\n",
        );
        assert_eq!(
            values(&told),
            [
                "host||latency_ns_mean=650000 throughput_per_s=162588.64",
                "TDX VM||latency_ns_mean=3220000 throughput_per_s=34951.73"
            ]
        );
        assert_eq!(told.drafts[1].seen.errors["errors"], 7);
        let [Claim { says: Says::Change(change), line: 4, .. }] = told.claims.as_slice() else {
            panic!("{:?}", told.claims)
        };
        assert!(change.holds(), "{change:?}");
    }

    #[test]
    fn variants_in_columns_with_units_in_cells() {
        let told = told(
            "| from | size | host | runc |\n|---|---|---|---|\n\
             | same node | 1 B | 13 µs, 1.13 MB/s | 12.5 µs, 1.14 MB/s |\n\
             | | 64 B | 12.9 µs | 12.6 µs |\n",
        );
        assert_eq!(
            values(&told)[..3],
            [
                "host|same node, 1 B|bandwidth_bytes_per_s=1130000 latency_ns_mean=13000",
                "runc|same node, 1 B|bandwidth_bytes_per_s=1140000 latency_ns_mean=12500",
                "host|same node, 64 B|latency_ns_mean=12900",
            ]
        );
    }

    #[test]
    fn labels_in_cells_and_rows_of_metrics() {
        let cells = "| | host | kata |\n|---|---|---|\n\
                     | 1000 | QPS: 997.37<br>timeout: 189 | QPS: 996.1 |\n\
                     | 5000 | QPS: 4980 | QPS: 3461.5 |\n";
        let cells = told(cells);
        assert_eq!(values(&cells)[0], "host|1000|throughput_per_s=997.37");
        assert_eq!(cells.drafts[0].seen.errors["errors"], 189);
        let rows = "metric\thost\tVM\nRequests/sec\t100\t90\nLatency avg\t1.5ms\t2ms\n";
        assert_eq!(
            values(&told(rows)),
            [
                "host||latency_ns_mean=1500000 throughput_per_s=100",
                "VM||latency_ns_mean=2000000 throughput_per_s=90"
            ]
        );
    }

    #[test]
    fn before_and_after_in_columns() {
        let told = told(
            "| threads | p99 without (ms) | p99 with bypass (ms) | improvement |\n|---|---|---|---|\n\
             | 16 | 2.556 | 2.428 | 5.0 % |\n| 32 | 4.478 | 3.964 | 21.5 % |\n",
        );
        let changes: Vec<bool> = told
            .claims
            .iter()
            .map(|claim| matches!(&claim.says, Says::Change(change) if change.holds()))
            .collect();
        assert_eq!(changes, [true, false], "{:?}", told.claims);
    }

    #[test]
    fn factors_are_computed_again_and_the_rest_is_told() {
        let told = told(
            "| server | req/s | speedup | CPU (%) |\n|---|---|---|---|\n| a | 1000 | | 50 |\n\
             | b | 1800 | 1.8x | 60 |\n| c | 3000 | 2.5x | 70 |\n| d | 4000 | 30–50x | 70 |\n",
        );
        let holds: Vec<bool> = told
            .claims
            .iter()
            .map(|claim| matches!(&claim.says, Says::Change(change) if change.holds()))
            .collect();
        assert_eq!(holds, [true, false], "{:?}", told.claims);
        assert_eq!(told.unchecked, [5], "a range is not checked");
        assert_eq!(told.left_out.as_deref(), Some("column 'CPU (%)'"));
    }

    #[test]
    fn a_factor_is_of_the_last_row_that_states_none() {
        let told = told(
            "| test | req/s | factor |\n|---|---|---|\n| cache off | 3187.2 | |\n\
             | cache on | 4589.7 | 1.8x |\n| v1 | 343.09 | |\n| v2 | 383.09 | 1.12x |\n",
        );
        let names: Vec<(String, bool)> = told
            .claims
            .iter()
            .filter_map(|claim| match &claim.says {
                Says::Change(change) => Some((change.names[0].clone(), change.holds())),
                _ => None,
            })
            .collect();
        assert_eq!(names, [("cache off".to_owned(), false), ("v1".to_owned(), true)]);
    }

    #[test]
    fn rows_that_are_compared_with_nothing_are_told() {
        let told = told(
            "| | a | b |\n|---|---|---|\n| QPS | 100 | 90 |\n| Slowest | 12 ms | 14 ms |\n\
             | 99 th percentile | 3 ms | 4 ms |\n| 97th percentile | 2 ms | 3 ms |\n",
        );
        assert_eq!(
            values(&told),
            [
                "a||latency_ns_p99=3000000 throughput_per_s=100",
                "b||latency_ns_p99=4000000 throughput_per_s=90"
            ]
        );
        assert_eq!(told.left_out.as_deref(), Some("row 'Slowest', row '97th percentile'"));
    }

    #[test]
    fn tables_of_other_things_are_none() {
        for text in [
            "| | host | VM |\n|---|---|---|\n| CPUs | 4 | 8 |\n| memory | 8 GB | 16 GB |\n",
            "| flag | meaning |\n|---|---|\n| -t | threads |\n| -d | 30s |\n",
        ] {
            assert!(told(text).drafts.is_empty(), "{:?}", values(&told(text)));
        }
    }
}
