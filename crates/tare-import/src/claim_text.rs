//! What prose says of differences and of runs: "p99 went from 312 to 165 ms, 47.1 % better".
//!
//! An accusation that is wrong costs more than one that is missed: only where two values are joined
//! by words of a change are they taken for the ones that a difference is of. What stands without
//! them is counted.

use crate::claim::{Change, Claim, Says};
use crate::numbers;
use crate::table::{Kind, KindOfUnit, meaning, states_a_difference, unit};

/// What a line of prose says.
#[derive(Default)]
pub struct Line {
    pub claims: Vec<Claim>,
    /// It states a difference of which the values are not beside it.
    pub is_unchecked: bool,
}

/// Of a long paragraph its sentences; of a line that is none, nothing.
pub fn sentences(line: &str) -> impl Iterator<Item = &str> {
    const LONGEST: usize = 1000;
    let is_long = line.len() > LONGEST;
    let parts = line.split_inclusive(". ").filter(move |_| is_long);
    let whole = Some(line).filter(|_| !is_long);
    whole.into_iter().chain(parts).filter(|part| part.len() <= LONGEST)
}

pub fn of_line(text: &str, line: usize) -> Line {
    let claim = |says: Says| Claim {
        file: String::new(),
        line: line as u32,
        text: text.trim().to_owned(),
        says,
    };
    let found = said(text);
    let stated: Vec<&Said> = found.iter().filter(|one| is_of_a_change(text, one)).collect();
    let change = changed(text, &found, &stated);
    let changes: Vec<Change> = match change {
        Some(change) => vec![change],
        None if stated.is_empty() => Vec::new(),
        None => {
            let pairs = pairs(&found);
            stated.iter().filter_map(|one| right(text, one, &pairs)).collect()
        }
    };
    // Of several of which one is checked, the others are not.
    let is_unchecked = stated.len() > changes.len();
    let chosen = is_selected(text).then_some(Says::Selected);
    let says = chosen.into_iter().chain(changes.into_iter().map(Says::Change));
    Line { claims: says.map(claim).collect(), is_unchecked }
}

/// A number of prose: what it is of, and in which unit of tare's.
struct Said {
    /// Where it begins in the text, and where it ends.
    place: (usize, usize),
    value: f64,
    step: f64,
    unit: Option<KindOfUnit>,
    /// Its unit says so, or that it is joined to another.
    is_value: bool,
}

/// How two values are joined.
#[derive(Clone, Copy, PartialEq)]
enum Joined {
    /// "from 312 to 165", "312 → 165".
    FromTo,
    /// "to 165 ms from 312".
    ToFrom,
    /// "312 and 165", "61.8k vs. 53.3k".
    Either,
}

/// Two values of one unit that are joined, and the one difference behind or before them.
fn changed(text: &str, said: &[Said], stated: &[&Said]) -> Option<Change> {
    let values: Vec<&Said> = said.iter().filter(|one| one.is_value).collect();
    let pairs = values.windows(2).filter_map(|pair| {
        let [from, to] = [pair[0], pair[1]];
        let joined = joined(text, from, to)?;
        // "312 → 165 ms": the unit is both's.
        let unit = from.unit.or(to.unit);
        let from = Said { unit, place: from.place, ..*from };
        is_pair(&from, to).then_some((from, to, joined))
    });
    let pairs: Vec<_> = pairs.collect();
    // Of several of either nobody knows which belong together.
    let ([stated], [(from, to, joined)]) = (stated, pairs.as_slice()) else { return None };
    let change = change(stated, from, to, *joined);
    let is_accused = !(is_hedged(text, stated) || is_of_other(text, stated));
    (change.is_possible() && is_accused).then_some(change)
}

/// "20 % less of the CPU": not what latencies and rates give.
fn is_of_other(text: &str, stated: &Said) -> bool {
    const OTHERS: [&str; 6] = ["cpu", "memor", "speicher", "ram ", "power", "energ"];
    let rest = text[stated.place.1..].to_lowercase();
    let clause = rest.split([',', ';', '.', '(']).next().unwrap_or("");
    OTHERS.iter().any(|word| clause.contains(word))
}

