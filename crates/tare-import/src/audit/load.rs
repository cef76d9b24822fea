//! Mistakes in what was asked: of whom, how much, and whether it was the same for all.

use std::collections::{BTreeMap, BTreeSet};

use tare_guards::traffic::RATE_MET;
use tare_guards::{Code, Severity};
use tare_model::Metric;

use super::Finding;
use crate::command::Command;
use crate::import::Import;
use crate::sample::{Sample, Tool};

/// Below this share of the asked time, something ended a run.
const TIME_MET: f64 = 0.8;

pub fn rate_missed(sample: &Sample) -> Option<Finding> {
    let asked = sample.asked.rate_per_s?;
    let achieved = sample.value(Metric::Throughput)?;
    // hey's and nighthawk's rates are of one worker; those that are read here are of all.
    if achieved >= asked * RATE_MET {
        return None;
    }
    let text = format!("reached {achieved:.0} of {asked:.0} requests/s");
    let means = "the server or the client could not keep up, or connections waited for replies that \
                 never came: latencies depend on how long the run was, or leave out what was slowest";
    Some(Finding::new(Code::RateMissed, Severity::Void, text, means).of(sample))
}

/// Runs that are mostly beginning and end.
pub fn short_run(sample: &Sample) -> Option<Finding> {
    const SHORT_S: f64 = 1.0;
    let seconds = sample.seen.seconds.filter(|seconds| (0.0..SHORT_S).contains(seconds))?;
    let text = format!("ran for {seconds:.2} s");
    let means = "so short a run is mostly start and warm-up: run for ten seconds or more";
    Some(Finding::new(Code::ShortRun, Severity::Warn, text, means).of(sample))
}

pub fn cut_short(sample: &Sample) -> Option<Finding> {
    let (asked, ran) = (sample.asked.seconds?, sample.seen.seconds?);
    if ran >= asked * TIME_MET {
        return None;
    }
    let text = format!("ran for {ran:.2} of {asked:.0} s");
    let means = "it was interrupted, or ended by a failure: it is not of the same length as the \
                 others, and what ended it may be in its numbers";
    Some(Finding::new(Code::CutShort, Severity::Warn, text, means).of(sample))
}

/// wrk divides connections by threads and forgets the rest.
pub fn connections_lost(sample: &Sample) -> Option<Finding> {
    let (asked, real) = (sample.asked.connections? as f64, sample.connections()?);
    if real >= asked {
        return None;
    }
    let threads = sample.asked.threads.unwrap_or(1);
    let text = format!("{asked} connections on {threads} threads are {real}");
    let means = "wrk gives every thread the same whole number of connections, and drops the rest";
    Some(Finding::new(Code::ConnectionsLost, Severity::Note, text, means).of(sample))
}

/// Threads, connections and times that differ between variants of a case.
pub fn unequal_load(import: &Import) -> Vec<Finding> {
    let mut found = Vec::new();
    let path = |url: &String| {
        let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
        rest.split_once('/').map_or("/".to_owned(), |(_, path)| format!("/{path}"))
    };
    let baselines = import.baselines();
    // Where each variant has a path that no other has, paths are what is compared.
    let mut of_paths: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for sample in &import.samples {
        if let Some(url) = &sample.asked.url {
            of_paths.entry(path(url)).or_default().insert(&sample.variant);
        }
    }
    let by_design = of_paths.len() > 1 && of_paths.values().all(|variants| variants.len() == 1);
    for group in import.groups().iter().filter(|group| group.variant != import.baseline) {
        let Some(base) = baselines.get(group.case).and_then(|all| all.first()) else { continue };
        for sample in group.samples.iter().copied() {
            let (own, theirs) = (&sample.asked, &base.asked);
            let mut told = Vec::new();
            let mut differ = |what: &str, a: Option<String>, b: Option<String>| {
                if let (Some(a), Some(b)) = (a, b)
                    && a != b
                {
                    told.push(format!("{what} {a}, but {b} in {}", import.baseline));
                }
            };
            let number = |n: Option<u64>| n.map(|n| n.to_string());
            differ("connections", number(own.connections), number(theirs.connections));
            differ("threads", number(own.threads), number(theirs.threads));
            // That of a command further up is another output's.
            let requests =
                |sample: &Sample| number(sample.asked.requests.filter(|_| sample.is_commands_own));
            differ("requests", requests(sample), requests(base));
            // Rates are cases of their own.
            let times = own.seconds.zip(theirs.seconds).filter(|(a, b)| (a - b).abs() > b * 0.05);
            if let Some((a, b)) = times {
                differ("seconds", Some(a.to_string()), Some(b.to_string()));
            }
            let script = |sample: &Sample| {
                sample.command.as_deref().and_then(Command::script_in).map(str::to_owned)
            };
            differ("script", script(sample), script(base));
            if !by_design {
                differ("path", own.url.as_ref().map(path), theirs.url.as_ref().map(path));
            }
            if told.is_empty() {
                continue;
            }
            let means = "the variants did not get the same load: part of the difference may be due \
                         to that";
            let text = told.join("; ");
            found.push(Finding::new(Code::UnequalLoad, Severity::Warn, text, means).of(sample));
        }
    }
    found
}

pub fn different_tools(import: &Import) -> Vec<Finding> {
    let mut found = Vec::new();
    let baselines = import.baselines();
    for group in import.groups().iter().filter(|group| group.variant != import.baseline) {
        let Some(base) = baselines.get(group.case).and_then(|all| all.first()) else { continue };
        let is_tool = |sample: &Sample| !matches!(sample.tool, Tool::Table | Tool::Summary);
        let others = group.samples.iter().copied().filter(|s| s.tool != base.tool);
        for sample in others.filter(|sample| is_tool(sample) && is_tool(base)) {
            let text =
                format!("{}, {} in {}", sample.tool.name(), base.tool.name(), import.baseline);
            let means = "tools differ in when they start the clock, what they count as a request, \
                         and how they hold connections";
            found.push(Finding::new(Code::DifferentTools, Severity::Warn, text, means).of(sample));
        }
    }
    found
}
