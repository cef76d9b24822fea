//! What the shape of the numbers cannot carry: single runs, tails beyond the sample, numbers that
//! mean something else than they seem to.

use std::collections::BTreeMap;

use tare_guards::{Code, Severity};
use tare_model::Metric;

use super::{Finding, LATENCIES};
use crate::compare::runs;
use crate::import::Import;
use crate::sample::{Sample, Tool};

/// Fewer values than these beyond a percentile say nothing about it.
const BEYOND_MIN: f64 = 10.0;
/// A bucket wider than this share of a value says little about it.
const BUCKET_MAX: f64 = 0.25;
/// Fewer steps of the last printed digit than these are few to tell latencies apart by.
const STEPS: f64 = 20.0;

/// What looked like an output and was none.
pub fn unread(import: &Import) -> Vec<Finding> {
    let of = |unread: &crate::sample::Unread| {
        let means = "this output is not among the numbers";
        let mut finding = Finding::new(Code::Unread, Severity::Warn, unread.why.clone(), means);
        finding.place = Some(format!("{}:{}", unread.file, unread.line));
        finding
    };
    import.unread.iter().map(of).collect()
}

/// Percentiles that fall, and a slowest below a mean.
pub fn impossible(sample: &Sample) -> Option<Finding> {
    let ms = |ns: f64| ns / 1e6;
    let mut sorted: Vec<_> = sample.percentiles.iter().collect();
    sorted.sort_by(|a, b| a.percent.total_cmp(&b.percent));
    let fall = sorted.windows(2).find(|two| two[0].ns > two[1].ns);
    let falls = fall.map(|two| {
        let [a, b] = [two[0], two[1]];
        format!("p{} ({:.3} ms) is above p{} ({:.3} ms)", a.percent, ms(a.ns), b.percent, ms(b.ns))
    });
    let mean = sample.value(Metric::LatencyMean).unwrap_or(0.0);
    let step = sample.seen.step_ns.unwrap_or(0.0);
    let slowest = sample.seen.latency_max_ns.filter(|max| *max > 0.0 && max + step < mean * 0.999);
    let below = slowest.map(|max| {
        format!("the slowest ({:.3} ms) is below the mean ({:.3} ms)", ms(max), ms(mean))
    });
    let text = falls.or(below)?;
    let means = "no measurement gives that: a number was mistyped, or the lines are of two outputs";
    Some(Finding::new(Code::Impossible, Severity::Void, text, means).only(&LATENCIES).of(sample))
}

/// Whatever is pooled, and whatever was added up.
pub fn pooled(import: &Import) -> Vec<Finding> {
    let lines = |lines: Vec<u32>| {
        let lines: Vec<String> = lines.iter().map(u32::to_string).collect();
        lines.join(", ")
    };
    let mut found = Vec::new();
    for group in import.groups().iter().filter(|group| group.samples.len() > 1) {
        let runs = group.samples.len();
        let file = &group.samples[0].source.file;
        let at = match group.samples.iter().all(|sample| sample.source.file == *file) {
            true => format!(
                "lines {}",
                lines(group.samples.iter().map(|s| s.source.first_line).collect())
            ),
            false => group.samples.iter().map(|s| s.place()).collect::<Vec<_>>().join(", "),
        };
        let means = "they are taken as repetitions of one variant; if they are not, name them apart: \
                     --as FILE:LINE=NAME";
        let text = format!("{runs} runs are pooled ({at})");
        let mut finding =
            Finding::new(Code::Pooled, Severity::Note, text, means).of(group.samples[0]);
        finding.place = Some(file.clone());
        found.push(finding);
    }
    for sample in import.samples.iter().filter(|sample| !sample.added.is_empty()) {
        let text = format!(
            "{} outputs of processes that ran at once are added up (lines {})",
            sample.added.len(),
            lines(sample.added.clone())
        );
        let means = "rates and counts are their sum, the mean is of all requests; percentiles of \
                     several processes cannot be put together";
        found.push(Finding::new(Code::Pooled, Severity::Note, text, means).of(sample));
    }
    found
}

