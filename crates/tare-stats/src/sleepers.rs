//! What variants cost with clients that sleep while they wait, as the clients of other tools do.
//!
//! tare's clients poll where they have CPUs of their own. A server then never pays for waking them,
//! and two servers may differ by less, or more, than they do in front of clients that sleep. Some
//! cycles of each launch are therefore made by clients that sleep. If the two ratios differ by more
//! than the interval's half width, the interval that reports state spans both.

use tare_model::Metric;
use tare_model::samples::Slice;

use crate::analysis::intervals;
use crate::cycles::Cycle;
use crate::estimate::Estimate;
use crate::round_digest::{RoundDigest, estimator};
use crate::verdict::ROUNDS_MIN;
use crate::weighted::{self, Mean};

/// Metrics that are compared by both kinds of clients.
pub const METRICS: [Metric; 2] = [Metric::Throughput, Metric::ServerCpu];

/// A round's cycles in one metric, by both kinds of clients.
#[derive(Clone, Debug, Default)]
pub struct ByKind {
    pub polled: Vec<Cycle>,
    pub slept: Vec<Cycle>,
}

/// A comparison with clients that sleep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BySleepers {
    /// Ratio of the variant's value to the baseline's.
    pub ratio: Estimate,
    /// The ratio at the higher confidence that `slower` and `faster` require.
    pub strict_ratio: Estimate,
    /// Whether it differs from the one with clients that poll.
    pub differs: bool,
}

/// Confidence required to say that the two differ.
const DIFFERS_LEVEL: f64 = 0.99;
/// A smaller difference, as a share of the tolerance, does not matter.
const MATTERS: f64 = 0.25;
/// Above this share of a CPU, a client that sleeps is the limit itself.
const BUSY: f64 = 0.95;

/// Whether a slice shows what its server does, not its client.
pub fn shows_server(slice: &Slice) -> bool {
    let counts = &slice.counts;
    counts.failed + counts.cut == 0 && counts.client_busiest < BUSY
}

/// Compares the cycles with clients that sleep with the others, round by round: launches differ, and
/// both kinds saw the same ones. `[polled, strict]` are the ratios with clients that poll. `None`
/// without enough rounds, or if the cycles say nothing about this metric.
pub fn by_sleepers(
    digests: &[RoundDigest],
    metric: Metric,
    [baseline, variant]: [usize; 2],
    [polled, strict]: [&Estimate; 2],
    tolerance: f64,
) -> Option<BySleepers> {
    let at = METRICS.iter().position(|known| *known == metric)?;
    let estimate = estimator(digests, variant, baseline);
    let of_kind = |of: fn(&ByKind) -> &[Cycle]| {
        let cycles = digests.iter().map(|digest| of(&digest.variants[variant].by_kind[at]));
        estimate(&cycles.collect::<Vec<_>>())
    };
    let both = of_kind(|kinds| &kinds.polled).into_iter().zip(of_kind(|kinds| &kinds.slept));
    let apart = both.filter_map(|(polled, slept)| {
        let (polled, slept) = (polled?, slept?);
        let variance = slept.variance.zip(polled.variance).map(|(slept, polled)| slept + polled);
        Some(weighted::Round { value: slept.log - polled.log, variance })
    });
    let mean = Mean::from_rounds(&apart.collect::<Vec<_>>()).filter(|mean| mean.n >= ROUNDS_MIN)?;
    let half_of = |ratio: &Estimate| (ratio.upper.ln() - ratio.lower.ln()) / 2.0;
    let least = half_of(polled).max(tolerance * MATTERS);
    let differs = !mean.interval(DIFFERS_LEVEL).covers(0.0) && mean.point.abs() > least;
    let point = polled.point.ln() + mean.point;
    let wide = |by_pollers: &Estimate, apart: Estimate| {
        let half = half_of(by_pollers).hypot(apart.half_width());
        let (lower, upper) = (point - half, point + half);
        Estimate { point, lower, upper, n: mean.n, ..*by_pollers }.from_log()
    };
    let [apart, surely] = intervals([polled.level, strict.level], |level| mean.interval(level));
    let (ratio, strict_ratio) = (wide(polled, apart), wide(strict, surely));
    Some(BySleepers { ratio, strict_ratio, differs })
}

