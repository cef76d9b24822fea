//! When to stop, and how many slices a launch is worth.

use tare_io::DurationNs;
use tare_model::Metric;
use tare_model::check::CheckLimit;
use tare_model::plan::PlanParts;

use crate::analysis::{Analysis, Comparison, INTERVAL_MISS_SHARE, SYSTEMATIC};
use crate::estimate::{Estimate, t_quantile};
use crate::sustained::Agreement;
use crate::verdict::{ROUNDS_MIN, Verdict};
use crate::weighted::{BETWEEN_PRIOR, degrees_of};

/// Looks become rarer as rounds increase, because each costs a little coverage.
const GROWTH: f64 = 1.2;
/// Minimum slices of each variant in a round: enough to trim outliers. More add little, because
/// launches differ by more.
const CYCLES: u32 = 8;
/// Variance of a cycle's log ratio in units of that between launches. It is not taken from the run:
/// neighbours' bursts, which outlast several cycles, would make launches seem worth more.
const SCATTER: f64 = 4.0;
/// Maximum slices of each variant in a round. It matters for launches that take minutes, and for
/// quantiles that hardly any reply exceeds.
pub(crate) const CYCLES_MAX: u32 = 2000;
/// Rounds that must fit into the time, even if slices become fewer for it.
const ROUNDS_TO_FIT: u32 = 5;
/// Forecasts end at this many rounds.
const ROUNDS_FORESEEN: u32 = 1_000_000;

/// Whether the intervals are looked at after this many rounds: 3, 4, 5, then each time a fifth more.
pub fn is_look(rounds: u32) -> bool {
    let mut look = ROUNDS_MIN;
    while look < rounds {
        look = (f64::from(look) * GROWTH).ceil() as u32;
    }
    look == rounds
}

/// When a run's results are precise enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Required precision of ratios, as a share of the ratio.
    pub precision: f64,
    /// Sufficient precision of ratios, as a share of the effect; the larger of the two applies.
    pub of_effect: f64,
    pub tolerance: f64,
}

impl Goal {
    pub fn from_plan(plan: &PlanParts) -> Self {
        let stop = &plan.stop;
        Self { precision: stop.precision, of_effect: stop.of_effect, tolerance: stop.tolerance }
    }

    /// Whether slices give every verdict asked for, at the requested precision; for a single
    /// variant, its values.
    pub fn is_reached(&self, analysis: &Analysis) -> bool {
        if !analysis.single.is_empty() {
            return analysis.single.iter().all(|own| self.knows(&own.value));
        }
        let mut asked =
            analysis.comparisons.iter().filter(|comparison| comparison.asked).peekable();
        asked.peek().is_some()
            && asked.all(|c| {
                let known = c.in_slices != Verdict::Unresolved && self.is_precise(&c.ratio);
                known && c.apart().is_none_or(|slept| self.is_precise(&slept.ratio))
            })
    }

    pub fn is_precise(&self, ratio: &Estimate) -> bool {
        relative_half_width(ratio) <= self.wanted(ratio)
    }

    /// Whether a single variant's value has the requested precision.
    pub fn knows(&self, value: &Estimate) -> bool {
        value.n >= ROUNDS_MIN && relative_half_width(value) <= self.precision
    }

    /// The largest half width that is precise enough for this ratio.
    fn wanted(&self, ratio: &Estimate) -> f64 {
        self.precision.max(self.of_effect * ratio.point.ln().abs())
    }

    /// Total rounds until all comparisons asked for have verdicts; `None` if one never would.
    pub fn rounds_needed(&self, analysis: &Analysis) -> Option<u32> {
        let asked = analysis.comparisons.iter().filter(|comparison| comparison.asked);
        let each: Option<Vec<u32>> = asked.map(|comparison| self.rounds_for(comparison)).collect();
        each?.into_iter().max()
    }

    /// Total rounds for one comparison, if its centre and scatter stay the same.
    pub fn rounds_for(&self, comparison: &Comparison) -> Option<u32> {
        let Comparison { ratio, strict_ratio, in_slices, .. } = comparison;
        let slept = comparison.apart().map(|slept| slept.ratio);
        let (half, effect) = (relative_half_width(ratio), ratio.point.ln().abs());
        let of_verdict = match in_slices {
            // The interval must lie on one side of zero, or within the tolerance.
            Verdict::Unresolved => {
                let apart = effect * half / relative_half_width(strict_ratio);
                apart.max(self.tolerance - effect)
            }
            _ => f64::INFINITY,
        };
        let wanted = self.wanted(ratio).min(of_verdict);
        let (seen, t) = (ratio.n, |rounds: u32| quantile(rounds, ratio.level));
        let narrow = |rounds: u32| {
            let factor = (f64::from(seen) / f64::from(rounds)).sqrt() * t(rounds) / t(seen);
            let of_slept = slept
                .is_none_or(|slept| relative_half_width(&slept) * factor <= self.wanted(&slept));
            half * factor <= wanted && of_slept
        };
        (half.is_finite() && wanted > SYSTEMATIC)
            .then(|| first_sufficient(seen.max(ROUNDS_MIN), narrow))
            .flatten()
    }

