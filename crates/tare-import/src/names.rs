//! Finds the variant and case of each output: from the output itself, from the headings, labels and
//! comments above it, from its command and its address. Outputs that none of these distinguishes
//! are repetitions if the document shows this; otherwise they are named by their lines.

use std::collections::{BTreeMap, BTreeSet};

use crate::context::{LABEL, is_anybodys};
use crate::sample::{Draft, Tool};

/// The variant and case of a draft.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name {
    pub variant: String,
    pub case: String,
    /// The variant's name in headings and labels.
    pub under: String,
    /// Whether only its line distinguishes the output from others.
    pub by_line: bool,
}

/// Name and case of one draft, before the user's name or the file's name is applied.
#[derive(Clone, Default)]
struct DraftName {
    name: Option<String>,
    case: String,
    under: Option<String>,
    by_line: bool,
}

/// Names the drafts of one file. `given` is the user's name for them.
pub fn name_drafts(drafts: &[Draft], stem: &str, given: Option<&str>) -> Vec<Name> {
    let mut all = vec![DraftName::default(); drafts.len()];
    let (named, others): (Vec<usize>, Vec<usize>) =
        (0..drafts.len()).partition(|at| own_name(&drafts[*at]).is_some());
    let pick = |places: &[usize]| places.iter().map(|at| drafts[*at].clone()).collect::<Vec<_>>();
    let found =
        [names_from_outputs(&pick(&named)), names_from_headings(&pick(&others), given.is_some())];
    for (places, own) in [&named, &others].into_iter().zip(found) {
        places.iter().zip(own).for_each(|(at, own)| all[*at] = own);
    }
    let several = all.iter().any(|own| own.name != all[0].name);
    let named = |name: Option<String>| match (given, name) {
        (Some(given), Some(found)) if several => format!("{given}: {found}"),
        (Some(given), _) => given.to_owned(),
        (None, Some(found)) => found,
        (None, None) => stem.to_owned(),
    };
    let names = all.into_iter().map(|DraftName { name, case, under, by_line }| Name {
        variant: named(name),
        under: named(under),
        case,
        by_line,
    });
    names.collect()
}

fn case(draft: &Draft) -> String {
    draft.own_case.clone().or_else(|| rate(draft)).unwrap_or_default()
}

pub fn rate(draft: &Draft) -> Option<String> {
    draft.asked.rate_per_s.map(|rate| format!("rate {rate}"))
}

fn join(case: &str, more: &str) -> String {
    if case.is_empty() { more.to_owned() } else { format!("{case}, {more}") }
}

/// Appends `more` to a name, after a slash because names may contain commas.
fn below(name: &mut Option<String>, more: &str) {
    *name = Some(match name.take() {
        Some(name) => format!("{name} / {more}"),
        None => more.to_owned(),
    });
}

/// Names outputs that state their variants. If a variant occurs under two headings, they are added
/// to its cases; if it occurs in two tables under one heading, their lines are.
fn names_from_outputs(drafts: &[Draft]) -> Vec<DraftName> {
    let own = |draft: &Draft| {
        let (name, under) = (own_name(draft), own_name(draft));
        DraftName { name, case: case(draft), under, ..DraftName::default() }
    };
    let mut all: Vec<DraftName> = drafts.iter().map(own).collect();
    let is_table = |at: usize| drafts[at].tool == Tool::Table;
    let title = |at: usize| drafts[at].headings.last().map(|(_, text)| text);
    let mut seen: BTreeMap<(bool, &Option<String>, String, &str), usize> = BTreeMap::new();
    let mut doubled: BTreeSet<(bool, Option<&String>)> = BTreeSet::new();
    for (at, draft) in drafts.iter().enumerate() {
        for metric in draft.values.keys() {
            let place = (is_table(at), &draft.own_name, case(draft), metric.as_str());
            let first = *seen.entry(place).or_insert(at);
            if first != at && (is_table(at) || title(at) != title(first)) {
                doubled.extend([(is_table(at), title(at)), (is_table(at), title(first))]);
            }
        }
    }
    for at in (0..drafts.len()).filter(|at| doubled.contains(&(is_table(*at), title(*at)))) {
        let titles = doubled.iter().filter(|(table, _)| *table == is_table(at)).count();
        let line = || format!("line {}", drafts[at].source.first_line);
        let title = title(at).cloned().filter(|_| titles > 1).unwrap_or_else(line);
        all[at].case = join(&all[at].case, &title);
    }
    all
}