/// Two values of the line that give it: nobody is accused by that, so that words do not matter.
fn right(text: &str, stated: &Said, pairs: &[(Said, &Said)]) -> Option<Change> {
    pairs.iter().find_map(|(from, to)| {
        let either = Some(change(stated, from, to, Joined::Either))
            .filter(|own| own.is_possible() && own.slack < SLACK_MAX && own.holds())?;
        match joined(text, from, to) {
            Some(joined) => Some(change(stated, from, to, joined)).filter(Change::holds),
            None => Some(either),
        }
    })
}

/// All values of a line that may be compared.
fn pairs(said: &[Said]) -> Vec<(Said, &Said)> {
    let mut found = Vec::new();
    for (at, from) in said.iter().enumerate() {
        for to in &said[at + 1..] {
            // "312 → 165 ms": the unit is both's.
            let from = Said { unit: from.unit.or(to.unit), ..*from };
            let is_like = match from.unit {
                None => is_bare(&from) && is_bare(to),
                Some(_) => is_pair(&from, to),
            };
            found.extend(is_like.then_some((from, to)));
        }
    }
    found
}

/// Values that are rounded more give any percentage.
const SLACK_MAX: f64 = 3.0;

/// A number of three digits or more without a unit, and no year.
fn is_bare(one: &Said) -> bool {
    let is_year = one.step == 1.0 && (1900.0..2100.0).contains(&one.value);
    one.unit.is_none() && one.value >= one.step * 100.0 && !is_year
}

/// "more than 40 %", "almost twice": not what the two values give.
fn is_hedged(text: &str, stated: &Said) -> bool {
    const HEDGES: [&str; 14] = [
        "about",
        "almost",
        "approximately",
        "around",
        "ca.",
        "least",
        "most",
        "nearly",
        "over",
        "roughly",
        "some",
        "than",
        "to",
        "under",
    ];
    let before = text[..stated.place.0].trim_end_matches(['-', '+', '−', ' ']);
    let last = before.split_whitespace().next_back().unwrap_or("").to_lowercase();
    before.ends_with(['~', '≈', '>', '<']) || HEDGES.contains(&last.as_str())
}

/// A difference, and no load, share, level or percentile.
fn is_of_a_change(text: &str, said: &Said) -> bool {
    const OTHERS: [&str; 18] = [
        "cpu",
        "load",
        "loss",
        "packet",
        "latency",
        "ci",
        "confidence",
        "percentile",
        "util",
        "idle",
        "busy",
        "hit",
        "success",
        "error",
        "of ",
        "quantil",
        "perzentil",
        "availab",
    ];
    let behind = text[said.place.1..].trim_start().to_lowercase();
    let rest = behind.trim_start_matches('-');
    match said.unit {
        // "5 % of the requests" are a share, "within 5 % of nginx" is none.
        Some(KindOfUnit::Percent) => {
            let before = text[..said.place.0].trim_end().to_lowercase();
            let is_within = before.ends_with("within");
            // "At 99 %" of requests is a percentile.
            let is_percentile = before.split_whitespace().next_back().is_some_and(|word| {
                ["at", "bei"].contains(&word)
                    && [50.0, 90.0, 95.0, 99.0, 99.9].contains(&said.value)
            });
            let next = rest.trim_start_matches('%').trim_start();
            // "rate=0.00%", "(100.00%) 1 scenario": as programs print shares.
            let is_printed =
                before.ends_with('=') || (before.ends_with('(') && next.starts_with(')'));
            is_within
                || !(is_printed
                    || is_percentile
                    || OTHERS.iter().any(|word| next.starts_with(word)))
        }
        Some(KindOfUnit::Times) => match times(rest) {
            // "ran three times": what is repeated is no difference.
            Some((word, next)) if REPEATED.contains(&word) => said.value >= 50.0 || is_than(next),
            Some(_) => true,
            // "2 x Intel Xeon" is a number of things.
            None => {
                text[said.place.1..].starts_with(['x', '×'])
                    || is_than(rest.trim_start_matches(['x', '×']))
            }
        },
        _ => false,
    }
}

/// Words that may also say how often something was done.
const REPEATED: [&str; 7] = ["times", "veces", "vezes", "fois", "mal", "раза", "раз"];

