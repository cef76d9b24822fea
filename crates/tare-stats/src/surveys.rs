//! How long launches are loaded before they are measured, as learned from sustained load on all
//! variants at once, from their first request on.
//!
//! The first launch is loaded until its cost has long stopped falling. If that takes long, later
//! launches are loaded as well until they are warm: they have had the load that the first one
//! needed, and cost as little as it did in the end. A cost that merely pauses on its way down is
//! not warm. See docs/method.md.

use tare_io::DurationNs;
use tare_model::sustained::{Sustained, WarmUp};

use crate::round_digest::RoundDigest;
use crate::sustained::{BLOCK_NS, Course, Courses, LAST_NS};

/// A longer warm-up is checked in each launch: it may have been a disturbance of the machine.
const LONG_NS: u64 = 400_000_000;
/// The load must be this many times as long as a long warm-up to show that nothing follows: steps
/// become rarer, and after one at 2 s the next may be at 6 s.
const LOOK: f64 = 3.5;
/// Excess cost (as a logarithm) over the first launch that a later launch may have, beyond the
/// excess of all variants. Identical servers differ from launch to launch, and the machine causes
/// an excess of all.
const BEHIND: f64 = 0.1;
/// A later launch is loaded for at most this many times its planned length: on a machine that has
/// become slower, its cost may never fall to that of the first launch.
const LATER: u64 = 2;
/// Step by which a load is extended. A later launch is loaded this much longer than it should need:
/// the end of its load shows the current cost, which can be compared with its slices.
const LONGER_NS: u64 = LAST_NS;

/// Minimum and maximum length of the first load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub least_ns: u64,
    pub most_ns: u64,
}

impl Limits {
    /// How long a server must be loaded if it was warm after `warm_ns`.
    fn until(&self, warm_ns: u64) -> u64 {
        let look = if warm_ns > LONG_NS { (warm_ns as f64 * LOOK) as u64 } else { 0 };
        self.least_ns.max(warm_ns + self.quiet_ns()).max(look)
    }

    /// A cost that fell this recently may fall further.
    fn quiet_ns(&self) -> u64 {
        self.least_ns * 10 / 11
    }
}

/// Result of a launch's load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct LaunchSurvey {
    warm: WarmUp,
    /// The logarithm of its cost at the end.
    level: Option<f64>,
}

fn level(load: &Sustained) -> Option<f64> {
    Course::from_launch(load).map(|course| course.level)
}

/// Results by launch and variant.
#[derive(Clone, Debug, Default)]
pub struct Surveys(Vec<Vec<LaunchSurvey>>);

/// State of a launch at the end of its load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SurveyState {
    /// Whether the first launch's load reached its limit while its cost had only just fallen.
    pub is_moving: bool,
    /// Excess cost (as a logarithm) of a later launch over the first one, beyond the excess of all
    /// variants.
    pub behind: Option<f64>,
}

impl Surveys {
    /// Restores the surveys from the rounds of a resumed run.
    pub fn from_rounds(digests: &[RoundDigest]) -> Self {
        let mut surveys = Self::default();
        for digest in digests {
            let loads = digest.variants.iter().map(|round| {
                let sustained = round.launch.as_ref()?.load.sustained.as_ref();
                sustained.filter(|sustained| sustained.cold)
            });
            if let Some(loads) = loads.collect::<Option<Vec<_>>>() {
                surveys.take(&digest.warm_ups, &loads);
            }
        }
        surveys
    }

    fn take(&mut self, warm_ups: &[WarmUp], loads: &[&Sustained]) {
        let each = warm_ups.iter().zip(loads);
        let each = each.map(|(warm, load)| LaunchSurvey { warm: *warm, level: level(load) });
        self.0.push(each.collect());
    }

    /// How long the next launch is loaded at first; `None` if no variant needs a long warm-up.
    pub fn first_stretch(&self, limits: &Limits) -> Option<u64> {
        match self.slowest_ns() {
            None => Some(limits.least_ns),
            Some(slowest) => (slowest > LONG_NS).then(|| (slowest + LONGER_NS).min(limits.most_ns)),
        }
    }

    /// How much longer a launch with these results must be loaded, if at all.
    pub fn further(&self, loads: &[&Sustained], limits: &Limits) -> Option<u64> {
        let had = loads.iter().map(|load| total(load)).min()?;
        let wanted = match self.slowest_ns() {
            None => {
                let courses = Courses::from_loads(loads);
                let fell = courses.fell_within(limits.quiet_ns(), BEHIND).contains(&true);
                let least = if fell { had + LONGER_NS } else { had };
                limits.until(courses.slowest_ns()).max(least)
            }
            Some(_) if self.are_warm(loads) => had,
            Some(_) => had + LONGER_NS,
        };
        let most = match self.first_stretch(limits) {
            Some(first) if !self.0.is_empty() => limits.most_ns.min(first * LATER),
            _ => limits.most_ns.max(limits.least_ns),
        };
        let left = most.saturating_sub(had);
        let is_short = wanted.saturating_sub(had) < BLOCK_NS || left < BLOCK_NS;
        (!is_short).then(|| (wanted - had).max(LONGER_NS).min(left))
    }

