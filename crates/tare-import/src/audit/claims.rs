//! Recomputes what documents state about their own results.

use std::collections::BTreeMap;

use tare_guards::{Code, Severity};

use super::Finding;
use crate::claim::{Change, Claim, RepeatedValue, Says};
use crate::import::{Import, Unchecked, is_same};
use crate::sample::{Sample, Tool, Unread};

/// Most characters quoted of a line.
const QUOTED: usize = 120;

pub fn claims(import: &Import) -> Vec<Finding> {
    let of = |claim: &Claim| {
        let found = match &claim.says {
            Says::Change(change) => changed(change, claim),
            Says::Value(told) => disagrees(told),
            Says::Selected => None,
        };
        let place = format!("{}:{}", claim.file, claim.line);
        found.map(|finding| Finding { place: Some(place), ..finding })
    };
    import.claims.iter().filter_map(of).collect()
}

fn quoted(claim: &Claim) -> String {
    let text: String = claim.text.chars().take(QUOTED).collect();
    let more = if text.len() < claim.text.len() { "…" } else { "" };
    format!("'{text}{more}'")
}

fn changed(change: &Change, claim: &Claim) -> Option<Finding> {
    if change.holds() {
        return None;
    }
    let unit = if change.is_times { "times" } else { "%" };
    let given = match change.is_times {
        true => format!("{:.3}", change.times()),
        false if change.of_either => {
            format!("{:.1} or {:.1}", change.of_first().abs(), change.of_second().abs())
        }
        // Authors differ in which sign means "worse".
        false => format!("{:.1}", change.of_first().abs()),
    };
    let whose = match &change.names {
        [from, to] if !from.is_empty() && !to.is_empty() && from != to => {
            format!("'{from}' and '{to}'")
        }
        _ => "the two values".into(),
    };
    if change.is_of_second() {
        let (percent, of_first) = (change.percent, change.of_first().abs());
        let text = format!(
            "{}: {percent} % is the difference between {whose} divided by the second; divided by the \
             first, it is {of_first:.1} %",
            quoted(claim)
        );
        let means = "an overhead is relative to what it is compared with: divided by the other value, it \
                     looks smaller or larger than it is";
        return Some(Finding::new(Code::OtherBase, Severity::Warn, text, means));
    }
    let text = format!(
        "{}: states {} {unit} where {whose} give {given} {unit}",
        quoted(claim),
        change.percent
    );
    let means = "one of the numbers is wrong, or the stated one was computed from other values";
    Some(Finding::new(Code::WrongChange, Severity::Warn, text, means))
}

fn disagrees(told: &RepeatedValue) -> Option<Finding> {
    // Byte rates may have decimal or binary prefixes.
    let bytes = told.metric.starts_with("bandwidth");
    let near = bytes && (told.value / told.output - 1.0).abs() < 0.11;
    // The output may be rounded itself.
    let is_close = (told.value / told.output - 1.0).abs() < 0.001;
    if near || is_close || is_same(told.value, told.step, told.output) {
        return None;
    }
    let what = told.metric.split("_per_s").next().unwrap_or_default();
    let text = format!(
        "the document's table says {} ({}) where the output at {} says {}",
        shown(&told.metric, told.value),
        what.replace("_ns", "").replace('_', " "),
        told.place,
        shown(&told.metric, told.output)
    );
    let means = "one of the two was mistyped, comes from another run, or is a different quantity: the \
                 output's value is used";
    let finding = Finding::new(Code::Disagrees, Severity::Warn, text, means);
    Some(Finding { variant: Some(told.variant.clone()), ..finding })
}

/// Formats a value with its unit.
fn shown(metric: &str, value: f64) -> String {
    match metric {
        key if key.starts_with("latency_ns") && value >= 1e6 => rounded(value / 1e6) + " ms",
        key if key.starts_with("latency_ns") => rounded(value / 1e3) + " µs",
        key if key.starts_with("bandwidth") => rounded(value / 1e6) + " MB/s",
        _ => rounded(value),
    }
}

/// Rounds to four decimals, to drop digits that come from converting units.
fn rounded(value: f64) -> String {
    format!("{}", (value * 1e4).round() / 1e4)
}

