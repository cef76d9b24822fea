//! Headings of two levels, of which the inner ones come again below other outer ones: "Scenario 1 /
//! nginx", "Scenario 2 / nginx". One level names the variants, the other the cases.

use std::collections::{BTreeMap, BTreeSet};

use tare_model::Metric;

use crate::load::{Part, differences};
use crate::names::{plain_words, words};
use crate::sample::Draft;

/// What tells one output's variant, and what its case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crossed {
    pub variant: String,
    pub section: String,
}

/// `parts` are each output's headings, outermost first. Where what stands below one outer heading was
/// asked different things, the inner headings are the cases. Else each outer heading is a case, in
/// which what stands below it is compared.
pub fn crossed(parts: &[Vec<Option<String>>], drafts: &[Draft]) -> Option<Vec<Crossed>> {
    let all: Vec<(&str, String)> = parts.iter().map(|own| split(own)).collect::<Option<_>>()?;
    let keys = keys(&all);
    // Of "Cluster A" and "cluster A" the first spelling is kept.
    let mut spelled: BTreeMap<&str, &str> = BTreeMap::new();
    let mut below: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut above: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    // The first output of each place is enough.
    let mut firsts: BTreeMap<(&str, &str), &Draft> = BTreeMap::new();
    for (((outer, inner), key), draft) in all.iter().zip(&keys).zip(drafts) {
        spelled.entry(key).or_insert(inner);
        below.entry(outer).or_default().insert(key);
        above.entry(key).or_default().insert(outer);
        firsts.entry((outer, key)).or_insert(draft);
    }
    let column = |key: &str| -> Vec<&Draft> {
        above[key].iter().map(|outer| firsts[&(*outer, key)]).collect()
    };
    let is_other = |outer: &str, a: &str, b: &str| {
        let (one, two) = (firsts[&(outer, a)], firsts[&(outer, b)]);
        is_other_load(one, two, &[a, b]) || is_other_rate(&column(a), &column(b))
    };
    let inner_differ = below.iter().all(|(outer, inner)| {
        let inner: Vec<&str> = inner.iter().copied().take(INNER_MAX).collect();
        let pairs = inner
            .iter()
            .enumerate()
            .flat_map(|(at, a)| inner[at + 1..].iter().map(move |b| (*a, *b)));
        pairs.into_iter().all(|(a, b)| is_other(outer, a, b))
    });
    let outer_differ = above.keys().any(|key| {
        let own = column(key);
        own.windows(2).any(|two| !differences(&Part::ALL, two[0], two[1]).is_empty())
    });
    let comes_again = |all: &BTreeSet<&str>| all.len() > 1;
    let again = above.values().filter(|outers| comes_again(outers)).count();
    let is_crossed = match (inner_differ, outer_differ) {
        (true, true) => false,
        (true, false) => below.values().any(comes_again) && again == above.len(),
        // One name that comes again may be "default".
        (false, _) => {
            let is_each = below.len() > 1 && below.values().all(comes_again);
            let is_own =
                |(key, all): (&&str, &BTreeSet<&str>)| key.contains("baseline") && comes_again(all);
            is_each && (again * 2 >= above.len() || above.iter().any(is_own))
        }
    };
    if !is_crossed {
        return None;
    }
    let of = |((outer, _), key): (&(&str, String), &String)| {
        let (outer, inner) = ((*outer).to_owned(), spelled[key.as_str()].to_owned());
        match inner_differ {
            true => Crossed { variant: outer, section: inner },
            false => Crossed { variant: inner, section: outer },
        }
    };
    Some(all.iter().zip(&keys).map(of).collect())
}

/// Headings that are looked at below one.
const INNER_MAX: usize = 30;

/// Inner headings as they are compared: whatever their case, unless that tells two of one section
/// apart. Russian writes "кэш" and "кеш".
fn keys(all: &[(&str, String)]) -> Vec<String> {
    let folded = |text: &str| text.to_lowercase().replace(['э', 'ё'], "е");
    let mut spelled: BTreeMap<(&str, String), &str> = BTreeMap::new();
    let is_apart = all.iter().any(|(outer, inner)| {
        *spelled.entry((outer, folded(inner))).or_insert(inner) != inner.as_str()
    });
    let key = |(_, inner): &(&str, String)| match is_apart {
        true => inner.clone(),
        false => folded(inner),
    };
    all.iter().map(key).collect()
}

/// By what is known of both, by the words of their commands that are not of their names, or by the
/// length of the replies.
fn is_other_load(a: &Draft, b: &Draft, names: &[&str]) -> bool {
    let names: Vec<String> = names.iter().flat_map(|name| telling(name)).collect();
    let own = |command: &str| -> Vec<String> {
        let is_own = |word: &&str| !telling(word).iter().any(|part| names.contains(part));
        words(command).into_iter().filter(is_own).map(str::to_owned).collect()
    };
    let typed = a.command.as_deref().zip(b.command.as_deref());
    let is_typed = typed.is_some_and(|(a, b)| own(a) != own(b));
    let bytes = |draft: &Draft| {
        let requests = draft.seen.requests.filter(|n| *n > 0)?;
        Some(draft.seen.bytes? / requests as f64)
    };
    let replies = bytes(a).zip(bytes(b));
    let is_longer = replies.is_some_and(|(a, b)| (a - b).abs() > 1000.0 && !is_near(a, b, 1.5));
    is_typed || is_longer || !differences(&Part::ALL, a, b).is_empty()
}

