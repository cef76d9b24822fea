//! Which variant an output is of, and which of its cases: from what the output says itself, the
//! headings and labels above it, its file, and at last its address.

use std::collections::{BTreeMap, BTreeSet};

use crate::context::LABEL;
use crate::lead;
use crate::sample::{Draft, Tool};

/// A draft's place among the variants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name {
    pub variant: String,
    pub case: String,
    /// It is apart from others by what the text above it says, and by nothing else.
    pub by_text: bool,
}

/// What is found out of one draft.
#[derive(Clone, Default)]
struct Own {
    name: Option<String>,
    case: String,
    by_text: bool,
}

/// Names for the drafts of one file. `given` is what the user calls them.
pub fn of_file(drafts: &[Draft], stem: &str, given: Option<&str>) -> Vec<Name> {
    let mut all = vec![Own::default(); drafts.len()];
    let is_named = |draft: &Draft| own_name(draft).is_some();
    let (named, others): (Vec<usize>, Vec<usize>) =
        (0..drafts.len()).partition(|at| is_named(&drafts[*at]));
    let pick = |places: &[usize]| places.iter().map(|at| drafts[*at].clone()).collect::<Vec<_>>();
    for (places, own) in [(&named, of_named(&pick(&named))), (&others, of_headings(&pick(&others)))]
    {
        places.iter().zip(own).for_each(|(at, own)| all[*at] = own);
    }
    let several = all.iter().any(|own| own.name != all[0].name);
    let names = all.into_iter().map(|Own { name, case, by_text }| {
        let variant = match (given, name) {
            (Some(given), Some(found)) if several => format!("{given}: {found}"),
            (Some(given), _) => given.to_owned(),
            (None, Some(found)) => found,
            (None, None) => stem.to_owned(),
        };
        Name { variant, case, by_text }
    });
    names.collect()
}

fn case(draft: &Draft) -> String {
    match (&draft.own_case, draft.asked.rate_per_s) {
        (Some(case), _) => case.clone(),
        (None, Some(rate)) => format!("rate {rate}"),
        (None, None) => String::new(),
    }
}

fn join(case: &str, more: &str) -> String {
    if case.is_empty() { more.to_owned() } else { format!("{case}, {more}") }
}

/// Outputs that name their variants. Two tables that say the same of one variant are told apart by
/// their titles.
fn of_named(drafts: &[Draft]) -> Vec<Own> {
    let own = |draft: &Draft| Own { name: own_name(draft), case: case(draft), by_text: false };
    let mut all: Vec<Own> = drafts.iter().map(own).collect();
    let is_table = |at: usize| drafts[at].tool == Tool::Table;
    let mut seen: BTreeMap<(&Option<String>, String, &str), usize> = BTreeMap::new();
    let mut doubled: BTreeSet<&Option<String>> = BTreeSet::new();
    for (at, draft) in drafts.iter().enumerate().filter(|(at, _)| is_table(*at)) {
        for metric in draft.values.keys() {
            let place = (&draft.own_name, case(draft), metric.as_str());
            let first = *seen.entry(place).or_insert(at);
            if first != at {
                doubled.extend([&draft.lead, &drafts[first].lead]);
            }
        }
    }
    for at in (0..drafts.len()).filter(|at| is_table(*at) && doubled.contains(&drafts[*at].lead)) {
        let line = || format!("line {}", drafts[at].source.first_line);
        let title = drafts[at].lead.clone().filter(|_| doubled.len() > 1).unwrap_or_else(line);
        all[at].case = join(&all[at].case, &title);
    }
    all
}

/// Outputs that are named by what stands above them.
fn of_headings(drafts: &[Draft]) -> Vec<Own> {
    let mut cases: Vec<String> = drafts.iter().map(case).collect();
    let mut names = found(drafts, &cases);
    // Different tools' results are different cases.
    if differ_within(&names, &cases, |at| drafts[at].tool.name()) {
        for (case, draft) in cases.iter_mut().zip(drafts) {
            *case = join(case, draft.tool.name());
        }
        names = found(drafts, &cases);
    }
    let mut by_text = by_leads(drafts, &cases, &mut names);
    by_hosts(drafts, &mut cases, &mut names);
    by_commands(drafts, &mut cases, &mut names);
    by_addresses(drafts, &cases, &mut names);
    by_lists(drafts, &mut cases, &mut names, &mut by_text);
    let all = names.into_iter().zip(cases).zip(by_text);
    all.map(|((name, case), by_text)| Own { name, case, by_text }).collect()
}