/// "times", "fold", "倍": the word for a factor that a text begins with, and what follows.
fn times(text: &str) -> Option<(&'static str, &str)> {
    const FACTORS: [&str; 3] = ["fold", "fach", "倍"];
    let all = REPEATED.iter().chain(&FACTORS).filter_map(|word| {
        let next = text.strip_prefix(word)?;
        let goes_on = next.starts_with(char::is_alphabetic) && *word != "倍";
        (!goes_on).then_some((*word, next))
    });
    all.into_iter().next()
}

fn is_than(next: &str) -> bool {
    const THAN: &str = "as better faster fewer greater higher larger less lower more quicker slower \
                        smaller worse más menos mejor mayor menor mais plus moins mieux besser \
                        höher langsamer mehr niedriger schlechter schneller so weniger быстрее \
                        медленнее больше меньше выше ниже";
    let word = next.trim_start().split(|c: char| !c.is_alphabetic()).next().unwrap_or("");
    THAN.split(' ').any(|than| than == word)
}

/// A line that a script printed, which states a difference or a spread: "Overhead: 30.2%", "std dev =
/// 1.43/7.5%".
pub fn is_stated(text: &str) -> bool {
    const SPREADS: [&str; 5] = ["std dev", "stddev", "stdev", "deviation", "±"];
    let key = text.split(|c: char| c.is_ascii_digit()).next().unwrap_or("").to_lowercase();
    let is_change = meaning(&key).quantity == Some(Kind::Change);
    states_a_difference(text) && (is_change || SPREADS.iter().any(|word| key.contains(word)))
}

fn joined(text: &str, from: &Said, to: &Said) -> Option<Joined> {
    const LONGEST: usize = 48;
    let between = text.get(from.place.1..to.place.0)?.to_lowercase();
    if between.chars().count() > LONGEST || between.contains(['±', '(', ')', ';']) {
        return None;
    }
    let words: Vec<&str> = between
        .split(|c: char| !(c.is_alphanumeric() || "→>-–=/".contains(c)))
        .filter(|word| !word.is_empty() && unit(word).is_none())
        .collect();
    let has = |wanted: &[&str]| words.iter().any(|word| wanted.contains(word));
    let before = text[..from.place.0].to_lowercase();
    let last = before.split_whitespace().next_back().unwrap_or("");
    if has(&["from", "von", "de"]) && ["to", "auf", "à", "a"].contains(&last) {
        Some(Joined::ToFrom)
    } else if has(&["→", "->", "=>", "-->", "to", "auf", "à"]) || (has(&["a"]) && last == "de") {
        Some(Joined::FromTo)
    } else if has(&[
        "vs", "versus", "against", "than", "instead", "gegen", "statt", "frente", "contra",
    ]) {
        Some(Joined::Either)
    } else {
        None
    }
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

fn change(stated: &Said, from: &Said, to: &Said, joined: Joined) -> Change {
    let (from, to) = if joined == Joined::ToFrom { (to, from) } else { (from, to) };
    let factor = |unit: Option<KindOfUnit>| match unit {
        Some(KindOfUnit::Time(f) | KindOfUnit::Bytes(f) | KindOfUnit::Count(f)) => f,
        _ => 1.0,
    };
    let with_step = |said: &Said| {
        let factor = factor(said.unit);
        (said.value * factor, said.step * factor)
    };
    let (from, to) = (with_step(from), with_step(to));
    Change {
        percent: stated.value,
        step: stated.step,
        is_times: stated.unit == Some(KindOfUnit::Times),
        from: from.0,
        to: to.0,
        slack: Change::slack(from, to),
        of_either: joined == Joined::Either,
        names: [String::new(), String::new()],
    }
}

fn said(text: &str) -> Vec<Said> {
    const MOST: usize = 40;
    let (mut found, mut passed) = (Vec::new(), 0);
    while let Some(start) = text[passed..].find(|c: char| c.is_ascii_digit()) {
        let start = passed + start;
        if found.len() == MOST {
            break;
        }
        // "p99", "HTTP/1.1", "v2", "10.0.0.1", "2024-03-22" are names; what is behind ± is no value.
        let before = text[..start].trim_end_matches(['-', '+', '−']);
        let last = before.chars().next_back();
        let is_name = last.is_some_and(|c| {
            (c.is_alphanumeric() && !is_cjk(c)) || matches!(c, '_' | '/' | ':' | '.')
        });
        let is_spread = before.trim_end().ends_with('±') || before.trim_end().ends_with("+/");
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',');
        let end = text[start..].find(|c| !is_part(c)).map_or(text.len(), |n| start + n);
        let digits = text[start..end].trim_end_matches(['.', ',']);
        let word: String = text[end..]
            .trim_start()
            .chars()
            .take_while(|c| !c.is_whitespace() && !matches!(c, ',' | ';' | ')' | '(' | '→'))
            .take(16)
            .collect();
        let rest = text[end..].trim_start();
        let own = match rest.trim_start_matches('-') {
            rest if rest.starts_with('%') => Some(KindOfUnit::Percent),
            rest if times(&rest.to_lowercase()).is_some() => Some(KindOfUnit::Times),
            _ => unit(word.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '×')),
        };
        // "100 connections" are no value; "312 → 165 ms" and "from 312 to" are.
        let follows = word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        let is_joined = follows.is_empty()
            || ["to", "auf", "and", "vs", "à", "against", "from", "gegen", "statt"]
                .contains(&follows.as_str());
        let is_value = own.is_some() || is_joined;
        if let Some((value, step)) = numbers::decimal(digits)
            && !(is_name || is_spread)
        {
            found.push(Said { place: (start, end), value, step, unit: own, is_value });
        }
        passed = end;
    }
    found
}

