//! Why a verdict may be believed, in a line; what speaks against it, a line a family; and what it
//! rests on.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tare_guards::{Brief, Code, Family, RunGuard, Severity};
use tare_model::Metric;
use tare_model::net::Protocol;

use crate::run::exposure::{Confirmation, confirmation, placed, seconds};
use crate::run::words::{overhead_of, stopped_early};
use crate::run::{Comparison, RunReport, Variant};
use crate::units::{count, counted, rate};

/// How a condition of a fair comparison was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    Holds,
    Doubted,
    Broken,
}

impl Mark {
    fn sign(self) -> char {
        match self {
            Self::Holds => '✓',
            Self::Doubted => '!',
            Self::Broken => '✗',
        }
    }

    fn of(severity: Severity) -> Self {
        match severity {
            Severity::Note | Severity::Warn => Self::Doubted,
            Severity::Void => Self::Broken,
        }
    }
}

/// What was checked, and how it was found.
pub fn trust(report: &RunReport) -> Vec<String> {
    let mut items = Vec::new();
    let mut item = |text: &str, mark: Mark| items.push(format!("{text} {}", mark.sign()));
    let gravest = |is_one: &dyn Fn(Code) -> bool| {
        let own = report.guards.iter().filter(|guard| is_one(guard.code));
        let graver = own.filter(|guard| guard.severity != Severity::Note);
        // The first of the gravest, which the warning tells of, too.
        graver.rev().max_by_key(|guard| guard.severity)
    };
    let mark = |guard: Option<&RunGuard>| guard.map_or(Mark::Holds, |g| Mark::of(g.severity));
    let all = |holds: fn(&Variant) -> bool| report.variants.iter().all(holds);
    if all(|variant| variant.probe.is_some()) {
        let may_differ = report.plan.parts.variants.iter().any(|v| !v.may_differ.is_empty());
        match mark(gravest(&|code| code == Code::UnequalReply)) {
            Mark::Holds if may_differ => item("replies as declared", Mark::Holds),
            Mark::Holds => item("replies equal", Mark::Holds),
            other => item("replies differ", other),
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
    let (n, words) = launches(report);
    let is_few = n == 0
        || report.guards.iter().any(|g| [Code::FewRounds, Code::LostRounds].contains(&g.code));
    if report.run.rounds > 0 {
        item(&words, if is_few { Mark::Doubted } else { Mark::Holds });
    }
    match mark(gravest(&|code| code == Code::NotWarm)) {
        Mark::Holds if all(|variant| variant.exposure.warm_after_ns.is_some()) => {
            item("warm", Mark::Holds);
        }
        Mark::Holds => {}
        other => item("not warm", other),
    }
    match gravest(&|code| code.family() == Family::Machine) {
        Some(guard) => item(of_machine(guard.code), Mark::of(guard.severity)),
        // What others use is what servers did not.
        None if all(|variant| !variant.parts.is_empty()) => item("machine quiet", Mark::Holds),
        None => {}
    }
    items.extend(confirmed(report));
    items
}

fn of_machine(code: Code) -> &'static str {
    match code {
        Code::Noisy | Code::Steal => "machine noisy",
        Code::Throttled => "throttled",
        Code::ShortOfCpus => "too few CPUs",
        Code::Emulated => "emulated",
        _ => "network disturbed",
    }
}

/// What sustained load makes of what was asked for.
fn confirmed(report: &RunReport) -> Option<String> {
    let asked = report.comparisons.iter().filter(|comparison| comparison.asked);
    // Latencies and the like have no sustained check.
    let asked: Vec<&Comparison> =
        asked.filter(|c| [Metric::Throughput, Metric::ServerCpu].contains(&c.metric)).collect();
    let found = asked.iter().map(|c| confirmation(c, report.run.tolerance));
    let found: Vec<Option<Confirmation>> = found.collect();
    let count = |wanted: Confirmation| found.iter().filter(|one| **one == Some(wanted)).count();
    let withheld = report.guards.iter().filter(|guard| guard.code == Code::Unconfirmed);
    let withheld = withheld.map(|guard| Mark::of(guard.severity)).max();
    let is_withheld = withheld.is_some();
    let (all, sure) = (found.len(), count(Confirmation::Confirmed));
    let of_all = |n: usize| if all > 1 { format!(" {n} of {all}") } else { String::new() };
    let (text, mark) = match count(Confirmation::Contradicted) {
        0 if all == 0 => return None,
        0 if found.iter().all(Option::is_none) && report.plan.parts.slices.cold.is_some() => {
            return None;
        }
        0 if found.iter().all(Option::is_none) => ("no sustained load".to_owned(), Mark::Doubted),
        0 if sure == all && !is_withheld => ("confirmed".to_owned(), Mark::Holds),
        0 if sure == 0 || is_withheld => {
            ("not confirmed".to_owned(), withheld.unwrap_or(Mark::Doubted))
        }
        0 => (format!("confirmed{}", of_all(sure)), Mark::Doubted),
        n => (format!("contradicted{}", of_all(n)), Mark::Broken),
    };
    let figure = match asked.as_slice() {
        [one] => one.sustained.as_ref().map(|check| {
            format!(" by sustained load: {}", overhead_of(one.metric, &check.overhead_percent))
        }),
        _ => None,
    };
    Some(format!("{text}{} {}", figure.unwrap_or_default(), mark.sign()))
}

/// Starts of each variant's server, at least.
fn launches(report: &RunReport) -> (u32, String) {
    let n = report.variants.iter().map(|variant| variant.launches).min().unwrap_or(0);
    match n {
        0 => (0, "servers not restarted".into()),
        n => (n, counted(n.into(), "launch", "launches")),
    }
}

/// One line a family of what speaks against a run, or against the runs of a sweep: whom it concerns,
/// what was seen, what to do. The gravest of a family is told, and how many others there are.
pub fn warnings(runs: &[&[RunGuard]], variants: usize) -> Vec<String> {
    let mut families: BTreeMap<Family, Vec<&RunGuard>> = BTreeMap::new();
    let all = runs.iter().copied().flatten();
    for guard in all.filter(|guard| is_told(guard)) {
        families.entry(guard.code.family()).or_default().push(guard);
    }
    let of_family = |guards: &Vec<&RunGuard>| {
        let gravest = guards.iter().map(|guard| guard.severity).max()?;
        let first = guards.iter().find(|guard| guard.severity == gravest)?;
        Some((gravest, warning(runs, variants, first, guards)))
    };
    let mut lines: Vec<(Severity, String)> = families.values().filter_map(of_family).collect();
    lines.sort_by_key(|(severity, _)| Reverse(*severity));
    lines.into_iter().map(|(_, line)| line).collect()
}

/// Notes are only told where they say why there are too few launches.
fn is_told(guard: &RunGuard) -> bool {
    guard.severity != Severity::Note || [Code::FewRounds, Code::SingleLaunch].contains(&guard.code)
}

fn warning(
    runs: &[&[RunGuard]],
    variants: usize,
    first: &RunGuard,
    family: &[&RunGuard],
) -> String {
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
    let scope = match runs.iter().filter(|run| run.iter().any(is_same)).count() {
        n if n == runs.len() => String::new(),
        n => format!(" ({n} of {} values)", runs.len()),
    };
    let more = match others.len() {
        0 => String::new(),
        n => format!(" (+{})", counted(n as u64, "other guard", "other guards")),
    };
    let (seen, cure) = match first.code.brief() {
        Some(Brief { seen, cure }) => (seen, format!(" → {cure}")),
        None => (first.text.as_str(), String::new()),
    };
    let sign = Mark::of(first.severity).sign();
    format!("{sign} {}: {whom}{seen}{scope}{more}{cure}", first.code.family().words())
}

/// So many variants are named.
const NAMED: usize = 3;

/// What the numbers rest on.
pub fn evidence(report: &RunReport) -> Vec<String> {
    let mut items = vec![load(report)];
    items.extend(placed(report).map(|text| without_asides(&text)));
    items.push(exposed(report));
    items.extend(stopped_early(&report.run));
    items.push(format!("seed {}", report.run.seed));
    items.retain(|item| !item.is_empty());
    items
}

/// What stands in parentheses, such as why something could not be had, is left to `--why`.
fn without_asides(text: &str) -> String {
    let mut depth = 0;
    let mut kept = String::new();
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            c if depth <= 0 => kept.push(c),
            _ => {}
        }
    }
    kept.replace(" ,", ",").replace(" ;", ";").trim_end().to_owned()
}

