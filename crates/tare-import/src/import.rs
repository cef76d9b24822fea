//! Combines the drafts of files, and names their variants and cases.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tare_model::Metric;

use crate::claim::{Claim, RepeatedValue, Says};
use crate::names::plain_words;
use crate::sample::{Draft, FileContents, Sample, Tool, Unread};
use crate::trouble::printable;
use crate::{load, names};

pub const SCHEMA: &str = "tare.import/1";

/// An import as it is stored; findings and comparisons are computed from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Import {
    pub schema: String,
    pub name: String,
    /// The variant that others are compared with, in cases that it is part of.
    pub baseline: String,
    pub samples: Vec<Sample>,
    pub unread: Vec<Unread>,
    /// Statements of the documents about their results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claim>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unchecked: Vec<Unchecked>,
    /// Rows and columns of tables that are not compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<Unread>,
}

/// Lines of a file that state a difference without the values behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unchecked {
    pub file: String,
    pub lines: Vec<u32>,
}

/// One file: its name, the user's name for it, and what was found in it.
#[derive(Default)]
pub struct FileDrafts {
    pub file: String,
    pub given: Option<String>,
    /// The user's names for outputs that begin at these lines.
    pub given_at: BTreeMap<u32, String>,
    pub found: FileContents,
}

/// Makes an import of files; the first variant is the baseline.
pub fn assemble(name: &str, files: Vec<FileDrafts>) -> Import {
    let mut import = Import {
        schema: SCHEMA.into(),
        name: printable(name),
        baseline: String::new(),
        samples: Vec::new(),
        unread: Vec::new(),
        claims: Vec::new(),
        unchecked: Vec::new(),
        left_out: Vec::new(),
    };
    let stems = stems(&files);
    let mut all: Vec<(FileDrafts, Vec<names::Name>)> = Vec::new();
    for (mut file, stem) in files.into_iter().zip(&stems) {
        attribute_to_wrk2(&mut file.found.drafts);
        let names = names::name_drafts(&file.found.drafts, stem, file.given.as_deref());
        all.push((file, names));
    }
    one_rate(&mut all);
    let shared = shared_names(&all);
    for ((FileDrafts { file, given, given_at, found }, mut names), stem) in
        all.into_iter().zip(stems)
    {
        for (draft, name) in found.drafts.iter().zip(&mut names) {
            if let Some(own) = given_at.get(&draft.source.first_line) {
                (name.variant, name.by_line) = (own.clone(), false);
                name.under.clone_from(own);
            } else if given.is_none() && draft.own_name.is_none() && shared.contains(&name.variant)
            {
                name.variant = format!("{stem}: {}", name.variant);
                name.under = format!("{stem}: {}", name.under);
            }
        }
        if !found.unchecked.is_empty() {
            let (file, lines) = (printable(&file), found.unchecked);
            import.unchecked.push(Unchecked { file, lines });
        }
        let mut named: Vec<(Draft, names::Name)> = found.drafts.into_iter().zip(names).collect();
        let told = merge_repeated_tables(&mut named);
        import.samples.extend(named.into_iter().map(|(draft, name)| sample(draft, name)));
        let shown = |Unread { file, line, why }: Unread| Unread {
            file: printable(&file),
            line,
            why: printable(&why),
        };
        import.unread.extend(found.unread.into_iter().map(shown));
        import.left_out.extend(found.left_out.into_iter().map(shown));
        import.claims.extend(found.claims.into_iter().chain(told).map(|claim| Claim {
            file: printable(&claim.file),
            text: printable(&claim.text),
            ..claim
        }));
    }
    load::split(&mut import.samples);
    import.baseline =
        import.samples.first().map_or_else(String::new, |first| first.variant.clone());
    import
}

/// If some outputs are wrk2's, takes wrk's outputs without percentiles or a known command for
/// wrk2's: without --latency, both tools print the same.
fn attribute_to_wrk2(drafts: &mut [Draft]) {
    if drafts.iter().any(|draft| draft.tool == Tool::Wrk2) {
        let is_bare = |draft: &&mut Draft| {
            let is_unknown = draft.tool == Tool::Wrk && draft.command.is_none();
            is_unknown && draft.percentiles.is_empty()
        };
        let own = drafts.iter_mut().filter(is_bare);
        own.for_each(|draft| draft.tool = Tool::Wrk2);
    }
}