/// All of one heading reached the same round rate, and all of the other another: both were set.
fn is_other_rate(a: &[&Draft], b: &[&Draft]) -> bool {
    let rates = |own: &[&Draft]| -> Option<Vec<f64>> {
        own.iter().map(|draft| draft.values.get(Metric::Throughput.key()).copied()).collect()
    };
    let Some((a, b)) = rates(a).zip(rates(b)) else { return false };
    let is_set = |own: &[f64]| {
        let is_like = |rate: &f64| is_round(*rate) && is_near(*rate, own[0], 1.02);
        own.len() > 1 && own.iter().all(is_like)
    };
    is_set(&a) && is_set(&b) && !is_near(a[0], b[0], 1.1)
}

/// As people set rates, or a little below.
fn is_round(rate: f64) -> bool {
    const LEADING: [f64; 12] = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0];
    let leading = rate / 10f64.powf(rate.log10().floor());
    LEADING.iter().any(|round| (round * 0.985..=round * 1.002).contains(&leading))
}

fn is_near(a: f64, b: f64, times: f64) -> bool {
    (a / b).max(b / a) <= times
}

fn telling(text: &str) -> Vec<String> {
    plain_words(text).into_iter().filter(|word| word.len() > 2).collect()
}

/// The outermost heading, and those below it.
fn split(own: &[Option<String>]) -> Option<(&str, String)> {
    let (outer, rest) = own.split_first()?;
    let rest: Vec<&str> = rest.iter().flatten().map(String::as_str).collect();
    Some((outer.as_deref()?, rest.join(" / "))).filter(|(_, inner)| !inner.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Tool;

    fn places(all: &[(&str, &str, &str)]) -> Option<Vec<String>> {
        let parts = |(outer, inner, _): &(&str, &str, &str)| {
            [outer, inner].map(|part| Some((*part).to_owned())).to_vec()
        };
        let draft = |(_, _, command): &(&str, &str, &str)| Draft {
            command: Some((*command).to_owned()).filter(|command| !command.is_empty()),
            ..Draft::new(Tool::Wrk)
        };
        let parts: Vec<_> = all.iter().map(parts).collect();
        let drafts: Vec<_> = all.iter().map(draft).collect();
        let of = |Crossed { variant, section }: Crossed| format!("{section}: {variant}");
        crossed(&parts, &drafts).map(|all| all.into_iter().map(of).collect())
    }

    #[test]
    fn an_outer_heading_over_the_same_variants_is_a_case() {
        let all = [("All up", "Nginx", ""), ("All up", "H2O", ""), ("One down", "nginx", "")];
        assert_eq!(places(&all), None, "one alone is compared with nothing");
        let all = [all[0], all[1], ("All up", "Caddy", ""), all[2], ("One down", "caddy", "")];
        let told =
            ["All up: Nginx", "All up: H2O", "All up: Caddy", "One down: Nginx", "One down: Caddy"];
        assert_eq!(places(&all).unwrap(), told);
    }

    #[test]
    fn an_inner_heading_over_the_same_load_is_a_case() {
        let all = [
            ("Host", "kept", "wrk http://h/"),
            ("Host", "closed", "wrk -H close http://h/"),
            ("VM", "kept", "wrk http://h/"),
            ("VM", "closed", "wrk -H close http://h/"),
        ];
        let told = ["kept: Host", "closed: Host", "kept: VM", "closed: VM"];
        assert_eq!(places(&all).unwrap(), told);
        assert_eq!(places(&[all[0], all[1], all[2], ("VM", "piped", "wrk -s p http://h/")]), None);
    }

    #[test]
    fn sections_with_a_baseline_of_their_own_are_cases() {
        let all = [
            ("Harrow", "Baseline", ""),
            ("Harrow", "TLS, 2 workers", ""),
            ("Harrow", "TLS, cold", ""),
            ("Millrace", "Baseline", ""),
            ("Millrace", "TLS, HTTP/1.1", ""),
        ];
        assert_eq!(places(&all).unwrap()[4], "Millrace: TLS, HTTP/1.1");
    }

    #[test]
    fn rates_that_were_set_are_round() {
        assert!([999.6, 1000.0, 2995.0, 4_980.0, 19_800.0].into_iter().all(is_round));
        assert!([9_100.0, 4_460.0, 0.0, 11_200.0].into_iter().all(|rate| !is_round(rate)));
    }

    #[test]
    fn one_name_that_comes_again_and_words_of_names_tell_nothing() {
        let all = [("A", "default", ""), ("A", "tuned", ""), ("B", "default", ""), ("B", "h3", "")];
        let few = [all[0], all[1], ("A", "x", ""), all[2], all[3], ("B", "y", "")];
        assert_eq!(places(&few), None, "one of five");
        let of = |name: &'static str, command: &'static str| (name, command);
        let [a, b] = [
            of("nginx", "wrk -H nginx.test http://h/"),
            of("envoy", "wrk -H envoy.test http://h/"),
        ];
        let all = [("S1", a.0, a.1), ("S1", b.0, b.1), ("S2", a.0, a.1), ("S2", b.0, b.1)];
        assert_eq!(places(&all).unwrap()[0], "S1: nginx");
        let all = [("A", "Kata", ""), ("A", "KATA", ""), ("B", "Kata", ""), ("B", "KATA", "")];
        let told = ["A: Kata", "A: KATA", "B: Kata", "B: KATA"];
        assert_eq!(places(&all).unwrap(), told, "they differ in one section");
    }

    #[test]
    fn headings_that_do_not_come_again_name_variants() {
        assert_eq!(places(&[("A", "x", ""), ("A", "y", ""), ("B", "z", ""), ("B", "w", "")]), None);
    }
}
