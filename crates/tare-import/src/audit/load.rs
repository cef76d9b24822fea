//! Mistakes in what was asked: of whom, how much, and whether it was the same for all.

use tare_guards::traffic::RATE_MET;
use tare_guards::{Code, Severity};
use tare_model::Metric;

use super::Finding;
use crate::import::Import;
use crate::sample::Sample;

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
    let means = "the server or the client could not keep up: latencies are those of a queue that \
                 grows, and depend on how long the run was";
    Some(Finding::new(Code::RateMissed, Severity::Void, text, means).of(sample))
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
        rest.split_once('/').map_or(String::new(), |(_, path)| path.to_owned())
    };
    let baselines = import.baselines();
    for group in import.groups().iter().filter(|group| group.variant != import.baseline) {
        let Some(base) = baselines.get(group.case).and_then(|all| all.first()) else { continue };
        for sample in group.samples.iter().copied() {
            let (own, theirs) = (&sample.asked, &base.asked);
            let mut told = Vec::new();
            let mut differ = |what: &str, a: Option<String>, b: Option<String>| {
                if let (Some(a), Some(b)) = (a, b)
                    && a != b
                {
                    told.push(format!("{what} {a}, {b} in {}", import.baseline));
                }
            };
            let number = |n: Option<u64>| n.map(|n| n.to_string());
            differ("connections", number(own.connections), number(theirs.connections));
            differ("threads", number(own.threads), number(theirs.threads));
            // Rates are cases of their own; times matter where they differ by much.
            let times = own.seconds.zip(theirs.seconds).filter(|(a, b)| a / b > 1.5 || b / a > 1.5);
            if let Some((a, b)) = times {
                differ("seconds", Some(a.to_string()), Some(b.to_string()));
            }
            differ("path /", own.url.as_ref().map(path), theirs.url.as_ref().map(path));
            if told.is_empty() {
                continue;
            }
            let means = "the variants did not get the same load: part of the difference is due \
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
        for sample in group.samples.iter().copied().filter(|s| s.tool != base.tool) {
            let text =
                format!("{}, {} in {}", sample.tool.name(), base.tool.name(), import.baseline);
            let means = "tools differ in when they start the clock, what they count as a request, \
                         and how they hold connections";
            found.push(Finding::new(Code::DifferentTools, Severity::Warn, text, means).of(sample));
        }
    }
    found
}
