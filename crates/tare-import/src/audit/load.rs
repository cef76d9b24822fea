//! Mistakes in the load: its rate, length and connections, and whether it was the same for all.

use std::collections::BTreeMap;

use tare_guards::traffic::RATE_MET;
use tare_guards::{Code, Severity};
use tare_model::Metric;

use super::Finding;
use crate::import::Import;
use crate::load::{self, Part};
use crate::sample::Sample;

/// A run below this share of the requested time was cut short.
const TIME_MET: f64 = 0.8;

pub fn rate_missed(sample: &Sample) -> Option<Finding> {
    let asked = sample.asked.rate_per_s?;
    let achieved = sample.value(Metric::Throughput)?;
    // hey and nighthawk take rates per worker; the rates read here are totals.
    if achieved >= asked * RATE_MET {
        return None;
    }
    let text = format!("reached {achieved:.0} of {asked:.0} requests/s");
    let means = "the server or the client could not keep up, or connections waited for replies that \
                 never came: latencies depend on how long the run was, or leave out what was slowest";
    Some(Finding::new(Code::RateMissed, Severity::Void, text, means).about(sample))
}

/// Reports runs that are mostly start and end, the shortest of a document first.
pub fn short_runs(import: &Import) -> Vec<Finding> {
    const SHORT_S: f64 = 2.0;
    const SHOWN: usize = 12;
    let mut by_file: BTreeMap<&str, Vec<(f64, &Sample)>> = BTreeMap::new();
    for sample in &import.samples {
        if let Some(seconds) = sample.seen.seconds.filter(|own| (0.0..SHORT_S).contains(own)) {
            by_file.entry(&sample.source.file).or_default().push((seconds, sample));
        }
    }
    let of = |(_, mut all): (&str, Vec<(f64, &Sample)>)| {
        all.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let told = |(seconds, own): &(f64, &Sample)| {
            format!("{seconds:.2} s at line {}", own.source.first_line)
        };
        let shown: Vec<String> = all.iter().take(SHOWN).map(told).collect();
        let more = if all.len() > SHOWN { ", …" } else { "" };
        let text = format!("ran for less than {SHORT_S:.0} s: {}{more}", shown.join(", "));
        let means = "so short a run is mostly start-up and warm-up: 10 s or more is usual";
        let mut finding = Finding::new(Code::ShortRun, Severity::Warn, text, means);
        finding.place = all.first().map(|(_, own)| own.place());
        finding
    };
    by_file.into_iter().map(of).collect()
}

pub fn cut_short(sample: &Sample) -> Option<Finding> {
    let (asked, ran) = (sample.asked.seconds?, sample.seen.seconds?);
    if ran >= asked * TIME_MET {
        return None;
    }
    let text = format!("ran for {ran:.2} of {asked:.0} s");
    let means = "it was interrupted, or a failure ended it, which may show in its numbers";
    Some(Finding::new(Code::CutShort, Severity::Warn, text, means).about(sample))
}

/// Reports connections that wrk drops when it divides them by threads.
pub fn connections_lost(sample: &Sample) -> Option<Finding> {
    let (asked, real) = (sample.asked.connections? as f64, sample.connections()?);
    if real >= asked {
        return None;
    }
    let threads = sample.asked.threads.unwrap_or(1);
    let text = format!("wrk uses {real} connections, not {asked}: it has {threads} threads");
    let means = "wrk gives every thread the same whole number of connections, and drops the rest";
    Some(Finding::new(Code::ConnectionsLost, Severity::Note, text, means).about(sample))
}

/// Reports variants loaded differently from the baseline of their case.
pub fn unequal_load(import: &Import) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut parts = load::parts(&import.samples);
    parts.retain(|part| *part != Part::Tool);
    let groups = import.groups();
    for (base, group) in import.pairs(&groups) {
        let first = base.samples[0];
        for sample in group.samples.iter().copied() {
            let differ = load::differences(&parts, sample, first);
            let (own, theirs): (Vec<String>, Vec<String>) =
                differ.iter().map(|(part, a, b)| (part.title(a), part.title(b))).unzip();
            if differ.is_empty() {
                continue;
            }
            let (own, theirs) = (own.join(", "), theirs.join(", "));
            let text = format!("had {own}; '{}' had {theirs}", base.variant);
            let names: Vec<&str> = differ.iter().map(|(part, ..)| part.noun()).collect();
            let means = format!(
                "a difference between the two may be due in part to the different {}",
                names.join(" and ")
            );
            found.push(Finding::new(Code::UnequalLoad, Severity::Warn, text, &means).about(sample));
        }
    }
    found
}

pub fn different_tools(import: &Import) -> Vec<Finding> {
    let mut found = Vec::new();
    let groups = import.groups();
    for (base, group) in import.pairs(&groups) {
        for sample in group.samples.iter().copied() {
            for (_, own, theirs) in load::differences(&[Part::Tool], sample, base.samples[0]) {
                let text = format!("measured with {own}, '{}' with {theirs}", base.variant);
                let means = "tools differ in when they start the clock, what they count as a \
                             request, and how they hold connections";
                let finding = Finding::new(Code::DifferentTools, Severity::Warn, text, means);
                found.push(finding.about(sample));
            }
        }
    }
    found
}
