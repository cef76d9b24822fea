//! Compares imported numbers: with an interval if there are repetitions; otherwise only the two
//! numbers, and why there is no verdict.

use serde::{Deserialize, Serialize};
use tare_guards::traffic::RATE_MET;
use tare_model::Metric;
use tare_stats::estimate::{mean, sidak};
use tare_stats::welch::{self, Difference, corrected};
use tare_stats::{Severity, Verdict};

use crate::audit::{Finding, LATENCIES};
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
    /// Whether the case is about this metric.
    pub asked: bool,
    /// The baseline's value; the mean, if there are repetitions.
    pub baseline_value: f64,
    /// The variant's value; the mean, if there are repetitions.
    pub value: f64,
    /// Repetitions of the baseline and of the variant.
    pub repetitions: [u32; 2],
    /// Positive when the variant is worse.
    pub overhead_percent: f64,
    /// `None` with too few repetitions. All intervals of the same kind (`asked` or not) together
    /// have level 0.95.
    pub interval: Option<Interval>,
    /// `None` if no verdict is possible: `why` says why.
    pub verdict: Option<Verdict>,
    pub why: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    pub lower: f64,
    pub upper: f64,
    /// The interval's own confidence level; the family's is 0.95.
    pub level: f64,
    /// P-value of this comparison by itself.
    pub p: f64,
    /// P-value corrected for all comparisons of its kind.
    pub p_corrected: f64,
}

/// Metrics that are compared; bandwidth only without throughput, from which it follows.
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

/// Fewest repetitions for an interval: with two it is too wide to say anything.
const INTERVAL_MIN: u32 = 5;

/// Why single runs have no verdict.
pub const ONE_EACH: &str = "only one run shown on each side";

/// One metric of two variants.
struct Pair {
    at: (String, String, Metric, bool),
    baseline: String,
    base: Side,
    own: Side,
}

/// The repetitions of one variant, or their mean and deviation.
struct Side {
    mean: f64,
    /// `None` for a mean of an unknown number of runs.
    n: Option<u32>,
    moments: Option<welch::Moments>,
}

impl Side {
    fn from_samples(samples: &[&Sample], metric: Metric) -> Option<Self> {
        if let [one] = samples
            && let Some(kept) = one.moments.get(metric.key())
            && !one.repeats.contains_key(metric.key())
        {
            let n = kept.n;
            let moments =
                n.map(|n| welch::Moments { mean: kept.mean, variance: kept.sd.powi(2), n });
            return (kept.mean > 0.0).then_some(Self { mean: kept.mean, n, moments });
        }
        let values = values(samples, metric);
        let moments = welch::Moments::from_values(&values);
        (!values.is_empty()).then(|| Self {
            mean: mean(&values),
            n: Some(values.len() as u32),
            moments: Some(moments),
        })
    }

    fn has_spread(&self) -> bool {
        self.n.is_some_and(|n| n >= INTERVAL_MIN)
    }
}

pub fn compare(import: &Import, findings: &[Finding]) -> Vec<Compared> {
    let pairs = pairs(import);
    let family = |wanted: bool| {
        let repeated = pairs.iter().filter(|p| p.base.has_spread() && p.own.has_spread());
        repeated.filter(|p| p.at.3 == wanted).count()
    };
    let families = [family(false), family(true)];
    pairs
        .iter()
        .map(|pair| compare_pair(pair, findings, families[usize::from(pair.at.3)]))
        .collect()
}

