//! When to stop, and how many slices a launch is worth.

use tare_model::Metric;

use crate::digest::{Scatter, TRIM};
use crate::estimate::{Estimate, t_quantile};
use crate::verdict::ROUNDS_MIN;
use crate::weighted;
use crate::{Analysis, RoundDigest};

/// Looks become rarer as rounds become many: each costs a little coverage.
const GROWTH: f64 = 1.1;
/// Rounds with [`PILOT_CYCLES`] after which the number of cycles is chosen, and again after each.
pub const PILOT_ROUNDS: u32 = 5;
/// Enough to trim one at each end, and to see the variance within a launch.
pub const PILOT_CYCLES: u32 = 6;
/// What launches are expected to differ by before any were seen, as the variance of a log ratio:
/// identical nginx processes differ by a few percent. It counts as much as this many rounds, for a
/// pilot of five often sees no launch effect at all, and would buy slices that teach nothing.
const BETWEEN_PRIOR: f64 = 0.02 * 0.02;
const BETWEEN_PRIOR_ROUNDS: f64 = 4.0;
/// The machine's weather changes: how slices scatter is what so many last rounds say.
const RECENT: usize = 8;
/// A bad minute asks for many cycles and is then over: they are grown into.
const CYCLES_GROWTH: f64 = 1.25;
pub const CYCLES_MIN: u32 = 2;
pub const CYCLES_MAX: u32 = 50;
/// Of launches that take minutes.
const DEAR_CYCLES_MAX: u32 = 10_000;

/// Whether the intervals are looked at after this many rounds: 20, then each time a tenth more.
pub fn is_look(rounds: u32) -> bool {
    let mut look = ROUNDS_MIN;
    while look < rounds {
        look = (f64::from(look) * GROWTH).ceil() as u32;
    }
    look == rounds
}

/// Whether every interval asked for is as narrow as asked.
pub fn precise_enough(analysis: &Analysis, precision: f64) -> bool {
    let mut asked = analysis.comparisons.iter().filter(|comparison| comparison.asked).peekable();
    asked.peek().is_some()
        && asked.all(|comparison| {
            comparison.ratio.n >= ROUNDS_MIN && relative_half_width(&comparison.ratio) <= precision
        })
}

/// How well a ratio is known, as a share of itself: 3.00 ± 0.06 is ± 2 %, and so is 0.50 ± 0.01.
pub fn relative_half_width(ratio: &Estimate) -> f64 {
    (ratio.upper.ln() - ratio.lower.ln()) / 2.0
}

/// Rounds that it takes in all until the widest interval is narrow enough, by the square law.
pub fn rounds_needed(analysis: &Analysis, precision: f64) -> Option<u32> {
    let asked = analysis.comparisons.iter().filter(|comparison| comparison.asked);
    let needed = asked.map(|comparison| {
        let ratio = relative_half_width(&comparison.ratio) / precision;
        (f64::from(comparison.ratio.n) * ratio * ratio).ceil()
    });
    let most = needed.fold(f64::NAN, f64::max);
    most.is_finite().then_some((most as u32).max(ROUNDS_MIN))
}

impl Scatter {
    /// The variance of the mean of so many cycles, trimmed where there are enough to trim.
    pub(crate) fn of_mean(self, cycles: u32) -> f64 {
        let trims = f64::from(cycles) * TRIM >= 1.0;
        (if trims { self.trimmed } else { self.plain }) / f64::from(cycles.max(1))
    }
}

/// What the rounds so far cost and how they scattered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pilot {
    /// Seconds of a round that are not slices: launches, probes, connections.
    pub launch_cost: f64,
    /// Seconds of one cycle.
    pub cycle_cost: f64,
    /// Within a launch, and of launches beyond that.
    pub within: Scatter,
    pub between: f64,
    /// Rounds that gave these.
    pub rounds: u32,
}

impl Pilot {
    /// From digested rounds; the comparison that scatters most.
    pub fn of(
        digests: &[RoundDigest],
        baseline: usize,
        metrics: &[Metric],
        launch_cost: f64,
        cycle_cost: f64,
    ) -> Option<Self> {
        let variants = digests.first()?.variants.len();
        let pilots = (0..variants).filter(|v| *v != baseline).flat_map(|variant| {
            metrics.iter().filter_map(move |metric| {
                let round = |digest: &RoundDigest| {
                    let round = &digest.variants[variant];
                    let scatter = round.scatter[*metric as usize]?;
                    Some((round.weighable(*metric, digest.cycles)?, scatter))
                };
                let seen: Vec<_> = digests.iter().filter_map(round).collect();
                if seen.len() < 2 {
                    return None;
                }
                let recent = &seen[seen.len().saturating_sub(RECENT)..];
                let average = |of: fn(&Scatter) -> f64| {
                    recent.iter().map(|(_, scatter)| of(scatter)).sum::<f64>() / recent.len() as f64
                };
                let within =
                    Scatter { plain: average(|s| s.plain), trimmed: average(|s| s.trimmed) };
                let (rounds, n) = (seen.len() as u32, seen.len() as f64);
                let seen: Vec<weighted::Round> = seen.into_iter().map(|(round, _)| round).collect();
                let variances: Vec<f64> = seen.iter().map(|round| round.variance).collect();
                let between = (BETWEEN_PRIOR * BETWEEN_PRIOR_ROUNDS
                    + weighted::between(&seen, &variances) * n)
                    / (BETWEEN_PRIOR_ROUNDS + n);
                Some(Self { launch_cost, cycle_cost, within, between, rounds })
            })
        });
        pilots.max_by(|a, b| a.variance(CYCLES_MIN).total_cmp(&b.variance(CYCLES_MIN)))
    }