/// Names outputs by the text above them. If the user named them, equal names mean repetitions.
fn names_from_headings(drafts: &[Draft], is_given: bool) -> Vec<DraftName> {
    let mut cases: Vec<String> = drafts.iter().map(case).collect();
    let mut parts = by_heading(drafts, &cases);
    let tools: BTreeSet<Tool> = drafts.iter().map(|draft| draft.tool).collect();
    // Different tools' results are different cases.
    if tools.len() > 1 {
        let mut tool_of: BTreeMap<(Option<String>, &String), Tool> = BTreeMap::new();
        let is_mixed = (0..drafts.len()).any(|at| {
            let tool = drafts[at].tool;
            *tool_of.entry((joined(&parts[at]), &cases[at])).or_insert(tool) != tool
        });
        if is_mixed {
            for (case, draft) in cases.iter_mut().zip(drafts) {
                *case = join(case, draft.tool.name());
            }
            parts = by_heading(drafts, &cases);
        }
    }
    let mut names: Vec<Option<String>> = parts.iter().map(joined).collect();
    let under = names.clone();
    // One heading over all outputs names the study, not a variant.
    if names.iter().all(|name| *name == names[0]) {
        names.fill(None);
    }
    by_commands(drafts, &mut cases, &mut names);
    apart(&mut names, &cases, |at| address(&drafts[at]));
    let mut by_line = vec![false; drafts.len()];
    // Outputs with different numbers of connections are a sweep, if all state their number.
    let mut loads = cases.clone();
    for group in alike(&names, &cases) {
        let connections = group.iter().map(|at| drafts[*at].asked.connections);
        let connections = connections.collect::<Option<Vec<_>>>().into_iter().flatten();
        for (at, own) in group.iter().zip(connections) {
            loads[*at] = format!("{}, {own}", cases[*at]);
        }
    }
    for group in alike(&names, &loads).into_iter().filter(|_| !is_given) {
        for (at, like) in unproven_repetitions(drafts, &group, names[group[0]].is_none()) {
            below(&mut names[at], &at_line(drafts, like));
            by_line[at] = true;
        }
    }
    names.iter_mut().zip(&under).for_each(|(name, under)| {
        *name = name.take().or_else(|| under.clone());
    });
    // Beside named outputs, those without a name are another variant.
    let first = names.iter().position(Option::is_none);
    if let Some(first) = first.filter(|_| names.iter().any(Option::is_some)) {
        for at in (0..drafts.len()).filter(|at| names[*at].is_none()).collect::<Vec<_>>() {
            (names[at], by_line[at]) = (Some(at_line(drafts, first)), true);
        }
    }
    let all = names.into_iter().zip(cases).zip(under.into_iter().zip(by_line));
    all.map(|((name, case), (under, by_line))| DraftName { name, case, under, by_line }).collect()
}

/// Returns "wrk at line 32", with a number if several outputs begin at that line.
fn at_line(drafts: &[Draft], at: usize) -> String {
    let line = drafts[at].source.first_line;
    let same = |drafts: &[Draft]| drafts.iter().filter(|d| d.source.first_line == line).count();
    let name = format!("{} at line {line}", drafts[at].tool.name());
    match same(drafts) {
        1 => name,
        _ => format!("{name}, no. {}", same(&drafts[..=at])),
    }
}

/// Groups outputs with the same name and case.
fn alike(names: &[Option<String>], cases: &[String]) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<(&Option<String>, &String), Vec<usize>> = BTreeMap::new();
    for at in 0..names.len() {
        groups.entry((&names[at], &cases[at])).or_default().push(at);
    }
    groups.into_values().filter(|group| group.len() > 1).collect()
}