/// Reports outputs that only their lines distinguish, with the option that names them.
pub fn kept_apart(import: &Import) -> Vec<Finding> {
    const SHOWN: usize = 4;
    let mut by_file: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
    for sample in import.samples.iter().filter(|sample| sample.by_line) {
        by_file.entry(&sample.source.file).or_default().push(sample);
    }
    let of = |(file, samples): (&str, Vec<&Sample>)| {
        let lines: Vec<u32> = samples.iter().map(|sample| sample.source.first_line).collect();
        let all: Vec<String> = lines.iter().map(u32::to_string).collect();
        let text = match all.as_slice() {
            [line] => format!(
                "no heading, label or command tells the output at line {line} from the others: it is \
                 shown as a variant of its own"
            ),
            _ => format!(
                "no heading, label or command tells the outputs at lines {} from each other: each is \
                 shown as a variant of its own",
                all.join(", ")
            ),
        };
        let shown: Vec<String> =
            lines.iter().take(SHOWN).map(|line| format!("--as '{file}:{line}=NAME'")).collect();
        let more = if lines.len() > SHOWN { " …" } else { "" };
        let means = format!(
            "to name it (outputs with the same name are pooled): {}{more}",
            shown.join(" ")
        );
        let finding = Finding::new(Code::KeptApart, Severity::Note, text, &means);
        Finding { place: Some(file.to_owned()), ..finding }
    };
    by_file.into_iter().map(of).collect()
}

/// Reports stated differences without the values behind them.
pub fn unchecked(import: &Import) -> Vec<Finding> {
    const SHOWN: usize = 20;
    let of = |Unchecked { file, lines }: &Unchecked| {
        let all: Vec<String> = lines.iter().take(SHOWN).map(u32::to_string).collect();
        let more = if lines.len() > SHOWN { ", …" } else { "" };
        let word = if lines.len() == 1 { "line" } else { "lines" };
        let text = format!(
            "percentages or factors in {} {word} could not be checked ({word} {}{more})",
            lines.len(),
            all.join(", ")
        );
        let means =
            "tare could not tell which values they were computed from: they may be right or wrong";
        let finding = Finding::new(Code::Unchecked, Severity::Note, text, means);
        Finding { place: Some(file.clone()), ..finding }
    };
    import.unchecked.iter().map(of).collect()
}

/// Reports rows and columns of tables that are not compared.
pub fn not_compared(import: &Import) -> Vec<Finding> {
    let of = |Unread { file, line, why }: &Unread| {
        let means = "nothing says that these are requests/s, bandwidth, latency or a percentile, or their heading and \
                     unit contradict each other";
        let text = format!("of the document's table, not shown above: {why}");
        let finding = Finding::new(Code::NotCompared, Severity::Note, text, means);
        Finding { place: Some(format!("{file}:{line}")), ..finding }
    };
    import.left_out.iter().map(of).collect()
}

/// Reports values without an output or a number of runs behind them.
pub fn without_a_sample(import: &Import) -> Vec<Finding> {
    let is_bare = |sample: &&Sample| {
        matches!(sample.tool, Tool::Table | Tool::Summary)
            && sample.moments.values().all(|moments| moments.n.is_none())
    };
    let bare: Vec<&Sample> = import.samples.iter().filter(is_bare).collect();
    let Some(first) = bare.first() else { return Vec::new() };
    let what = match bare.iter().any(|sample| sample.tool == Tool::Table) {
        true => "of a table",
        false => "of a printed summary",
    };
    let text = format!("no output was found that gives all values {what}");
    let means = "if there is none, the number of runs behind them, their length, errors and reply sizes \
                 cannot be checked";
    let finding = Finding::new(Code::NoSample, Severity::Warn, text, means);
    vec![Finding { place: Some(first.place()), ..finding }]
}

/// Reports means and standard deviations given in place of runs.
pub fn sums_only(import: &Import) -> Vec<Finding> {
    let with = import
        .samples
        .iter()
        .find_map(|sample| sample.moments.values().find_map(|moments| Some((sample, moments.n?))));
    let Some((sample, n)) = with else { return Vec::new() };
    let text = format!("of {n} runs, only means and standard deviations are shown");
    let means = "whether the runs drifted, took turns, or hold one that is far off, cannot be seen: \
                 the interval takes all of them as independent";
    let finding = Finding::new(Code::SumsOnly, Severity::Warn, text, means);
    vec![Finding { place: Some(sample.place()), ..finding }]
}
