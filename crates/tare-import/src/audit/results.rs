//! Mistakes that the results themselves show.

use tare_guards::traffic::{IMPOSSIBLE, severity_of_errors, too_many_at_once};
use tare_guards::{Code, Severity};
use tare_model::Metric;

use super::{Finding, LATENCIES};
use crate::import::Import;
use crate::sample::{Sample, Tool};

/// For the rounding of what tools print.
const ROUNDING: f64 = 1.01;
/// Below this share of its connections, a closed loop was busy with something else.
const IN_FLIGHT_MIN: f64 = 0.6;
/// Replies whose sizes differ by more were not the same replies.
const REPLY_VOID: f64 = 1.10;
const REPLY_WARN: f64 = 1.01;

/// Statuses of failure, which all of these tools count as requests done.
pub fn bad_status(sample: &Sample) -> Option<Finding> {
    let bad = sample.seen.bad_status.filter(|n| *n > 0)?;
    let share = bad as f64 / sample.seen.requests.unwrap_or(bad).max(1) as f64;
    let severity = severity_of_errors(share);
    let text = format!("{bad} replies ({:.2} %) have a status of failure", share * 100.0);
    let means = "the tool counts them in its requests per second and its latencies; a server that \
                 refuses is usually faster than one that answers";
    Some(Finding::new(Code::Errors, severity, text, means).of(sample))
}

pub fn errors(sample: &Sample) -> Option<Finding> {
    let errors = &sample.seen.errors;
    let total: u64 = errors.values().fold(0, |sum, n| sum.saturating_add(*n));
    if total == 0 {
        return None;
    }
    // k6 drops iterations, of which one may be several requests.
    let dropped = errors.get("dropped iterations").copied().filter(|_| errors.len() == 1);
    let done = match dropped.and(sample.seen.other.get("iterations")) {
        Some(iterations) => *iterations as u64,
        None => sample.seen.requests.unwrap_or(0),
    };
    // ab counts those that failed among its requests.
    let all = if sample.tool == Tool::Ab { done } else { done.saturating_add(total) };
    let share = total as f64 / all.max(1) as f64;
    // Loss is what a network test measures.
    let measured = sample.tool == Tool::Iperf3;
    let severity = if measured { Severity::Warn } else { severity_of_errors(share) };
    let told: Vec<String> = errors.iter().map(|(kind, n)| format!("{kind} {n}")).collect();
    let text = format!("{} ({:.2} % of all)", told.join(", "), share * 100.0);
    let means = match sample.tool {
        Tool::Wrk2 if errors.contains_key("timeout") => {
            "wrk2 counts connections that it finds waiting, not replies; a reply that never came is in no \
             percentile"
        }
        Tool::Wrk if errors.contains_key("timeout") => {
            "a reply that never came, or came too late, is in no percentile: the tail is longer"
        }
        Tool::Hey => "hey counts requests that failed in its rate, and not in its latencies",
        Tool::Ab => {
            "ab counts failed requests in its throughput and latencies; without -l, a reply of another length \
             than the first counts as failed"
        }
        Tool::Fortio => {
            "fortio counts calls that failed in its rate and its latencies: a failure is usually \
             faster than an answer"
        }
        Tool::K6 if errors.contains_key("dropped iterations") => {
            "iterations that were due were never begun: either the server was too slow for the \
             rate, or there were too few VUs; latencies are of those that were begun"
        }
        _ => {
            "failed requests are in neither throughput nor latencies: the variants did not do the \
             same work"
        }
    };
    Some(Finding::new(Code::Errors, severity, text, means).of(sample))
}

/// What was under way when the time was over, and is in no number.
pub fn cut_at_the_end(sample: &Sample) -> Option<Finding> {
    let cut = sample.seen.other.get("cut at the deadline").filter(|n| **n > 0.0)?;
    let text = format!("{cut} requests were under way when the time was over");
    let means =
        "oha leaves them out: they were the slowest of all, and the tail is too good by them";
    Some(Finding::new(Code::CutOff, Severity::Note, text, means).of(sample))
}

/// More requests under way than connections: for wrk a known rewriting, for others impossible.
pub fn littles_law(sample: &Sample) -> Option<Finding> {
    // Scripts of k6 send several requests at once; so do connections that are pipelined.
    if sample.tool == Tool::K6 {
        return None;
    }
    let connections = sample.connections()? * sample.asked.at_once? as f64;
    // As little as the printed digits allow.
    let rounding = sample.seen.step_ns.unwrap_or(0.0) / 2.0;
    let per_s = sample.value(Metric::Throughput)?;
    let at_once = in_flight(sample)? - per_s * rounding / 1e9;
    let text = too_many_at_once(at_once, connections, ROUNDING)?;
    // bpftime's benchmark drives wrk.
    if matches!(sample.tool, Tool::Wrk | Tool::BpftimeBenchmark) {
        let means = "wrk rewrites its latencies after the run, without saying so: it adds samples \
                     that were never measured; its mean and percentiles cannot be used (a script \
                     that pipelines requests shows the same)";
        let finding = Finding::new(Code::Corrected, Severity::Void, text, means);
        return Some(finding.only(&LATENCIES).of(sample));
    }
    if sample.tool == Tool::Wrk2 {
        let means = "wrk2 counts from when a request should have been sent: what waited for a \
                     connection is in its latencies, which are not the server's alone";
        return Some(Finding::new(Code::Corrected, Severity::Note, text, means).of(sample));
    }
    let means = format!(
        "{IMPOSSIBLE}: the latency, the throughput or the number of connections is not what it is \
         said to be"
    );
    Some(Finding::new(Code::LittlesLaw, Severity::Void, text, &means).of(sample))
}