/// Extends equal names with a property that is known for all and differs.
fn apart(names: &mut [Option<String>], cases: &[String], of: impl Fn(usize) -> Option<String>) {
    for group in alike(names, cases) {
        let known: Option<Vec<String>> = group.iter().map(|at| of(*at)).collect();
        let known = known.filter(|known| known.iter().any(|own| *own != known[0]));
        for (at, own) in group.iter().zip(known.into_iter().flatten()) {
            below(&mut names[*at], &own);
        }
    }
}

/// Returns a draft's address, without the scheme and the default port.
fn address(draft: &Draft) -> Option<String> {
    let url = draft.asked.url.as_deref()?;
    let short = url.trim_start_matches("http://").trim_end_matches('/');
    Some(short.replacen(":80/", "/", 1).trim_end_matches(":80").to_owned())
}

/// Splits equal names by command. In a load's command, different flags mean different cases; in
/// other commands, the words that differ name the variant.
fn by_commands(drafts: &[Draft], cases: &mut [String], names: &mut [Option<String>]) {
    for group in alike(names, cases) {
        let typed = |at: &usize| {
            let Draft { command, typed, .. } = &drafts[*at];
            Some(words(command.as_ref().or(typed.as_ref().map(|typed| &typed.text))?))
        };
        let Some(all) = group.iter().map(typed).collect::<Option<Vec<_>>>() else { continue };
        if all.iter().all(|own| *own == all[0]) {
            continue;
        }
        for (at, own) in group.iter().zip(&all) {
            let is_shared = |word: &&str| all.iter().all(|other| other.contains(word));
            let rest: Vec<&str> = own.iter().copied().filter(|word| !is_shared(word)).collect();
            // In a load's command, another IP address means another server, and other flags
            // another case; qperf's other words only name its tests.
            let is_load = drafts[*at].command.is_some() || drafts[*at].tool == Tool::Qperf;
            let (hosts, flags): (Vec<&str>, Vec<&str>) =
                rest.iter().partition(|word| !is_load || word.split('.').count() == 4);
            if !flags.is_empty() && drafts[*at].tool != Tool::Qperf {
                cases[*at] = join(&cases[*at], &flags.join(" "));
            }
            if !hosts.is_empty() {
                below(&mut names[*at], &hosts.join(" "));
            }
        }
    }
}

