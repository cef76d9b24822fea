//! What documents say of their own results, computed again.

use std::collections::BTreeMap;

use tare_guards::{Code, Severity};

use super::Finding;
use crate::claim::{Change, Claim, Says, Told};
use crate::import::{Import, is_same};
use crate::sample::{Sample, Tool};

/// Of a line that is quoted.
const QUOTED: usize = 120;

pub fn claims(import: &Import) -> Vec<Finding> {
    let of = |claim: &Claim| {
        let found = match &claim.says {
            Says::Change(change) => changed(change, claim),
            Says::Value(told) => disagrees(told),
            Says::Selected => Some(selected(claim)),
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
    let whose = match &change.names {
        [from, to] if !from.is_empty() && !to.is_empty() && from != to => {
            format!("'{from}' and '{to}'")
        }
        _ => "the two values".into(),
    };
    if change.is_of_second() {
        let text = format!(
            "states {} %, which is relative to the second of {whose}; relative to the first it is \
             {:.1} %: {}",
            change.percent,
            change.of_first(),
            quoted(claim)
        );
        let means = "a change in percent is relative to the value that it starts from: relative to \
                     the other one, the same change looks larger or smaller";
        return Some(Finding::new(Code::OtherBase, Severity::Warn, text, means));
    }
    let text = format!(
        "states {} % where {whose} give {:.1} %: {}",
        change.percent,
        change.of_first(),
        quoted(claim)
    );
    let means = "the percentage does not follow from the values that it is given for: one of the \
                 three is wrong";
    Some(Finding::new(Code::WrongChange, Severity::Warn, text, means))
}

fn disagrees(told: &Told) -> Option<Finding> {
    // A rate of bytes may be by 1,000 or by 1,024.
    let bytes = told.metric.starts_with("bandwidth");
    let near = bytes && (told.value / told.output - 1.0).abs() < 0.11;
    // The output may be rounded itself.
    let is_close = (told.value / told.output - 1.0).abs() < 0.001;
    if near || is_close || is_same(told.value, told.step, told.output) {
        return None;
    }
    let what = told.metric.split("_per_s").next().unwrap_or_default();
    let text = format!(
        "the table says {} ({}) where the output at {} says {}",
        shown(&told.metric, told.value),
        what.replace("_ns", "").replace('_', " "),
        told.place,
        shown(&told.metric, told.output)
    );
    let means = "one of the two was mistyped, or is of another run: the output's value is used";
    let finding = Finding::new(Code::Disagrees, Severity::Warn, text, means);
    Some(Finding { variant: Some(told.variant.clone()), ..finding })
}

/// A value with its unit.
fn shown(metric: &str, value: f64) -> String {
    match metric {
        key if key.starts_with("latency_ns") && value >= 1e6 => rounded(value / 1e6) + " ms",
        key if key.starts_with("latency_ns") => rounded(value / 1e3) + " µs",
        key if key.starts_with("bandwidth") => rounded(value / 1e6) + " MB/s",
        _ => rounded(value),
    }
}

/// Without the digits that units leave behind.
fn rounded(value: f64) -> String {
    format!("{}", (value * 1e4).round() / 1e4)
}

fn selected(claim: &Claim) -> Finding {
    let text = format!("runs were chosen: {}", quoted(claim));
    let means = "what was left out after it was seen may be just what differs: keep every run, or \
                 say before the first which ones will count";
    Finding::new(Code::Selected, Severity::Warn, text, means)
}

/// Outputs under one heading that only the text between them tells apart.
pub fn kept_apart(import: &Import) -> Vec<Finding> {
    let mut by_file: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
    for sample in import.samples.iter().filter(|sample| sample.named_by_text) {
        by_file.entry(&sample.source.file).or_default().push(sample);
    }
    let of = |(file, samples): (&str, Vec<&Sample>)| {
        let mut names: Vec<&str> = samples.iter().map(|sample| sample.variant.as_str()).collect();
        let mut seen = std::collections::BTreeSet::new();
        names.retain(|name| seen.insert(*name));
        let mut headings: Vec<&String> = samples.iter().filter_map(|s| s.headings.last()).collect();
        headings.dedup();
        let heading = if let [one] = headings.as_slice() { one.as_str() } else { "" };
        const SHOWN: usize = 6;
        let more = if names.len() > SHOWN { ", …" } else { "" };
        let under = if heading.is_empty() { String::new() } else { format!(" under '{heading}'") };
        let text = format!(
            "{} outputs{under} are told apart by the text between them only: {}{more}",
            samples.len(),
            names.iter().take(SHOWN).map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
        );
        let means = "if some of them are runs of one variant, or a name is not what was meant, say \
                     whose they are: --as FILE:LINE=NAME";
        let finding = Finding::new(Code::KeptApart, Severity::Note, text, means);
        Finding { place: Some(file.to_owned()), ..finding }
    };
    by_file.into_iter().map(of).collect()
}

/// Values of which nothing but themselves is known.
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
    let text = format!("values {what} match no output in the document");
    let means = "the number of runs behind them, their length, errors and reply sizes cannot be \
                 checked";
    let finding = Finding::new(Code::NoSample, Severity::Warn, text, means);
    vec![Finding { place: Some(first.place()), ..finding }]
}

/// Means and standard deviations in place of runs.
pub fn sums_only(import: &Import) -> Vec<Finding> {
    let with = import
        .samples
        .iter()
        .find_map(|sample| sample.moments.values().find_map(|moments| Some((sample, moments.n?))));
    let Some((sample, n)) = with else { return Vec::new() };
    let text = format!("of {n} runs only means and standard deviations were kept");
    let means = "whether the runs drifted, took turns, or hold one that is far off, cannot be seen: \
                 intervals from sums take all of them as independent";
    let finding = Finding::new(Code::SumsOnly, Severity::Warn, text, means);
    vec![Finding { place: Some(sample.place()), ..finding }]
}