fn in_flight(sample: &Sample) -> Option<f64> {
    let per_s = sample.value(Metric::Throughput)?;
    let mean = sample.value(Metric::LatencyMean)?;
    Some(per_s * mean / 1e9).filter(|n| n.is_finite())
}

/// A closed loop keeps every connection busy; where it does not, the client was.
pub fn few_in_flight(sample: &Sample) -> Option<Finding> {
    let (connections, at_once) = (sample.connections()?, in_flight(sample)?);
    // A rate keeps connections waiting; times printed as zero say nothing.
    if !sample.tool.is_closed_loop()
        || sample.asked.rate_per_s.is_some()
        || at_once <= 0.0
        || at_once >= connections * IN_FLIGHT_MIN
    {
        return None;
    }
    // Means leave out replies that never came, for which all others may have waited; short runs are
    // mostly beginning and end.
    let failed: u64 = sample.seen.errors.values().fold(0, |sum, n| sum.saturating_add(*n));
    if failed > 0 || sample.seen.seconds.is_none_or(|seconds| seconds < 1.0) {
        return None;
    }
    let text = format!(
        "throughput × mean latency is {at_once:.1} requests at once, of {connections} connections"
    );
    let means = "the other connections waited for the load generator, which then is what was measured, or \
                 they were being opened, or a rate was set that needs no more";
    Some(Finding::new(Code::ClientBound, Severity::Warn, text, means).of(sample))
}

/// More connections than were asked for: the server closed them.
pub fn reconnects(sample: &Sample) -> Option<Finding> {
    let (opened, asked) = (sample.seen.opened?, sample.asked.connections?);
    if sample.asked.keep == Some(false) || opened <= asked || asked == 0 {
        return None;
    }
    let text = format!("{opened} connections were opened, {asked} were asked for");
    let means = "the server closed connections that should be kept (nginx does after 1,000 \
                 requests, keepalive_requests); opening them again is in the numbers";
    Some(Finding::new(Code::Reconnects, Severity::Warn, text, means).of(sample))
}

/// By how much half of the last digit may change a sample's bytes.
fn rounding(sample: &Sample) -> f64 {
    let of = sample.seen.bytes_step.zip(sample.seen.bytes.filter(|bytes| *bytes > 0.0));
    of.map_or(0.0, |(step, bytes)| step / 2.0 / bytes)
}

/// Bytes of a reply, against the baseline's of the same case.
pub fn unequal_replies(import: &Import) -> Vec<Finding> {
    let mut found = Vec::new();
    let baselines = import.baselines();
    for group in import.groups().iter().filter(|group| group.variant != import.baseline) {
        let all = baselines.get(group.case).into_iter().flatten();
        let base = all.copied().find_map(|s| Some((s, s.reply_bytes()?)));
        let Some((base, expected)) = base.filter(|(_, bytes)| *bytes > 0.0) else { continue };
        for sample in group.samples.iter().copied() {
            let Some(own) = sample.reply_bytes().filter(|bytes| *bytes > 0.0) else { continue };
            // Bodies and whole replies do not compare.
            if sample.seen.bytes_are_bodies != base.seen.bytes_are_bodies {
                continue;
            }
            let ratio = (own / expected).max(expected / own);
            // As little as the printed digits allow.
            let rounding = (1.0 + rounding(base)) * (1.0 + rounding(sample));
            if ratio / rounding < REPLY_WARN {
                continue;
            }
            let severity =
                if ratio / rounding >= REPLY_VOID { Severity::Void } else { Severity::Warn };
            let times = if ratio >= 1.95 { format!(": {ratio:.1} times") } else { String::new() };
            let text =
                format!("{own:.0} bytes per reply, {expected:.0} in {}{times}", import.baseline);
            let means = match severity {
                Severity::Void => {
                    "the replies are not the same: another page, an error page, compression, or other \
                     headers; their throughputs do not compare"
                }
                _ => {
                    "the replies are not quite the same, perhaps by a header: throughputs may not compare"
                }
            };
            found.push(Finding::new(Code::UnequalReply, severity, text, means).of(sample));
        }
    }
    found
}