/// Whether some outputs of one name and case are not alike in something.
fn differ_within<T: PartialEq>(
    names: &[Option<String>],
    cases: &[String],
    of: impl Fn(usize) -> T,
) -> bool {
    let mut first: BTreeMap<(&Option<String>, &String), usize> = BTreeMap::new();
    (0..names.len()).any(|at| of(*first.entry((&names[at], &cases[at])).or_insert(at)) != of(at))
}

/// Outputs under one heading are repetitions only where nothing between them names another thing.
fn by_leads(drafts: &[Draft], cases: &[String], names: &mut [Option<String>]) -> Vec<bool> {
    let mut by_text = vec![false; drafts.len()];
    let is_one = names.iter().all(|name| *name == names[0]);
    let known: BTreeSet<Option<String>> = names.iter().cloned().collect();
    for name in known {
        let own: Vec<usize> = (0..drafts.len()).filter(|at| names[*at] == name).collect();
        let own_cases: Vec<String> = own.iter().map(|at| cases[*at].clone()).collect();
        let alike = vec![None; own.len()];
        let is_apart = differ_within(&alike, &own_cases, |at| drafts[own[at]].lead.as_ref());
        // Without any heading the text names, where there are several to name.
        if !is_apart && (name.is_some() || drafts.len() == 1 || is_one) {
            continue;
        }
        for at in own {
            let Some(lead) = &drafts[at].lead else { continue };
            by_text[at] = true;
            names[at] = Some(match &name {
                Some(name) if !is_one => format!("{name}, {lead}"),
                _ => lead.clone(),
            });
        }
    }
    by_text
}

/// What is left alike but for the host that it was typed at: where the load stays on that host, the
/// host is what was measured; else it is where the load came from.
fn by_hosts(drafts: &[Draft], cases: &mut [String], names: &mut [Option<String>]) {
    if !differ_within(names, cases, |at| drafts[at].host.as_deref()) {
        return;
    }
    let is_local = drafts.iter().filter(|draft| draft.host.is_some()).all(|draft| {
        let url = draft.asked.url.as_deref().unwrap_or_default();
        draft.tool == Tool::Unixbench || url.contains("//localhost") || url.contains("//127.")
    });
    for (at, draft) in drafts.iter().enumerate() {
        let Some(host) = &draft.host else { continue };
        match is_local {
            true => {
                let name = names[at].take();
                names[at] = Some(name.map_or(host.clone(), |name| format!("{name}, {host}")));
            }
            false => cases[at] = join(&cases[at], &format!("from {host}")),
        }
    }
}

/// Outputs of one name and case.
fn alike(names: &[Option<String>], cases: &[String]) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<(&Option<String>, &String), Vec<usize>> = BTreeMap::new();
    for at in 0..names.len() {
        groups.entry((&names[at], &cases[at])).or_default().push(at);
    }
    groups.into_values().filter(|group| group.len() > 1).collect()
}

/// What is left alike but for the command: flags are a case; of other commands, the words that
/// differ are whose output it is.
fn by_commands(drafts: &[Draft], cases: &mut [String], names: &mut [Option<String>]) {
    for group in alike(names, cases) {
        let words: Vec<Option<Vec<&str>>> = group
            .iter()
            .map(|at| drafts[*at].command.as_deref().or(drafts[*at].typed.as_deref()).map(asked))
            .collect();
        let Some(words) = words.into_iter().collect::<Option<Vec<_>>>() else { continue };
        let is_load = group.iter().all(|at| drafts[*at].command.is_some());
        for (at, own) in group.iter().zip(&words) {
            let is_shared = |word: &&str| words.iter().all(|other| other.contains(word));
            let rest: Vec<&str> = own.iter().copied().filter(|word| !is_shared(word)).collect();
            if rest.is_empty() {
                continue;
            }
            // Another address is another server; qperf's other words are its tests.
            let (hosts, flags): (Vec<&str>, Vec<&str>) =
                rest.iter().partition(|word| !is_load || word.split('.').count() == 4);
            let flags = if drafts[*at].tool == Tool::Qperf { Vec::new() } else { flags };
            if !flags.is_empty() {
                cases[*at] = join(&cases[*at], &flags.join(" "));
            }
            if !hosts.is_empty() {
                let name = names[*at].take().unwrap_or_default();
                names[*at] = Some(join(&name, &hosts.join(" ")));
            }
        }
    }
}

