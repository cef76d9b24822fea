//! What neighbours took of a run's CPUs, what they left alone, and what they did for a variant.

use tare_model::counters::Counter;

use crate::cycles::CALM;
use crate::estimate::{Estimate, mean};
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

/// CPU time that others use for a variant's requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkElsewhere {
    pub ns_per_request: f64,
    /// That time as a share of the variant's own CPU time.
    pub share: f64,
}

/// Confidence that others work for a variant: the question is asked at every look.
const LEVEL: f64 = 0.999;
/// A smaller share of a variant's own CPU time does not matter.
const SHARE_MIN: f64 = 0.02;
const ROUNDS_MIN: u32 = 5;

/// Finds work that a variant causes in other processes, such as a logging daemon or threads of the
/// kernel: they use more CPU time while it is measured than while `other` is. Nothing is found if
/// they are busy even then: a neighbour uses whatever a variant leaves idle.
pub fn work_elsewhere(
    digests: &[RoundDigest],
    variant: usize,
    other: usize,
) -> Option<WorkElsewhere> {
    let share = |digest: &RoundDigest, variant: usize, counter: Counter| {
        let stretches = &digest.variants[variant].stretches;
        Some(stretches[counter]? as f64 / stretches[Counter::Capacity]? as f64)
    };
    let of_round = |digest: &RoundDigest| {
        let beside = share(digest, other, Counter::Others)?;
        let more = share(digest, variant, Counter::Others)? - beside;
        let own = share(digest, variant, Counter::Cpu)?;
        let capacity = digest.variants[variant].stretches[Counter::Capacity]?;
        let answered = digest.variants[variant].counts.answered;
        Some([more, beside, own, capacity as f64 / answered.max(1) as f64])
    };
    let rounds: Vec<[f64; 4]> = digests.iter().filter_map(of_round).collect();
    let column = |at: usize| rounds.iter().map(|round| round[at]).collect::<Vec<f64>>();
    let more = Estimate::of_mean(&column(0), LEVEL)?;
    let (beside, own) = (mean(&column(1)), mean(&column(2)));
    let is_sure = more.n >= ROUNDS_MIN && more.lower > SHARE_MIN * own && beside <= CALM;
    let ns_per_request = more.point * mean(&column(3));
    is_sure.then(|| WorkElsewhere { ns_per_request, share: more.point / own })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::round_digest::VariantRound;
    use tare_model::counters::Counters;
    use tare_model::samples::Counts;

    /// Rounds of two variants, which answer and let others use so much in 1 s of two CPUs.
    fn rounds(answered: [u64; 2], others: impl Fn(u64) -> [u64; 2]) -> Vec<RoundDigest> {
        let round = |index: u64| {
            let variant = |at: usize| VariantRound {
                counts: Counts { answered: answered[at], ..Counts::default() },
                stretches: Counters::default()
                    .with(Counter::Capacity, 2_000_000_000)
                    .with(Counter::Cpu, 1_000_000_000)
                    .with(Counter::Others, others(index)[at]),
                ..VariantRound::default()
            };
            let mut digest = crate::round_digest::digest(&Default::default(), 2, 0);
            digest.variants = vec![variant(0), variant(1)];
            digest
        };
        (0..8).map(round).collect()
    }

    #[test]
    fn work_for_a_variant_is_found_and_a_neighbour_is_nobodys() {
        let for_one = rounds([1000, 1000], |n| [1_000_000 + n, 101_000_000 + n]);
        let found = work_elsewhere(&for_one, 1, 0).unwrap();
        assert!((found.share - 0.1).abs() < 0.001, "{found:?}");
        assert!((found.ns_per_request - 100_000.0).abs() < 10.0, "{found:?}");
        assert_eq!(work_elsewhere(&for_one, 0, 1), None);
        // A slower variant has more of a steady neighbour's time in each of its requests.
        let slower = rounds([1000, 100], |n| [500_000_000 + n, 500_000_000 - n]);
        assert_eq!(work_elsewhere(&slower, 1, 0), None);
        // A neighbour gets more of a CPU that a variant leaves idle.
        let idle = rounds([1000, 1000], |n| [500_000_000 + n, 700_000_000 + n]);
        assert_eq!(work_elsewhere(&idle, 1, 0), None);
        assert_eq!(work_elsewhere(&for_one[..4], 1, 0), None, "too few rounds");
    }
}