/// Of a script without spaces between words.
fn is_cjk(c: char) -> bool {
    ('\u{2e80}'..='\u{9fff}').contains(&c) || ('\u{ac00}'..='\u{d7a3}').contains(&c)
}

/// "the median of the last three of ten runs", "best of 5", "we dropped the slowest run".
fn is_selected(text: &str) -> bool {
    let lower = text.to_lowercase();
    lower.split(['.', ';']).any(|clause| counts_some(clause) || drops_some(clause))
}

/// "best of three", "of the last 3": a number follows, and what it counts are runs.
fn counts_some(clause: &str) -> bool {
    const OF: [&str; 4] = ["best of ", "fastest of ", "of the last ", "from the last "];
    const NUMBERS: &str = "two three four five six seven eight nine ten twenty";
    const RUNS: [&str; 5] = ["run", "iteration", "of ", "repetition", "everywhere"];
    let is_number = |word: &str| {
        let is_digits = word.chars().all(|c| c.is_ascii_digit());
        !word.is_empty() && (is_digits || NUMBERS.split(' ').any(|own| own == word))
    };
    OF.iter().any(|start| {
        clause.match_indices(start).any(|(at, _)| {
            let rest = clause[at + start.len()..].trim_start_matches("the ");
            let word = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or("");
            let behind = rest[word.len()..].trim_start();
            let is_of_runs = !behind.starts_with(char::is_alphabetic)
                || RUNS.iter().any(|run| behind.starts_with(run));
            // "The median run from the last three".
            let is_before = clause[..at].trim_end().ends_with("run");
            is_number(word) && (is_of_runs || is_before)
        })
    })
}