fn load(report: &RunReport) -> String {
    let spec = &report.plan.parts.load;
    if spec.protocol() != Protocol::Http {
        return String::new();
    }
    let connections = match spec.new_connections {
        true => format!("a new connection a request, {} at a time", count(spec.connections.into())),
        false => counted(spec.connections.into(), "connection", "connections"),
    };
    match spec.rate {
        Some(per_s) => format!("{}/s on {connections}", rate(per_s)),
        None => connections,
    }
}

/// Launches, and the load that each had.
fn exposed(report: &RunReport) -> String {
    let least = |of: fn(&Variant) -> u64| report.variants.iter().map(of).min().unwrap_or(0);
    let (launches, words) = launches(report);
    let each = seconds(least(|variant| variant.exposure.load_ns));
    if report.plan.parts.slices.cold.is_some() {
        return format!("{words}, cold: the first {each} of each");
    }
    let mut text = match launches {
        0 => format!("{} of {each}", counted(report.run.rounds.into(), "round", "rounds")),
        _ => format!("{words} of {each}"),
    };
    let sustained = least(|variant| variant.exposure.sustained_launches.into());
    if sustained > 0 {
        let ns = least(|variant| variant.exposure.sustained_ns);
        text += &format!(", {} sustained in {}", seconds(ns), count(sustained));
    }
    text
}
