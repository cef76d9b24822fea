//! What a document says of its own results: differences in percent, values that its outputs say
//! too, runs that were chosen.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tare_model::Metric;

use crate::numbers;
use crate::sample::Draft;
use crate::table::{Kind, KindOfUnit, meaning, unit};

/// One statement, and where it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    pub file: String,
    pub line: u32,
    /// The line, or the row.
    pub text: String,
    pub says: Says,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Says {
    Change(Change),
    Value(Told),
    /// Some of the runs were chosen after they were seen.
    Selected,
}

/// "47.1 %" of 312 and 165 ms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    pub percent: f64,
    /// Of its last digit.
    pub step: f64,
    pub from: f64,
    pub to: f64,
    /// What the rounding of the two can change it by, in percent.
    pub slack: f64,
    /// Whose values they are, where that is known.
    pub names: [String; 2],
}

/// A value of a table, beside the output that it repeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Told {
    pub variant: String,
    pub metric: String,
    pub value: f64,
    /// Of its last digit.
    pub step: f64,
    pub output: f64,
    /// "results.md:12-20".
    pub place: String,
}

impl Change {
    /// In percent of the first value, and of the second.
    pub fn of_first(&self) -> f64 {
        (self.to - self.from) / self.from * 100.0
    }

    pub fn of_second(&self) -> f64 {
        (self.to - self.from) / self.to * 100.0
    }

    /// Whichever sign means "worse" to its author.
    pub fn holds(&self) -> bool {
        self.agrees(self.of_first())
    }

    /// It is of the other of the two values.
    pub fn is_of_second(&self) -> bool {
        !self.holds() && self.agrees(self.of_second())
    }

    fn agrees(&self, percent: f64) -> bool {
        let room = self.step + self.slack + 1e-9;
        (percent.abs() - self.percent.abs()).abs() <= room
    }

    fn is_possible(&self) -> bool {
        self.from > 0.0 && self.to > 0.0 && self.percent.is_finite()
    }
}

/// "Overhead vs no module: 11.66%", as an output itself says it.
#[derive(Clone, Debug, PartialEq)]
pub struct Against {
    /// Zero where its place is not known.
    pub line: usize,
    pub text: String,
    pub other: String,
    pub percent: f64,
    pub step: f64,
}

/// What outputs say of themselves and others, beside what their values give.
pub fn against(drafts: &[Draft]) -> Vec<Claim> {
    const MOST: usize = 300;
    let of = |own: &Draft, against: &Against| {
        let others = drafts.iter().filter(|other| other.own_name != own.own_name);
        let others: Vec<&Draft> = others.filter(|other| other.tool == own.tool).collect();
        let metric = match against.text.to_lowercase().contains("latency") {
            true => Metric::LatencyMean,
            false => Metric::Throughput,
        };
        let change = |other: &Draft| {
            let (from, to) = (other.values.get(metric.key())?, own.values.get(metric.key())?);
            let names = [title(other), title(own)];
            let (percent, step) = (against.percent, against.step);
            Some(Change { percent, step, from: *from, to: *to, slack: 0.01, names })
        };
        // "no module" is "Nginx without module", by the words they share.
        let shared = |other: &Draft| {
            let (name, told) = (title(other).to_lowercase(), against.other.to_lowercase());
            let words = told.split_whitespace().filter(|word| word.len() > 2);
            (name == told, words.filter(|word| name.contains(*word)).count())
        };
        let named = others.iter().max_by_key(|other| shared(other)).copied();
        let is_sure = named.is_some_and(|other| shared(other).0);
        let fits = others.iter().filter_map(|other| change(other)).find(Change::holds);
        let change = fits.filter(|_| !is_sure).or_else(|| change(named?))?;
        let line = if against.line == 0 { own.source.first_line } else { against.line as u32 };
        let (file, text) = (own.source.file.clone(), against.text.clone());
        Some(Claim { file, line, text, says: Says::Change(change) })
    };
    let all = drafts.iter().flat_map(|own| own.against.iter().map(move |against| (own, against)));
    all.take(MOST).filter_map(|(own, against)| of(own, against)).collect()
}

fn title(draft: &Draft) -> String {
    draft.own_name.clone().unwrap_or_default()
}

/// A percentage, its last digit, and the pairs of values that it may be of, by where they stand.
pub type Percentage = (f64, f64, Vec<(String, Change)>);