/// "dropped the slowest two runs"; nothing that was not dropped, and nothing else than runs.
fn drops_some(clause: &str) -> bool {
    const DROPPED: [&str; 6] =
        ["dropped", "discarded", "threw away", "thrown away", "excluded", "left out"];
    const WHICH: [&str; 6] = ["slowest", "fastest", "worst", "best", "first run", "outlier"];
    const NOT: [&str; 7] = ["no", "not", "none", "never", "nothing", "cache", "caches"];
    let has = |words: &[&str]| words.iter().any(|word| clause.contains(word));
    let is_denied = clause.split(|c: char| !c.is_alphanumeric()).any(|word| NOT.contains(&word));
    has(&DROPPED) && has(&WHICH) && !is_denied
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes_of(text: &str) -> Vec<Change> {
        let says = of_line(text, 1).claims.into_iter().filter_map(|claim| match claim.says {
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
            ("host vs VM: 61.8k vs 53.3k req/s (14 % slower)", true),
            ("p99 dropped to 165 ms from 312 ms, an improvement of 47.1 %", true),
            ("Die Latenz sinkt von 45,2 ms auf 38,1 ms, 15,7 % besser", true),
            ("p99 increased from 0.2 ms to 1.4 ms (+800 %)", true),
            ("53.3k req/s against 61.8k req/s is a loss of 14 %", true),
            ("from 100 req/s to 220 req/s, 2.2x as many", true),
            ("from 100 req/s to 220 req/s, 3x as many", false),
            ("p99 fell from 710 ms to 10 ms: 71× better", true),
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
            "With 100 connections the mean fell to 3 ms, 20 % lower.",
            "On 2024-03-22 p99 fell to 3 ms, 20 % lower",
            "99 % latency dropped from 312 ms to 165 ms",
            "Throughput dropped from 45.3k req/s to 39.9k req/s at 85 % CPU",
            "With 1 % packet loss p99 is higher: from 3 ms to 50 ms",
            "p99 dropped 15 % to 4.2 ms ± 0.3 ms",
            "With 3 ms delay and a 50 ms timeout we saw 12 % lower throughput",
            "mean and p99 were 1.2 ms and 4.8 ms, 10 % worse than on the host",
            "Con latencias de 5 ms a 10 ms usamos un 20 % menos de CPU.",
        ] {
            assert!(changes_of(none).is_empty(), "{none}: {:?}", changes_of(none));
        }
    }

    #[test]
    fn differences_without_their_values_are_counted() {
        for text in [
            "about 20 % slower",
            "In 2023 (release 2041), caddy was 0.9 % slower.",
            "## Run 2 (+44 % over Run 1)",
            "this is 30–50× faster",
            "the index is 12500 times as high",
            "It is 3 times slower.",
            "p99 went from 312 to 165 ms, 47.1 % better, and p50 is 3 % better",
            "p99 went from 312 to 165 ms, more than 40 % better",
            "The average went from 9.3 to 6.4 ms, so nearly 44 % on each of 2 machines.",
            "It was to be \"within 5 % of nginx\".",
            "\"12500 times\", they said.",
            "unas 13 veces menos",
            "entre 30 y 50 veces más rápidas",
            "30- bis 50-mal schneller",
            "nginx的性能降低约10%，尝试",
            "大约快了 45 倍，说明",
        ] {
            assert!(of_line(text, 1).is_unchecked, "{text}");
        }
        for text in [
            "p99 went from 312 to 165 ms, an improvement of 47.1 %.",
            "Each was run 10 times at 85 % CPU.",
            "99 % latency and 1 % packet loss",
            "2x2 matrices",
            "2 x Intel Xeon",
            "We ran it 3 times, 3 mal, 3 veces.",
            "scenarios: (100.00%) 1 scenario, 20 max VUs",
            "'rate<0.1' rate=0.00%",
            "5 % of the requests",
        ] {
            assert!(!of_line(text, 1).is_unchecked, "{text}");
        }
    }

    #[test]
    fn what_a_script_printed_of_differences_and_spreads() {
        for text in ["Overhead: 30.2%", "Speedup a/b: 1.30x", "std dev = 1.43/7.5%"] {
            assert!(is_stated(text), "{text}");
        }
        for text in ["CPU: 85 %", "    Latency  1.2ms  0.1ms  9ms  79.20%", "  50%   12", "vs 3 ms"]
        {
            assert!(!is_stated(text), "{text}");
        }
    }

    #[test]
    fn runs_that_were_chosen() {
        for text in [
            "We report the median of the last three of ten runs.",
            "Best of 5.",
            "Each was run 10 times; we dropped the slowest two runs.",
            "The median run from the last three is reported.",
        ] {
            assert!(
                matches!(of_line(text, 1).claims.as_slice(), [Claim { says: Says::Selected, .. }]),
                "{text}"
            );
        }
        for text in [
            "The first run was best.",
            "median of ten runs",
            "no packets were dropped",
            "To the best of our knowledge nobody did",
            "We dropped the page cache before all runs.",
            "No runs were discarded, not even the slowest.",
            "Throughput dropped in all runs.",
            "of the last three nginx releases",
        ] {
            assert!(of_line(text, 1).claims.is_empty(), "{text}");
        }
    }
}
