//! From digested rounds to estimates and verdicts.

use tare_model::Metric;
use tare_model::metric::{Basis, Observed};
use tare_model::plan::{LEVEL, PlanParts};
use tare_model::samples::Counts;
use tare_model::usage::Usage;

use crate::estimate::{Estimate, sidak};
use crate::round_digest::{RoundDigest, together};
use crate::sleepers::{BySleepers, by_sleepers, spanning as spanning_clients};
use crate::sustained::{self, Agreement, Check};
use crate::verdict::Verdict;
use crate::weighted::{self, Mean};

/// The version of the method. Raise it when a change alters a verdict or an overhead of stored
/// runs: their conclusions are then computed again.
pub const VERSION: u32 = 10;

/// The question that an analysis answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    pub baseline: usize,
    /// Metrics that decide: the run stops when their verdicts are known.
    pub metrics: Vec<Metric>,
    /// The tolerance as a share; for `same`, the whole interval must lie within it.
    pub tolerance: f64,
    /// Joint level of all intervals of the metrics that decide, and of all others.
    pub level: f64,
    /// Level of each interval of the metrics that decide on its own, if not joint. `slower` and
    /// `faster` still require the joint level.
    pub alone: Option<f64>,
}

/// In a check, a change passes only if the upper bounds of all metrics are within their limits, so the
/// chance to pass wrongly does not grow with their number. At this level it is at most 5 %, although
/// a check ends at the first look at which all bounds are.
const CHECK_LEVEL: f64 = 0.97;

