//! Reads printed summaries: a name, and under it "Requests/sec: 4536.86 ± 1027.29", "Successful
//! iterations: 20". A user's script printed them from many outputs of a tool.

use tare_model::Metric;

use crate::claim::{Change, Claim, Listed, Says, StatedChange};
use crate::context::is_name;
use crate::numbers::{self, whole};
use crate::sample::{Draft, Tool};
use crate::table::{Kind, KindOfUnit, meaning, unit};

/// Most lines of a summary.
const LINES_MAX: usize = 30;

/// A summary, and how many lines it takes.
#[derive(Debug)]
pub struct Summary {
    pub draft: Draft,
    pub length: usize,
}

/// Reads a summary that begins at the first of these lines.
pub fn found(lines: &[&str], first: usize) -> Option<Summary> {
    let (name, start) = match (name(lines.first()?), lines) {
        (Some(name), _) => (Some(name), 1),
        (None, [name, rule, next, ..]) if is_rule(name, rule) && pair(next).is_some() => {
            (Some(name.trim()), 2)
        }
        _ => (None, 0),
    };
    // The number of runs may come before the first value.
    let is_count = |line: &str| pair(line).is_some_and(|(key, text)| count(key, text).is_some());
    let first_value = start + usize::from(is_count(lines.get(start)?));
    value(lines.get(first_value)?)?;
    let mut draft = Draft::new(Tool::Summary);
    let (mut spreads, mut changes, mut runs) = (Vec::new(), Vec::new(), None);
    let mut taken = start;
    for line in lines[start..].iter().take(LINES_MAX) {
        let Some((key, text)) = pair(line) else { break };
        taken += 1;
        if let Some(n) = count(key, text) {
            runs = Some(n);
        } else if let Some((percent, step)) = percent(key, text) {
            let other = versus(key).map(|(_, other)| other.to_owned());
            changes.push(StatedChange {
                line: first + taken - 1,
                text: line.trim().to_owned(),
                other: other.unwrap_or_default(),
                percent,
                step,
            });
        } else if let Some(found) = value(line) {
            // Two values of one kind are not from one summary.
            if spreads.is_empty() && has(&draft, found.kind) {
                return None;
            }
            enter(&mut draft, &found);
            spreads.extend(found.spread.map(|spread| (found.kind, found.value, spread)));
        }
    }
    for (kind, mean, spread) in &spreads {
        if let Kind::Of(metric) = kind {
            draft.put_moments(*metric, *mean, *spread, runs);
        }
    }
    let numbers = draft.values.len();
    let is_one = numbers >= 2 || (numbers == 1 && (name.is_some() || !spreads.is_empty()));
    if !is_one {
        return None;
    }
    draft.own_name = name.map(str::to_owned);
    draft.asked.at_once = None;
    draft.against = changes;
    Some(Summary { draft, length: taken })
}

/// Reads two values of one kind and their stated difference: "Baseline mean: 1.117 ms", "Variant
/// mean: 1.247 ms", "Overhead vs baseline: 11.6%". Also returns how many lines they take.
pub fn compared(lines: &[&str], first: usize) -> Option<(Claim, usize)> {
    let (from, to) = (value(lines.first()?)?, value(lines.get(1)?)?);
    let (key, text) = pair(lines.get(2)?)?;
    let (percent, step) = percent(key, text).filter(|_| from.kind == to.kind)?;
    let names = [lines[0], lines[1]].map(|line| pair(line).map_or("", |(key, _)| key).to_owned());
    let change = Change {
        percent,
        step,
        from: from.value,
        to: to.value,
        slack: Change::slack((from.value, from.step), (to.value, to.step)),
        names,
        ..Change::default()
    };
    let says = Says::Change(Some(change).filter(Change::is_possible)?);
    let (file, line, text) = (String::new(), (first + 2) as u32, lines[2].trim().to_owned());
    Some((Claim { file, line, text, says }, 3))
}

