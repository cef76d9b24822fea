//! Which variant an output is of, and which of its cases: from what the output says itself, the
//! headings and labels above it, its file, and at last its address.

use std::collections::BTreeSet;

use crate::sample::Draft;
use crate::text::LABEL;

/// A draft's place among the variants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub variant: String,
    pub case: String,
}

/// Headings that say what follows, not whose it is.
const GENERIC: [&str; 24] = [
    "results",
    "result",
    "output",
    "outputs",
    "run",
    "runs",
    "command",
    "commands",
    "benchmark",
    "benchmarks",
    "test",
    "tests",
    "raw output",
    "raw results",
    "example",
    "log",
    "logs",
    "wrk",
    "wrk2",
    "qperf",
    "h2load",
    "ab",
    "hey",
    "unixbench",
];

/// Names for the drafts of one file. `given` is what the user calls them.
pub fn of_file(drafts: &[Draft], stem: &str, given: Option<&str>) -> Vec<Name> {
    let cases: Vec<String> = drafts.iter().map(case).collect();
    let found = found(drafts, &cases);
    let several = found.iter().any(|name| *name != found[0]);
    let names = found.into_iter().zip(cases).map(|(found, case)| {
        let variant = match (given, found) {
            (Some(given), Some(found)) if several => format!("{given}: {found}"),
            (Some(given), _) => given.to_owned(),
            (None, Some(found)) => found,
            (None, None) => stem.to_owned(),
        };
        Name { variant, case }
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

fn found(drafts: &[Draft], cases: &[String]) -> Vec<Option<String>> {
    let own: Vec<Option<String>> = drafts.iter().map(own_name).collect();
    if own.iter().any(Option::is_some) {
        return own;
    }
    let by_heading = by_heading(drafts, cases);
    let urls: Vec<Option<String>> = drafts.iter().map(|draft| draft.asked.url.clone()).collect();
    let differ = |all: &[Option<String>]| all.iter().any(|one| *one != all[0]);
    // One heading over several addresses names the study, not its variants.
    match differ(&urls) && !differ(&by_heading) {
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
    match places(&with_labels) > places(&without_labels) {
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
            .filter(|text| !text.is_empty() && !GENERIC.contains(&text.to_lowercase().as_str()))
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
    let join = |at: usize| {
        let parts: Vec<String> = columns.iter().filter_map(|column| column[at].clone()).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    };
    (0..drafts.len()).map(join).collect()
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