pub fn beyond_the_sample(sample: &Sample) -> Option<Finding> {
    let requests = sample.seen.requests.filter(|n| *n > 0)? as f64;
    let lacking = |percent: f64| requests * (1.0 - percent / 100.0) < BEYOND_MIN - 1e-6;
    let beyond = sample.percentiles.iter().filter(|p| p.percent < 100.0 && lacking(p.percent));
    let lowest = beyond.map(|p| p.percent).fold(f64::INFINITY, f64::min);
    if !lowest.is_finite() {
        return None;
    }
    let text = format!(
        "p{lowest} of {requests} requests rests on about {:.0} of them",
        requests * (1.0 - lowest / 100.0)
    );
    let means = "from that percentile on, the tail is a handful of requests: run longer, or leave \
                 it out";
    let finding = Finding::new(Code::FewSamples, Severity::Note, text, means);
    Some(finding.of(sample))
}

/// A rate is known no better than the time it was taken over.
pub fn coarse_clock(sample: &Sample) -> Option<Finding> {
    let (step, seconds) = (sample.seen.clock_s?, sample.seen.seconds?);
    let percent = step / seconds * 100.0;
    let text = format!("its time stamps are whole seconds: {seconds:.0} s to ± {percent:.1} %");
    let means = "the rate is computed from them and is no more precise; latencies are not affected";
    let severity = if percent > 2.0 { Severity::Warn } else { Severity::Note };
    let finding = Finding::new(Code::Coarse, severity, text, means);
    Some(finding.only(&[Metric::Throughput]).of(sample))
}

/// Buckets and whole milliseconds.
pub fn coarse(sample: &Sample) -> Option<Finding> {
    let highest = sample.percentiles.iter().filter(|p| p.percent < 100.0).map(|p| p.ns);
    let highest = highest.fold(0.0, f64::max);
    let bucket = sample.seen.bucket_of_percent.zip(sample.seen.bucket_ns);
    let too_wide = bucket.and_then(|(percent, bucket)| {
        let of = sample.percentiles.iter().find(|p| p.percent == percent)?;
        (bucket > of.ns * BUCKET_MAX).then_some((of, bucket))
    });
    let (text, means) = match (sample.tool, too_wide) {
        (Tool::Fortio, Some((of, bucket))) => (
            format!(
                "p{} ({:.3} ms) lies in a bucket {:.3} ms wide",
                of.percent,
                of.ns / 1e6,
                bucket / 1e6
            ),
            "fortio draws a straight line inside its buckets: percentiles in a wide one are made \
             up (-r makes them narrower)",
        ),
        (Tool::Ab, _) if !sample.percentiles.is_empty() && highest < 10e6 => (
            format!("percentiles in whole milliseconds, up to {:.0} ms", highest / 1e6),
            "ab prints whole milliseconds: what lies below, or differs by less, cannot be seen (its \
             'Time per request' is no measurement, but its throughput turned round)",
        ),
        _ => {
            let step =
                sample.seen.step_ns.filter(|step| highest > 0.0 && highest < step * STEPS)?;
            let text =
                format!("latencies in steps of {} ms, up to {:.3} ms", step / 1e6, highest / 1e6);
            (text, "its output is no finer: smaller differences cannot be seen")
        }
    };
    Some(Finding::new(Code::Coarse, Severity::Note, text, means).of(sample))
}

pub fn half_round_trip(sample: &Sample) -> Option<Finding> {
    if sample.tool != Tool::Qperf || sample.value(Metric::LatencyMean).is_none() {
        return None;
    }
    let text = "its latency is the mean of half a round trip".to_owned();
    let means = "double it to compare with ping, netperf or sockperf; a mean hides the tail, and a \
                 lost datagram stops the clock until the test's end";
    Some(Finding::new(Code::HalfRoundTrip, Severity::Note, text, means).of(sample))
}

/// k6's duration leaves connecting and TLS out.
pub fn left_out(sample: &Sample) -> Option<Finding> {
    let left_out = sample.seen.left_out_ns?;
    let mean = sample.value(Metric::LatencyMean)?;
    if left_out < mean * 0.05 {
        return None;
    }
    let text = format!(
        "{:.3} ms a request on average went by before its {:.3} ms began to count",
        left_out / 1e6,
        mean / 1e6
    );
    let means = "k6's http_req_duration leaves out waiting for a connection, connecting and TLS \
                 (http_req_blocked): what a user waits is the sum";
    Some(Finding::new(Code::LeftOut, Severity::Warn, text, means).of(sample))
}

