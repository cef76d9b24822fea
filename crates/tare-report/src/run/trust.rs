//! Why a verdict can be trusted, in one line; the warnings, one line per family; and the evidence.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tare_guards::{Brief, Code, Family, RunGuard, Severity};
use tare_model::Metric;
use tare_model::load::{Load, Version};
use tare_stats::Verdict;

use crate::format::{bytes, count, counted, duration, rate};
use crate::run::exposure::{Confirmation, confirmation, placed_in_short};
use crate::run::words::{overhead_of, stopped_early, time};
use crate::run::{Comparison, RunReport, Variant};

/// Result of checking a condition of a fair comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    Holds,
    Doubted,
    Broken,
}

impl Mark {
    pub fn sign(self) -> char {
        match self {
            Self::Holds => '✓',
            Self::Doubted => '!',
            Self::Broken => '✗',
        }
    }

    fn from_severity(severity: Severity) -> Self {
        match severity {
            Severity::Note | Severity::Warn => Self::Doubted,
            Severity::Void => Self::Broken,
        }
    }
}

/// A condition and the result of checking it.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    pub text: String,
    pub mark: Mark,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.text, self.mark.sign())
    }
}

/// Returns the conditions that were checked, with the results.
pub fn trust(report: &RunReport) -> Vec<Check> {
    let mut items = Vec::new();
    let mut item = |text: &str, mark: Mark| items.push(Check { text: text.to_owned(), mark });
    let gravest = |is_one: &dyn Fn(Code) -> bool| {
        let own = report.guards.iter().filter(|guard| is_one(guard.code));
        let graver = own.filter(|guard| guard.severity != Severity::Note);
        // Of equally grave guards this takes the first, as the warning does.
        graver.rev().max_by_key(|guard| guard.severity)
    };
    let mark =
        |guard: Option<&RunGuard>| guard.map_or(Mark::Holds, |g| Mark::from_severity(g.severity));
    let all = |holds: fn(&Variant) -> bool| report.variants.iter().all(holds);
    let replies = |text: &str| match asked(report) {
        Some(asked) => format!("{text} ({asked})"),
        None => text.to_owned(),
    };
    if all(|variant| variant.probe.is_some()) {
        let may_differ = report.plan.parts.variants.iter().any(|v| !v.may_differ.is_empty());
        match mark(gravest(&|code| code == Code::UnequalReply)) {
            Mark::Holds if may_differ => item(&replies("replies as declared"), Mark::Holds),
            Mark::Holds if report.variants.len() == 1 => {
                item(&replies("replies good"), Mark::Holds)
            }
            Mark::Holds => item(&replies("replies equal"), Mark::Holds),
            other => item(&replies("replies differ"), other),
        }
    }
    let lost = mark(gravest(&|code| [Code::Errors, Code::Lost, Code::RateMissed].contains(&code)));
    if lost != Mark::Holds {
        item("not all answered", lost);
    }
    if !all(|variant| variant.proofs.is_empty()) {
        match mark(gravest(&|code| code == Code::NotProven)) {
            Mark::Holds => item("layers proven", Mark::Holds),
            other => item("layers not proven", other),
        }
    }
    match mark(gravest(&|code| code == Code::NotWarm)) {
        Mark::Holds if all(|variant| variant.exposure.warm_after_ns.is_some()) => {
            item("warm", Mark::Holds);
        }
        Mark::Holds => {}
        other => item("not warm", other),
    }
    match gravest(&|code| code.family() == Family::Machine) {
        Some(guard) => item(machine_complaint(guard.code), Mark::from_severity(guard.severity)),
        // Use by other processes is known only if all servers are metered.
        None if all(|variant| !variant.parts.is_empty()) => item("machine quiet", Mark::Holds),
        None => {}
    }
    items.extend(sustained(report));
    items
}

fn machine_complaint(code: Code) -> &'static str {
    match code {
        Code::Noisy | Code::Steal => "machine noisy",
        Code::Throttled => "throttled",
        Code::ShortOfCpus => "too few CPUs",
        Code::Emulated => "emulated",
        Code::Retransmits | Code::ListenDrops | Code::Ports => "network disturbed",
        other => other.word(),
    }
}

