//! A round reduced to what inference needs: for each variant and metric one value, and one log
//! ratio to the baseline.

use std::collections::BTreeMap;

use tare_model::counters::{Counter, Counters};
use tare_model::metric::{Basis, Observed};
use tare_model::samples::{Counts, Launch, MachineUse, Round, Series, Slice};
use tare_model::sustained::{Sustained, WarmUp};
use tare_model::usage::Usage;
use tare_model::{Distribution, Metric};

use crate::cycles::{self, Cycle, OfCycles};
use crate::neighbours::work_elsewhere;
use crate::sleepers::{self, ByKind};
use crate::sustained::Courses;
use crate::weighted;

/// One round, digested.
#[derive(Clone, Debug)]
pub struct RoundDigest {
    pub index: u32,
    pub cycles: u32,
    /// Further cycles, with clients that sleep while they wait.
    pub cycles_by_sleepers: u32,
    /// Cycles in which every slice was calm.
    pub calm_cycles: u32,
    pub started_unix_ms: u64,
    pub elapsed_ns: u64,
    pub machine: MachineUse,
    pub baseline: usize,
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
    /// Counters over its slices with their ramps.
    pub stretches: Counters,
    /// What it used and answered in calm slices.
    pub calm: Calm,
    /// Sum over slices of the window and the longest latency, for Little's law: the latency of a
    /// request in flight when the window opened may reach that far back.
    pub littles_law_slack_ns: u64,
    /// Latencies merged over the round.
    pub latencies: Vec<(Series, Distribution)>,
    /// Value of each metric, indexed as [`Metric::ALL`].
    pub values: Vec<Option<f64>>,
    /// Cycles of each metric that is compared within cycles; indexed as [`Metric::ALL`].
    pub cycles: Vec<Vec<Cycle>>,
    /// Cycles by both kinds of clients, with their ramps, which were measured by one kind only;
    /// indexed as [`sleepers::METRICS`].
    pub by_kind: [ByKind; 2],
    /// Slices with clients that sleep.
    pub slept: Slept,
    /// The log ratio to the baseline, or the logarithm of a single variant's value; indexed as
    /// [`Metric::ALL`].
    pub log_ratios: Vec<Option<f64>>,
    /// The variance of each log ratio from the round's own cycles, if the metric has cycles;
    /// indexed as [`Metric::ALL`].
    pub variances: Vec<Option<f64>>,
    /// The share of each estimate's weight that comes from calm cycles; indexed as [`Metric::ALL`].
    pub calm_shares: Vec<f64>,
}

/// Totals of the slices with clients that sleep.
#[derive(Clone, Debug, Default)]
pub struct Slept {
    pub window_ns: u64,
    pub cpu_ns: u64,
    pub answered: u64,
}

/// Slices in which neighbours used hardly any CPU time.
#[derive(Clone, Debug, Default)]
pub struct Calm {
    pub counts: Counts,
    pub used: Option<Usage>,
    pub replies_charged: u64,
}

impl Calm {
    fn add(&mut self, slice: &Slice, used: Option<&Usage>, paid: u64) {
        self.used = together(self.used.take(), used.cloned());
        self.replies_charged += paid;
        self.counts.accumulate(&slice.counts);
    }

    /// The share of a CPU that the server used.
    pub fn busy_share(&self) -> Option<f64> {
        let used = self.used.as_ref().filter(|_| self.replies_charged > 0)?;
        let per_request = used.cpu_ns() as f64 / self.replies_charged as f64;
        Some(per_request * self.counts.completed as f64 / self.counts.window_ns.max(1) as f64)
    }

    /// How often the server was put on a CPU for each request.
    pub fn wakes_per_request(&self) -> Option<f64> {
        let switches = self.used.as_ref()?.all[Counter::Switches]?;
        (self.replies_charged > 0).then(|| switches as f64 / self.replies_charged as f64)
    }
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
    pub fn weighable(&self, metric: Metric) -> Option<weighted::Round> {
        let value = self.log_ratio(metric)?;
        Some(weighted::Round { value, variance: self.variances[metric as usize] })
    }
}

