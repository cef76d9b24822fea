//! What neighbours took of a run's CPUs, and what they left alone.

use tare_model::counters::Counter;

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
        let is_known =
            cpu_share.is_some() || rounds().any(|round| round.counts.client_waited_ns > 0);
        let cycles: u32 = digests.iter().map(|digest| digest.cycles).sum();
        let calm: u32 = digests.iter().map(|digest| digest.calm_cycles).sum();
        let calm_cycles = f64::from(calm) / f64::from(cycles.max(1));
        (is_known && cycles > 0).then_some(Self { cpu_share, calm_cycles })
    }
}