    /// Whether a later launch has had the load that its variants need, and costs what the first one
    /// did.
    fn are_warm(&self, loads: &[&Sustained]) -> bool {
        let (found, behind) = (self.found(), self.behind(loads));
        loads.iter().zip(found).zip(behind).all(|((load, found), behind)| {
            let answered: u64 = load.bins.iter().map(|bin| bin.answered).sum();
            answered >= found.requests && behind.is_none_or(|behind| behind <= BEHIND)
        })
    }

    /// Excess cost of each variant's launch over its first one, beyond the excess of all variants.
    fn behind(&self, loads: &[&Sustained]) -> Vec<Option<f64>> {
        let firsts = self.0.first().into_iter().flatten();
        let each = firsts.zip(loads);
        let behind = each.map(|(first, load)| Some(level(load)? - first.level?));
        let behind: Vec<Option<f64>> = behind.collect();
        // A variant that became cheaper says nothing about the others: with little CPU time, a cost
        // is only roughly known.
        let of_all = behind.iter().flatten().copied().fold(f64::INFINITY, f64::min).max(0.0);
        behind.into_iter().map(|behind| Some(behind? - of_all)).collect()
    }

    /// Records a launch's results, and returns the state of each variant.
    pub fn add(&mut self, loads: &[&Sustained], limits: &Limits) -> Vec<SurveyState> {
        let is_first = self.0.is_empty();
        let behind = self.behind(loads).into_iter().chain(std::iter::repeat(None));
        let courses = Courses::from_loads(loads);
        let fell = courses.fell_within(limits.quiet_ns(), BEHIND);
        let is_at_limit = loads.iter().any(|load| total(load) + BLOCK_NS > limits.most_ns);
        let standing = fell.into_iter().zip(behind).map(|(fell, behind)| SurveyState {
            is_moving: is_first && fell && is_at_limit,
            behind,
        });
        let standing = standing.collect();
        self.take(&courses.warm_ups(), loads);
        standing
    }

    /// The warm-up of each variant: the median of its launches, the longer one of two. If it were
    /// too short, the server would be measured cold.
    pub fn found(&self) -> Vec<WarmUp> {
        let variants = self.0.first().map_or(0, Vec::len);
        let of = |variant: usize| {
            let mut seen: Vec<WarmUp> = self.0.iter().map(|launch| launch[variant].warm).collect();
            seen.sort_by_key(|warm| warm.ns);
            seen[seen.len() / 2]
        };
        (0..variants).map(of).collect()
    }

    /// Warm-up time of the slowest variant; `None` before the first launch.
    pub fn slowest_ns(&self) -> Option<u64> {
        self.found().iter().map(|warm| warm.ns).max()
    }

    /// The warm-up that each variant gets: the time of the slowest. One of two equal servers may
    /// have seemed slower by chance, and slices would compare it with a colder one.
    pub fn warm(&self) -> Vec<WarmUp> {
        let slowest = self.slowest_ns().unwrap_or(0);
        self.found().into_iter().map(|warm| WarmUp { ns: slowest, ..warm }).collect()
    }
}

/// The warm-up that a launch still needs after other loads on it.
pub fn still_needed(needed: WarmUp, others: impl Iterator<Item = WarmUp>) -> WarmUp {
    others.fold(needed, |left, had| WarmUp {
        ns: left.ns.saturating_sub(had.ns),
        requests: left.requests.saturating_sub(had.requests),
    })
}

/// How long a launch is loaded next: the missing time, but at least `least`.
pub fn warm_next(had: WarmUp, needed: WarmUp, least: DurationNs, most: DurationNs) -> DurationNs {
    let room = most.as_ns().saturating_sub(had.ns);
    least.max(DurationNs::from_ns(needed.ns.saturating_sub(had.ns).min(room)))
}

/// Whether a launch has had enough load, or as much as is allowed.
pub fn is_warm(had: WarmUp, needed: WarmUp, most: DurationNs) -> bool {
    (had.ns >= needed.ns && had.requests >= needed.requests) || had.ns >= most.as_ns()
}

