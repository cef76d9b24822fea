//! A round reduced to what inference needs: for each variant and metric one value, and one log
//! ratio to the baseline.

use std::collections::BTreeMap;

use tare_model::metric::{Basis, Observed};
use tare_model::samples::{Counts, Launch, MachineUse, Round, Series, Slice};
use tare_model::sustained::{Sustained, WarmUp};
use tare_model::usage::Usage;
use tare_model::{Distribution, Metric};

use crate::estimate::{trimmed_mean, trimmed_variance};
use crate::sustained::Courses;
use crate::weighted;

/// The share of cycles cut off at each end before their mean is taken.
pub const TRIM: f64 = 0.2;

/// One round, digested.
#[derive(Clone, Debug)]
pub struct RoundDigest {
    pub index: u32,
    pub cycles: u32,
    pub started_unix_ms: u64,
    pub elapsed_ns: u64,
    pub machine: MachineUse,
    /// Warm-ups of the launches that were loaded cold.
    pub warm_ups: Vec<WarmUp>,
    pub variants: Vec<VariantRound>,
}

/// One variant's part of a round.
#[derive(Clone, Debug, Default)]
pub struct VariantRound {
    pub launch: Option<Launch>,
    pub counts: Counts,
    /// Usage without ramps, as far as their cost is known.
    pub used: Option<Usage>,
    /// The number of replies that this usage covers.
    pub replies_charged: u64,
    /// Sum over slices of the window and the longest latency, for Little's law: the latency of a
    /// request in flight when the window opened may reach that far back.
    pub littles_law_slack_ns: u64,
    /// Latencies merged over the round.
    pub latencies: Vec<(Series, Distribution)>,
    /// Value of each metric, indexed as [`Metric::ALL`].
    pub values: Vec<Option<f64>>,
    /// The log ratio to the baseline, or the logarithm of a single variant's value; indexed as
    /// [`Metric::ALL`].
    pub log_ratios: Vec<Option<f64>>,
    /// The variance of each log ratio from the round's own cycles, if the metric has cycles;
    /// indexed as [`Metric::ALL`].
    pub variances: Vec<Option<f64>>,
}

impl RoundDigest {
    /// How long the slowest variant took to warm up.
    pub fn warm_ns(&self) -> u64 {
        self.warm_ups.iter().map(|warm| warm.ns).max().unwrap_or(0)
    }
}

impl VariantRound {
    pub fn value(&self, metric: Metric) -> Option<f64> {
        self.values[metric as usize]
    }

    pub fn log_ratio(&self, metric: Metric) -> Option<f64> {
        self.log_ratios[metric as usize]
    }

    pub fn observed(&self) -> Observed<'_> {
        Observed {
            counts: &self.counts,
            used: self.used.clone(),
            paid: self.replies_charged,
            latencies: &self.latencies,
            launch: self.launch.as_ref(),
        }
    }

    pub fn latency(&self, series: Series) -> Option<&Distribution> {
        self.latencies.iter().find(|(kind, _)| *kind == series).map(|(_, found)| found)
    }

    /// The log ratio with its precision from the round's own cycles; without that, the round counts
    /// like the median round.
    pub fn weighable(&self, metric: Metric, cycles: u32) -> Option<weighted::Round> {
        let value = self.log_ratio(metric)?;
        let Some(variance) = self.variances[metric as usize] else {
            return Some(weighted::Round::from_value(value));
        };
        let kept = cycles - 2 * (f64::from(cycles) * TRIM) as u32;
        Some(weighted::Round { value, variance, degrees: (f64::from(kept) - 1.0).max(1.0) })
    }
}

/// Digests `round` of `variants` variants. If the run was killed during a cycle, slices without a
/// counterpart of another variant count in totals, but have no pair.
pub fn digest(round: &Round, variants: usize, baseline: usize) -> RoundDigest {
    let mut found: Vec<VariantRound> =
        (0..variants).map(|variant| totals(round, variant)).collect();
    for variant in 0..variants {
        let against = (variants > 1).then_some(baseline);
        let pairs = pairs(round, variant, against);
        for metric in Metric::ALL {
            let base = against.map(|baseline| &found[baseline]);
            let (ratio, variance) = log_ratio(metric, &pairs, &found[variant], base);
            found[variant].log_ratios.push(ratio);
            found[variant].variances.push(variance);
        }
    }
    let loads = round.launches.iter().filter_map(|launch| launch.load.sustained.as_ref());
    let cold: Vec<&Sustained> = loads.filter(|load| load.cold).collect();
    RoundDigest {
        warm_ups: Courses::from_loads(&cold).warm_ups(),
        index: round.index,
        cycles: round.cycles,
        started_unix_ms: round.started_unix_ms,
        elapsed_ns: round.elapsed_ns,
        machine: round.machine.clone(),
        variants: found,
    }
}