/// A command's words, but for its address and where its output went.
fn asked(command: &str) -> Vec<&str> {
    let words = command.split_whitespace();
    let is_end = |word: &&str| word.starts_with(['>', '|', '#', ';']) || word.starts_with("2>");
    // A prompt ends with a mark of its own.
    let own = words.enumerate().take_while(|(at, word)| *at < 3 || !is_end(word));
    own.map(|(_, word)| word).filter(|word| !word.contains("://") && !word.contains('@')).collect()
}

/// What is left alike but for the address that it was of.
fn by_addresses(drafts: &[Draft], cases: &[String], names: &mut [Option<String>]) {
    // As short as it tells them apart, without the port that goes without saying.
    let address = |at: &usize| {
        let url = drafts[*at].asked.url.as_deref()?;
        let short = url.trim_start_matches("http://").trim_end_matches('/');
        Some(short.replacen(":80/", "/", 1).trim_end_matches(":80").to_owned())
    };
    for group in alike(names, cases) {
        let known: BTreeSet<String> = group.iter().filter_map(address).collect();
        if known.len() < 2 {
            continue;
        }
        for at in &group {
            let Some(address) = address(at) else { continue };
            let name = names[*at].take().unwrap_or_default();
            names[*at] = Some(join(&name, &address));
        }
    }
}

/// What is left alike, of a sentence that lists several: by its names where it has as many, else by
/// their order. So are the turns of a loop in the shell, and what was pasted twice.
fn by_lists(
    drafts: &[Draft],
    cases: &mut [String],
    names: &mut [Option<String>],
    by_text: &mut [bool],
) {
    // Those that addresses have told apart get the list's names as well.
    let is_listed = |at: usize| drafts[at].list.len() > 1;
    let mut assigned: BTreeSet<usize> = BTreeSet::new();
    type Place<'a> = (Option<String>, String, &'a [String]);
    let mut lists: BTreeMap<Place<'_>, Vec<usize>> = BTreeMap::new();
    for at in (0..drafts.len()).filter(|at| is_listed(*at)) {
        let place = (drafts[at].lead.clone(), cases[at].clone(), drafts[at].list.as_slice());
        lists.entry(place).or_default().push(at);
    }
    for ((.., list), group) in lists {
        // "three times main, then three times the branch"
        let turns = group.len() / list.len().max(1);
        let is_counted = drafts[group[0]].is_list_counted;
        let chunk = |nth: usize| &group[nth * turns..(nth + 1) * turns];
        let url = |at: &usize| drafts[*at].asked.url.as_deref();
        let is_one = |at: &[usize]| at.iter().all(|own| url(own) == url(&at[0]));
        if group.len() % list.len() != 0
            || (turns > 1 && !(is_counted && (0..list.len()).all(|nth| is_one(chunk(nth)))))
        {
            continue;
        }
        for (nth, at) in group.iter().enumerate() {
            (names[*at], by_text[*at]) = (Some(list[nth / turns].clone()), true);
            assigned.insert(*at);
        }
    }
    // The same names, listed for two loads.
    for group in alike(names, cases) {
        let is_one = group.iter().all(|at| drafts[*at].lead == drafts[group[0]].lead);
        for at in group.iter().filter(|at| !is_one && assigned.contains(at)) {
            cases[*at] = join(&cases[*at], drafts[*at].lead.as_deref().unwrap_or_default());
        }
    }
    for group in alike(names, cases) {
        let is_loop = |at: &usize| {
            drafts[*at].command.as_deref().or(drafts[*at].typed.as_deref()).is_some_and(is_loop)
        };
        let is_open =
            |at: &usize| !assigned.contains(at) && (is_listed(*at) || drafts[*at].lists_several);
        let listed = group.iter().all(|at| is_open(at) || is_loop(at));
        for (nth, at) in group.iter().enumerate().skip(1) {
            if listed {
                cases[*at] = join(&cases[*at], &format!("no. {}", nth + 1));
                by_text[*at] = true;
            } else if group[..nth].iter().any(|other| is_copy(&drafts[*at], &drafts[*other])) {
                cases[*at] = join(&cases[*at], "pasted again");
            }
        }
    }
}