/// Digests all rounds of a run.
pub fn digests<'a>(
    rounds: impl IntoIterator<Item = &'a Round>,
    variants: usize,
    baseline: usize,
) -> Vec<RoundDigest> {
    let mut all: Vec<RoundDigest> =
        rounds.into_iter().map(|round| digest(round, variants, baseline)).collect();
    weigh(&mut all);
    all
}

/// Adds a round to the digests of a run.
pub fn add_round(all: &mut Vec<RoundDigest>, round: &Round, variants: usize, baseline: usize) {
    all.push(digest(round, variants, baseline));
    weigh(all);
}

/// Estimates all rounds from their cycles. How much a cycle counts depends on those of all rounds.
pub fn weigh(all: &mut [RoundDigest]) {
    let variants = all.first().map_or(0, |digest| digest.variants.len());
    let baseline = all.first().map_or(0, |digest| digest.baseline);
    for variant in 0..variants {
        let estimate = estimator(all, variant, baseline);
        for metric in Metric::ALL.into_iter().filter(|metric| metric.basis() == Basis::Cycle) {
            let at = metric as usize;
            let cycles: Vec<&[Cycle]> =
                all.iter().map(|digest| &digest.variants[variant].cycles[at][..]).collect();
            let found = estimate(&cycles);
            for (digest, found) in all.iter_mut().zip(found) {
                let Some(OfCycles { log, variance, calm_share }) = found else { continue };
                let round = &mut digest.variants[variant];
                (round.log_ratios[at], round.variances[at]) = (Some(log), variance);
                round.calm_shares[at] = calm_share;
            }
        }
    }
}

/// How rounds are estimated from their cycles. If a variant makes other processes work, its cycles
/// must not count less for it.
pub(crate) fn estimator(
    all: &[RoundDigest],
    variant: usize,
    baseline: usize,
) -> fn(&[&[Cycle]]) -> Vec<Option<OfCycles>> {
    let mut both = [(variant, baseline), (baseline, variant)].into_iter();
    match both.any(|(mine, other)| work_elsewhere(all, mine, other).is_some()) {
        true => cycles::estimate_equally,
        false => cycles::estimate,
    }
}

/// Digests `round` of `variants` variants. If the run was killed during a cycle, slices without a
/// counterpart of another variant count in totals, but have no pair. Log ratios are those of totals
/// until [`weigh`] is called.
pub fn digest(round: &Round, variants: usize, baseline: usize) -> RoundDigest {
    let mut found: Vec<VariantRound> =
        (0..variants).map(|variant| totals(round, variant)).collect();
    for variant in 0..variants {
        let against = (variants > 1).then_some(baseline);
        let [polled, slept] =
            [&round.slices, &round.by_sleepers].map(|slices| pairs(slices, variant, against));
        let is_fair = slept.iter().all(|(mine, other)| {
            sleepers::shows_server(mine) && other.is_none_or(sleepers::shows_server)
        });
        if is_fair && !slept.is_empty() {
            found[variant].by_kind = sleepers::METRICS.map(|metric| {
                let of = |pairs| cycles(metric, pairs, [None, None]).unwrap_or_default();
                ByKind { polled: of(&polled), slept: of(&slept) }
            });
        }
        for metric in Metric::ALL {
            let base = against.map(|baseline| &found[baseline]);
            let launches = [Some(&found[variant]), base].map(|of| of?.launch.as_ref());
            let cycles = cycles(metric, &polled, launches);
            let to = base.map_or(Some(1.0), |base| base.values[metric as usize]);
            let of_totals = found[variant].values[metric as usize].zip(to);
            let round = &mut found[variant];
            round.cycles.push(cycles.unwrap_or_default());
            round.log_ratios.push(of_totals.map(|(mine, base)| (mine / base).ln()));
            round.variances.push(None);
            round.calm_shares.push(0.0);
        }
    }
    let loads = round.launches.iter().filter_map(|launch| launch.load.sustained.as_ref());
    let cold: Vec<&Sustained> = loads.filter(|load| load.cold).collect();
    RoundDigest {
        warm_ups: Courses::from_loads(&cold).warm_ups(),
        baseline,
        index: round.index,
        cycles: round.cycles,
        cycles_by_sleepers: (round.by_sleepers.len() / variants.max(1)) as u32,
        calm_cycles: calm_cycles(round),
        started_unix_ms: round.started_unix_ms,
        elapsed_ns: round.elapsed_ns,
        machine: round.machine.clone(),
        variants: found,
    }
}