    /// Rounds needed before anything is measured, if launches differ as those of most servers do.
    pub fn rounds_expected(&self, level: f64) -> Option<u32> {
        let half = |n: u32| quantile(n, level) * (BETWEEN_PRIOR / f64::from(n)).sqrt();
        first_sufficient(ROUNDS_MIN, |n| half(n) <= self.precision)
    }
}

/// A limit that a run must decide: `throughput > 3 %`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// The variant it applies to; `None` means all.
    pub variant: Option<usize>,
    pub metric: Metric,
    pub above: bool,
    pub percent: f64,
}

/// What is known of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    Kept,
    Exceeded,
    Undecided,
}

impl Limit {
    /// The limits of the check that the plan belongs to, if it does.
    pub fn from_check(plan: &PlanParts) -> Vec<Self> {
        let Some(check) = &plan.check else { return Vec::new() };
        let head = plan.variants.iter().position(|variant| variant.name == check.head);
        let of = |limit: &CheckLimit| Self {
            variant: head,
            metric: limit.metric,
            above: true,
            percent: limit.percent,
        };
        check.limits.iter().map(of).collect()
    }

    /// Whether the intervals of all comparisons to which the limit applies lie wholly on one side
    /// of it, and sustained load does not change that.
    pub fn is_decided(&self, analysis: &Analysis) -> bool {
        let mut own = analysis.comparisons.iter().filter(|c| self.is_about(c)).peekable();
        own.peek().is_some() && own.all(|c| self.find(c) != Finding::Undecided)
    }

    pub fn is_exceeded(&self, analysis: &Analysis) -> bool {
        let mut own = analysis.comparisons.iter().filter(|c| self.is_about(c));
        own.any(|comparison| self.find(comparison) == Finding::Exceeded)
    }

    /// Whether `times` as many rounds could decide the limit, even if the true value lies half
    /// way from the estimate to the bound that is farther from the limit.
    pub fn could_be_decided(&self, analysis: &Analysis, times: f64) -> bool {
        let mut own = analysis.comparisons.iter().filter(|c| self.is_about(c)).peekable();
        own.peek().is_some()
            && own.all(|comparison| {
                let half = comparison.overhead_percent.half_width();
                let apart = (comparison.overhead_percent.point - self.percent).abs() + half / 2.0;
                self.find(comparison) != Finding::Undecided || half / times.sqrt() <= apart
            })
    }

    pub fn is_about(&self, comparison: &Comparison) -> bool {
        comparison.metric == self.metric && self.variant.is_none_or(|v| v == comparison.variant)
    }

    /// Because of repeated looks, a limit is exceeded only if the `surer` interval exceeds it too.
    pub fn find(&self, comparison: &Comparison) -> Finding {
        let Estimate { lower, upper, n, .. } = comparison.overhead_percent;
        let surer = comparison.stated_strict.map(|ratio| self.metric.overhead_percent(ratio));
        let (is_exceeded, is_kept) = match self.above {
            true => (lower.min(surer.lower) > self.percent, upper <= self.percent),
            false => (upper.max(surer.upper) < self.percent, lower >= self.percent),
        };
        let agrees = comparison.sustained.is_none_or(|check| check.agreement == Agreement::Agrees);
        if n < ROUNDS_MIN || !agrees && comparison.spans.is_none() {
            return Finding::Undecided;
        }
        match (is_exceeded, is_kept) {
            (true, _) => Finding::Exceeded,
            (_, true) => Finding::Kept,
            _ => Finding::Undecided,
        }
    }
}

fn quantile(rounds: u32, level: f64) -> f64 {
    t_quantile(degrees_of(f64::from(rounds)), 1.0 - (1.0 - level) * INTERVAL_MISS_SHARE)
}

/// Searches from this number on, in steps of 5 %, for one that is enough.
fn first_sufficient(from: u32, is_enough: impl Fn(u32) -> bool) -> Option<u32> {
    let later = |n: &u32| Some(n + (n / 20).max(1));
    std::iter::successors(Some(from), later)
        .take_while(|n| *n <= ROUNDS_FORESEEN)
        .find(|n| is_enough(*n))
}

/// Half width as a share of the ratio: 3.00 ± 0.06 is ± 2 %, and so is 0.50 ± 0.01.
pub fn relative_half_width(ratio: &Estimate) -> f64 {
    (ratio.upper.ln() - ratio.lower.ln()) / 2.0
}

/// Cycles of a round, given how many seconds its launches and each cycle take. The first few rounds
/// of a run must fit into the time left.
pub fn cycles(launch_s: f64, cycle_s: f64, rounds: u32, left_s: f64) -> u32 {
    let worth = cycles_worth(launch_s, cycle_s);
    let missing = ROUNDS_TO_FIT.saturating_sub(rounds);
    if missing == 0 {
        return worth;
    }
    let fit = (left_s / f64::from(missing) - launch_s) / cycle_s.max(1e-6);
    worth.min((fit as u32).max(CYCLES))
}