/// "for i in 22 23; do qperf 10.20.0.$i": a loop over what is measured.
fn is_loop(command: &str) -> bool {
    command.contains('$') && (command.contains("for ") || command.contains("; do "))
}

/// The same requests in the same time, and yet another number: one measurement, in which a digit
/// was changed. One that was not changed is a finding of its own.
fn is_copy(draft: &Draft, other: &Draft) -> bool {
    let of = |draft: &Draft| draft.seen.requests.zip(draft.seen.seconds);
    let is_many = draft.seen.requests.is_some_and(|n| n > 1000);
    let is_one = is_many && of(draft).is_some() && of(draft) == of(other);
    is_one && draft.asked == other.asked && draft.values != other.values
}

fn found(drafts: &[Draft], cases: &[String]) -> Vec<Option<String>> {
    let by_heading = by_heading(drafts, cases);
    let urls: Vec<Option<String>> = drafts.iter().map(|draft| draft.asked.url.clone()).collect();
    let differ = |all: &[Option<String>]| all.iter().any(|one| *one != all[0]);
    let leads: Vec<Option<String>> = drafts.iter().map(|draft| draft.lead.clone()).collect();
    // One heading over several addresses names the study, not its variants.
    match differ(&urls) && !differ(&by_heading) && !differ(&leads) {
        true => urls,
        false => by_heading,
    }
}

/// fortio names what nobody has named by address and host: that tells no variants apart.
fn own_name(draft: &Draft) -> Option<String> {
    draft.own_name.clone().filter(|name| !name.contains(" , "))
}

/// The headings in which drafts differ, and in more than their case.
fn by_heading(drafts: &[Draft], cases: &[String]) -> Vec<Option<String>> {
    let without_labels = by_levels(drafts, cases, |level| level < LABEL);
    let places = |names: &[Option<String>]| {
        let all = names.iter().zip(cases).map(|(name, case)| (name.clone(), case));
        all.collect::<BTreeSet<_>>().len()
    };
    // A label is often a remark: it names where headings alone do not tell outputs apart.
    if without_labels.iter().all(Option::is_some) && places(&without_labels) == drafts.len() {
        return without_labels;
    }
    let with_labels = by_levels(drafts, cases, |_| true);
    let is_nameless = without_labels.iter().all(Option::is_none);
    match is_nameless || places(&with_labels) > places(&without_labels) {
        true => with_labels,
        false => without_labels,
    }
}

fn by_levels(
    drafts: &[Draft],
    cases: &[String],
    counts: impl Fn(u8) -> bool,
) -> Vec<Option<String>> {
    let at = |draft: &Draft, level: u8| {
        let own = draft.headings.iter().find(|(own, _)| *own == level);
        own.map(|(_, text)| without_count(text))
            .filter(|text| !text.is_empty() && lead::is_name(text))
    };
    let levels: BTreeSet<u8> = drafts.iter().flat_map(|d| &d.headings).map(|(l, _)| *l).collect();
    let levels = levels.into_iter().filter(|level| counts(*level));
    let mut columns: Vec<Vec<Option<String>>> =
        levels.map(|level| drafts.iter().map(|draft| at(draft, level)).collect()).collect();
    let innermost = columns.iter().rfind(|column| column.iter().any(Option::is_some)).cloned();
    let is_same = |column: &Vec<Option<String>>| column.iter().all(|text| *text == column[0]);
    columns.retain(|column| !is_same(column));
    if columns.is_empty() {
        // One output, or runs of one variant.
        columns.extend(innermost);
    }
    if columns.iter().any(|column| !is_the_case(column, cases)) {
        columns.retain(|column| !is_the_case(column, cases));
    }
    let joined = |at: usize| {
        let parts: Vec<String> = columns.iter().filter_map(|column| column[at].clone()).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    };
    (0..drafts.len()).map(joined).collect()
}

