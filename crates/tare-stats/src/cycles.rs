//! How much each cycle counts.
//!
//! Neighbours on the machine disturb some cycles and spare others, and how much they took from each
//! slice is measured. Cycles are put in the order of that share, in groups of eight; the scatter of
//! a group about its rounds' medians, smoothed so that it never falls as the share rises, is the
//! variance of each of its cycles, and a cycle's weight is one over it. If neighbours do not matter
//! to a metric, its cycles are weighted equally. A cycle's weight depends on the disturbance of both
//! slices of a pair, and not on its own value.

use tare_model::counters::Counter;
use tare_model::samples::Slice;

use crate::estimate::median;
use crate::weighted::EXPECTED;

/// The share of the weight cut off at each end before the mean of cycles is taken.
const TRIM: f64 = 0.2;
/// Number of cycles from which one variance is estimated.
const GROUP: usize = 8;
/// A round with fewer cycles does not show where its middle is.
const MIDDLE: usize = 5;
/// Variance of a trimmed mean in units of the plain mean's, if values are normally distributed.
const OF_TRIMMED: f64 = 1.14;
/// The smallest variance of a cycle: counts are whole numbers.
const VARIANCE_MIN: f64 = 1e-8;

/// One cycle's log ratio, or the logarithm of a single variant's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cycle {
    pub log: f64,
    /// What neighbours took, as a share of a slice; the larger one of the two slices.
    pub disturbed: f64,
    /// Whether neighbours used hardly any CPU time in both slices.
    pub is_calm: bool,
}

/// A round's estimate, and the variance that its cycles give it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfCycles {
    pub log: f64,
    pub variance: Option<f64>,
    /// The share of its weight that comes from calm cycles.
    pub calm_share: f64,
}

/// A slice is calm if neighbours used at most this share of the CPUs.
pub(crate) const CALM: f64 = 0.02;

pub fn is_calm(slice: &Slice) -> bool {
    taken(slice) <= CALM
}

/// The share of a slice's CPU time that others used; where that is unknown, the share for which its
/// client waited for a CPU.
fn taken(slice: &Slice) -> f64 {
    let count = |counter| slice.used.as_ref()?.all[counter].map(|n| n as f64);
    let others = count(Counter::Others).zip(count(Counter::Capacity));
    match others {
        Some((others, capacity)) => {
            (others + count(Counter::Steal).unwrap_or(0.0)) / capacity.max(1.0)
        }
        None => slice.counts.client_waited_ns as f64 / slice.counts.window_ns.max(1) as f64,
    }
}

/// The share of a slice that neighbours took: CPU time that others or the hypervisor used, and time
/// for which the server and its client waited for a CPU.
pub fn disturbed(slice: &Slice) -> f64 {
    let server = slice.used.as_ref().and_then(|used| used.all[Counter::Waited]).unwrap_or(0);
    let waited = (server + slice.counts.client_waited_ns) as f64;
    taken(slice) + waited / slice.counts.window_ns.max(1) as f64
}

/// Estimates every round from its cycles, weighted by their disturbance.
pub fn estimate(rounds: &[&[Cycle]]) -> Vec<Option<OfCycles>> {
    let mut variances = variances(rounds).into_iter();
    rounds.iter().map(|cycles| of_round(cycles, &mut variances)).collect()
}

