//! Compares the loads of outputs: a load that only one variant has is a mistake, a load that
//! several variants share is a case.

use std::collections::{BTreeMap, BTreeSet};

use crate::command::Command;
use crate::sample::{Draft, Sample, SampleLoad, SampleResult, Tool};

/// The load behind an output, as far as known.
pub struct Load<'a> {
    tool: Tool,
    asked: &'a SampleLoad,
    command: Option<&'a str>,
    is_commands_own: bool,
    done: Option<u64>,
}

impl Load<'_> {
    /// Whether the run ended after a given time, not after a given number of requests.
    fn is_timed(&self) -> bool {
        let is_flag =
            |word: &str| matches!(word, "-D" | "-z" | "-t") || word.starts_with("--duration");
        let is_counted = matches!(self.tool, Tool::H2load | Tool::Hey);
        let by_command = self.command.is_some_and(|own| own.split_whitespace().any(is_flag));
        self.asked.seconds.is_some() || (is_counted && by_command)
    }

    /// Returns how many requests were done, if the number is round: then it was asked for, since
    /// a run that ends after a given time rarely has a round one.
    fn round(&self) -> Option<u64> {
        let is_counted = matches!(self.tool, Tool::Ab | Tool::H2load | Tool::Hey);
        self.done.filter(|n| is_counted && *n > 0 && n % 100 == 0)
    }
}

/// Counts requests, including failed ones; ab already includes them.
fn all_done(seen: &SampleResult, tool: Tool) -> Option<u64> {
    let failed = seen.errors.values().fold(0u64, |sum, n| sum.saturating_add(*n));
    seen.requests.map(|n| if tool == Tool::Ab { n } else { n.saturating_add(failed) })
}

impl<'a> From<&'a Sample> for Load<'a> {
    fn from(own: &'a Sample) -> Self {
        let (tool, asked, command) = (own.tool, &own.asked, own.command.as_deref());
        let (is_commands_own, done) = (own.is_commands_own, all_done(&own.seen, tool));
        Self { tool, asked, command, is_commands_own, done }
    }
}

impl<'a> From<&'a Draft> for Load<'a> {
    fn from(own: &'a Draft) -> Self {
        let (tool, asked, command) = (own.tool, &own.asked, own.command.as_deref());
        let (is_commands_own, done) = (own.is_first_of_typed, all_done(&own.seen, tool));
        Self { tool, asked, command, is_commands_own, done }
    }
}

/// A property in which loads may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Tool,
    Path,
    Script,
    Connections,
    Threads,
    Requests,
    Seconds,
}

impl Part {
    pub const ALL: [Self; 7] = [
        Self::Tool,
        Self::Path,
        Self::Script,
        Self::Connections,
        Self::Threads,
        Self::Requests,
        Self::Seconds,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Path => "path",
            Self::Script => "script",
            Self::Connections => "connections",
            Self::Threads => "threads",
            Self::Requests => "requests",
            Self::Seconds => "seconds",
        }
    }

    pub fn noun(self) -> &'static str {
        match self {
            Self::Connections => "number of connections",
            Self::Threads => "number of threads",
            Self::Requests => "number of requests",
            Self::Seconds => "run length",
            _ => self.name(),
        }
    }

    /// Whether loads that differ in this are different tests, not more or less of the same test.
    fn tells_cases(self) -> bool {
        matches!(self, Self::Tool | Self::Path | Self::Script)
    }

    /// Returns this property of a load; `None` if unknown.
    pub fn value(self, load: &Load<'_>) -> Option<String> {
        let own = load.asked;
        match self {
            Self::Tool => {
                let is_load = !matches!(load.tool, Tool::Table | Tool::Summary);
                is_load.then(|| load.tool.name().to_owned())
            }
            Self::Path => own.url.as_deref().map(path),
            Self::Script => load.command.and_then(Command::script_in).map(str::to_owned),
            Self::Connections => own.connections.map(|n| n.to_string()),
            Self::Threads => own.threads.map(|n| n.to_string()),
            // The number in a command further up belongs to another output.
            Self::Requests => {
                let of_command = own.requests.filter(|_| load.is_commands_own);
                let all = of_command.or_else(|| load.round());
                all.filter(|_| !load.is_timed()).map(|n| n.to_string())
            }
            Self::Seconds => own.seconds.map(|n| n.to_string()),
        }
    }

    /// Returns this property of two loads, if it differs.
    fn differs(self, a: &Load<'_>, b: &Load<'_>) -> Option<(String, String)> {
        const TIME_SAME: f64 = 0.05;
        let (own, other) = self.value(a).zip(self.value(b))?;
        let seconds = a.asked.seconds.zip(b.asked.seconds).filter(|_| self == Self::Seconds);
        let is_same = seconds.is_some_and(|(a, b)| (a - b).abs() <= b * TIME_SAME);
        (own != other && !is_same).then_some((own, other))
    }

    /// Formats a value: "40 connections", "/json".
    pub fn title(self, value: &str) -> String {
        match self {
            Self::Tool => format!("with {value}"),
            Self::Path | Self::Script => value.to_owned(),
            Self::Seconds => format!("runs of {value} s"),
            _ if value == "1" => format!("1 {}", self.name().trim_end_matches('s')),
            _ => format!("{value} {}", self.name()),
        }
    }
}

