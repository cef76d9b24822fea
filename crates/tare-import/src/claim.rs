//! Statements of tables and printed summaries about a document's results: differences in percent,
//! and values that its outputs give too.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tare_model::Metric;

use crate::sample::{Draft, Tool};

/// One statement, and where it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    pub file: String,
    pub line: u32,
    /// Text of the line or row.
    pub text: String,
    pub says: Says,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Says {
    Change(Change),
    Value(RepeatedValue),
    /// Stored by earlier versions, which read sentences.
    Selected,
}

/// A stated difference: "47.1 %" between 312 and 165 ms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The stated difference, in percent or as a factor.
    pub percent: f64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_times: bool,
    /// One unit of the last digit of `percent`.
    pub step: f64,
    pub from: f64,
    pub to: f64,
    /// Most that the rounding of `from` and `to` can change the difference, in percent.
    pub slack: f64,
    /// Whether either value may be the base, as in "61.8k vs. 53.3k".
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_either: bool,
    /// Variants of the two values, if known.
    pub names: [String; 2],
}

/// A value of a table, with the output value that it repeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepeatedValue {
    pub variant: String,
    pub metric: String,
    pub value: f64,
    /// One unit of its last digit.
    pub step: f64,
    pub output: f64,
    /// File and lines, as in "results.md:12-20".
    pub place: String,
}

impl Change {
    /// Returns the difference in percent of the first value.
    pub fn of_first(&self) -> f64 {
        (self.to - self.from) / self.from * 100.0
    }

    pub fn of_second(&self) -> f64 {
        (self.to - self.from) / self.to * 100.0
    }

    /// Whether the statement is right, with either sign: authors differ in which means "worse".
    pub fn holds(&self) -> bool {
        if self.is_times {
            let times = self.times();
            // "1.8x as many", or its inverse, "0.56x".
            let room = self.step / 2.0 + times * self.slack / 100.0 + 1e-9;
            return (times - self.percent).abs() <= room
                || (1.0 / times - self.percent).abs() <= room;
        }
        self.agrees(self.of_first()) || (self.of_either && self.agrees(self.of_second()))
    }

    /// Returns the greater value divided by the lesser.
    pub fn times(&self) -> f64 {
        (self.to / self.from).max(self.from / self.to)
    }

    /// Whether the stated difference is relative to the second value.
    pub fn is_of_second(&self) -> bool {
        !(self.is_times || self.holds()) && self.agrees(self.of_second())
    }

    fn agrees(&self, percent: f64) -> bool {
        let room = self.step + self.slack + 1e-9;
        (percent.abs() - self.percent.abs()).abs() <= room
    }

    /// Returns how much the rounding of two values can change their difference in percent.
    pub fn slack(from: (f64, f64), to: (f64, f64)) -> f64 {
        let ((from, from_step), (to, to_step)) = (from, to);
        (to_step / from + to * from_step / from.powi(2)) * 100.0
    }

    /// Whether both values are positive, and the difference is finite.
    pub fn is_possible(&self) -> bool {
        self.from > 0.0 && self.to > 0.0 && self.percent.is_finite() && self.slack.is_finite()
    }
}

/// A difference that an output itself states: "Overhead vs no module: 11.66%".
#[derive(Clone, Debug, PartialEq)]
pub struct StatedChange {
    /// 0 if unknown.
    pub line: usize,
    pub text: String,
    pub other: String,
    pub percent: f64,
    pub step: f64,
}

/// An entry in a list of overheads: "WebAssembly: 11.66%".
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    pub name: String,
    pub against: StatedChange,
}

/// Returns overheads stated by summaries and lists, with the values they follow from, and the lines
/// of those that cannot be recomputed.
pub fn against(drafts: &[Draft], listed: &[Listed]) -> (Vec<Claim>, Vec<u32>) {
    const MOST: usize = 300;
    let of_outputs = drafts.iter().flat_map(|own| own.against.iter().map(move |said| (own, said)));
    let own = |listed: &Listed| named(drafts, &listed.name);
    let of_lists = listed.iter().filter_map(|one| Some((own(one)?, &one.against)));
    let all = of_outputs.chain(of_lists);
    let lines = listed.iter().filter(|one| own(one).is_none()).map(|one| one.against.line as u32);
    let (mut claims, mut unchecked) = (Vec::new(), lines.collect::<Vec<u32>>());
    for (own, against) in all.take(MOST) {
        match one_against(own, against, drafts) {
            Some(claim) => claims.push(claim),
            None if against.line > 0 => unchecked.push(against.line as u32),
            None => unchecked.push(own.source.first_line),
        }
    }
    (claims, unchecked)
}

/// Returns the summary that shares most words with a name; `None` on a tie.
fn named<'a>(drafts: &'a [Draft], name: &str) -> Option<&'a Draft> {
    let summaries = || drafts.iter().filter(|draft| draft.tool == Tool::Summary);
    let most = summaries().map(|draft| shared(draft, name)).max().filter(|n| *n > 0)?;
    let mut best = summaries().filter(|draft| shared(draft, name) == most);
    best.next().filter(|_| best.next().is_none())
}