/// Removes the rate from the cases if all known rates are the same.
fn one_rate(all: &mut [(FileDrafts, Vec<names::Name>)]) {
    let drafts = all.iter().flat_map(|(file, _)| &file.found.drafts);
    let rates: BTreeSet<String> = drafts.filter_map(names::rate).collect();
    if rates.len() != 1 {
        return;
    }
    let without = |draft: &Draft, name: &names::Name| {
        let rest = names::rate(draft).and_then(|rate| name.case.strip_prefix(&rate));
        let rest = rest.filter(|_| draft.own_case.is_none());
        rest.map_or_else(|| name.case.clone(), |rest| rest.trim_start_matches(", ").to_owned())
    };
    // If one variant was loaded both with a rate and without, the rate distinguishes the two.
    let mut seen: BTreeMap<(&str, String), bool> = BTreeMap::new();
    let is_told_apart = all.iter().any(|(file, names)| {
        let outputs = file.found.drafts.iter().zip(names).filter(|(d, _)| d.tool != Tool::Table);
        outputs.into_iter().any(|(draft, name)| {
            let has = draft.asked.rate_per_s.is_some();
            let place = (name.variant.as_str(), without(draft, name));
            *seen.entry(place).or_insert(has) != has
        })
    });
    for (file, names) in all.iter_mut().filter(|_| !is_told_apart) {
        for (draft, name) in file.found.drafts.iter().zip(names) {
            name.case = without(draft, name);
        }
    }
}

/// Returns the names that several files share: they may be of different variants.
fn shared_names(all: &[(FileDrafts, Vec<names::Name>)]) -> BTreeSet<String> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut shared = BTreeSet::new();
    for (at, (_, names)) in all.iter().enumerate().filter(|(_, (file, _))| file.given.is_none()) {
        for name in names {
            if *seen.entry(&name.variant).or_insert(at) != at {
                shared.insert(name.variant.clone());
            }
        }
    }
    shared
}

/// Finds rows of tables that repeat outputs of the same document, returns them as claims to check,
/// and removes the repeated values: they are not results of their own.
fn merge_repeated_tables(named: &mut Vec<(Draft, names::Name)>) -> Vec<Claim> {
    let is_table = |draft: &Draft| draft.tool == Tool::Table;
    let (mut claims, mut gone) = (Vec::new(), Vec::new());
    for (at, (table, name)) in named.iter().enumerate().filter(|(_, (draft, _))| is_table(draft)) {
        let others = || named.iter().filter(|(draft, _)| !is_table(draft));
        let agrees = |own: &Draft, (key, value): &(&String, &f64)| {
            let step = table.steps.get(*key).copied().unwrap_or(0.0);
            let same = |output: f64| is_same(**value, step * 0.6, output);
            own.values.get(*key).copied().is_some_and(same) || own.also(key).is_some_and(same)
        };
        let agreeing = |own: &Draft| table.values.iter().filter(|value| agrees(own, value)).count();
        // A number of many digits does not agree by chance, unless it is a configured rate.
        let is_long = |own: &Draft, (key, value): &(&String, &f64)| {
            let step = table.steps.get(*key).copied().unwrap_or(0.0);
            let is_set = own.asked.rate_per_s.is_some() && *key == Metric::Throughput.key();
            step > 0.0 && **value >= step * 1e4 && !is_set
        };
        let has_long = |own: &Draft| {
            table.values.iter().any(|value| agrees(own, &value) && is_long(own, &value))
        };
        let best = others().max_by_key(|(draft, _)| agreeing(draft));
        // One number of two may agree by chance.
        let both =
            |own: &Draft| table.values.keys().filter(|key| own.values.contains_key(*key)).count();
        let is_like = |(draft, theirs): &&(Draft, names::Name)| {
            let n = agreeing(draft);
            let is_whose = is_whose(theirs, &plain_words(&name.variant));
            let load = table.asked.connections.zip(draft.asked.connections);
            let is_sure = (n > 1 || has_long(draft)) && n * 2 > both(draft);
            load.is_none_or(|(a, b)| a == b) && ((is_whose && n > 0) || is_sure)
        };
        let found = best.filter(is_like);
        let found = found.or_else(|| by_name(others(), table, &name.variant));
        let Some((output, output_name)) = found else { continue };
        // Only values that the output has too are removed from the table.
        let is_told =
            |value: &(&String, &f64)| output.values.contains_key(value.0) || agrees(output, value);
        let told: Vec<String> =
            table.values.iter().filter(is_told).map(|(key, _)| key.clone()).collect();
        gone.push((at, told));
        for (key, value) in &table.values {
            let Some(own) = output.values.get(key) else { continue };
            let Draft { source, .. } = output;
            // A table may give the mean of several runs, or any one of them.
            let step = table.steps.get(key).copied().unwrap_or(0.0);
            let group = others().filter(|(_, name)| {
                let place = |name: &names::Name| (name.variant.clone(), name.case.clone());
                place(name) == place(output_name)
            });
            let all: Vec<f64> =
                group.filter_map(|(draft, _)| draft.values.get(key)).copied().collect();
            let mean = tare_stats::estimate::mean(&all);
            // ab prints whole milliseconds.
            let is_latency = key.starts_with("latency_ns");
            let own_step = output.seen.step_ns.filter(|_| is_latency).unwrap_or(0.0);
            let said = all.iter().copied().chain([mean]).chain(output.also(key));
            let is_told = said.into_iter().any(|own| is_same(*value, step.max(own_step), own));
            let own = if is_told { value } else { own };
            let told = RepeatedValue {
                variant: printable(&output_name.variant),
                metric: key.clone(),
                value: *value,
                step: table.steps.get(key).copied().unwrap_or(0.0),
                output: *own,
                place: format!("{}:{}-{}", source.file, source.first_line, source.last_line),
            };
            claims.push(Claim {
                file: table.source.file.clone(),
                line: table.source.first_line,
                text: table.source.text.lines().next().unwrap_or_default().to_owned(),
                says: Says::Value(told),
            });
        }
    }
    for (at, told) in gone {
        let draft = &mut named[at].0;
        draft.values.retain(|key, _| !told.contains(key));
        draft.moments.retain(|key, _| !told.contains(key));
        draft.percentiles.clear();
    }
    named.retain(|(draft, _)| !is_table(draft) || !draft.values.is_empty());
    claims
}