/// "Host run 2" is Host again, and "Run 2" nobody.
fn without_count(text: &str) -> String {
    const COUNTED: [&str; 8] =
        ["run", "test", "try", "trial", "iteration", "attempt", "repeat", "repetition"];
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let number = |word: &&str| {
        let digits = word.trim_start_matches(['#', '(']).trim_end_matches([')', ':']);
        !digits.is_empty() && digits.len() <= 3 && digits.chars().all(|c| c.is_ascii_digit())
    };
    let counted = |word: &&str| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        COUNTED.contains(&word.as_str())
    };
    if words.len() >= 2 && words.last().is_some_and(number) && counted(&words[words.len() - 2]) {
        words.truncate(words.len() - 2);
        return words.join(" ").trim_end_matches([',', '-', ':', '(', ' ']).to_owned();
    }
    text.to_owned()
}

/// Each text stands for one case, and each case has one text.
fn is_the_case(column: &[Option<String>], cases: &[String]) -> bool {
    let pairs = || column.iter().zip(cases);
    let is_one_to_one =
        pairs().all(|(text, case)| pairs().all(|(other, of)| (text == other) == (case == of)));
    is_one_to_one
        && column.iter().all(Option::is_some)
        && cases.iter().any(|case| *case != cases[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Tool;

    fn draft(headings: &[(u8, &str)], rate: Option<f64>) -> Draft {
        let mut draft = Draft::new(Tool::Wrk);
        draft.headings =
            headings.iter().map(|(level, text)| (*level, (*text).to_owned())).collect();
        draft.asked.rate_per_s = rate;
        draft
    }

    fn names(drafts: &[Draft]) -> Vec<String> {
        let names = of_file(drafts, "file", None);
        names.into_iter().map(|name| format!("{}|{}", name.variant, name.case)).collect()
    }

    #[test]
    fn headings_that_differ_name_variants() {
        let all = [
            draft(&[(1, "Study"), (2, "Host"), (3, "wrk")], None),
            draft(&[(1, "Study"), (2, "VM"), (3, "wrk"), (7, "plain")], None),
        ];
        assert_eq!(names(&all), ["Host|", "VM|"]);
        assert_eq!(names(&all[..1]), ["Host|"]);
        // A label names where headings alone do not.
        let both =
            [draft(&[(2, "VM"), (7, "plain")], None), draft(&[(2, "VM"), (7, "tuned")], None)];
        assert_eq!(names(&both), ["plain|", "tuned|"]);
    }

    #[test]
    fn a_heading_that_is_the_rate_is_a_case() {
        let all = [
            draft(&[(2, "Host"), (3, "1k")], Some(1000.0)),
            draft(&[(2, "Host"), (3, "3k")], Some(3000.0)),
            draft(&[(2, "runc"), (3, "1k")], Some(1000.0)),
            draft(&[(2, "runc"), (3, "3k")], Some(3000.0)),
        ];
        assert_eq!(
            names(&all),
            ["Host|rate 1000", "Host|rate 3000", "runc|rate 1000", "runc|rate 3000"]
        );
    }

    #[test]
    fn runs_are_counted_and_not_named() {
        assert_eq!(without_count("Host run 2"), "Host");
        assert_eq!(without_count("Host (run #2)"), "Host");
        assert_eq!(without_count("Run 10"), "");
        assert_eq!(without_count("nginx 2"), "nginx 2");
        let at = |host: &str, run: &str| draft(&[(2, host), (3, run)], None);
        let all = [at("Host", "Run 1"), at("Host", "Run 2"), at("VM", "Run 1"), at("VM", "Run 2")];
        assert_eq!(names(&all), ["Host|", "Host|", "VM|", "VM|"]);
    }

    #[test]
    fn one_heading_over_two_addresses_names_neither() {
        let mut all = [draft(&[(1, "Study")], None), draft(&[(1, "Study")], None)];
        all[0].asked.url = Some("http://h:1/".into());
        all[1].asked.url = Some("http://h:2/".into());
        assert_eq!(names(&all), ["http://h:1/|", "http://h:2/|"]);
    }

    #[test]
    fn without_headings_the_address_or_the_file_names() {
        let mut all = [draft(&[], None), draft(&[], None)];
        assert_eq!(names(&all), ["file|", "file|"]);
        all[0].asked.url = Some("http://h:1/".into());
        all[1].asked.url = Some("http://h:2/".into());
        assert_eq!(names(&all), ["http://h:1/|", "http://h:2/|"]);
        let given = of_file(&all, "file", Some("mine"));
        assert_eq!(given[1].variant, "mine: http://h:2/");
    }
}