fn calm_cycles(round: &Round) -> u32 {
    let mut calm = BTreeMap::new();
    for slice in &round.slices {
        *calm.entry(slice.cycle).or_insert(true) &= cycles::is_calm(slice);
    }
    calm.into_values().filter(|is_calm| *is_calm).count() as u32
}

fn totals(round: &Round, variant: usize) -> VariantRound {
    let launch = round.launches.iter().find(|launch| launch.variant as usize == variant).cloned();
    let mut total = VariantRound { launch, ..VariantRound::default() };
    let slices = round.slices.iter().filter(|slice| slice.variant as usize == variant);
    for (at, slice) in slices.enumerate() {
        total.counts.accumulate(&slice.counts);
        let (used, paid) = use_of(slice, total.launch.as_ref());
        total.replies_charged += paid;
        total.stretches = match (&slice.used, at) {
            (Some(used), 0) => used.all,
            (Some(used), _) => total.stretches.plus(used.all),
            (None, _) => Counters::default(),
        };
        if cycles::is_calm(slice) {
            total.calm.add(slice, used.as_ref(), paid);
        }
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
    for slice in round.by_sleepers.iter().filter(|slice| slice.variant as usize == variant) {
        total.slept.window_ns += slice.counts.window_ns;
        total.slept.cpu_ns += slice.used.as_ref().map_or(0, Usage::cpu_ns);
        total.slept.answered += slice.counts.answered;
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
fn pairs(
    slices: &[Slice],
    variant: usize,
    baseline: Option<usize>,
) -> Vec<(&Slice, Option<&Slice>)> {
    let of = |variant: usize| slices.iter().filter(move |s| s.variant as usize == variant);
    let Some(baseline) = baseline else {
        return of(variant).map(|slice| (slice, None)).collect();
    };
    let mut others = BTreeMap::new();
    for other in of(baseline) {
        others.entry(other.cycle).or_insert(other);
    }
    of(variant).filter_map(|slice| Some((slice, Some(*others.get(&slice.cycle)?)))).collect()
}

/// The cycles of a metric that is compared within cycles, without the ramps of these launches.
fn cycles(
    metric: Metric,
    pairs: &[(&Slice, Option<&Slice>)],
    [mine, base]: [Option<&Launch>; 2],
) -> Option<Vec<Cycle>> {
    if metric.basis() != Basis::Cycle {
        return None;
    }
    let of = |(slice, other): &(&Slice, Option<&Slice>)| {
        let number = |slice, launch| metric.number(&observed(slice, launch));
        let to = match other {
            Some(other) => number(other, base)?,
            None => 1.0,
        };
        let log = (number(slice, mine)? / to).ln();
        let disturbed = other.map_or(0.0, cycles::disturbed).max(cycles::disturbed(slice));
        let is_calm = cycles::is_calm(slice) && other.is_none_or(cycles::is_calm);
        log.is_finite().then_some(Cycle { log, disturbed, is_calm })
    };
    // A slice without one good reply has no logarithm, and must not be dropped: the whole round is
    // then compared by its totals.
    pairs.iter().map(of).collect()
}