fn compare_pair(pair: &Pair, findings: &[Finding], family: usize) -> Compared {
    let (case, variant, metric, asked) = &pair.at;
    let (base, own) = (pair.base.mean, pair.own.mean);
    let both = pair.base.moments.zip(pair.own.moments);
    let both = both.filter(|_| pair.base.has_spread() && pair.own.has_spread());
    let difference = both.and_then(|(a, b)| Difference::of_log_moments(a, b));
    let bounds = difference.map(|difference| {
        let estimate = difference.interval(sidak(LEVEL, family));
        let estimate = estimate.from_log().map(|ratio| metric.overhead_percent(ratio));
        (estimate, difference.p_value())
    });
    let void = findings.iter().find(|finding| {
        let own = finding.variant.as_deref().is_none_or(|v| v == variant || v == pair.baseline);
        let here = finding.case.as_deref().is_none_or(|c| c == case);
        let of_metric = finding.metrics.is_empty() || finding.metrics.contains(metric);
        finding.severity == Severity::Void && own && here && of_metric
    });
    let (verdict, why) = match (void, &bounds) {
        (Some(finding), _) => {
            (Some(Verdict::Void), Some(format!("{}: {}", finding.code, finding.text)))
        }
        (None, None) => (None, Some(without_interval(pair))),
        (None, Some((estimate, _))) => {
            // The margin is zero, because no one said which differences do not matter: no verdict
            // is "same".
            (Some(Verdict::of_fixed(estimate, 0.0)), None)
        }
    };
    Compared {
        case: case.clone(),
        baseline: pair.baseline.clone(),
        variant: variant.clone(),
        metric: *metric,
        asked: *asked,
        baseline_value: base,
        value: own,
        repetitions: [pair.base.n.unwrap_or(0), pair.own.n.unwrap_or(0)],
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

fn without_interval(pair: &Pair) -> String {
    match (pair.base.n, pair.own.n) {
        (None, _) | (_, None) => "the number of runs is not stated".into(),
        (Some(1), Some(1)) => ONE_EACH.into(),
        (Some(1), _) => "only one run of the baseline is shown".into(),
        (_, Some(1)) => "only one run of the variant is shown".into(),
        (Some(a), Some(b)) => {
            format!("only {} runs (a confidence interval needs {INTERVAL_MIN} or more)", a.min(b))
        }
    }
}

fn pairs(import: &Import) -> Vec<Pair> {
    let mut found = Vec::new();
    let groups = import.groups();
    for (base_group, group) in import.pairs(&groups) {
        let base = &base_group.samples;
        let asked = asked(base, &group.samples);
        // Bandwidth follows from the number of replies.
        let has_replies = Side::from_samples(base, Metric::Throughput).is_some();
        for metric in METRICS {
            let is_same = metric == Metric::Bandwidth && has_replies;
            let sides =
                Side::from_samples(base, metric).zip(Side::from_samples(&group.samples, metric));
            if let Some((base, own)) = sides.filter(|_| !is_same) {
                let is_asked = Some(metric) == asked;
                let at = (group.case.to_owned(), group.variant.to_owned(), metric, is_asked);
                found.push(Pair { at, baseline: base_group.variant.to_owned(), base, own });
            }
        }
    }
    found
}

/// Returns the metric that two groups are about: latency, if the baseline reached its rate.
fn asked(base: &[&Sample], own: &[&Sample]) -> Option<Metric> {
    // A rate that only one of the groups states is taken for both.
    let rate = base.iter().chain(own).find_map(|sample| sample.asked.rate_per_s);
    let is_met = |sample: &&Sample| {
        let rates = sample.asked.rate_per_s.or(rate).zip(sample.value(Metric::Throughput));
        rates.is_some_and(|(asked, reached)| {
            (RATE_MET..=RATE_MET.recip()).contains(&(reached / asked))
        })
    };
    let of_both = |metric: &Metric| {
        Side::from_samples(base, *metric).is_some() && Side::from_samples(own, *metric).is_some()
    };
    let latency = LATENCIES.into_iter().find(of_both).filter(|_| base.iter().all(is_met));
    latency
        .or_else(|| METRICS.into_iter().find(|metric| Side::from_samples(base, *metric).is_some()))
}

/// Returns the number of runs behind a group's numbers, as far as it is stated.
pub fn runs(samples: &[&Sample]) -> u32 {
    let of =
        |metric: Metric| Side::from_samples(samples, metric).map_or(0, |side| side.n.unwrap_or(0));
    METRICS.into_iter().map(of).max().unwrap_or(0)
}

/// Returns the values of all repetitions: those inside an output, and separate outputs.
pub fn values(samples: &[&Sample], metric: Metric) -> Vec<f64> {
    let of = |sample: &&Sample| {
        let repeats = sample.repeats.get(metric.key()).cloned();
        repeats.unwrap_or_else(|| sample.value(metric).into_iter().collect())
    };
    samples.iter().flat_map(of).filter(|value| value.is_finite() && *value > 0.0).collect()
}