/// Said once for the whole import where nothing was repeated.
pub fn single_runs(import: &Import) -> Vec<Finding> {
    let mut most: BTreeMap<&str, u32> = BTreeMap::new();
    for group in import.groups() {
        // Of tables and summaries nobody knows how many runs are behind them.
        if group.samples.iter().any(|s| matches!(s.tool, Tool::Table | Tool::Summary)) {
            continue;
        }
        let known = most.entry(group.variant).or_default();
        *known = (*known).max(runs(&group.samples));
    }
    let variants = import.variants().into_iter();
    let single: Vec<&str> = variants.filter(|variant| most.get(variant) == Some(&1)).collect();
    if single.is_empty() {
        return Vec::new();
    }
    const SHOWN: usize = 8;
    let more = if single.len() > SHOWN { ", …" } else { "" };
    let shown: Vec<String> = single.iter().take(SHOWN).map(|name| format!("'{name}'")).collect();
    let text = match single.len() {
        n if n == import.variants().len() => "one run of every variant is shown".to_owned(),
        1 => format!("one run of {} is shown", shown[0]),
        n => format!("one run is shown of each of {n} variants: {}{more}", shown.join(", ")),
    };
    let means = "a restart alone often moves results by several percent, and one run cannot show by \
                 how much: there is no interval and no verdict";
    vec![Finding::new(Code::SingleRun, Severity::Warn, text, means)]
}

/// Repetitions are worth what their order is worth.
pub fn one_after_another(import: &Import) -> Vec<Finding> {
    let repeated = import.samples.iter().any(|s| !s.repeats.is_empty() || !s.moments.is_empty())
        || import.groups().iter().any(|group| group.samples.len() > 1);
    if !repeated || import.variants().len() < 2 {
        return Vec::new();
    }
    let text = "the runs are taken as independent";
    let means = "nothing says that variants took turns: drift between their runs would look like a \
                 difference between them";
    vec![Finding::new(Code::Sequential, Severity::Note, text.into(), means)]
}

/// Numbers that agree to the last digit were not measured twice.
pub fn copies(import: &Import) -> Vec<Finding> {
    let mut seen: BTreeMap<(u64, u64, u64), &Sample> = BTreeMap::new();
    let mut found = Vec::new();
    for sample in &import.samples {
        let value = |metric| sample.value(metric).filter(|value| *value > 0.0).map(f64::to_bits);
        let (per_s, mean) = (value(Metric::Throughput), value(Metric::LatencyMean));
        let (Some(per_s), Some(mean), Some(requests)) = (per_s, mean, sample.seen.requests) else {
            continue;
        };
        let first = *seen.entry((per_s, mean, requests)).or_insert(sample);
        if !std::ptr::eq(first, sample) {
            let text = format!("has the same numbers as the output at {}", first.place());
            let means = "two measurements never agree to the last digit: one was pasted twice, and \
                         is of one of them at most";
            let severity = match first.variant == sample.variant {
                true => Severity::Warn,
                false => Severity::Void,
            };
            found.push(Finding::new(Code::SameOutput, severity, text, means).of(sample));
        }
    }
    found
}

/// Points of a sweep that the others lack.
pub fn without_partner(import: &Import) -> Vec<Finding> {
    if import.variants().len() < 2 || import.cases().len() < 2 {
        return Vec::new();
    }
    let mut of_case: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for group in import.groups() {
        of_case.entry(group.case).or_default().push(group.variant);
    }
    let lonely = of_case.iter().filter(|(_, variants)| {
        !variants.contains(&import.baseline.as_str()) || variants.len() < 2
    });
    let told = lonely.map(|(case, variants)| match case.is_empty() {
        true => variants.join(", "),
        false => format!("{case} ({})", variants.join(", ")),
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() {
        return Vec::new();
    }
    const SHOWN: usize = 5;
    let more = match told.len() {
        n if n > SHOWN => format!(" and {} more", n - SHOWN),
        _ => String::new(),
    };
    let shown: Vec<&str> = told.iter().take(SHOWN).map(String::as_str).collect();
    let shown = shown.join("; ");
    let text = format!("not compared: {shown}{more}");
    let means = "the baseline, or every other variant, has no output for that rate, number of \
                 connections, message size or row";
    vec![Finding::new(Code::NoPartner, Severity::Warn, text, means)]
}