/// Returns the check of requested metrics under sustained load; void verdicts are left out.
fn sustained(report: &RunReport) -> Option<Check> {
    // Only these two metrics have a sustained check.
    let is_checked = |c: &&Comparison| [Metric::Throughput, Metric::ServerCpu].contains(&c.metric);
    let asked = report.comparisons.iter().filter(|comparison| comparison.asked).filter(is_checked);
    let told: Vec<&Comparison> = asked.filter(|c| c.verdict != Verdict::Void).collect();
    if told.is_empty() {
        return None;
    }
    let found = told.iter().map(|c| confirmation(c, report.run.tolerance));
    let found: Vec<Option<Confirmation>> = found.collect();
    let withheld = report.guards.iter().filter(|guard| guard.code == Code::Unconfirmed);
    let withheld = withheld.map(|guard| Mark::from_severity(guard.severity)).max();
    let check = |text: String, mark: Mark| Some(Check { text, mark });
    if found.iter().all(Option::is_none) {
        // Cold launches have no sustained load, and unresolved verdicts need no confirmation.
        let is_cold = report.plan.parts.slices.cold.is_some();
        let needs_none = is_cold || told.iter().all(|c| c.verdict == Verdict::Unresolved);
        return match needs_none && withheld.is_none() {
            true => None,
            false => check("not checked under sustained load".into(), Mark::Doubted),
        };
    }
    let count = |wanted: Confirmation| found.iter().filter(|one| **one == Some(wanted)).count();
    let (all, sure) = (found.len(), count(Confirmation::Confirmed));
    let against = count(Confirmation::Contradicted);
    let same_side = count(Confirmation::SameSide);
    let mark = match withheld {
        _ if against > 0 => Mark::Broken,
        Some(mark) => mark,
        None if sure == all => Mark::Holds,
        None => Mark::Doubted,
    };
    if let [one] = told.as_slice() {
        let bounds = &one.sustained.as_ref()?.overhead_percent;
        let excludes_zero = bounds.lower > 0.0 || bounds.upper < 0.0;
        let but = match mark {
            // There is a difference, but it is smaller than the tolerance.
            Mark::Holds if one.verdict == Verdict::Same && excludes_zero => {
                ", within the tolerance"
            }
            Mark::Holds => "",
            _ if same_side > 0 => ", of the same direction",
            Mark::Broken if against > 0 => ", which refutes it",
            Mark::Doubted | Mark::Broken => ", too coarse to tell",
        };
        return check(format!("sustained load: {}{but}", overhead_of(one.metric, bounds)), mark);
    }
    let text = match mark {
        Mark::Holds => "sustained load agrees".to_owned(),
        _ => {
            let coarse = count(Confirmation::Imprecise);
            let told = [
                (sure, "confirmed"),
                (same_side, "of the same direction"),
                (against, "refuted"),
                (coarse, "too coarse to tell"),
                (all - sure - same_side - against - coarse, "not checked"),
            ];
            let told = told.iter().filter(|(n, _)| *n > 0);
            let told: Vec<String> = told.map(|(n, word)| format!("{n} {word}")).collect();
            format!("sustained load: {}", told.join(", "))
        }
    };
    check(text, mark)
}

/// A warning about a run, or about the runs of a sweep: the variants concerned, what was seen, and
/// what to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Warning {
    pub mark: Mark,
    pub text: String,
    /// What to do; `None` if the reader needs the guards' figures instead.
    pub cure: Option<String>,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} → {}",
            self.mark.sign(),
            self.text,
            self.cure.as_deref().unwrap_or("see --why")
        )
    }
}

/// Guards of a run, and its value in a sweep.
pub struct ValueGuards<'a> {
    pub value: String,
    pub guards: &'a [RunGuard],
}

impl<'a> ValueGuards<'a> {
    pub fn new(guards: &'a [RunGuard]) -> Self {
        Self { value: String::new(), guards }
    }
}

