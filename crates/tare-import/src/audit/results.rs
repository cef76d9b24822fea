//! Mistakes that the results themselves show.

use tare_guards::traffic::{IMPOSSIBLE, littles_law_violation, severity_of_errors};
use tare_guards::{Code, Severity};
use tare_model::Metric;

use super::{Finding, LATENCIES};
use crate::import::Import;
use crate::sample::{CHECKS_FAILED, DOUBTS, Sample, Tool};

/// Tolerance for the rounding of printed numbers.
const ROUNDING: f64 = 1.01;
/// A closed loop with a smaller share of busy connections was held up by something else.
const IN_FLIGHT_MIN: f64 = 0.6;
/// Reply sizes that differ by a greater factor void the comparison.
const REPLY_VOID: f64 = 1.10;
/// Reply sizes that differ by a greater factor cause a warning.
const REPLY_WARN: f64 = 1.01;

const COUNTED: &str = "counts them in its requests/s and its latencies";
const REFUSED: &str = "refusing is usually faster than answering";

/// Headers alone do not differ by more bytes than this.
const HEADERS: f64 = 200.0;
const NOT_THE_SAME: &str = "the replies differ (another page, an error page, compression), so their \
                            throughputs are not comparable";
const MAY_DIFFER: &str = "the replies differ a little: throughputs may not be comparable";
const MAY_BE_HEADERS: &str = "headers alone may account for it; if the bodies differ, throughputs are not \
                              comparable";

fn times(a: f64, b: f64) -> f64 {
    if a == b { 1.0 } else { (a / b).max(b / a) }
}

/// Reports error statuses, which all of these tools count as completed requests.
pub fn bad_status(sample: &Sample) -> Option<Finding> {
    let bad = sample.seen.bad_status.filter(|n| *n > 0)?;
    let share = bad as f64 / sample.seen.requests.unwrap_or(bad).max(1) as f64;
    // A script may expect an error status, and check for it.
    let is_expected = sample.seen.other.get(CHECKS_FAILED) == Some(&0.0);
    let severity = if is_expected { Severity::Warn } else { severity_of_errors(share) };
    let share = share * 100.0;
    let tool = sample.tool.name();
    let (text, means) = match sample.tool {
        Tool::K6 if is_expected => (
            "requests failed or had",
            "all of the script's checks passed: it may expect these".into(),
        ),
        Tool::K6 => ("requests failed or had", format!("{tool} {COUNTED}")),
        _ if bad == 1 => ("reply has", format!("{tool} {COUNTED}; {REFUSED}")),
        _ => ("replies have", format!("{tool} {COUNTED}; {REFUSED}")),
    };
    let text = format!("{bad} {text} an error status ({share:.2} % of all)");
    Some(Finding::new(Code::Errors, severity, text, &means).about(sample))
}

/// Reports failed requests, the largest shares first.
pub fn all_errors(import: &Import) -> Vec<Finding> {
    let mut all: Vec<(f64, Finding)> = import.samples.iter().filter_map(errors).collect();
    all.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    all.into_iter().map(|(_, finding)| finding).collect()
}

