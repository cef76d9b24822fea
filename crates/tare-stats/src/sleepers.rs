//! What variants cost by clients that sleep while they wait, as those of other tools do.
//!
//! tare's clients poll where they have CPUs of their own. A server then never pays for waking them,
//! and two servers may differ by less, or more, than they do in front of clients that sleep. Some
//! cycles of each launch are therefore made by clients that sleep. If the two ratios differ by more
//! than the interval, the interval that reports state spans both.

use tare_model::Metric;

use crate::cycles::{self, Cycle};
use crate::estimate::Estimate;
use crate::round_digest::RoundDigest;
use crate::verdict::ROUNDS_MIN;
use crate::weighted::{self, Mean};

/// A comparison by clients that sleep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BySleepers {
    /// Ratio of the variant's value to the baseline's.
    pub ratio: Estimate,
    /// Whether it differs from the one by clients that poll.
    pub differs: bool,
}

/// Confidence required to say that the two differ.
const DIFFERS_LEVEL: f64 = 0.99;

/// Compares the cycles by clients that sleep with the others, round by round: launches differ, and
/// both kinds saw the same ones. `None` without enough of them, or if they say nothing about this
/// metric.
pub fn by_sleepers(
    digests: &[RoundDigest],
    metric: Metric,
    variant: usize,
    polled: &Estimate,
) -> Option<BySleepers> {
    if !matches!(metric, Metric::Throughput | Metric::ServerCpu) {
        return None;
    }
    let at = metric as usize;
    let cycles: Vec<&[Cycle]> =
        digests.iter().map(|digest| &digest.variants[variant].by_sleepers[at][..]).collect();
    let of_rounds = digests.iter().zip(cycles::estimate(&cycles)).filter_map(|(digest, slept)| {
        let (slept, polled) = (slept?, digest.variants[variant].weighable(metric)?);
        let variance = slept.variance.zip(polled.variance).map(|(slept, polled)| slept + polled);
        Some(weighted::Round { value: slept.log - polled.value, variance })
    });
    let apart: Vec<weighted::Round> = of_rounds.collect();
    let mean = Mean::from_rounds(&apart).filter(|mean| mean.n >= ROUNDS_MIN)?;
    let half = (polled.upper.ln() - polled.lower.ln()) / 2.0;
    let differs = !mean.interval(DIFFERS_LEVEL).covers(0.0) && mean.point.abs() > half;
    let point = polled.point.ln() + mean.point;
    let half = half.hypot(mean.interval(polled.level).half_width());
    let log = Estimate { point, lower: point - half, upper: point + half, n: mean.n, ..*polled };
    Some(BySleepers { ratio: log.from_log(), differs })
}

/// The interval over both.
pub fn spanning(polled: &Estimate, slept: &BySleepers) -> Option<Estimate> {
    let lower = polled.lower.min(slept.ratio.lower);
    let upper = polled.upper.max(slept.ratio.upper);
    slept.differs.then(|| Estimate { point: (lower * upper).sqrt(), lower, upper, ..*polled })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Question, analyse};
    use crate::round_digest::digests;
    use crate::verdict::Verdict;
    use tare_io::Random;
    use tare_model::samples::{Counts, Round, Slice};

    fn normal(random: &mut Random) -> f64 {
        (0..12).map(|_| random.uniform()).sum::<f64>() - 6.0
    }

    /// Rounds of eight cycles, and two by clients that sleep. The second server is slower by these
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
        let question = Question { baseline: 0, metrics, tolerance: 0.02, level: 0.95 };
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