/// Reads "Overhead Comparisons:", and below it "WebAssembly: 11.66%", "eBPF vs no module: 3.1%".
pub fn overheads(lines: &[&str], first: usize) -> Option<Vec<Listed>> {
    let title = lines.first()?.trim().trim_matches(['*', '#', '-', '=', ' ']).strip_suffix(':')?;
    // "Overheads:" is such a title, too.
    if meaning(title.trim_end_matches('s')).quantity != Some(Kind::Change) {
        return None;
    }
    let one = |(at, line): (usize, &&str)| {
        let (name, text) = pair(line)?;
        let (percent, step) = numbers::percent(text)?;
        let (own, other) = versus(name).unwrap_or((name, ""));
        let (line, text) = (first + at + 1, format!("{title}: {}", line.trim()));
        let against = StatedChange { line, text, other: other.to_owned(), percent, step };
        Some(Listed { name: own.to_owned(), against })
    };
    let listed: Vec<Listed> =
        lines[1..].iter().take(LINES_MAX).enumerate().map_while(one).collect();
    (!listed.is_empty()).then_some(listed)
}

/// Returns the two sides of "Overhead vs no module".
fn versus(key: &str) -> Option<(&str, &str)> {
    let split = |word| key.split_once(word).map(|(own, other)| (own.trim(), other.trim()));
    [" vs. ", " vs ", " against ", " over ", " to "].into_iter().find_map(split)
}

fn has(draft: &Draft, kind: Kind) -> bool {
    match kind {
        Kind::Of(metric) => draft.values.contains_key(metric.key()),
        Kind::Percentile(percent) => draft.percentiles.iter().any(|p| p.percent == percent),
        _ => false,
    }
}

/// Returns the name in a line such as "Nginx without module:", with nothing after it.
fn name(line: &str) -> Option<&str> {
    let text = line.trim().trim_matches(['*', '#', '-', '=', ' ']);
    let name = text.strip_suffix(':')?.trim_matches(['*', ' ']);
    let is_short = (1..=80).contains(&name.len()) && !name.contains(':');
    // "Results:" names nothing.
    (is_short && is_name(name, 12)).then_some(name)
}

/// Whether `rule` underlines a name.
fn is_rule(name: &str, rule: &str) -> bool {
    let (name, rule) = (name.trim(), rule.trim());
    let is_line =
        rule.len() >= 3 && (rule.chars().all(|c| c == '-') || rule.chars().all(|c| c == '='));
    is_line && (1..=80).contains(&name.len()) && !name.contains(':') && rule.len() + 1 >= name.len()
}

fn pair(line: &str) -> Option<(&str, &str)> {
    let text = line.trim().trim_start_matches(['-', '*', '•', ' ']);
    let (key, text) = text.split_once(':')?;
    let text = text.trim().trim_matches('*');
    (!key.is_empty() && key.len() <= 60 && !text.is_empty())
        .then_some((key.trim_matches(['*', ' ']), text))
}

struct Value {
    kind: Kind,
    value: f64,
    /// One unit of its last digit.
    step: f64,
    spread: Option<f64>,
}

/// Reads a line with the value of a metric.
fn value(line: &str) -> Option<Value> {
    let (key, text) = pair(line)?;
    let said = meaning(key);
    let kind = said.quantity.filter(|kind| matches!(kind, Kind::Of(_) | Kind::Percentile(_)))?;
    let (head, tail) = match text.split_once(['±']).or_else(|| text.split_once("+/-")) {
        Some((head, tail)) => (head, Some(tail)),
        None => (text, None),
    };
    let (value, step, own) = number(head)?;
    let (spread, behind) = match tail {
        Some(tail) => {
            let tail = tail.split(['(', ',']).next().unwrap_or(tail);
            let (spread, _, unit) = number(tail)?;
            (Some(spread), unit)
        }
        None => (None, None),
    };
    let factor = match (kind, own.or(behind).or(said.unit)) {
        (Kind::Of(Metric::Throughput), None) => 1.0,
        (Kind::Of(Metric::Throughput), Some(KindOfUnit::Count(factor))) => factor,
        (Kind::Of(Metric::Bandwidth), Some(KindOfUnit::Bytes(factor))) => factor,
        (Kind::Of(Metric::LatencyMean) | Kind::Percentile(_), Some(KindOfUnit::Time(ns))) => ns,
        _ => return None,
    };
    let spread = spread.map(|spread| spread * factor);
    Some(Value { kind, value: value * factor, step: step * factor, spread })
}