/// Counts words that two names share: "no module" and "Nginx without module" share one.
fn shared(draft: &Draft, name: &str) -> usize {
    let (own, name) = (title(draft).to_lowercase(), name.to_lowercase());
    name.split_whitespace().filter(|word| word.len() > 2 && own.contains(*word)).count()
}

fn one_against(own: &Draft, against: &StatedChange, drafts: &[Draft]) -> Option<Claim> {
    let others = drafts.iter().filter(|other| other.own_name != own.own_name);
    let others: Vec<&Draft> = others.filter(|other| other.tool == own.tool).collect();
    let metric = metric_of(&against.text)?;
    let step = |draft: &Draft| draft.steps.get(metric.key()).copied().unwrap_or(0.0);
    let change = |other: &Draft| {
        let (from, to) = (*other.values.get(metric.key())?, *own.values.get(metric.key())?);
        Some(Change {
            percent: against.percent,
            is_times: false,
            step: against.step,
            from,
            to,
            slack: Change::slack((from, step(other)), (to, step(own))),
            of_either: false,
            names: [title(other), title(own)],
        })
    };
    let told = against.other.to_lowercase();
    let rank = |other: &Draft| (title(other).to_lowercase() == told, shared(other, &told));
    let named = others.iter().max_by_key(|other| rank(other)).copied();
    let is_sure = named.is_some_and(|other| rank(other).0);
    let named = named.filter(|other| others.len() == 1 || rank(other).1 > 0 || is_sure);
    // A list that names no baseline is relative to the first variant.
    let named = named.or_else(|| others.first().copied().filter(|_| told.is_empty()));
    let fits = others.iter().filter_map(|other| change(other)).find(Change::holds);
    let change = fits.filter(|_| !is_sure).or_else(|| change(named?))?;
    let change = Some(change).filter(Change::is_possible)?;
    let line = if against.line == 0 { own.source.first_line } else { against.line as u32 };
    let (file, text) = (own.source.file.clone(), against.text.clone());
    Some(Claim { file, line, text, says: Says::Change(change) })
}

/// Returns the metric of an overhead: throughput, if the text names no other.
fn metric_of(text: &str) -> Option<Metric> {
    let lower = text.to_lowercase();
    let is_other = ["cpu", "memory", "p50", "p90", "p95", "p99", "median", "bandwidth", "size"]
        .iter()
        .any(|word| lower.contains(word));
    match (is_other, lower.contains("latency")) {
        (true, _) => None,
        (false, true) => Some(Metric::LatencyMean),
        (false, false) => Some(Metric::Throughput),
    }
}

fn title(draft: &Draft) -> String {
    draft.own_name.clone().unwrap_or_default()
}

/// A percentage, one unit of its last digit, and the changes that it may state, each with a key for
/// the places of its two values.
pub type Percentage = (f64, f64, Vec<(String, Change)>);

/// Returns the change that each of several percentages states. The pair of places that makes most
/// of them right is used for all; a percentage that only another pair makes right uses that one.
/// All are `None` if no pair fits any of them.
pub fn fitted(told: &[Percentage]) -> Vec<Option<Change>> {
    let complete = |(percent, step, _): &Percentage, change: &Change| Change {
        percent: *percent,
        step: *step,
        ..change.clone()
    };
    let mut right: BTreeMap<&str, usize> = BTreeMap::new();
    for all in told {
        for (key, change) in &all.2 {
            let own = complete(all, change);
            let rank = if own.holds() { 2 } else { usize::from(own.is_of_second()) };
            *right.entry(key).or_default() += if own.is_possible() { rank } else { 0 };
        }
    }
    let keys = told.iter().flat_map(|(.., all)| all.iter().map(|(key, _)| key.as_str()));
    // On a tie, the pair that comes first in the document is used.
    let most = right.values().copied().max().unwrap_or(0);
    let pair = |change: &Change| (change.from.to_bits(), change.to.to_bits());
    let is_only = told.iter().all(|(.., all)| {
        let mut pairs = all.iter().map(|(_, change)| pair(change));
        let first = pairs.next();
        first.is_some() && pairs.all(|own| Some(own) == first)
    });
    let best = keys.into_iter().find(|key| right.get(key) == Some(&most) && (most > 0 || is_only));
    let of = |all: &Percentage| {
        let changes = || all.2.iter().map(|(key, change)| (key, complete(all, change)));
        let own = changes().find(|(key, _)| Some(key.as_str()) == best).map(|(_, own)| own);
        let other = || changes().map(|(_, own)| own).find(|own| own.is_possible() && own.holds());
        own.filter(Change::holds)
            .or_else(other)
            .or_else(|| changes().find(|(key, _)| Some(key.as_str()) == best).map(|(_, own)| own))
    };
    told.iter().map(|all| of(all).filter(Change::is_possible)).collect()
}