/// Estimates every round, each cycle with the same weight.
pub fn estimate_equally(rounds: &[&[Cycle]]) -> Vec<Option<OfCycles>> {
    let alike = |cycles: &&[Cycle]| cycles.iter().map(|c| Cycle { disturbed: 0.0, ..*c }).collect();
    let rounds: Vec<Vec<Cycle>> = rounds.iter().map(alike).collect();
    estimate(&rounds.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// The variance of each cycle, in order.
fn variances(rounds: &[&[Cycle]]) -> Vec<f64> {
    let logs: Vec<f64> = rounds.iter().flat_map(|cycles| cycles.iter().map(|c| c.log)).collect();
    let of_all = median(&logs);
    // From its round's median, a value is a little less far than from the true one.
    let residuals = rounds.iter().flat_map(|cycles| {
        let logs: Vec<f64> = cycles.iter().map(|cycle| cycle.log).collect();
        let n = logs.len() as f64;
        let (middle, more) = match logs.len() {
            n if n < MIDDLE => (of_all, 1.0),
            _ => (median(&logs), (n / (n - 1.0)).sqrt()),
        };
        cycles.iter().map(move |cycle| (cycle.disturbed, (cycle.log - middle).abs() * more))
    });
    let residuals: Vec<(f64, f64)> = residuals.collect();
    let mut order: Vec<usize> = (0..residuals.len()).collect();
    order.sort_by(|a, b| residuals[*a].0.total_cmp(&residuals[*b].0));
    let mut blocks: Vec<Block> = Vec::new();
    for group in groups(&order, |cycle| residuals[cycle].0) {
        let away: Vec<f64> = group.iter().map(|cycle| residuals[*cycle].1).collect();
        let variance = (SIGMAS * median(&away)).powi(2).max(VARIANCE_MIN);
        let mut block = Block { variance, cycles: group.len() };
        while let Some(before) = blocks.pop_if(|before| before.variance > block.variance) {
            block = before.joined(&block);
        }
        blocks.push(block);
    }
    let mut all = vec![0.0; order.len()];
    let sorted = blocks.iter().flat_map(|block| std::iter::repeat_n(block.variance, block.cycles));
    order.into_iter().zip(sorted).for_each(|(cycle, variance)| all[cycle] = variance);
    all
}

/// Standard deviations of a normal distribution in one median absolute deviation.
const SIGMAS: f64 = 1.483;

/// Neighbouring groups with one variance.
struct Block {
    variance: f64,
    cycles: usize,
}

impl Block {
    fn joined(self, other: &Self) -> Self {
        let cycles = self.cycles + other.cycles;
        let sum = self.variance * self.cycles as f64 + other.variance * other.cycles as f64;
        Self { variance: sum / cycles as f64, cycles }
    }
}

/// Splits cycles in the order of their disturbance into groups of at least [`GROUP`]; equally
/// disturbed ones are together.
fn groups(order: &[usize], disturbed: impl Fn(usize) -> f64) -> Vec<&[usize]> {
    let (mut groups, mut from) = (Vec::new(), 0);
    for at in 1..order.len() {
        let is_apart = disturbed(order[at]) > disturbed(order[at - 1]);
        if is_apart && at - from >= GROUP && order.len() - at >= GROUP {
            groups.push(&order[from..at]);
            from = at;
        }
    }
    groups.push(&order[from..]);
    groups
}

/// The weighted trimmed mean of a round's cycles. Its variance is drawn from what their disturbance
/// suggests towards what their own scatter shows.
fn of_round(cycles: &[Cycle], variances: &mut impl Iterator<Item = f64>) -> Option<OfCycles> {
    let of_cycles: Vec<(&Cycle, f64)> =
        cycles.iter().zip(variances).map(|(cycle, variance)| (cycle, 1.0 / variance)).collect();
    let mut all: Vec<(f64, f64)> = of_cycles.iter().map(|(cycle, w)| (cycle.log, *w)).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total: f64 = all.iter().map(|(_, weight)| weight).sum();
    let (low, high) = (total * TRIM, total * (1.0 - TRIM));
    let mut before = 0.0;
    let kept: Vec<f64> = all
        .iter()
        .map(|(_, weight)| {
            let from = before;
            before += weight;
            (before.min(high) - from.max(low)).max(0.0)
        })
        .collect();
    let kept_logs = || all.iter().zip(&kept).filter(|(_, kept)| **kept > 0.0).map(|(a, _)| a.0);
    let (least, most) = (kept_logs().next()?, kept_logs().next_back()?);
    let sum: f64 = all.iter().zip(&kept).map(|((log, _), kept)| log * kept).sum();
    let log = sum / kept.iter().sum::<f64>();
    let calm: f64 = of_cycles.iter().filter(|(cycle, _)| cycle.is_calm).map(|(_, w)| w).sum();
    let calm_share = calm / total;
    if all.len() < 2 {
        return Some(OfCycles { log, variance: None, calm_share });
    }
    let expected = OF_TRIMMED / total;
    // Yuen's variance of a trimmed mean: what is cut counts as the nearest value that is kept.
    let squares: f64 = all.iter().map(|(_, weight)| weight * weight).sum();
    let n = total * total / squares;
    let winsorised = || all.iter().map(|(log, weight)| (log.clamp(least, most), weight));
    let middle: f64 = winsorised().map(|(log, weight)| log * weight).sum::<f64>() / total;
    let scatter: f64 =
        winsorised().map(|(log, weight)| weight * (log - middle).powi(2)).sum::<f64>() / total;
    let share = 1.0 - 2.0 * TRIM;
    let degrees = (n * share - 1.0).max(0.0);
    let seen = scatter / (n - 1.0).max(1.0) / (share * share);
    let variance = (EXPECTED * expected + degrees * seen) / (EXPECTED + degrees);
    Some(OfCycles { log, variance: Some(variance), calm_share })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::tests::normal;
    use tare_io::Random;
    use tare_model::counters::Counters;
    use tare_model::samples::Counts;

    /// Rounds of eight cycles, a quarter of them undisturbed; the others scatter by `wild`.
    fn rounds(seed: u64, wild: f64) -> Vec<Vec<Cycle>> {
        let mut random = Random::stream(seed, "cycles", 0);
        let mut cycle = || {
            let is_calm = random.chance(0.25);
            let least = if is_calm { 0.0 } else { 0.2 };
            let disturbed = least + 0.01 * random.uniform();
            let sd = if is_calm { 0.01 } else { wild };
            Cycle { log: sd * normal(&mut random), disturbed, is_calm }
        };
        (0..20).map(|_| (0..8).map(|_| cycle()).collect()).collect()
    }

    fn estimates(rounds: &[Vec<Cycle>]) -> Vec<OfCycles> {
        let all: Vec<&[Cycle]> = rounds.iter().map(Vec::as_slice).collect();
        estimate(&all).into_iter().flatten().collect()
    }

    #[test]
    fn undisturbed_cycles_decide_where_neighbours_matter_and_all_count_where_they_do_not() {
        let share = |wild: f64| -> f64 {
            let of = |seed| -> f64 {
                let found = estimates(&rounds(seed, wild));
                found.iter().map(|round| round.calm_share).sum::<f64>() / found.len() as f64
            };
            (0..20).map(of).sum::<f64>() / 20.0
        };
        let (matters, does_not) = (share(0.2), share(0.01));
        assert!(matters > 0.7, "{matters}");
        assert!((0.2..0.36).contains(&does_not), "about a quarter: {does_not}");
    }

    #[test]
    fn a_round_without_an_undisturbed_cycle_is_known_to_be_less_precise() {
        let mut all = rounds(7, 0.2);
        all[3] = (0..8u8)
            .map(|n| Cycle {
                log: if n % 2 == 0 { 0.2 } else { -0.2 },
                disturbed: 0.4,
                is_calm: false,
            })
            .collect();
        let found = estimates(&all);
        let typical = median(&found.iter().filter_map(|r| r.variance).collect::<Vec<_>>());
        assert!(found[3].variance.unwrap() > 10.0 * typical, "{found:?}");
    }

    #[test]
    fn without_measurements_it_is_the_trimmed_mean() {
        let cycle = |log| Cycle { log, disturbed: 0.0, is_calm: true };
        let round: Vec<Cycle> = [1.0, 1.1, 0.9, 1.0, 9.0].map(cycle).to_vec();
        let found = estimates(&[round.clone(), round])[0];
        assert!((found.log - 3.1 / 3.0).abs() < 1e-9, "{found:?}");
        let alone = estimates(&[vec![cycle(2.0)]])[0];
        assert_eq!((alone.log, alone.variance), (2.0, None));
        assert_eq!(estimate(&[&[]]), [None]);
    }

    #[test]
    fn what_neighbours_took_is_a_share_of_the_slice() {
        let counts = Counts { window_ns: 100, client_waited_ns: 10, ..Counts::default() };
        let used = Counters::default().with(Counter::Waited, 20);
        let slice = Slice { counts, used: Some(used.into()), ..Slice::default() };
        assert!((disturbed(&slice) - 0.4).abs() < 1e-9, "10 are taken, and 30 waited for");
        let used = used.with(Counter::Others, 5).with(Counter::Capacity, 200);
        let slice = Slice { used: Some(used.into()), ..slice };
        assert!((disturbed(&slice) - 0.325).abs() < 1e-9 && !is_calm(&slice));
    }
}