fn errors(sample: &Sample) -> Option<(f64, Finding)> {
    let errors = &sample.seen.errors;
    let total: u64 = errors.values().fold(0, |sum, n| sum.saturating_add(*n));
    if total == 0 {
        return None;
    }
    // k6 drops iterations, and one may be several requests.
    let dropped = errors.get("dropped iterations").copied().filter(|_| errors.len() == 1);
    let done = match dropped.and(sample.seen.other.get("iterations")) {
        Some(iterations) => *iterations as u64,
        None => sample.seen.requests.unwrap_or(0),
    };
    // ab counts failed requests as complete.
    let all = if sample.tool == Tool::Ab { done } else { done.saturating_add(total) };
    let share = total as f64 / all.max(1) as f64;
    // Lost datagrams are a result of a network test, not a fault.
    let measured = sample.tool == Tool::Iperf3;
    // Pages may vary in length.
    let is_length = sample.tool == Tool::Ab && errors.keys().all(|kind| kind == "length");
    let severity = if measured || is_length { Severity::Warn } else { severity_of_errors(share) };
    // Error pages have other lengths; their status is reported already.
    if is_length && sample.seen.bad_status.is_some_and(|n| n >= total / 2) {
        return None;
    }
    if is_length {
        let text = format!(
            "{total} replies differ in length from the first ({:.2} % of all)",
            share * 100.0
        );
        let means = "ab calls them failed (without -l), and counts them like the others: that is harmless \
                     where the page's length varies";
        return Some((share, Finding::new(Code::Errors, severity, text, means).about(sample)));
    }
    let told: Vec<String> = errors.iter().map(|(kind, n)| format!("{n} × {kind}")).collect();
    let text = match sample.tool {
        Tool::Wrk2 if errors.keys().all(|kind| kind == "timeout") => told.join(", "),
        _ => format!("{} ({:.2} % of all)", told.join(", "), share * 100.0),
    };
    let means = match sample.tool {
        Tool::Wrk2 if errors.contains_key("timeout") => {
            "wrk2 looks at intervals, and counts each connection that has waited too long, the same one again \
             each time: this is not a number of requests; those never answered are missing from the \
             percentiles"
        }
        Tool::Wrk if errors.contains_key("timeout") => {
            "requests that were never answered, or too late, are missing from the percentiles: the tail is \
             longer than it looks"
        }
        Tool::Hey => "hey includes failed requests in its requests/s, but not in its latencies",
        Tool::Ab => {
            "ab counts failed requests in its throughput and latencies; without -l, a reply whose length \
             differs from the first one's counts as failed"
        }
        Tool::Fortio => {
            "fortio counts calls that failed in its rate and its latencies: a failure is usually \
             faster than an answer"
        }
        Tool::K6 if errors.contains_key("dropped iterations") => {
            "iterations that were due were never started: either the server was too slow for the \
             rate, or there were too few VUs; latencies cover only those that started"
        }
        _ => {
            "failed requests are in neither throughput nor latencies: the variants did not do the \
             same work"
        }
    };
    Some((share, Finding::new(Code::Errors, severity, text, means).about(sample)))
}

/// Reports ab's own warning, for which it compares means with medians.
pub fn doubts_itself(sample: &Sample) -> Option<Finding> {
    sample.seen.other.get(DOUBTS)?;
    let text = "ab itself says that its results are probably not reliable";
    let means = "ab says so where a mean and a median (of connecting, processing or waiting) are more than \
                 a standard deviation apart";
    Some(Finding::new(Code::Unstable, Severity::Warn, text.into(), means).about(sample))
}

/// Reports requests in flight at the deadline, which are in no number.
pub fn cut_at_the_end(sample: &Sample) -> Option<Finding> {
    let cut = sample.seen.other.get("cut at the deadline").filter(|n| **n > 0.0)?;
    let text = format!("{cut} requests were under way when the time was over");
    let means =
        "oha leaves them out: they were the slowest of all, and the tail is too good by them";
    Some(Finding::new(Code::CutOff, Severity::Note, text, means).about(sample))
}

/// Reports more requests in flight than connections: a known correction in wrk, else impossible.
pub fn littles_law(sample: &Sample) -> Option<Finding> {
    // k6 scripts may send several requests at once, and so may pipelined connections.
    if sample.tool == Tool::K6 {
        return None;
    }
    let connections = sample.connections()? * sample.asked.at_once? as f64;
    // The smallest mean that the printed digits allow.
    let rounding = sample.seen.step_ns.unwrap_or(0.0) / 2.0;
    let per_s = sample.value(Metric::Throughput)?;
    let at_once = in_flight(sample)? - per_s * rounding / 1e9;
    let text = littles_law_violation(at_once, connections, ROUNDING)?;
    // bpftime's benchmark drives wrk.
    if matches!(sample.tool, Tool::Wrk | Tool::BpftimeBenchmark) {
        let means = "wrk rewrites its latencies after the run, without saying so: it adds samples \
                     that were never measured; its mean and percentiles cannot be used (a script \
                     that pipelines requests shows the same)";
        let finding = Finding::new(Code::Corrected, Severity::Void, text, means);
        return Some(finding.only(&LATENCIES).about(sample));
    }
    if sample.tool == Tool::Wrk2 {
        let means = "wrk2 counts from when a request should have been sent: what waited for a \
                     connection is in its latencies, which are not the server's alone";
        return Some(Finding::new(Code::Corrected, Severity::Note, text, means).about(sample));
    }
    let means = format!(
        "{IMPOSSIBLE}: the latency, the throughput or the number of connections is not what it is \
         said to be"
    );
    Some(Finding::new(Code::LittlesLaw, Severity::Void, text, &means).about(sample))
}