impl Question {
    pub fn from_plan(plan: &PlanParts) -> Self {
        Self {
            baseline: plan.baseline(),
            metrics: plan.stop.metrics.clone(),
            tolerance: plan.stop.tolerance,
            // The limits of all runs of a check are judged together.
            level: sidak(LEVEL, plan.check.as_ref().map_or(1, |check| check.runs as usize)),
            alone: plan.check.as_ref().map(|_| CHECK_LEVEL),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Analysis {
    pub rounds: u32,
    /// Per variant, each metric that was measured, over rounds.
    pub metrics: Vec<Vec<(Metric, Estimate)>>,
    /// Values of the metrics asked for, if there is only one variant.
    pub single: Vec<SingleValue>,
    pub comparisons: Vec<Comparison>,
}

/// One metric of a single variant, which is compared with nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SingleValue {
    pub metric: Metric,
    pub value: Estimate,
    /// The value without trimming, of all rounds together.
    pub of_totals: Option<f64>,
    /// The untrimmed value of calm slices, if it differs as in [`Comparison::pauses`].
    pub pauses: Option<f64>,
}

/// One variant against the baseline in one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    pub variant: usize,
    pub metric: Metric,
    /// Whether it is one of the metrics that decide.
    pub asked: bool,
    /// Ratio of the variant's value to the baseline's. All intervals of its kind (asked for or not)
    /// together hold the question's level.
    pub ratio: Estimate,
    /// The ratio at the higher confidence that `slower` and `faster` require.
    pub strict_ratio: Estimate,
    /// The interval over both slices and sustained load, if they agree on the direction but not on
    /// the amount.
    pub spans: Option<Estimate>,
    /// Result with clients that sleep; only for throughput and CPU, and only if there were any.
    pub by_sleepers: Option<BySleepers>,
    /// The ratio that reports state: over slices and sustained load if they agree only on the
    /// direction, and over both kinds of clients if those differ.
    pub stated: Estimate,
    /// `strict_ratio` over both kinds of clients if those differ.
    pub stated_strict: Estimate,
    /// Overhead that reports state, from `stated`.
    pub overhead_percent: Estimate,
    /// Verdict of the slices alone; `verdict` takes sustained load and the kinds of clients into
    /// account as well.
    pub in_slices: Verdict,
    pub verdict: Verdict,
    /// Untrimmed ratio of the totals over all rounds. If it differs from `ratio`, slices were not
    /// all alike.
    pub ratio_of_totals: Option<f64>,
    /// The untrimmed ratio of calm slices, if it differs from `ratio` by more than the interval, and
    /// by an amount that matters. Pauses in other slices may be the neighbours'.
    pub pauses: Option<f64>,
    /// Each round's log ratio, in order.
    pub rounds: Vec<f64>,
    /// Weight of each round, by its own precision.
    pub shares: Vec<f64>,
    /// The share of the estimate's weight that comes from calm cycles.
    pub calm_share: f64,
    /// Result of sustained load; only for throughput and CPU, and only if there was any.
    pub sustained: Option<Check>,
}

/// Looking repeatedly, and stopping when an interval looks good, makes intervals miss more often
/// than their level says. Each interval is therefore computed for this share of its allowed misses,
/// and keeps its level despite the stopping rule.
pub(crate) const INTERVAL_MISS_SHARE: f64 = 0.4;
/// The share for `slower` and `faster`: at most about 1 of 100 runs of identical servers ends with
/// one of these verdicts, however often the intervals are looked at.
const DIFFERENCE_MISS_SHARE: f64 = 0.02;

/// The interval that is shown, and the one that `slower` and `faster` require, at these levels. Both
/// are wide enough for repeated looks.
pub(crate) fn intervals(levels: [f64; 2], interval: impl Fn(f64) -> Estimate) -> [Estimate; 2] {
    let wide = |level: f64, share: f64| Estimate { level, ..interval(1.0 - (1.0 - level) * share) };
    [wide(levels[0], INTERVAL_MISS_SHARE), wide(levels[1], DIFFERENCE_MISS_SHARE)]
}

/// Systematic error of a log ratio, which rounds of one run cannot show because they share it:
/// wake-ups, edges of windows, the machine's mode. Runs of a queue with an exactly known pace
/// differ by 0.05 % (standard deviation), while their rounds suggest 0.02 %. The constant is twice
/// the 0.05 %.
pub(crate) const SYSTEMATIC: f64 = 0.001;

/// Widens an interval by the systematic error, which is independent and so added in quadrature.
pub(crate) fn with_systematic(estimate: Estimate) -> Estimate {
    let half = estimate.half_width().hypot(SYSTEMATIC);
    Estimate { lower: estimate.point - half, upper: estimate.point + half, ..estimate }
}

/// The share of the tolerance by which trimmed and untrimmed ratios may differ: they weight slices
/// a little differently, even without pauses.
const PAUSES_MATTER: f64 = 0.25;

/// Whether the untrimmed ratio lies outside the trimmed one's interval, by an amount that matters.
fn pauses(ratio: &Estimate, of_totals: f64, tolerance: f64) -> bool {
    let half = (ratio.upper.ln() - ratio.lower.ln()) / 2.0;
    (of_totals.ln() - ratio.point.ln()).abs() > half.max(tolerance * PAUSES_MATTER)
}

/// Estimates over rounds. The round is the unit: requests and slices of one launch share its
/// layout, and are not independent.
pub fn analyse(digests: &[RoundDigest], question: &Question) -> Analysis {
    let variants = digests.first().map_or(0, |digest| digest.variants.len());
    let metrics: Vec<Vec<(Metric, Estimate)>> = match variants {
        1 => vec![single_values(digests, question)],
        _ => (0..variants).map(|variant| absolute(digests, variant, question.level)).collect(),
    };
    let asked = |metric: &Metric| question.metrics.contains(metric);
    let mut found = Vec::new();
    for variant in (0..variants).filter(|variant| *variant != question.baseline) {
        for metric in Metric::ALL {
            let known = digests.iter().filter_map(|digest| {
                let round = &digest.variants[variant];
                Some((round.weighable(metric)?, round.calm_shares[metric as usize]))
            });
            let (rounds, calm): (Vec<weighted::Round>, Vec<f64>) = known.unzip();
            if rounds.len() >= 2 {
                found.push((variant, metric, rounds, calm));
            }
        }
    }
    let all = 0..variants;
    let totals: Vec<Total> = all.clone().map(|v| Total::of_all(digests, v)).collect();
    let in_calm: Vec<Total> = all.map(|variant| Total::of_calm(digests, variant)).collect();
    let family = |wanted: bool| found.iter().filter(|(_, m, ..)| asked(m) == wanted).count();
    let own = metrics.first().filter(|_| variants == 1).into_iter().flatten();
    let own = own.filter(|(metric, _)| asked(metric)).map(|(metric, value)| {
        let of_totals = totals[0].number(*metric);
        let of_calm = in_calm[0].number(*metric);
        let pauses = of_calm.filter(|total| pauses(value, *total, question.tolerance));
        SingleValue { metric: *metric, value: *value, of_totals, pauses }
    });
    let single = own.collect();
    let levels = [sidak(question.level, family(false)), sidak(question.level, family(true))];
    let comparisons = found.into_iter().filter_map(|(variant, metric, rounds, calm)| {
        let asked = asked(&metric);
        let level = levels[usize::from(asked)];
        let mean = Mean::from_rounds(&rounds)?;
        let shown = question.alone.filter(|_| asked).unwrap_or(level);
        let both = intervals([shown, level], |level| mean.interval(level));
        let [ratio, surer] = both.map(|log| with_systematic(log).from_log());
        let percent = |ratio: Estimate| ratio.map(|ratio| metric.overhead_percent(ratio));
        let in_slices =
            Verdict::from_overhead(&percent(ratio), &percent(surer), question.tolerance);
        let ratio_of_totals = totals[variant].ratio_to(&totals[question.baseline], metric);
        let pair = [question.baseline, variant];
        let sustained = sustained::check(digests, metric, pair, &ratio, question);
        let spans = sustained.and_then(|check| spanning(&ratio, &check, in_slices));
        let by_sleepers = by_sleepers(digests, metric, pair, [&ratio, &surer], question.tolerance);
        let apart = by_sleepers.filter(|slept| slept.differs);
        let over = |ratio, slept: fn(&BySleepers) -> &Estimate| {
            apart.as_ref().map_or(ratio, |apart| spanning_clients(&ratio, slept(apart)))
        };
        let own = over(ratio, |slept| &slept.ratio);
        let stated = over(spans.unwrap_or(ratio), |slept| &slept.ratio);
        let stated_strict = over(surer, |slept| &slept.strict_ratio);
        let overhead_percent = percent(stated);
        let of_all =
            Verdict::from_overhead(&percent(own), &percent(stated_strict), question.tolerance);
        let verdict = match sustained.map(|check| check.agreement) {
            _ if spans.is_some() => of_all,
            Some(Agreement::Disagrees) => Verdict::Void,
            Some(Agreement::Unclear) => Verdict::Unresolved,
            Some(Agreement::Agrees) | None => of_all,
        };
        Some(Comparison {
            variant,
            metric,
            asked,
            ratio,
            strict_ratio: surer,
            spans,
            by_sleepers,
            stated,
            stated_strict,
            overhead_percent,
            in_slices,
            verdict,
            pauses: in_calm[variant]
                .ratio_to(&in_calm[question.baseline], metric)
                .filter(|total| pauses(&ratio, *total, question.tolerance)),
            ratio_of_totals,
            rounds: rounds.into_iter().map(|round| round.value).collect(),
            calm_share: mean.shares.iter().zip(calm).map(|(share, calm)| share * calm).sum(),
            shares: mean.shares,
            sustained,
        })
    });
    let comparisons = comparisons.collect();
    Analysis { rounds: digests.len() as u32, metrics, single, comparisons }
}

/// The interval over both slices and sustained load, if they differ and yet both lie wholly on the
/// same side as the slices' verdict.
fn spanning(ratio: &Estimate, check: &Check, in_slices: Verdict) -> Option<Estimate> {
    let concludes = matches!(in_slices, Verdict::Slower | Verdict::Faster);
    let side = |ratio: &Estimate| (ratio.lower > 1.0, ratio.upper < 1.0);
    let is_one_side = side(ratio) == side(&check.ratio) && side(ratio) != (false, false);
    if check.agreement == Agreement::Agrees || !concludes || !is_one_side {
        return None;
    }
    let lower = ratio.lower.min(check.ratio.lower);
    let upper = ratio.upper.max(check.ratio.upper);
    Some(Estimate { point: (lower * upper).sqrt(), lower, upper, ..*ratio })
}

impl Comparison {
    /// The result with clients that sleep, if it differs.
    pub fn apart(&self) -> Option<BySleepers> {
        self.by_sleepers.filter(|slept| slept.differs)
    }
}

/// Geometric means over rounds.
fn absolute(digests: &[RoundDigest], variant: usize, level: f64) -> Vec<(Metric, Estimate)> {
    let of = |metric: Metric| {
        let values = digests.iter().filter_map(|digest| digest.variants[variant].value(metric));
        Some((metric, over_rounds(values, level)?))
    };
    Metric::ALL.into_iter().filter_map(of).collect()
}

/// Metrics of the only variant, with intervals wide enough for repeated looks. Nothing is compared,
/// so the intervals include the machine's drift.
fn single_values(digests: &[RoundDigest], question: &Question) -> Vec<(Metric, Estimate)> {
    let together = sidak(question.level, question.metrics.len());
    let of = |metric: Metric| {
        let rounds: Vec<weighted::Round> =
            digests.iter().filter_map(|d| d.variants[0].weighable(metric)).collect();
        let level = if question.metrics.contains(&metric) { together } else { question.level };
        let estimate = match Mean::from_rounds(&rounds) {
            Some(mean) => {
                let [interval, _] = intervals([level; 2], |level| mean.interval(level));
                with_systematic(interval).from_log()
            }
            None => over_rounds(rounds.iter().map(|round| round.value.exp()), level)?,
        };
        Some((metric, estimate))
    };
    Metric::ALL.into_iter().filter_map(of).collect()
}

/// The geometric mean of one value per round; `None` without rounds.
pub(crate) fn over_rounds(values: impl Iterator<Item = f64>, level: f64) -> Option<Estimate> {
    let logs: Vec<f64> = values.map(f64::ln).collect();
    let estimate = match logs.as_slice() {
        [] => return None,
        // One round has a value and no interval.
        [only] => Estimate { point: *only, lower: *only, upper: *only, level: 0.0, n: 1 },
        _ => Estimate::of_mean(&logs, level)?,
    };
    Some(estimate.from_log())
}

/// Totals of a variant over all rounds.
#[derive(Default)]
struct Total {
    counts: Counts,
    used: Option<Usage>,
    paid: u64,
}

impl Total {
    fn of_all(digests: &[RoundDigest], variant: usize) -> Self {
        let rounds = digests.iter().map(|digest| &digest.variants[variant]);
        rounds.fold(Self::default(), |total, round| {
            total.plus(&round.counts, round.used.clone(), round.replies_charged)
        })
    }