/// Whether two values agree to the digits that a table prints.
pub fn is_same(told: f64, step: f64, output: f64) -> bool {
    (told - output).abs() <= step + output.abs() * 1e-9
}

/// Whether one name has all words of the other.
fn is_within(a: &[String], b: &[String]) -> bool {
    let within =
        |a: &[String], b: &[String]| !a.is_empty() && a.iter().all(|word| b.contains(word));
    within(a, b) || within(b, a)
}

/// Whether the words name an output's variant, with or without the additions that distinguish
/// equal names.
fn is_whose(name: &names::Name, own: &[String]) -> bool {
    is_within(own, &plain_words(&name.variant)) || is_within(own, &plain_words(&name.under))
}

/// Returns the output that the row copies, perhaps with a typing error, if it is the only such one
/// in the same section with the same name.
fn by_name<'a>(
    others: impl Iterator<Item = &'a (Draft, names::Name)>,
    table: &Draft,
    variant: &str,
) -> Option<&'a (Draft, names::Name)> {
    let own = plain_words(variant);
    let is_copy = |draft: &Draft| {
        let mut any = false;
        let all = table.values.iter().all(|(key, told)| match draft.values.get(key) {
            None => true,
            Some(output) => {
                any = true;
                let step = table.steps.get(key).copied().unwrap_or(0.0);
                is_same(*told, step, *output) || is_slip(*told, step, *output)
            }
        });
        all && any
    };
    let mut found = others.filter(|(draft, name)| {
        let is_section = draft.headings.starts_with(&table.headings);
        is_whose(name, &own) && is_section && is_copy(draft)
    });
    found.next().filter(|_| found.next().is_none())
}

/// Whether one digit differs, or two adjacent digits are swapped.
fn is_slip(told: f64, step: f64, output: f64) -> bool {
    if step <= 0.0 {
        return false;
    }
    let digits = |value: f64| format!("{:.0}", value / step).into_bytes();
    let (a, b) = (digits(told), digits(output));
    if a.len() != b.len() || a.len() < 3 {
        return false;
    }
    let off: Vec<usize> = (0..a.len()).filter(|at| a[*at] != b[*at]).collect();
    match off.as_slice() {
        [_] => true,
        [one, two] => two - one == 1 && a[*one] == b[*two] && a[*two] == b[*one],
        _ => false,
    }
}