fn path(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split_once('/').map_or("/".to_owned(), |(_, path)| format!("/{path}"))
}

/// Returns the properties in which the loads of an import must agree. Paths are not among them if
/// each variant has its own: then the import compares paths.
pub fn parts(samples: &[Sample]) -> Vec<Part> {
    let mut of_paths: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for sample in samples {
        if let Some(path) = Part::Path.value(&sample.into()) {
            of_paths.entry(path).or_default().insert(&sample.variant);
        }
    }
    let by_design = of_paths.len() > 1 && of_paths.values().all(|variants| variants.len() == 1);
    Part::ALL.into_iter().filter(|part| !(by_design && *part == Part::Path)).collect()
}

/// Returns the properties in which two loads differ, with both values.
pub fn differences<'a>(
    parts: &[Part],
    own: impl Into<Load<'a>>,
    other: impl Into<Load<'a>>,
) -> Vec<(Part, String, String)> {
    let (own, other) = (own.into(), other.into());
    let of = |part: &Part| part.differs(&own, &other).map(|(own, other)| (*part, own, other));
    parts.iter().filter_map(of).collect()
}

/// Puts outputs with different loads into different cases, unless the difference is a mistake.
pub fn split(samples: &mut [Sample]) {
    by_connections(samples);
    by_tests(samples);
}

fn add(case: &mut String, more: &str) {
    *case = if case.is_empty() { more.to_owned() } else { format!("{case}, {more}") };
}

/// Splits cases by connections if a variant was swept over them. A variant with another number than
/// the others is a mistake, which the audit reports.
fn by_connections(samples: &mut [Sample]) {
    let mut seen: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let is_swept = samples.iter().any(|sample| {
        let place = (sample.variant.as_str(), sample.case.as_str());
        let own = sample.asked.connections;
        own.is_some_and(|own| *seen.entry(place).or_insert(own) != own)
    });
    if !is_swept {
        return;
    }
    for sample in samples {
        if let Some(connections) = sample.asked.connections {
            add(&mut sample.case, &Part::Connections.title(&connections.to_string()));
        }
    }
}

/// Splits cases by test, if several variants share one test and several share another.
fn by_tests(samples: &mut [Sample]) {
    let parts = parts(samples);
    for part in parts.into_iter().filter(|part| part.tells_cases()) {
        let mut cases: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
        for sample in samples.iter() {
            cases.entry(&sample.case).or_default().push(sample);
        }
        let titles: BTreeMap<(String, String), String> =
            cases.into_iter().flat_map(|(case, own)| titles(part, case, &own)).collect();
        for sample in samples.iter_mut() {
            if let Some(title) = titles.get(&(sample.case.clone(), sample.variant.clone())) {
                add(&mut sample.case, title);
            }
        }
    }
}

/// Returns a title for each variant of a case, by case and variant. Empty unless several variants
/// share the first test and several share another: a test of only one variant may be a mistake.
fn titles(part: Part, case: &str, samples: &[&Sample]) -> Vec<((String, String), String)> {
    // A variant's test is that of its first output that states one.
    let mut asked: Vec<(&str, String)> = Vec::new();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    let mut variants_of: BTreeMap<String, usize> = BTreeMap::new();
    for sample in samples {
        if let Some(own) = part.value(&(*sample).into()).filter(|_| known.insert(&sample.variant)) {
            *variants_of.entry(own.clone()).or_default() += 1;
            asked.push((&sample.variant, own));
        }
    }
    let is_shared = |own: &String| variants_of[own] > 1;
    let shared = variants_of.keys().filter(|own| is_shared(own)).count();
    if shared < 2 || !asked.first().is_some_and(|(_, own)| is_shared(own)) {
        return Vec::new();
    }
    let of =
        |(variant, own): (&str, String)| ((case.to_owned(), variant.to_owned()), part.title(&own));
    asked.into_iter().map(of).collect()
}