    /// Totals of its calm slices.
    fn of_calm(digests: &[RoundDigest], variant: usize) -> Self {
        let rounds = digests.iter().map(|digest| &digest.variants[variant].calm);
        rounds.fold(Self::default(), |total, calm| {
            total.plus(&calm.counts, calm.used.clone(), calm.replies_charged)
        })
    }

    fn plus(mut self, counts: &Counts, used: Option<Usage>, paid: u64) -> Self {
        self.counts.accumulate(counts);
        self.used = together(self.used.take(), used);
        self.paid += paid;
        self
    }

    /// Ratio of this variant's value to the baseline's, for metrics that are compared within
    /// cycles.
    fn ratio_to(&self, base: &Self, metric: Metric) -> Option<f64> {
        Some(self.number(metric)? / base.number(metric)?)
    }

    fn number(&self, metric: Metric) -> Option<f64> {
        let Self { counts, used, paid } = self;
        let (used, latencies, launch) = (used.clone(), &[][..], None);
        let observed = Observed { counts, used, paid: *paid, latencies, launch };
        metric.number(&observed).filter(|_| metric.basis() == Basis::Cycle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::round_digest::digests;
    use tare_model::samples::{Counts, Round, Slice};

    fn round(index: u32, good: &[[u64; 3]; 2]) -> Round {
        let slices = good.iter().enumerate().flat_map(|(variant, cycles)| {
            cycles.iter().enumerate().map(move |(cycle, good)| Slice {
                variant: variant as u32,
                cycle: cycle as u32,
                counts: Counts { window_ns: 1_000_000, good: *good, ..Counts::default() },
                ..Slice::default()
            })
        });
        Round { index, cycles: 3, slices: slices.collect(), ..Round::default() }
    }

    fn question() -> Question {
        let metrics = vec![Metric::Throughput];
        Question { baseline: 0, metrics, tolerance: 0.02, level: 0.95, alone: None }
    }

    #[test]
    fn a_tenth_less_in_every_round_is_slower_by_a_tenth() {
        let jitter = |n: u32| u64::from(n % 3);
        let rounds: Vec<_> = (0..20)
            .map(|n| round(n, &[[1000, 2000, 500], [900 + jitter(n), 1800, 450 + jitter(n + 1)]]))
            .collect();
        let analysis = analyse(&digests(&rounds, 2, 0), &question());
        let [comparison] = analysis.comparisons.as_slice() else { panic!("{analysis:?}") };
        assert!((comparison.overhead_percent.point - 9.9).abs() < 0.1, "{comparison:?}");
        assert_eq!(comparison.verdict, Verdict::Slower);
        assert!(comparison.pauses.is_none(), "{comparison:?}");
        assert_eq!((analysis.rounds, comparison.ratio.n), (20, 20));
    }

    #[test]
    fn both_on_one_side_give_an_interval_that_spans_them() {
        let ratio = |lower: f64, upper: f64| Estimate {
            point: (lower * upper).sqrt(),
            lower,
            upper,
            level: 0.95,
            n: 9,
        };
        let slices = ratio(0.93, 0.96);
        let seen = |agreement, lower, upper| {
            let check = Check { ratio: ratio(lower, upper), agreement, ns: 1 };
            let spans = spanning(&slices, &check, Verdict::Slower)?;
            assert!(spans.lower < spans.point && spans.point < spans.upper);
            Some((spans.lower, spans.upper))
        };
        assert_eq!(seen(Agreement::Disagrees, 0.86, 0.90), Some((0.86, 0.96)));
        assert_eq!(seen(Agreement::Unclear, 0.86, 0.90), Some((0.86, 0.96)));
        assert_eq!(seen(Agreement::Agrees, 0.86, 0.90), None, "slices stand");
        assert_eq!(seen(Agreement::Disagrees, 0.97, 1.03), None, "it may be the same");
        assert_eq!(seen(Agreement::Disagrees, 1.02, 1.10), None, "faster");
        let check = Check { ratio: slices, agreement: Agreement::Disagrees, ns: 1 };
        assert_eq!(spanning(&slices, &check, Verdict::Same), None, "slices conclude no direction");
    }

    #[test]
    fn two_wild_rounds_are_a_comparison_with_bounds_that_are_numbers() {
        let wild = [round(0, &[[1000; 3], [1000; 3]]), round(1, &[[1000; 3], [1; 3]])];
        let analysis = analyse(&digests(&wild, 2, 0), &question());
        let [comparison] = analysis.comparisons.as_slice() else { panic!("{analysis:?}") };
        let overhead = comparison.overhead_percent;
        assert!(overhead.lower.is_finite() && overhead.upper.is_finite(), "{overhead:?}");
        assert!(comparison.ratio.lower > 0.0 && overhead.lower < -1e5, "{comparison:?}");
        assert_eq!(comparison.verdict, Verdict::Unresolved);
    }

    #[test]
    fn a_slice_without_a_reply_is_not_dropped() {
        let rounds: Vec<_> = (0..20)
            .map(|n| round(n, &[[1000, 1000, 1000 + u64::from(n)], [1000, 1000, 0]]))
            .collect();
        let analysis = analyse(&digests(&rounds, 2, 0), &question());
        let point = analysis.comparisons[0].overhead_percent.point;
        assert!((point - 33.5).abs() < 0.5, "{point}");
    }

    #[test]
    fn stalls_that_trimming_hides_are_told() {
        // One slice of five stalls in every round; trimming cuts one of five off each end.
        let rounds: Vec<_> = (0..40u32)
            .map(|n| {
                let slices = (0..5).flat_map(|cycle| {
                    let stalled = if cycle == 3 { 100 } else { 1000 + u64::from(n % 2) };
                    [(0, 1000), (1, stalled)].map(|(variant, good)| Slice {
                        variant,
                        cycle,
                        counts: Counts { window_ns: 1_000_000, good, ..Counts::default() },
                        ..Slice::default()
                    })
                });
                Round { cycles: 5, slices: slices.collect(), ..Round::default() }
            })
            .collect();
        let comparison = &analyse(&digests(&rounds, 2, 0), &question()).comparisons[0];
        assert_eq!(comparison.verdict, Verdict::Same);
        assert!(comparison.pauses.is_some(), "{comparison:?}");
    }
}