    /// Of a round's log ratio.
    fn variance(&self, cycles: u32) -> f64 {
        self.between + self.within.of_mean(cycles)
    }

    fn seconds(&self, cycles: u32) -> f64 {
        self.launch_cost + f64::from(cycles) * self.cycle_cost
    }
}

/// Cycles that take as long as a launch does: one that was dear to make is used, so that relaunches
/// take half of the time at most.
pub fn worth(launch_cost: f64, cycle_cost: f64) -> u32 {
    let cycles = (launch_cost / cycle_cost.max(1e-6)).ceil() as u32;
    cycles.clamp(CYCLES_MIN, DEAR_CYCLES_MAX)
}

/// The most cycles with which so many rounds fit the time; `None` where they do not fit at all.
pub fn fitting(launch_cost: f64, cycle_cost: f64, rounds: u32, seconds_left: f64) -> Option<u32> {
    let a_round = seconds_left / f64::from(rounds.max(1)) - launch_cost;
    let cycles = (a_round / cycle_cost.max(1e-6)) as u32;
    (cycles >= CYCLES_MIN).then_some(cycles)
}

/// Rounds that are missing until there may be a verdict.
pub fn rounds_missing(rounds: u32) -> u32 {
    ROUNDS_MIN - rounds.min(ROUNDS_MIN - 1)
}

/// Cycles a round: those that buy the narrowest interval for their time, which without trimming is
/// Kalibera and Jones's sqrt((launch cost / cycle cost) × (within / between)); but no more than the
/// precision asked for needs in the fewest rounds that may conclude, not many more than there are
/// `now`, no fewer than a launch is worth, and no more than fit the time. Where those rounds do not
/// fit, launches are used for what they are worth.
pub fn choose_cycles(pilot: &Pilot, precision: f64, seconds_left: f64, now: u32) -> u32 {
    let all = CYCLES_MIN..=CYCLES_MAX;
    let price = |cycles: &u32| pilot.variance(*cycles) * pilot.seconds(*cycles);
    let best = all.clone().min_by(|a, b| price(a).total_cmp(&price(b))).unwrap_or(CYCLES_MIN);
    let rounds = f64::from(ROUNDS_MIN);
    let allowed = rounds * (precision / t_quantile(rounds - 1.0, 0.95)).powi(2);
    let enough = all.clone().find(|cycles| pilot.variance(*cycles) <= allowed);
    let grown = (f64::from(now) * CYCLES_GROWTH).ceil() as u32;
    let worth = worth(pilot.launch_cost, pilot.cycle_cost);
    let missing = rounds_missing(pilot.rounds);
    let fit = fitting(pilot.launch_cost, pilot.cycle_cost, missing, seconds_left);
    best.min(enough.unwrap_or(best)).min(grown).max(worth).min(fit.unwrap_or(worth))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_spaced_by_tenths() {
        let looks: Vec<u32> = (1..60).filter(|n| is_look(*n)).collect();
        assert_eq!(looks, [20, 22, 25, 28, 31, 35, 39, 43, 48, 53, 59]);
    }

    #[test]
    fn cycles_follow_costs_and_variances() {
        let even = |variance: f64| Scatter { plain: variance, trimmed: variance };
        let pilot = Pilot {
            launch_cost: 0.06,
            cycle_cost: 0.05,
            within: even(0.0128),
            between: 0.0023,
            rounds: 5,
        };
        let choose = |pilot: Pilot| choose_cycles(&pilot, 0.005, 1e6, CYCLES_MAX);
        assert_eq!(choose(pilot), 3, "sqrt(1.2 × 5.57) = 2.6");
        assert_eq!(choose(Pilot { launch_cost: 1.0, ..pilot }), 20, "half of the time");
        assert_eq!(choose(Pilot { launch_cost: 6.0, ..pilot }), 120);
        assert_eq!(choose(Pilot { within: even(1e-9), ..pilot }), CYCLES_MIN, "all launch effect");
        assert_eq!(choose(Pilot { within: even(0.0), between: 0.0, ..pilot }), CYCLES_MIN);
        // Wild slices that trimming can cut are worth the five cycles that it needs.
        let wild = Scatter { plain: 0.06, trimmed: 0.0128 };
        assert_eq!(choose(Pilot { within: wild, ..pilot }), 5);
        // Without launch effect the optimum is no bound; what the precision needs is.
        let steady = Pilot { between: 0.0, ..pilot };
        assert_eq!(choose_cycles(&steady, 0.02, 1e6, 6), 8, "0.0128 / (20 × (0.02 / 2.093)²)");
        assert_eq!(choose_cycles(&steady, 0.02, 1e6, 3), 4, "a quarter more than there are");
        assert_eq!(choose_cycles(&steady, 0.02, 15.0 * 0.211, 6), 3, "time for 3");
        let dear = Pilot { launch_cost: 6.0, ..steady };
        assert_eq!(choose_cycles(&dear, 0.02, 15.0 * 6.311, 6), 6, "time for 6");
        assert_eq!(choose_cycles(&dear, 0.02, 60.0, 6), 120, "no time for all rounds");
    }
}
