//! What neighbours took of a run's CPUs, what they left alone, and what they did for a variant.

use tare_model::counters::Counter;

use crate::estimate::Estimate;
use crate::round_digest::RoundDigest;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbours {
    /// The share of the CPUs that others used during slices; `None` if it is unknown.
    pub cpu_share: Option<f64>,
    /// The share of cycles in which they used hardly anything.
    pub calm_cycles: f64,
}

impl Neighbours {
    /// `None` if nothing shows what they took.
    pub fn from_rounds(digests: &[RoundDigest]) -> Option<Self> {
        let rounds = || digests.iter().flat_map(|digest| &digest.variants);
        let sum = |counter: Counter| {
            let known = rounds().filter_map(|round| round.stretches[counter]);
            known.reduce(u64::saturating_add)
        };
        let cpu_share = sum(Counter::Others).zip(sum(Counter::Capacity));
        let cpu_share = cpu_share.map(|(others, capacity)| others as f64 / capacity.max(1) as f64);
        let has_waited = || rounds().any(|round| round.counts.client_waited_ns > 0);
        let is_known = cpu_share.is_some() || has_waited();
        let cycles: u32 = digests.iter().map(|digest| digest.cycles).sum();
        let calm: u32 = digests.iter().map(|digest| digest.calm_cycles).sum();
        let calm_cycles = f64::from(calm) / f64::from(cycles.max(1));
        (is_known && cycles > 0).then_some(Self { cpu_share, calm_cycles })
    }
}

/// CPU time that others used for each request, beyond what they used for each of the baseline's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkElsewhere {
    pub ns_per_request: f64,
    /// The same as a share of the variant's own CPU time.
    pub share: f64,
}

/// Confidence that others work more for a variant: it is asked at every look.
const LEVEL: f64 = 0.999;
/// A smaller share of a variant's own CPU time does not matter.
const SHARE_MIN: f64 = 0.02;
const ROUNDS_MIN: u32 = 5;

/// Work that a variant causes in other processes: a logging daemon, or threads of the kernel. What
/// neighbours do by themselves goes to all variants alike, as their slices alternate at random.
pub fn work_elsewhere(
    digests: &[RoundDigest],
    variant: usize,
    baseline: usize,
) -> Option<WorkElsewhere> {
    let per_request = |digest: &RoundDigest, variant: usize, counter: Counter| {
        let round = &digest.variants[variant];
        let answered = round.counts.answered;
        (answered > 0).then_some(round.stretches[counter]? as f64 / answered as f64)
    };
    let of_round = |digest: &RoundDigest| {
        let others = |variant| per_request(digest, variant, Counter::Others);
        let own = per_request(digest, variant, Counter::Cpu)?;
        Some((others(variant)? - others(baseline)?, own))
    };
    let (more, own): (Vec<f64>, Vec<f64>) = digests.iter().filter_map(of_round).unzip();
    let more = Estimate::of_mean(&more, LEVEL)?;
    let own = crate::estimate::mean(&own);
    let is_sure = more.n >= ROUNDS_MIN && more.lower > SHARE_MIN * own;
    is_sure.then(|| WorkElsewhere { ns_per_request: more.point, share: more.point / own })
}