fn in_flight(sample: &Sample) -> Option<f64> {
    let per_s = sample.value(Metric::Throughput)?;
    let mean = sample.value(Metric::LatencyMean)?;
    Some(per_s * mean / 1e9).filter(|n| n.is_finite())
}

/// Reports a closed loop that did not keep its connections busy: the client may be the limit.
pub fn few_in_flight(sample: &Sample) -> Option<Finding> {
    let (connections, at_once) = (sample.connections()?, in_flight(sample)?);
    // With a rate, connections may wait; times printed as zero say nothing.
    if !sample.tool.is_closed_loop()
        || sample.asked.rate_per_s.is_some()
        || at_once <= 0.0
        || at_once >= connections * IN_FLIGHT_MIN
    {
        return None;
    }
    // Means leave out replies that never came, for which connections waited; short runs are mostly
    // start and end.
    let failed: u64 = sample.seen.errors.values().fold(0, |sum, n| sum.saturating_add(*n));
    if failed > 0 || sample.seen.seconds.is_none_or(|seconds| seconds < 1.0) {
        return None;
    }
    let text = format!(
        "on average, only {at_once:.1} of {connections} connections had a request in flight (throughput × \
         mean latency)"
    );
    let means = "possible causes: a fixed rate that needs no more connections, connections that the server \
                 closed or left waiting, or a load generator that was itself the limit";
    Some(Finding::new(Code::ClientBound, Severity::Warn, text, means).about(sample))
}

/// Reports more connections opened than requested: the server closed some.
pub fn reconnects(sample: &Sample) -> Option<Finding> {
    let (opened, asked) = (sample.seen.opened?, sample.asked.connections?);
    if sample.asked.keep == Some(false) || opened <= asked || asked == 0 {
        return None;
    }
    let text = format!("{opened} connections were opened, {asked} were asked for");
    let means = "the server closed connections that should be kept (by default, nginx does after 1,000 requests, Apache after 100); opening them again is in the numbers";
    Some(Finding::new(Code::Reconnects, Severity::Warn, text, means).about(sample))
}

/// Returns the relative rounding error of a sample's bytes: half a unit of the last digit.
fn rounding(sample: &Sample) -> f64 {
    let of = sample.seen.bytes_step.zip(sample.seen.bytes.filter(|bytes| *bytes > 0.0));
    of.map_or(0.0, |(step, bytes)| step / 2.0 / bytes)
}

/// Compares the reply size with the baseline's in the same case.
pub fn unequal_replies(import: &Import) -> Vec<Finding> {
    let mut found = Vec::new();
    let groups = import.groups();
    for (base_group, group) in import.pairs(&groups) {
        let base = base_group.samples.iter().copied().find_map(|s| Some((s, s.reply_bytes()?)));
        let Some((base, expected)) = base.filter(|(_, bytes)| *bytes > 0.0) else { continue };
        for sample in group.samples.iter().copied() {
            let Some(own) = sample.reply_bytes().filter(|bytes| *bytes > 0.0) else { continue };
            // Sizes of bodies and of whole replies are not comparable.
            if sample.seen.bytes_are_bodies != base.seen.bytes_are_bodies {
                continue;
            }
            // The smallest ratio that the printed digits allow.
            let rounding = (1.0 + rounding(base)) * (1.0 + rounding(sample));
            let ratio = times(own, expected) / rounding;
            if ratio < REPLY_WARN {
                continue;
            }
            let bodies = sample.body_bytes().zip(base.body_bytes());
            let (severity, means) = match bodies.map(|(own, base)| times(own, base)) {
                Some(bodies) if bodies < REPLY_WARN => (
                    Severity::Note,
                    "the bodies have the same length; the rest differs, such as headers",
                ),
                Some(bodies) if bodies < REPLY_VOID => (Severity::Warn, MAY_DIFFER),
                None if (own - expected).abs() < HEADERS => (Severity::Warn, MAY_BE_HEADERS),
                _ if ratio < REPLY_VOID => (Severity::Warn, MAY_DIFFER),
                _ => (Severity::Void, NOT_THE_SAME),
            };
            let ratio = times(own, expected);
            let many = if ratio >= 1.95 { format!(": {ratio:.1} times") } else { String::new() };
            let text = format!(
                "{own:.0} bytes per reply; '{}' had {expected:.0}{many}",
                base_group.variant
            );
            found.push(Finding::new(Code::UnequalReply, severity, text, means).about(sample));
        }
    }
    found
}