fn totals(round: &Round, variant: usize) -> VariantRound {
    let launch = round.launches.iter().find(|launch| launch.variant as usize == variant).cloned();
    let mut total = VariantRound { launch, ..VariantRound::default() };
    for slice in round.slices.iter().filter(|slice| slice.variant as usize == variant) {
        total.counts.accumulate(&slice.counts);
        let (used, paid) = use_of(slice, total.launch.as_ref());
        total.replies_charged += paid;
        total.used = together(total.used.take(), used);
        let sent = slice.latency(Series::FromSent).or(slice.latency(Series::Headline));
        total.littles_law_slack_ns += slice.counts.window_ns + sent.map_or(0, Distribution::max_ns);
        for (series, distribution) in &slice.latencies {
            match total.latencies.iter_mut().find(|(kind, _)| kind == series) {
                Some((_, merged)) => merged.merge(distribution),
                None => total.latencies.push((*series, distribution.clone())),
            }
        }
    }
    total.values = Metric::ALL.map(|metric| metric.number(&total.observed())).to_vec();
    total
}

/// The sum of those usages that are known.
pub(crate) fn together(sum: Option<Usage>, more: Option<Usage>) -> Option<Usage> {
    match (sum, more) {
        (Some(sum), Some(more)) => Some(sum.plus(&more)),
        (sum, more) => sum.or(more),
    }
}

/// Usage of a slice, without its ramp if possible, and the number of replies that it covers.
fn use_of(slice: &Slice, launch: Option<&Launch>) -> (Option<Usage>, u64) {
    let answered = slice.counts.answered;
    let ramps = launch.and_then(|launch| launch.load.ramps.as_ref());
    match slice.used.as_ref().zip(ramps) {
        Some((used, ramps)) => {
            let (used, paid) = ramps.taken_from(used, answered);
            (Some(used), paid)
        }
        None => (slice.used.clone(), answered),
    }
}

/// A slice's counts, for metrics that are compared within cycles.
pub fn observed<'a>(slice: &'a Slice, launch: Option<&'a Launch>) -> Observed<'a> {
    let (used, paid) = use_of(slice, launch);
    Observed { counts: &slice.counts, used, paid, latencies: &slice.latencies, launch }
}

/// The slices of a variant with the baseline's of the same cycle; without a baseline, all.
fn pairs(round: &Round, variant: usize, baseline: Option<usize>) -> Vec<(&Slice, Option<&Slice>)> {
    let of = |variant: usize| round.slices.iter().filter(move |s| s.variant as usize == variant);
    let Some(baseline) = baseline else {
        return of(variant).map(|slice| (slice, None)).collect();
    };
    let mut others = BTreeMap::new();
    for other in of(baseline) {
        others.entry(other.cycle).or_insert(other);
    }
    of(variant).filter_map(|slice| Some((slice, Some(*others.get(&slice.cycle)?)))).collect()
}

fn log_ratio(
    metric: Metric,
    pairs: &[(&Slice, Option<&Slice>)],
    mine: &VariantRound,
    base: Option<&VariantRound>,
) -> (Option<f64>, Option<f64>) {
    if metric.basis() == Basis::Cycle {
        let ratios: Option<Vec<f64>> = pairs
            .iter()
            .map(|(a, b)| {
                let number =
                    |slice, of: &VariantRound| metric.number(&observed(slice, of.launch.as_ref()));
                let to = match b.zip(base) {
                    Some((b, base)) => number(b, base)?,
                    None => 1.0,
                };
                Some((number(a, mine)? / to).ln()).filter(|log| log.is_finite())
            })
            .collect();
        // A slice without one good reply has no logarithm, and must not be dropped: the whole
        // round is then compared by its totals.
        if let Some(ratios) = ratios.filter(|ratios| !ratios.is_empty()) {
            let variance = trimmed_variance(&ratios, TRIM) / ratios.len() as f64;
            let variance = (ratios.len() > 1).then_some(variance);
            return (Some(trimmed_mean(&ratios, TRIM)), variance);
        }
    }
    let to = base.map_or(Some(1.0), |base| base.values[metric as usize]);
    let ratio = mine.values[metric as usize].zip(to).map(|(a, b)| (a / b).ln());
    (ratio, None)
}
