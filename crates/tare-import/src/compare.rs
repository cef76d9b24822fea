//! What imported numbers say of each other: with an interval where there are repetitions; else the
//! two numbers, and why there is no verdict.

use serde::{Deserialize, Serialize};
use tare_model::Metric;
use tare_stats::estimate::{mean, sidak};
use tare_stats::welch::{Difference, corrected};
use tare_stats::{Estimate, Severity, Verdict};

use crate::audit::Finding;
use crate::import::Import;
use crate::sample::Sample;

/// One variant against the baseline, in one case and metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compared {
    pub case: String,
    pub baseline: String,
    pub variant: String,
    pub metric: Metric,
    /// The metric that the case is about.
    pub asked: bool,
    /// Means, where there are repetitions.
    pub baseline_value: f64,
    pub value: f64,
    /// Of the baseline and of the variant.
    pub repetitions: [u32; 2],
    /// Positive when the variant is worse.
    pub overhead_percent: f64,
    /// `None` without repetitions. All intervals of the same kind are right together at 0.95.
    pub interval: Option<Interval>,
    /// `None` where none is possible: `why` says why.
    pub verdict: Option<Verdict>,
    pub why: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    pub lower: f64,
    pub upper: f64,
    /// Its own; the family's is 0.95.
    pub level: f64,
    /// How often chance alone does as much: for this comparison by itself, and for all together.
    pub p: f64,
    pub p_corrected: f64,
}

/// Metrics that are compared; of those that say the same in other units, the first.
const METRICS: [Metric; 8] = [
    Metric::Throughput,
    Metric::Bandwidth,
    Metric::LatencyMean,
    Metric::LatencyP50,
    Metric::LatencyP90,
    Metric::LatencyP99,
    Metric::LatencyP999,
    Metric::SystemCall,
];
const LEVEL: f64 = 0.95;

/// What two variants have in one metric.
struct Pair {
    at: (String, String, Metric, bool),
    base: Vec<f64>,
    own: Vec<f64>,
}

pub fn compare(import: &Import, findings: &[Finding]) -> Vec<Compared> {
    let pairs = pairs(import);
    let family = |wanted: bool| {
        let repeated = pairs.iter().filter(|p| p.base.len() > 1 && p.own.len() > 1);
        repeated.filter(|p| p.at.3 == wanted).count()
    };
    let families = [family(false), family(true)];
    pairs
        .iter()
        .map(|pair| judged(pair, import, findings, families[usize::from(pair.at.3)]))
        .collect()
}

fn judged(pair: &Pair, import: &Import, findings: &[Finding], family: usize) -> Compared {
    let (case, variant, metric, asked) = &pair.at;
    let (base, own) = (mean(&pair.base), mean(&pair.own));
    let difference = Difference::of_log_means(&pair.base, &pair.own);
    let bounds = difference.map(|difference| {
        let estimate = difference.interval(sidak(LEVEL, family));
        let estimate = estimate.from_log().map(|ratio| metric.overhead_percent(ratio));
        (estimate, difference.p_value())
    });
    let void = findings.iter().find(|finding| {
        let own = finding.variant.as_deref().is_none_or(|v| v == variant || v == import.baseline);
        let here = finding.case.as_deref().is_none_or(|c| c == case);
        let of_metric = finding.metrics.is_empty() || finding.metrics.contains(metric);
        finding.severity == Severity::Void && own && here && of_metric
    });
    let (verdict, why) = match (void, &bounds) {
        (Some(finding), _) => {
            (Some(Verdict::Void), Some(format!("{}: {}", finding.code, finding.text)))
        }
        (None, None) => (None, Some(single(pair))),
        (None, Some((estimate, _))) => {
            // Nobody said which difference would not matter: nothing is called the same.
            (Some(Verdict::of(estimate, 0.0)), few(estimate))
        }
    };
    Compared {
        case: case.clone(),
        baseline: import.baseline.clone(),
        variant: variant.clone(),
        metric: *metric,
        asked: *asked,
        baseline_value: base,
        value: own,
        repetitions: [pair.base.len() as u32, pair.own.len() as u32],
        overhead_percent: metric.overhead_percent(own / base),
        interval: bounds.map(|(estimate, p)| Interval {
            lower: estimate.lower,
            upper: estimate.upper,
            level: estimate.level,
            p,
            p_corrected: corrected(p, family),
        }),
        verdict,
        why,
    }
}

fn single(pair: &Pair) -> String {
    match (pair.base.len(), pair.own.len()) {
        (1, 1) => "single runs".into(),
        (1, _) => "a single run of the baseline".into(),
        _ => "a single run".into(),
    }
}

fn few(estimate: &Estimate) -> Option<String> {
    let needed = tare_stats::verdict::ROUNDS_MIN;
    let n = estimate.n;
    (n < needed).then(|| format!("{n} repetitions; a verdict needs {needed}"))
}

fn pairs(import: &Import) -> Vec<Pair> {
    let mut found = Vec::new();
    let baselines = import.baselines();
    for group in import.groups().iter().filter(|group| group.variant != import.baseline) {
        let Some(base) = baselines.get(group.case) else { continue };
        let asked = METRICS.into_iter().find(|metric| !values(base, *metric).is_empty());
        for metric in METRICS {
            // What is carried follows from how many replies there are.
            let is_same = metric == Metric::Bandwidth && asked == Some(Metric::Throughput);
            let (base, own) = (values(base, metric), values(&group.samples, metric));
            if !base.is_empty() && !own.is_empty() && !is_same {
                let is_asked = Some(metric) == asked;
                let at = (group.case.to_owned(), group.variant.to_owned(), metric, is_asked);
                found.push(Pair { at, base, own });
            }
        }
    }
    found
}

/// Of all repetitions, within outputs and between them.
pub fn values(samples: &[&Sample], metric: Metric) -> Vec<f64> {
    let of = |sample: &&Sample| {
        let repeats = sample.repeats.get(metric.key()).cloned();
        repeats.unwrap_or_else(|| sample.value(metric).into_iter().collect())
    };
    samples.iter().flat_map(of).filter(|value| value.is_finite() && *value > 0.0).collect()
}