/// Of several percentages, each with the pairs that it may be of: the pair that makes most of them
/// right, for each of them; else the first that it may be of.
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
    let order: Vec<&str> = told
        .first()
        .map_or(Vec::new(), |(_, _, all)| all.iter().map(|(key, _)| key.as_str()).collect());
    // Of those that fit as well, the first as it stands in the document.
    let most = right.values().copied().max().unwrap_or(0);
    let best = order.iter().find(|key| right.get(**key) == Some(&most)).copied();
    let best = best.or_else(|| right.iter().find(|(_, n)| **n == most).map(|(key, _)| *key));
    told.iter()
        .map(|all| {
            let own = all.2.iter().find(|(key, _)| Some(key.as_str()) == best);
            own.map(|(_, change)| complete(all, change)).filter(Change::is_possible)
        })
        .collect()
}

/// What a line of prose says.
pub fn of_line(text: &str, line: usize) -> Vec<Claim> {
    const LONGEST: usize = 1000;
    let mut found = Vec::new();
    if text.len() > LONGEST {
        return found;
    }
    let claim = |says: Says| Claim {
        file: String::new(),
        line: line as u32,
        text: text.trim().to_owned(),
        says,
    };
    if is_selected(text) {
        found.push(claim(Says::Selected));
    }
    if text.contains('%') && meaning(text).quantity == Some(Kind::Change) || is_change(text) {
        found.extend(changes(text).into_iter().map(|change| claim(Says::Change(change))));
    }
    found
}

/// Words of differences that no head of a table has.
fn is_change(text: &str) -> bool {
    const WORDS: [&str; 16] = [
        "slower",
        "faster",
        "improved",
        "improves",
        "reduced",
        "reduces",
        "increased",
        "decreased",
        "dropped",
        "drops",
        "langsamer",
        "schneller",
        "besser",
        "schlechter",
        "higher",
        "lower",
    ];
    let lower = text.to_lowercase();
    text.contains('%') && WORDS.iter().any(|word| lower.contains(word))
}

/// A number of prose: what it is of, and in which unit of tare's.
struct Said {
    /// Where it begins in the text, and where it ends.
    place: (usize, usize),
    value: f64,
    step: f64,
    unit: Option<KindOfUnit>,
}

/// Two values of one unit, and the percentage behind or before them.
fn changes(text: &str) -> Vec<Change> {
    let mut said = said(text);
    // "312 → 165 ms": the unit is both's.
    for at in (1..said.len()).rev() {
        if said[at - 1].unit.is_none() {
            said[at - 1].unit = said[at].unit.filter(|unit| *unit != KindOfUnit::Percent);
        }
    }
    let mut found = Vec::new();
    let mut values: Vec<&Said> = Vec::new();
    let mut waiting: Option<&Said> = None;
    for one in &said {
        if one.unit == Some(KindOfUnit::Percent) {
            match values.as_slice() {
                [.., from, to] if is_pair(from, to) => {
                    found.push(change(one, from, to, is_turned(text, from, to)));
                }
                _ => waiting = Some(one),
            }
            values.clear();
            continue;
        }
        values.push(one);
        if let (Some(percent), [.., from, to]) = (waiting, values.as_slice())
            && is_pair(from, to)
        {
            found.push(change(percent, from, to, is_turned(text, from, to)));
            waiting = None;
        }
    }
    found
}

/// "53.3k against 61.8k": the second is what it is compared with.
fn is_turned(text: &str, from: &Said, to: &Said) -> bool {
    const WORDS: [&str; 8] =
        ["against", "vs", "versus", "than", "instead of", "gegen", "statt", "compared"];
    let between = text.get(from.place.1..to.place.0).unwrap_or("").to_lowercase();
    WORDS.iter().any(|word| between.contains(word))
}

fn is_pair(a: &Said, b: &Said) -> bool {
    use KindOfUnit::{Bytes, Count, Time};
    let alike = matches!(
        (a.unit, b.unit),
        (Some(Time(_)), Some(Time(_)))
            | (Some(Bytes(_)), Some(Bytes(_)))
            | (Some(Count(_)), Some(Count(_)))
    );
    alike && a.value > 0.0 && b.value > 0.0
}

fn change(percent: &Said, from: &Said, to: &Said, is_turned: bool) -> Change {
    let (from, to) = if is_turned { (to, from) } else { (from, to) };
    let factor = |unit: Option<KindOfUnit>| match unit {
        Some(KindOfUnit::Time(f) | KindOfUnit::Bytes(f) | KindOfUnit::Count(f)) => f,
        _ => 1.0,
    };
    let (from, to) = ((from, factor(from.unit)), (to, factor(to.unit)));
    let (a, b) = (from.0.value * from.1, to.0.value * to.1);
    Change {
        percent: percent.value,
        step: percent.step,
        from: a,
        to: b,
        slack: (from.0.step * from.1 + to.0.step * to.1) / a.min(b) * 100.0,
        names: [String::new(), String::new()],
    }
}