/// The interval over both.
pub fn spanning(polled: &Estimate, slept: &Estimate) -> Estimate {
    let (lower, upper) = (polled.lower.min(slept.lower), polled.upper.max(slept.upper));
    Estimate { point: (lower * upper).sqrt(), lower, upper, ..*polled }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Question, analyse};
    use crate::estimate::tests::normal;
    use crate::round_digest::digests;
    use crate::verdict::Verdict;
    use tare_io::Random;
    use tare_model::samples::{Counts, Round, Slice};

    /// Rounds of eight cycles, and two with clients that sleep. The second server is slower by these
    /// shares; launches differ by 1 %, and slices by 2 %.
    fn rounds(seed: u64, polled: f64, slept: f64) -> Vec<Round> {
        let mut random = Random::stream(seed, "sleepers", 0);
        let mut round = |index| {
            let launches = [0, 1].map(|_| 0.01 * normal(&mut random));
            let mut slices = |cycles: std::ops::Range<u32>, slower: f64| -> Vec<Slice> {
                let each = cycles.flat_map(|cycle| [(cycle, 0), (cycle, 1)]);
                each.map(|(cycle, variant)| {
                    let by = if variant == 1 { 1.0 - slower } else { 1.0 };
                    let chance = launches[variant as usize] + 0.02 * normal(&mut random);
                    let good = (10_000.0 * by * chance.exp()) as u64;
                    let counts = Counts { window_ns: 20_000_000, good, ..Counts::default() };
                    Slice { variant, cycle, counts, ..Slice::default() }
                })
                .collect()
            };
            let (slices, by_sleepers) = (slices(0..8, polled), slices(8..10, slept));
            Round { index, cycles: 8, slices, by_sleepers, ..Round::default() }
        };
        (0..10).map(&mut round).collect()
    }

    fn comparison(seed: u64, polled: f64, slept: f64) -> crate::Comparison {
        let metrics = vec![Metric::Throughput];
        let question = Question { baseline: 0, metrics, tolerance: 0.02, level: 0.95, alone: None };
        let rounds = rounds(seed, polled, slept);
        analyse(&digests(&rounds, 2, 0), &question).comparisons.remove(0)
    }

    #[test]
    fn equal_sizes_are_seldom_thought_to_differ() {
        let differs = |seed: &u64| comparison(*seed, 0.1, 0.1).by_sleepers.unwrap().differs;
        let wrong = (0..400).filter(differs).count();
        assert!(wrong <= 4, "{wrong} of 400");
    }

    #[test]
    fn sizes_that_differ_are_spanned_and_cover_both() {
        let (mut covered, mut told) = (0, 0);
        for seed in 0..200 {
            let found = comparison(seed, 0.05, 0.15);
            let slept = found.by_sleepers.unwrap();
            told += u32::from(slept.differs);
            covered += u32::from(slept.ratio.covers(0.85));
            if slept.differs {
                assert!(found.stated.lower <= found.ratio.lower && found.stated.covers(0.9));
                assert!(found.stated.covers(slept.ratio.point), "{found:?}");
                assert_eq!(found.verdict, Verdict::Slower);
            }
        }
        assert!(told >= 195 && covered >= 190, "{told} and {covered} of 200");
    }

    #[test]
    fn a_verdict_that_holds_by_one_kind_of_client_only_is_none() {
        let found = comparison(1, 0.0, 0.2);
        assert_eq!((found.in_slices, found.verdict), (Verdict::Same, Verdict::Unresolved));
        let found = comparison(1, 0.2, -0.2);
        assert_eq!((found.in_slices, found.verdict), (Verdict::Slower, Verdict::Unresolved));
    }
}