/// The number of cycles with which a run of a given length knows the mean best: with K cycles of
/// variance σ² in launches that differ by τ², its variance is (τ² + σ²/K)(L + Kc) over the time.
pub fn cycles_worth(launch_s: f64, cycle_s: f64) -> u32 {
    let best = (launch_s / cycle_s.max(1e-6) * SCATTER).max(0.0).sqrt();
    (best.ceil() as u32).clamp(CYCLES, CYCLES_MAX)
}

/// A time limit that suffices for the rounds that a verdict needs; `None` if `max_time` does,
/// judging by the rounds so far.
pub fn max_time_needed(rounds: u32, elapsed_ns: u64, max_time: DurationNs) -> Option<DurationNs> {
    if rounds == 0 || rounds >= ROUNDS_MIN {
        return None;
    }
    let needed_s = elapsed_ns as f64 / 1e9 / f64::from(rounds) * f64::from(ROUNDS_MIN);
    (needed_s > max_time.as_secs_f64()).then(|| round_limit(needed_s * SPARE))
}

/// Rounds a time limit up to one that a person would choose.
pub fn round_limit(seconds: f64) -> DurationNs {
    let step = match seconds {
        s if s <= 60.0 => 5.0,
        s if s <= 600.0 => 30.0,
        _ => 60.0,
    };
    DurationNs::from_secs_f64((seconds / step).ceil() * step)
}

/// Slack, because later rounds may take longer.
const SPARE: f64 = 1.15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_spaced_by_fifths() {
        let looks: Vec<u32> = (1..60).filter(|n| is_look(*n)).collect();
        assert_eq!(looks, [3, 4, 5, 6, 8, 10, 12, 15, 18, 22, 27, 33, 40, 48, 58]);
    }

    #[test]
    fn a_limit_too_short_for_three_rounds_is_told_by_the_first() {
        let s = DurationNs::from_secs;
        assert_eq!(max_time_needed(1, 8_000_000_000, s(20)), Some(s(30)));
        assert_eq!(max_time_needed(2, 30_000_000_000, s(40)), Some(s(55)));
        assert_eq!(max_time_needed(1, 40_000_000_000, s(60)), Some(s(150)));
        assert_eq!(max_time_needed(1, 6_000_000_000, s(20)), None);
        assert_eq!(max_time_needed(3, 30_000_000_000, s(20)), None, "it has them");
        assert_eq!(max_time_needed(0, 20_000_000_000, s(20)), None, "nothing is known");
    }

    #[test]
    fn launches_that_were_dear_are_used_as_far_as_the_time_allows() {
        assert_eq!(cycles(0.06, 0.05, 0, 60.0), CYCLES);
        assert_eq!(cycles(45.0, 0.05, 0, 600.0), 60, "twice the square root of 900");
        assert_eq!(cycles(45.0, 0.05, 0, 230.0), 20, "five rounds of 46 s");
        assert_eq!(cycles(45.0, 0.05, 4, 46.0), 20, "one more");
        assert_eq!(cycles(45.0, 0.05, 0, 50.0), CYCLES, "five do not fit anyhow");
        assert_eq!(cycles(45.0, 0.05, 5, 1.0), 60);
    }

    #[test]
    fn no_other_number_of_cycles_is_worth_more() {
        for launch_s in [2.0, 10.0, 30.0] {
            let variance =
                |k: u32| (1.0 + SCATTER / f64::from(k)) * (launch_s + f64::from(k) * 0.05);
            let best = variance(cycles_worth(launch_s, 0.05));
            assert!((CYCLES..200).all(|k| best <= 1.001 * variance(k)), "{launch_s}");
        }
    }

    #[test]
    fn forecasts_are_of_the_verdict_and_of_the_precision() {
        let goal = Goal { precision: 0.02, of_effect: 0.1, tolerance: 0.02 };
        let needed = |point: f64, half: f64, in_slices| {
            let around = |half: f64| {
                let (lower, upper) = (point - half, point + half);
                Estimate { point, lower, upper, level: 0.95, n: 40 }.from_log()
            };
            let (ratio, surer) = (around(half), around(half * 1.5));
            let comparison = Comparison {
                variant: 1,
                metric: tare_model::Metric::Throughput,
                asked: true,
                ratio,
                strict_ratio: surer,
                spans: None,
                by_sleepers: None,
                stated: ratio,
                stated_strict: surer,
                overhead_percent: ratio,
                in_slices,
                verdict: in_slices,
                ratio_of_totals: None,
                pauses: None,
                rounds: Vec::new(),
                shares: Vec::new(),
                calm_share: 1.0,
                sustained: None,
            };
            goal.rounds_for(&comparison).unwrap()
        };
        // An interval twice too wide takes four times the rounds, less the gain from a smaller t.
        let of_same = needed(0.0, 0.04, Verdict::Unresolved);
        assert!((150..190).contains(&of_same), "{of_same}");
        // An effect that is known to a tenth of itself is known well enough.
        assert_eq!(needed(0.5, 0.05, Verdict::Slower), 40);
        // At half the tolerance, both verdicts are equally far away.
        let either = needed(0.01, 0.02, Verdict::Unresolved);
        assert!((150..190).contains(&either), "{either}");
        assert_eq!(goal.rounds_expected(0.95), Some(8));
    }
}