/// Returns each file's name without the last extension, with its path if the name is not unique.
fn stems(files: &[FileDrafts]) -> Vec<String> {
    let stem = |file: &str| {
        let start = file.rfind('/').map_or(0, |at| at + 1);
        let end = file[start..].rfind('.').filter(|at| *at > 0).map(|at| start + at);
        file[..end.unwrap_or(file.len())].to_owned()
    };
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let paths: Vec<String> = files.iter().map(|file| stem(&file.file)).collect();
    let bases: Vec<String> = paths.iter().map(|path| base(path)).collect();
    let is_shared = |at: usize| {
        (0..files.len()).any(|o| bases[o] == bases[at] && files[o].file != files[at].file)
    };
    (0..files.len()).map(|at| if is_shared(at) { &paths[at] } else { &bases[at] }.clone()).collect()
}

fn sample(draft: Draft, name: names::Name) -> Sample {
    let (mut asked, mut seen, mut source) = (draft.asked, draft.seen, draft.source);
    asked.url = asked.url.map(|url| printable(&url));
    let errors = seen.errors.into_iter().map(|(kind, n)| (printable(&kind), n));
    seen.errors = errors.collect();
    let lines: Vec<String> = source.text.lines().map(printable).collect();
    (source.file, source.text) = (printable(&source.file), lines.join("\n"));
    Sample {
        variant: printable(&name.variant),
        case: printable(&name.case),
        tool: draft.tool,
        source,
        headings: draft.headings.into_iter().map(|(_, text)| printable(&text)).collect(),
        command: draft.command.map(|command| printable(&command)),
        is_commands_own: draft.is_first_of_typed,
        asked,
        seen,
        values: draft.values,
        percentiles: draft.percentiles,
        repeats: draft.repeats,
        moments: draft.moments,
        under: printable(&name.under),
        by_line: name.by_line,
        added: Vec::new(),
    }
}

/// Outputs of one variant in one case.
pub struct Group<'a> {
    pub case: &'a str,
    pub variant: &'a str,
    pub samples: Vec<&'a Sample>,
}

impl Import {
    /// Returns the variants in the order of their first outputs.
    pub fn variants(&self) -> Vec<&str> {
        unique(self.samples.iter().map(|sample| sample.variant.as_str()))
    }

    pub fn cases(&self) -> Vec<&str> {
        unique(self.samples.iter().map(|sample| sample.case.as_str()))
    }

    /// Returns the groups in the order of cases, and of variants within a case.
    pub fn groups(&self) -> Vec<Group<'_>> {
        let place = |all: Vec<&'_ str>| -> BTreeMap<String, usize> {
            all.into_iter().enumerate().map(|(at, name)| (name.to_owned(), at)).collect()
        };
        let (cases, variants) = (place(self.cases()), place(self.variants()));
        let mut found: BTreeMap<(usize, usize), Group<'_>> = BTreeMap::new();
        for sample in &self.samples {
            let (case, variant) = (sample.case.as_str(), sample.variant.as_str());
            let at = (cases[case], variants[variant]);
            let group = || Group { case, variant, samples: Vec::new() };
            found.entry(at).or_insert_with(group).samples.push(sample);
        }
        found.into_values().collect()
    }

    /// Pairs each group with the one that it is compared with: the baseline's, or the first of
    /// a case without the baseline.
    pub fn pairs<'a>(&self, groups: &'a [Group<'a>]) -> Vec<(&'a Group<'a>, &'a Group<'a>)> {
        let of = |own: &'a [Group<'a>]| {
            let base = own.iter().find(|group| group.variant == self.baseline);
            let base = base.unwrap_or(&own[0]);
            own.iter().filter(|group| group.variant != base.variant).map(move |own| (base, own))
        };
        groups.chunk_by(|a, b| a.case == b.case).flat_map(of).collect()
    }

    pub fn json(&self) -> String {
        // Plain data cannot fail to serialise.
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn unique<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for one in all {
        if seen.insert(one) {
            found.push(one);
        }
    }
    found
}