fn total(load: &Sustained) -> u64 {
    load.bins.iter().map(|bin| bin.ns).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_model::sustained::Bin;

    const LIMITS: Limits = Limits { least_ns: 3_300_000_000, most_ns: 20_000_000_000 };
    const SECOND: u64 = 1_000_000_000;

    /// Load of this length on a server with this cost of a request, in µs.
    fn load(ns: u64, cost_us: impl Fn(f64) -> f64) -> Sustained {
        let bin = 25_000_000;
        let of = |at: u64| {
            let answered = (12_500.0 / cost_us((at * bin) as f64 / 1e9)) as u64;
            // Real bins are less even than arithmetic.
            Bin { ns: bin, answered: answered + at % 3, cpu_ns: bin / 2, delay_ns: bin / 2 }
        };
        let bins = (0..ns / bin).map(of).collect();
        Sustained { cold: true, bins, one_thread: true, ..Sustained::default() }
    }

    /// Extends a launch's load until it is long enough, beside a server that needs no warm-up.
    fn survey(surveys: &mut Surveys, cost_us: &dyn Fn(f64) -> f64) -> (Sustained, SurveyState) {
        let mut ns = surveys.first_stretch(&LIMITS).unwrap();
        loop {
            let (seen, even) = (load(ns, cost_us), load(ns, |_| 20.0));
            match surveys.further(&[&seen, &even], &LIMITS) {
                Some(more) => ns += more,
                None => {
                    let standing = surveys.add(&[&seen, &even], &LIMITS)[0];
                    return (seen, standing);
                }
            }
        }
    }

    fn in_steps(t: f64) -> f64 {
        20.0 + 20.0 * f64::from(u8::from(t < 2.0))
            + 10.0 * f64::from(u8::from(t < 6.0))
            + 5.0 * f64::from(u8::from(t < 15.0))
    }

    fn near(ns: u64, seconds: f64) -> bool {
        (ns as f64 / 1e9 - seconds).abs() < 0.2
    }

    #[test]
    fn a_server_that_needs_nothing_is_looked_at_once() {
        let mut surveys = Surveys::default();
        let (seen, standing) = survey(&mut surveys, &|_| 20.0);
        assert_eq!((total(&seen) / 100_000_000, standing), (33, SurveyState::default()));
        assert_eq!((surveys.first_stretch(&LIMITS), surveys.slowest_ns()), (None, Some(0)));
    }

    #[test]
    fn a_cost_that_falls_early_extends_a_short_load() {
        // At 3.3 s the last drop is less than 3 s ago, and the limit allows a longer load.
        let mut surveys = Surveys::default();
        let (seen, standing) = survey(&mut surveys, &|t| if t < 0.35 { 26.0 } else { 20.0 });
        assert!((3 * SECOND..5 * SECOND).contains(&total(&seen)), "{}", total(&seen));
        assert_eq!(standing, SurveyState::default());
    }

    #[test]
    fn steps_far_apart_are_waited_for_and_later_launches_get_as_much() {
        let mut surveys = Surveys::default();
        let (seen, standing) = survey(&mut surveys, &in_steps);
        assert!(!standing.is_moving && near(total(&seen), 20.0), "{standing:?}");
        assert!(near(surveys.slowest_ns().unwrap(), 15.0), "{surveys:?}");
        let (seen, standing) = survey(&mut surveys, &in_steps);
        assert!((15 * SECOND..20 * SECOND + 1).contains(&total(&seen)), "{}", total(&seen));
        assert!(standing.behind.unwrap().abs() < 0.02, "{standing:?}");
    }

    #[test]
    fn a_launch_that_pauses_on_its_way_is_not_warm_yet() {
        let mut surveys = Surveys::default();
        survey(&mut surveys, &|t| if t < 2.0 { 40.0 } else { 20.0 });
        // This launch needs twice as long, and its cost pauses after the first second.
        let late = |t: f64| if t < 1.0 { 60.0 } else { if t < 4.0 { 40.0 } else { 20.0 } };
        let (seen, standing) = survey(&mut surveys, &late);
        assert!(total(&seen) > 4 * SECOND && standing.behind.unwrap() < BEHIND, "{standing:?}");
        // This launch never becomes warm, and its state has the excess cost.
        let (seen, standing) = survey(&mut surveys, &|_| 30.0);
        let behind = standing.behind.unwrap();
        assert!((behind - 0.405).abs() < 0.02, "{standing:?}");
        assert!((6 * SECOND..12 * SECOND).contains(&total(&seen)), "{}", total(&seen));
    }

    #[test]
    fn a_server_that_was_seen_too_dear_makes_no_other_one_cold() {
        let of =
            |us: f64| LaunchSurvey { level: Some((us * 1000.0).ln()), ..LaunchSurvey::default() };
        let surveys = Surveys(vec![vec![of(20.0), of(1000.0)]]);
        let loads = [load(SECOND, |_| 20.0), load(SECOND, |_| 400.0)];
        let behind = surveys.behind(&[&loads[0], &loads[1]]);
        assert!(behind[0].unwrap().abs() < 0.02 && behind[1].unwrap() < 0.0, "{behind:?}");
        // The machine causes an excess of all variants.
        let loads = [load(SECOND, |_| 40.0), load(SECOND, |_| 3000.0)];
        let behind = surveys.behind(&[&loads[0], &loads[1]]);
        assert!(behind[0].unwrap().abs() < 0.02 && behind[1].unwrap() > 0.1, "{behind:?}");
    }

    #[test]
    fn what_falls_until_the_end_is_moving_and_weather_is_outvoted() {
        let mut surveys = Surveys::default();
        let (_, standing) = survey(&mut surveys, &|t| if t < 17.5 { 40.0 - t } else { 20.0 });
        assert!(standing.is_moving, "{standing:?}");
        let mut surveys = Surveys::default();
        survey(&mut surveys, &|t| if t < 1.5 { 40.0 } else { 20.0 });
        for _ in 0..2 {
            assert!(surveys.first_stretch(&LIMITS).is_some());
            survey(&mut surveys, &|_| 20.0);
        }
        assert_eq!(surveys.first_stretch(&LIMITS), None);
    }
}