/// Reads "16.54ms", "4536.86" or "4,536 req/s": the value, one unit of its last digit, and its
/// unit. `None` if anything else follows.
fn number(text: &str) -> Option<(f64, f64, Option<KindOfUnit>)> {
    let text = text.trim().split(" (").next()?.trim();
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',');
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let (value, step) = numbers::decimal(&text[..end])?;
    let rest = text[end..].trim();
    if rest.is_empty() {
        return Some((value, step, None));
    }
    unit(rest).map(|unit| (value, step, Some(unit)))
}

fn enter(draft: &mut Draft, value: &Value) {
    match value.kind {
        Kind::Of(metric) => {
            draft.put(metric, value.value);
            draft.steps.insert(metric.key().to_owned(), value.step);
        }
        Kind::Percentile(percent) => draft.put_percentile(percent, value.value),
        _ => {}
    }
}

/// Reads a number of runs: "Successful iterations: 20", "Runs: 5", "n: 20".
fn count(key: &str, text: &str) -> Option<u32> {
    let key = key.to_lowercase();
    let last = key.split_whitespace().last()?;
    let is_count = ["iterations", "runs", "repetitions", "samples", "n", "läufe", "iterationen"];
    let n = whole(text.split(['/', ' ']).next()?)?;
    is_count.contains(&last).then(|| u32::try_from(n).ok()).flatten().filter(|n| *n > 0)
}

fn percent(key: &str, text: &str) -> Option<(f64, f64)> {
    if meaning(key).quantity != Some(Kind::Change) {
        return None;
    }
    numbers::percent(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_a_spread_and_a_count() {
        let lines = [
            "Nginx with WebAssembly:",
            "  Requests/sec: 4008.00 ± 797.06",
            "  Latency (avg): 18.11ms ± 3.74ms",
            "  Successful iterations: 20",
            "  Overhead vs no module: 11.66%",
            "",
        ];
        let found = found(&lines, 7).unwrap();
        assert_eq!(found.length, 5);
        let moments = &found.draft.moments["throughput_per_s"];
        assert_eq!((moments.mean, moments.sd, moments.n), (4008.0, 797.06, Some(20)));
        assert_eq!(found.draft.moments["latency_ns_mean"].sd, 3.74e6);
        assert_eq!(found.draft.own_name.as_deref(), Some("Nginx with WebAssembly"));
        let [against] = found.draft.against.as_slice() else { panic!("{:?}", found.draft) };
        assert_eq!((against.line, against.percent), (11, 11.66));
        assert_eq!(against.other, "no module");
    }

    #[test]
    fn two_values_and_what_is_stated_of_them() {
        let lines =
            ["Baseline mean: 1.117 ms", "Variant mean:  1.942 ms", "Overhead vs baseline: 42.5%"];
        assert!(found(&lines, 1).is_none());
        let (Claim { line: 3, says: Says::Change(change), .. }, 3) = compared(&lines, 1).unwrap()
        else {
            panic!("{lines:?}")
        };
        assert!(!change.holds() && change.is_of_second(), "{change:?}");
        let other = ["Baseline mean: 1.117 ms", "Variant p99:  1.942 ms", "Overhead: 42.5%"];
        assert!(compared(&other, 1).is_none());
    }

    #[test]
    fn other_lists_are_none() {
        for lines in [
            &["Setup:", "  CPUs: 4", "  memory: 8 GB"][..],
            &["delay: 5 ms"],
            &["timeout: 30s", "threads: 4"],
            &["Latency: see below"],
            &["Parameters:", "- requests: 100000", "- rate: 500"],
            &["Network:", "- delay: 5 ms"],
        ] {
            assert!(super::found(lines, 1).is_none(), "{lines:?}");
        }
    }
}
