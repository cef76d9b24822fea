//! Filters in a report: the proofs that they were active, and the predicted cost of their calls.

use tare_model::Metric;
use tare_stats::estimate::sidak;
use tare_stats::{Comparison, Estimate};

use crate::evidence::Evidence;
use crate::format::duration;
use crate::{Code, RunGuard, Severity, guard};

/// Percent by which calls alone would make a variant worse than the baseline.
pub fn predicted(evidence: &Evidence<'_>, comparison: &Comparison) -> Option<f64> {
    let baseline = evidence.question.baseline;
    let added = call_ns(evidence, comparison.variant)? - call_ns(evidence, baseline).unwrap_or(0.0);
    let base = value(evidence, baseline, Metric::ServerCpu)?;
    match comparison.metric {
        Metric::ServerCpu => Some(100.0 * added / base),
        // A server in a closed loop has no time to spare; in an open loop, throughput is the rate.
        Metric::Throughput if !evidence.plan.load.is_open() => Some(100.0 * added / (base + added)),
        _ => None,
    }
}

fn value(evidence: &Evidence<'_>, variant: usize, metric: Metric) -> Option<f64> {
    let metrics = evidence.analysis.metrics.get(variant)?;
    metrics.iter().find(|(known, _)| *known == metric).map(|(_, value)| value.point)
}

fn call_ns(evidence: &Evidence<'_>, variant: usize) -> Option<f64> {
    value(evidence, variant, Metric::FilterCall)
}

/// Whether a filter's CPU per request differs from the sum of its call and nginx's handling of a
/// module. The handling is the cost of `identity`, if there is such a variant.
pub fn unexplained(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let is_identity = |v: &usize| evidence.plan.variants[*v].filter_name() == Some("identity");
    let baseline = evidence.question.baseline;
    let reference = (0..evidence.plan.variants.len()).find(is_identity).unwrap_or(baseline);
    let found = || -> Option<RunGuard> {
        let call = call_ns(evidence, variant).filter(|_| variant != reference)?;
        let added = call - call_ns(evidence, reference).unwrap_or(0.0);
        let base = value(evidence, reference, Metric::ServerCpu)?;
        let measured = measured_ns(evidence, variant, reference, base)?;
        let slack = evidence.question.tolerance * base;
        let (lower, upper) = (measured.lower - slack, measured.upper + slack);
        if (lower..=upper).contains(&added) {
            return None;
        }
        let text = format!(
            "it takes {} to {} more CPU time per request than {}, but its calls alone would take \
             {}: the measurement includes something other than the calls",
            signed_duration(measured.lower),
            signed_duration(measured.upper),
            evidence.name(reference),
            signed_duration(added)
        );
        guard(Code::Unexplained, Severity::Warn, Some(evidence.name(variant)), text).pop()
    };
    found().into_iter().collect()
}

/// CPU per request beyond the reference's, in nanoseconds.
fn measured_ns(
    evidence: &Evidence<'_>,
    variant: usize,
    reference: usize,
    base: f64,
) -> Option<Estimate> {
    let baseline = evidence.question.baseline;
    let log_ratios: Option<Vec<f64>> = evidence
        .digests
        .iter()
        .map(|digest| {
            let of = |v: usize| match v {
                v if v == baseline => Some(0.0),
                v => digest.variants[v].log_ratio(Metric::ServerCpu),
            };
            Some(of(variant)? - of(reference)?)
        })
        .collect();
    // All filters are judged together, like all comparisons.
    let filters =
        evidence.plan.variants.iter().filter(|variant| variant.filter().is_some()).count();
    let level = sidak(evidence.question.level, filters);
    let ratio = Estimate::of_mean(&log_ratios?, level)?;
    Some(ratio.from_log().map(|ratio| (ratio - 1.0) * base))
}

fn signed_duration(ns: f64) -> String {
    let sign = if ns < 0.0 { "−" } else { "" };
    format!("{sign}{}", duration(ns.abs().round() as u64))
}