fn said(text: &str) -> Vec<Said> {
    let mut found = Vec::new();
    let mut rest = text;
    let mut passed = 0;
    const MOST: usize = 40;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        if found.len() == MOST {
            break;
        }
        let before = rest[..start].chars().next_back();
        // "p99", "HTTP/1.1", "v2", "10.0.0.1" are names.
        let is_name =
            before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '/' | ':' | '.'));
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',');
        let end = rest[start..].find(|c| !is_part(c)).map_or(rest.len(), |n| start + n);
        let digits = rest[start..end].trim_end_matches(['.', ',']);
        let plain = digits.replace(',', "");
        let after = rest[end..].trim_start();
        let word: String = after
            .chars()
            .take_while(|c| !c.is_whitespace() && !matches!(c, ',' | ';' | ')' | '(' | '→'))
            .take(16)
            .collect();
        let own = unit(word.trim_end_matches(['.', ':']));
        if let Some(value) = numbers::plain(&plain).filter(|_| !is_name) {
            let decimals = plain.split_once('.').map_or(0, |(_, d)| d.len().min(12));
            let place = (passed + start, passed + end);
            found.push(Said { place, value, step: 10f64.powi(-(decimals as i32)), unit: own });
        }
        passed += end;
        rest = &rest[end..];
    }
    found
}

/// "the median of the last three of ten runs", "best of 5", "we dropped the slowest".
fn is_selected(text: &str) -> bool {
    let lower = text.to_lowercase();
    const PHRASES: [&str; 26] = [
        "best of",
        "fastest of",
        "best run",
        "fastest run",
        "best result",
        "of the last two",
        "of the last three",
        "of the last four",
        "of the last five",
        "last three of",
        "last two of",
        "last five of",
        "of the best",
        "of the fastest",
        "without the outliers",
        "outliers removed",
        "outliers were removed",
        "beste von",
        "bester von",
        "besten lauf",
        "letzten drei",
        "最好的一次",
        "去掉最高",
        "后三次",
        "最后三次",
        "meilleur de",
    ];
    const DROPPED: [&str; 14] = [
        "dropped",
        "discarded",
        "threw away",
        "thrown away",
        "excluded",
        "ignored",
        "removed",
        "left out",
        "omitted",
        "verworfen",
        "weggelassen",
        "écarté",
        "descartamos",
        "descartada",
    ];
    const OF: [&str; 12] = [
        "slowest",
        "fastest",
        "worst",
        "best",
        "first run",
        "first two",
        "outlier",
        "runs",
        "highest",
        "lowest",
        "läufe",
        "ausreißer",
    ];
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let of_last = lower.split("of the last ").nth(1).or(lower.split("der letzten ").nth(1));
    let counted = of_last.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    has(&PHRASES) || counted || (has(&DROPPED) && has(&OF))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes_of(text: &str) -> Vec<Change> {
        let says = of_line(text, 1).into_iter().filter_map(|claim| match claim.says {
            Says::Change(change) => Some(change),
            _ => None,
        });
        says.collect()
    }

    #[test]
    fn differences_are_computed_again() {
        for (text, holds) in [
            ("p99 went from 312 to 165 ms, an improvement of 47.1 %.", true),
            ("Improvement 47.1 % (312 ms → 165 ms)", true),
            ("Improvement 74.1% (312 ms -> 165 ms)", false),
            ("Overhead: 11.66 % (4536.86 → 4008.00 req/s)", true),
            ("4,008.00 req/s against 4,536.86 req/s: 11.7 % slower", true),
            ("53.3k req/s against 61.8k req/s is a loss of 14 %", true),
        ] {
            let found = changes_of(text);
            let [change] = found.as_slice() else { panic!("{text}: {found:?}") };
            assert_eq!(change.holds(), holds, "{text}: {change:?}");
        }
        let other = &changes_of("89.1 % improvement, from 312 to 165 ms")[0];
        assert!(!other.holds() && other.is_of_second(), "{other:?}");
        for none in [
            "about 20 % slower",
            "p99 is 12 % lower on HTTP/1.1 than on HTTP/2",
            "with 16 threads and 100 connections 5 % more",
        ] {
            assert!(changes_of(none).is_empty(), "{none}: {:?}", changes_of(none));
        }
    }

    #[test]
    fn runs_that_were_chosen() {
        for text in [
            "We report the median of the last three of ten runs.",
            "Best of 5.",
            "Each was run 10 times; we dropped the slowest two runs.",
            "Median der letzten 3 Läufe",
            "取后三次的中位数",
        ] {
            assert!(
                matches!(of_line(text, 1).as_slice(), [Claim { says: Says::Selected, .. }]),
                "{text}"
            );
        }
        for text in ["The first run was best.", "median of ten runs", "no packets were dropped"] {
            assert!(of_line(text, 1).is_empty(), "{text}");
        }
    }
}