/// Returns the words in lower case, without punctuation.
pub fn plain_words(text: &str) -> Vec<String> {
    let text = text.to_lowercase();
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

/// Returns a command's words without its address and redirections.
pub fn words(command: &str) -> Vec<&str> {
    let words = command.split_whitespace();
    let is_end =
        |word: &&str| word.starts_with(['>', '|', '#', ';', '&']) || word.starts_with("2>");
    // A prompt may end with such a mark, so the first three words cannot be the end.
    let own = words.enumerate().take_while(|(at, word)| *at < 3 || !is_end(word));
    own.map(|(_, word)| word).filter(|word| !word.contains("://") && !word.contains('@')).collect()
}

/// Returns the outputs of a group that nothing shows to be repetitions of the first: no "Run 2", no
/// command or prompt of their own with nothing else in between, no loop around one command. Each is
/// paired with the output that it does repeat, or with itself. If the group has no name and some
/// are not repetitions, all but numbered runs are returned: none may get the name of the file.
fn unproven_repetitions(
    drafts: &[Draft],
    group: &[usize],
    is_nameless: bool,
) -> Vec<(usize, usize)> {
    let mut outputs_of: BTreeMap<u32, usize> = BTreeMap::new();
    for typed in group.iter().filter_map(|at| drafts[*at].typed.as_ref()) {
        *outputs_of.entry(typed.line).or_default() += 1;
    }
    let mut under: BTreeMap<&[(u8, String)], usize> = BTreeMap::new();
    group.iter().for_each(|at| *under.entry(&drafts[*at].headings).or_default() += 1);
    // Two outputs below one "Run 1" are not both the first run.
    let is_counted = |at: usize| {
        let headings = &drafts[at].headings;
        under[&headings[..]] == 1 && headings.iter().any(|(_, text)| without_count(text) != *text)
    };
    let has_own = |at: usize| {
        let typed = drafts[at].typed.as_ref();
        typed.is_some_and(|typed| outputs_of[&typed.line] == 1 || repeats(&typed.text))
    };
    let first_of = |at: usize| {
        let place = |at: usize| {
            (drafts[at].passage, drafts[at].typed.as_ref().and_then(|typed| typed.host.as_deref()))
        };
        let is_like = |other: &&usize| place(**other) == place(at) && has_own(**other);
        group.iter().find(is_like).copied().filter(|_| has_own(at)).unwrap_or(at)
    };
    let mut all = group.iter().copied();
    let first = all.clone().find(|at| is_counted(*at)).or_else(|| all.find(|at| has_own(*at)));
    let others = || group.iter().copied().filter(|at| !is_counted(*at));
    let others = others().map(|at| (at, first_of(at)));
    let apart: Vec<(usize, usize)> =
        others.clone().filter(|(_, like)| Some(*like) != first).collect();
    match is_nameless && !apart.is_empty() {
        true => others.collect(),
        false => apart,
    }
}

/// Whether a command is a loop around a constant command: "for i in 1 2; do wrk http://h/; done".
fn repeats(command: &str) -> bool {
    let body = command.split_once("do ").map(|(_, rest)| rest.split("done").next().unwrap_or(rest));
    // Background processes are parts of one load.
    command.contains("for ") && body.is_some_and(|body| !body.contains(['$', '&']))
}

/// Returns the output's own name, unless it is fortio's default of address and host.
fn own_name(draft: &Draft) -> Option<String> {
    draft.own_name.clone().filter(|name| !name.contains(" , "))
}

/// Headings of one output, outermost first.
type Parts = Vec<Option<String>>;

fn joined(parts: &Parts) -> Option<String> {
    let all: Vec<&str> = parts.iter().flatten().map(String::as_str).collect();
    (!all.is_empty()).then(|| all.join(" / "))
}

/// Returns the headings in which drafts differ, without those that only name the case.
fn by_heading(drafts: &[Draft], cases: &[String]) -> Vec<Parts> {
    let without_labels = by_levels(drafts, cases, |level| level < LABEL);
    let places = |names: &[Parts]| {
        let all = names.iter().zip(cases).map(|(name, case)| (joined(name), case));
        all.collect::<BTreeSet<_>>().len()
    };
    // A label is often a remark: it counts only if headings alone do not distinguish outputs.
    let is_none = |own: &Parts| joined(own).is_none();
    if !without_labels.iter().any(is_none) && places(&without_labels) == drafts.len() {
        return without_labels;
    }
    let with_labels = by_levels(drafts, cases, |_| true);
    let is_nameless = without_labels.iter().all(is_none);
    match is_nameless || places(&with_labels) > places(&without_labels) {
        true => with_labels,
        false => without_labels,
    }
}

fn by_levels(drafts: &[Draft], cases: &[String], counts: impl Fn(u8) -> bool) -> Vec<Parts> {
    let at = |draft: &Draft, level: u8| {
        let own = draft.headings.iter().find(|(own, _)| *own == level);
        own.map(|(_, text)| without_count(text)).filter(|text| !is_anybodys(text))
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
    (0..drafts.len()).map(|at| columns.iter().map(|own| own[at].clone()).collect()).collect()
}

/// Strips the number of a run: "Host run 2" is "Host"; "Run 2" and "Second run" are empty.
fn without_count(text: &str) -> String {
    const COUNTED: [&str; 8] =
        ["run", "round", "try", "trial", "iteration", "attempt", "repeat", "repetition"];
    const NTH: [&str; 10] =
        ["first", "second", "third", "fourth", "fifth", "1st", "2nd", "3rd", "4th", "5th"];
    let words: Vec<&str> = text.split_whitespace().collect();
    let bare = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let number = |word: &str| {
        let digits = bare(word);
        !digits.is_empty() && digits.len() <= 3 && digits.chars().all(|c| c.is_ascii_digit())
    };
    let counted = |word: &str| COUNTED.contains(&bare(word).as_str());
    let [rest @ .., a, b] = words.as_slice() else { return text.to_owned() };
    if (counted(a) && number(b)) || (NTH.contains(&bare(a).as_str()) && counted(b)) {
        return rest.join(" ").trim_end_matches([',', '-', ':', '(', ' ']).to_owned();
    }
    text.to_owned()
}

/// Whether texts and cases correspond one to one.
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
    use crate::sample::Typed;

    fn draft(headings: &[(u8, &str)], rate: Option<f64>) -> Draft {
        let mut draft = Draft::new(Tool::Wrk);
        draft.headings =
            headings.iter().map(|(level, text)| (*level, (*text).to_owned())).collect();
        draft.asked.rate_per_s = rate;
        draft
    }

    fn names(drafts: &[Draft]) -> Vec<String> {
        let names = name_drafts(drafts, "file", None);
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
        // Labels name variants if headings alone do not.
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
        assert_eq!(without_count("Second run"), "");
        assert_eq!(without_count("nginx 2"), "nginx 2");
        assert_eq!(without_count("Test 2"), "Test 2");
        let at = |host: &str, run: &str| draft(&[(2, host), (3, run)], None);
        let all = [at("Host", "Run 1"), at("Host", "Run 2"), at("VM", "Run 1"), at("VM", "Run 2")];
        assert_eq!(names(&all), ["Host|", "Host|", "VM|", "VM|"]);
    }

    #[test]
    fn only_what_is_shown_to_be_repeated_is_pooled() {
        let typed = |line: u32, text: &str, output: u32| {
            let mut draft = draft(&[(2, "Host")], None);
            draft.typed = Some(Typed { line, text: text.into(), host: None });
            draft.source.first_line = output;
            draft
        };
        let apart = ["wrk at line 5|", "wrk at line 15|"];
        let wrk = "wrk http://h/";
        assert_eq!(names(&[typed(4, wrk, 5), typed(14, wrk, 15)]), ["Host|", "Host|"]);
        assert_eq!(names(&[typed(4, wrk, 5), typed(4, wrk, 15)]), apart);
        let repeated = "for i in 1 2; do wrk http://h/; done";
        assert_eq!(names(&[typed(4, repeated, 5), typed(4, repeated, 15)]), ["Host|", "Host|"]);
        let other = "for i in 1 2; do wrk http://h$i/; done";
        assert_eq!(names(&[typed(4, other, 5), typed(4, other, 15)]), apart);
        let mut none = [typed(0, "", 5), typed(0, "", 15)];
        none.iter_mut().for_each(|draft| draft.typed = None);
        assert_eq!(names(&none), apart);
        // The user's name makes them one variant.
        assert!(name_drafts(&none, "file", Some("mine")).iter().all(|name| name.variant == "mine"));
    }

    #[test]
    fn without_headings_the_address_or_the_line_names() {
        let mut all = [draft(&[], None), draft(&[], None)];
        (all[0].source.first_line, all[1].source.first_line) = (3, 9);
        assert_eq!(names(&all[..1]), ["file|"]);
        assert_eq!(names(&all), ["wrk at line 3|", "wrk at line 9|"]);
        all[0].asked.url = Some("http://h:1/".into());
        all[1].asked.url = Some("http://h:2/".into());
        assert_eq!(names(&all), ["h:1|", "h:2|"]);
        let given = name_drafts(&all, "file", Some("mine"));
        assert_eq!(given[1].variant, "mine: h:2");
        // One heading over two addresses names the study, not its variants.
        all.iter_mut().for_each(|draft| draft.headings.push((1, "Study".into())));
        assert_eq!(names(&all), ["h:1|", "h:2|"]);
    }
}