/// Returns one warning per family: its gravest guard, and the number of others.
pub fn warnings(runs: &[ValueGuards<'_>], variants: usize) -> Vec<Warning> {
    let mut families: BTreeMap<Family, Vec<&RunGuard>> = BTreeMap::new();
    let all = runs.iter().flat_map(|run| run.guards);
    for guard in all.filter(|guard| is_told(guard)) {
        families.entry(guard.code.family()).or_default().push(guard);
    }
    let of_family = |guards: &Vec<&RunGuard>| {
        let gravest = guards.iter().map(|guard| guard.severity).max()?;
        let first = guards.iter().find(|guard| guard.severity == gravest)?;
        Some((gravest, warning(runs, variants, first, guards)))
    };
    let mut found: Vec<(Severity, Warning)> = families.values().filter_map(of_family).collect();
    found.sort_by_key(|(severity, _)| Reverse(*severity));
    found.into_iter().map(|(_, warning)| warning).collect()
}

/// Notes are shown only if they explain why there are too few launches.
fn is_told(guard: &RunGuard) -> bool {
    guard.severity != Severity::Note || [Code::FewRounds, Code::SingleLaunch].contains(&guard.code)
}

fn warning(
    runs: &[ValueGuards<'_>],
    variants: usize,
    first: &RunGuard,
    family: &[&RunGuard],
) -> Warning {
    let mut names: Vec<&str> = Vec::new();
    let mut others: Vec<Code> = Vec::new();
    for guard in family {
        let is_same = guard.code == first.code && guard.severity == first.severity;
        match (&guard.variant, is_same) {
            (Some(name), true) if !names.contains(&name.as_str()) => names.push(name),
            (_, false) if guard.code != first.code && !others.contains(&guard.code) => {
                others.push(guard.code);
            }
            _ => {}
        }
    }
    let whom = match names.len() {
        0 => String::new(),
        n if n > 2 && n == variants => "all: ".into(),
        n if n > NAMED => format!("{} and {} more: ", names[..NAMED].join(", "), n - NAMED),
        _ => format!("{}: ", names.join(", ")),
    };
    let is_same = |guard: &RunGuard| (guard.code, guard.severity) == (first.code, first.severity);
    let values = runs.iter().filter(|run| run.guards.iter().any(is_same));
    let values: Vec<&str> = values.map(|run| run.value.as_str()).collect();
    let scope = match values.len() {
        n if n == runs.len() => String::new(),
        n if n > NAMED => format!(" (at {n} of {} values)", runs.len()),
        _ => format!(" (at {})", values.join("; ")),
    };
    let more = match others.len() {
        0 => String::new(),
        n => format!(" (+{})", counted(n as u64, "other guard", "other guards")),
    };
    let (seen, cure) = match first.code.brief() {
        Some(Brief { seen, cure }) => (seen, cure),
        None => (first.text.as_str(), None),
    };
    let seen = first.line.seen.as_deref().unwrap_or(seen);
    let cure = first.line.cure.clone().or(cure.map(str::to_owned));
    Warning {
        mark: Mark::from_severity(first.severity),
        text: format!("{whom}{seen}{scope}{more}"),
        cure,
    }
}

/// Maximum number of variants or values that a warning names.
const NAMED: usize = 3;

/// Returns what the numbers are based on.
pub fn evidence(report: &RunReport) -> Vec<String> {
    let mut items = vec![load(report)];
    items.extend(placed_in_short(report));
    items.push(launches_text(report));
    let how = stopped_early(&report.run).unwrap_or_else(|| "in".into());
    items.push(format!("{how} {}", time(report.run.elapsed_ms as f64 / 1000.0)));
    items.push(format!("seed {}", report.run.seed));
    items.retain(|item| !item.is_empty());
    items
}

/// Describes the request and the size of replies: `GET /data.json, 1.7 kB`.
pub fn asked(report: &RunReport) -> Option<String> {
    let http = report.plan.parts.load.http()?;
    let targets = report.plan.parts.variants.iter().filter_map(|variant| variant.url(1).ok());
    let targets: BTreeSet<String> = targets.map(|url| url.target).collect();
    let what = match (http.paths.several().len(), targets.len()) {
        (0, 1) => targets.into_iter().collect(),
        (0, n) => format!("{n} paths, one a variant"),
        (n, _) => counted(n as u64, "path", "paths"),
    };
    let sizes = report.variants.iter().filter_map(|variant| variant.body_bytes_per_reply);
    let (least, most) =
        sizes.fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), size| (a.min(size), b.max(size)));
    let size = match (least.is_finite(), bytes(least) == bytes(most)) {
        (false, _) => String::new(),
        (true, true) => format!(", {}", bytes(most)),
        (true, false) => format!(", {} to {}", bytes(least), bytes(most)),
    };
    Some(format!("{} {}{size}", http.method(), short(&what)))
}

/// Cuts off the end of a path that is too long for a line.
fn short(path: &str) -> String {
    match path.chars().count() > PATH_CHARS_MAX {
        true => path.chars().take(PATH_CHARS_MAX - 1).chain(['…']).collect(),
        false => path.to_owned(),
    }
}

const PATH_CHARS_MAX: usize = 40;

/// The common load, then the loads of variants that override it.
fn load(report: &RunReport) -> String {
    let parts = &report.plan.parts;
    let own = parts.variants.iter().filter(|variant| !variant.load.is_empty());
    let own = own.filter_map(|variant| {
        let load = variant.load.applied_to(&parts.load).ok()?;
        Some(format!("{}: {}", variant.name, in_words(&load)))
    });
    std::iter::once(in_words(&parts.load)).chain(own).collect::<Vec<_>>().join("; ")
}

fn in_words(load: &Load) -> String {
    let Some(http) = load.http() else { return String::new() };
    let connections = match http.new_connections {
        true => format!("a new connection a request, {} at a time", count(load.connections.into())),
        false => counted(load.connections.into(), "connection", "connections"),
    };
    let connections = match http.version {
        Version::Http1 => connections,
        Version::Http2 { streams: 1, .. } => format!("{connections}, HTTP/2"),
        Version::Http2 { streams, .. } => {
            format!("{connections} × {} streams, HTTP/2", count(streams.into()))
        }
    };
    match load.rate() {
        Some(per_s) => format!("{}/s on {connections}", rate(per_s)),
        None => connections,
    }
}

/// Describes the launches, and the load on each.
fn launches_text(report: &RunReport) -> String {
    let least = |of: fn(&Variant) -> u64| report.variants.iter().map(of).min().unwrap_or(0);
    let each = few_digits(least(|variant| variant.exposure.load_ns));
    let words = match report.variants.iter().map(|variant| variant.launches).min() {
        None | Some(0) => counted(report.run.rounds.into(), "round", "rounds"),
        Some(n) => counted(n.into(), "launch", "launches"),
    };
    match report.plan.parts.slices.cold.is_some() {
        true => format!("{words} a variant, cold: the first {each} of each"),
        false => format!("{words} a variant, {each} each"),
    }
}

/// Formats a length of load: `0.3 s`, `3 s`, `12 s`.
fn few_digits(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match (seconds * 10.0).round() / 10.0 {
        0.0 => duration(ns),
        s if s < 10.0 => format!("{s} s"),
        _ => time(seconds),
    }
}
