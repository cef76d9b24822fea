//! Headings of two levels, of which the inner ones come again below other outer ones: "Scenario 1 /
//! nginx", "Scenario 2 / nginx". One level names the variants, the other the cases.

use std::collections::{BTreeMap, BTreeSet};

use crate::load::{Part, differences};
use crate::names::words;
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
    let keys: Vec<String> = all.iter().map(|(_, inner)| inner.to_lowercase()).collect();
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
    let inner_differ = below.iter().all(|(outer, inner)| {
        let own: Vec<&Draft> = inner.iter().map(|key| firsts[&(*outer, *key)]).collect();
        own.windows(2).all(|two| is_other_load(two[0], two[1]))
    });
    let outer_differ = above.iter().any(|(key, outers)| {
        let own: Vec<&Draft> = outers.iter().map(|outer| firsts[&(*outer, *key)]).collect();
        own.windows(2).any(|two| !differences(&Part::ALL, two[0], two[1]).is_empty())
    });
    let comes_again = |all: &BTreeSet<&str>| all.len() > 1;
    let is_crossed = match (inner_differ, outer_differ) {
        (true, true) => false,
        (true, false) => below.values().any(comes_again) && above.values().all(comes_again),
        (false, _) => {
            let is_each = below.len() > 1 && below.values().all(comes_again);
            is_each && above.values().any(comes_again)
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

/// By what is known of both, or by the words of their commands.
fn is_other_load(a: &Draft, b: &Draft) -> bool {
    let typed = a.command.as_deref().zip(b.command.as_deref());
    let is_other = typed.is_some_and(|(a, b)| words(a) != words(b));
    is_other || !differences(&Part::ALL, a, b).is_empty()
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
        let all = [all[0], all[1], all[2], ("One down", "Caddy", "")];
        let told = ["All up: Nginx", "All up: H2O", "One down: Nginx", "One down: Caddy"];
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
    fn headings_that_do_not_come_again_name_variants() {
        assert_eq!(places(&[("A", "x", ""), ("A", "y", ""), ("B", "z", ""), ("B", "w", "")]), None);
    }
}
