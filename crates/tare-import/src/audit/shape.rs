//! Conclusions that the numbers do not support: from single runs, from tails beyond the sample,
//! from numbers that mean something else than they seem to.

use std::collections::BTreeMap;

use tare_guards::{Code, Severity};
use tare_model::Metric;

use super::{Finding, LATENCIES};
use crate::compare::runs;
use crate::import::{Group, Import};
use crate::sample::{Sample, Tool};

/// With fewer values beyond it, a percentile says nothing.
const BEYOND_MIN: f64 = 10.0;
/// A bucket wider than this share of a value says little about it.
const BUCKET_MAX: f64 = 0.25;
/// Latencies below this many units of the last printed digit are coarse.
const STEPS: f64 = 20.0;

/// Reports what looked like an output but could not be read.
pub fn unread(import: &Import) -> Vec<Finding> {
    let of = |unread: &crate::sample::Unread| {
        let means = "this output is not among the numbers";
        let mut finding = Finding::new(Code::Unread, Severity::Warn, unread.why.clone(), means);
        finding.place = Some(format!("{}:{}", unread.file, unread.line));
        finding
    };
    import.unread.iter().map(of).collect()
}

/// Reports percentiles that fall, and a maximum below the mean.
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
    let (text, means) = match (falls, below) {
        (Some(text), _) => (
            text,
            "percentiles cannot fall: a number was mistyped, or the lines are of two outputs",
        ),
        (None, Some(text)) => (
            text,
            "no mean is above all it is of: a number was mistyped, or the lines are of two outputs",
        ),
        (None, None) => return None,
    };
    Some(Finding::new(Code::Impossible, Severity::Void, text, means).only(&LATENCIES).about(sample))
}

/// Reports outputs that are pooled.
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
        let means = "each figure shown is the mean of the runs that give it, percentiles included; if the runs are not \
                     repetitions of one variant, give them different names: --as FILE:LINE=NAME";
        let text = format!("{runs} runs are combined ({at})");
        let mut finding =
            Finding::new(Code::Pooled, Severity::Note, text, means).about(group.samples[0]);
        finding.place = Some(file.clone());
        found.push(finding);
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
        "only about {:.0} of {requests} requests took longer than p{lowest}",
        requests * (1.0 - lowest / 100.0)
    );
    let means = "such a percentile changes from run to run: do not quote it without a longer run";
    let finding = Finding::new(Code::FewSamples, Severity::Note, text, means);
    Some(finding.about(sample))
}

/// Reports a rate if its duration was measured in coarse steps.
pub fn coarse_clock(sample: &Sample) -> Option<Finding> {
    let (step, seconds) = (sample.seen.clock_s?, sample.seen.seconds?);
    let percent = step / seconds * 100.0;
    let text = format!("its time stamps are whole seconds: {seconds:.0} s to ± {percent:.1} %");
    let means = "the rate is computed from them and is no more precise; latencies are not affected";
    let severity = if percent > 2.0 { Severity::Warn } else { Severity::Note };
    let finding = Finding::new(Code::Coarse, severity, text, means);
    Some(finding.only(&[Metric::Throughput]).about(sample))
}

/// Reports latencies from wide buckets or with few printed digits.
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
                "percentiles are estimates from wide buckets: p{} ({:.3} ms) lies in one {:.3} ms wide",
                of.percent,
                of.ns / 1e6,
                bucket / 1e6
            ),
            "fortio interpolates within its buckets; a smaller -r makes them narrower",
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
    Some(Finding::new(Code::Coarse, Severity::Note, text, means).about(sample))
}

pub fn half_round_trip(sample: &Sample) -> Option<Finding> {
    if sample.tool != Tool::Qperf || sample.value(Metric::LatencyMean).is_none() {
        return None;
    }
    let text = "its latency is the mean of half a round trip".to_owned();
    let means = "double it to compare with ping, netperf or sockperf; a mean hides the tail, and a \
                 lost datagram stops the clock until the test's end";
    Some(Finding::new(Code::HalfRoundTrip, Severity::Note, text, means).about(sample))
}

/// Reports the time that k6's duration leaves out: connecting and TLS.
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
    Some(Finding::new(Code::LeftOut, Severity::Warn, text, means).about(sample))
}

/// Reports results of one run, once for the whole import.
pub fn single_runs(import: &Import) -> Vec<Finding> {
    // The number of runs behind tables and summaries is not known.
    let is_known = |group: &Group| {
        !group.samples.iter().any(|s| matches!(s.tool, Tool::Table | Tool::Summary))
    };
    let groups = import.groups();
    let single: Vec<String> = groups
        .iter()
        .filter(|group| is_known(group) && runs(&group.samples) == 1)
        .map(|group| within(group.case, group.variant))
        .collect();
    if single.is_empty() {
        return Vec::new();
    }
    const SHOWN: usize = 8;
    let more = if single.len() > SHOWN { ", …" } else { "" };
    let shown: Vec<&str> = single.iter().take(SHOWN).map(String::as_str).collect();
    let text = match single.len() {
        n if n == groups.len() => "only one run of every variant is shown".to_owned(),
        1 => format!("only one run of {} is shown", shown[0]),
        n => {
            let all = groups.len();
            format!("{n} of the {all} results show only one run: {}{more}", shown.join(", "))
        }
    };
    let by_line = import.samples.iter().any(|sample| sample.by_line);
    let text = match by_line {
        true => format!("{text}, as far as the document shows which outputs are repetitions"),
        false => text,
    };
    let means = "results often shift by several percent when a server is restarted; one run cannot \
                 show by how much, so there is no interval and no verdict";
    vec![Finding::new(Code::SingleRun, Severity::Warn, text, means)]
}

/// Formats as "'nginx' (Scenario 2)".
fn within(case: &str, variant: &str) -> String {
    match case.is_empty() {
        true => format!("'{variant}'"),
        false => format!("'{variant}' ({case})"),
    }
}

/// Reports repetitions of several variants that may not have taken turns.
pub fn one_after_another(import: &Import) -> Vec<Finding> {
    let repeated = import.samples.iter().any(|s| !s.repeats.is_empty() || !s.moments.is_empty())
        || import.groups().iter().any(|group| group.samples.len() > 1);
    if !repeated || import.variants().len() < 2 {
        return Vec::new();
    }
    let text = "nothing shows that the variants' runs took turns";
    let means = "if conditions on the machine changed between them, that would look like a difference \
                 between the variants";
    vec![Finding::new(Code::Sequential, Severity::Note, text.into(), means)]
}

/// Reports outputs with the same numbers: two measurements hardly ever agree to the last digit.
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
            let means = "two measurements hardly ever agree to the last digit: one output was pasted \
                         twice, and belongs to one of them at most";
            let severity = match first.variant == sample.variant {
                true => Severity::Warn,
                false => Severity::Void,
            };
            found.push(Finding::new(Code::SameOutput, severity, text, means).about(sample));
        }
    }
    found
}

/// Reports cases that only one variant has.
pub fn without_partner(import: &Import) -> Vec<Finding> {
    if import.variants().len() < 2 || import.cases().len() < 2 {
        return Vec::new();
    }
    let mut of_case: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for group in import.groups() {
        of_case.entry(group.case).or_default().push(group.variant);
    }
    let lonely = of_case.iter().filter(|(_, variants)| variants.len() < 2);
    let told = lonely.map(|(case, variants)| within(case, variants[0]));
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
    let text = format!("nothing to compare with: {shown}{more}");
    let means = "no other result has the same test, rate, connections, message size and table row";
    vec![Finding::new(Code::NoPartner, Severity::Warn, text, means)]
}
