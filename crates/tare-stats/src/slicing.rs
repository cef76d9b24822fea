//! The shape of slices: their length and what comes before them, and how a few trials determine it.

use tare_io::DurationNs;
use tare_model::cold::Cold;
use tare_model::plan::{PlanParts, SLICE_LENGTHS};

/// The shape of all slices of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceShape {
    pub length: DurationNs,
    pub ramp: DurationNs,
    pub warmup: DurationNs,
    /// The slice ends after this many requests.
    pub requests: Option<u64>,
}

/// Settings of the plan that fix a part of the shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fit {
    /// Whether only one variant is measured: short slices would then cancel no drift, and long ones
    /// are closer to sustained load.
    pub single: bool,
    pub length: Option<DurationNs>,
    pub warmup: Option<DurationNs>,
}

/// How fast servers answer, and how long each reply takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    pub per_s: f64,
    pub latency: DurationNs,
}

const SHORTEST: DurationNs = DurationNs::from_ms(20);
const SHORTEST_SINGLE: DurationNs = DurationNs::from_ms(100);
pub const LONGEST: DurationNs = DurationNs::from_secs(1);
/// Replies that a slice should hold.
const REPLIES: f64 = 200.0;
const SHORTEST_RAMP: DurationNs = DurationNs::from_ms(2);
/// Slices of one length would always see the same phases of a periodic server. Lengths are
/// therefore drawn, evenly on a logarithmic scale, up to this many times the shortest.
pub const LONGER_MAX: f64 = 3.0;

/// The mean of these factors.
pub fn longer_mean() -> f64 {
    (LONGER_MAX - 1.0) / LONGER_MAX.ln()
}

impl Fit {
    pub fn from_plan(plan: &PlanParts) -> Self {
        let single = plan.variants.len() == 1;
        Self { single, length: plan.slices.window, warmup: plan.slices.warmup }
    }

    /// The shape before anything is known about the servers.
    pub fn first(self) -> SliceShape {
        let length = self.length.unwrap_or(self.shortest());
        let warmup = self.warmup.unwrap_or(length);
        SliceShape { length, ramp: SHORTEST_RAMP, warmup, requests: None }
    }

    fn shortest(self) -> DurationNs {
        if self.single { SHORTEST_SINGLE } else { SHORTEST }
    }

    /// The shortest slices, or longer ones if the slowest variant gives fewer than `REPLIES` in
    /// them.
    pub fn shape(self, pace: Pace) -> SliceShape {
        let ms = (REPLIES / pace.per_s.max(1e-3) * 1000.0).ceil();
        let needed = DurationNs::from_ms(ms as u64).clamp(self.shortest(), LONGEST);
        let length = self.length.unwrap_or(needed);
        // The first replies come in step; two latencies later they do not.
        let ramp = DurationNs::from_ns(pace.latency.as_ns() * 2);
        let ramp = ramp.clamp(SHORTEST_RAMP, LONGEST);
        SliceShape { length, ramp, warmup: self.warmup.unwrap_or(length), requests: None }
    }
}

impl SliceShape {
    /// A launch's first load, from its first request on; only the readiness check and the probe
    /// come earlier.
    pub fn from_cold_start(cold: Cold) -> Self {
        let (length, requests) = match cold {
            Cold::For(time) => (time, None),
            Cold::Requests(requests) => (*SLICE_LENGTHS.end(), Some(requests)),
        };
        let (ramp, warmup) = (DurationNs::ZERO, DurationNs::ZERO);
        Self { length, requests, ramp, warmup }
    }
}

/// Length of a trial; trials determine slice lengths.
const TRIAL: DurationNs = DurationNs::from_ms(30);
/// Ramp of a trial.
const TRIAL_RAMP: DurationNs = DurationNs::from_ms(5);
/// Minimum replies of a trial.
const TRIAL_REPLIES: f64 = 10.0;
/// Number of trials of each variant.
const TRIALS: usize = 3;

/// A few trials on one variant. Their medians count, because one disturbed trial would affect the
/// whole run.
#[derive(Debug)]
pub struct Trials {
    length: DurationNs,
    seen: Vec<Pace>,
}

impl Default for Trials {
    fn default() -> Self {
        Self { length: TRIAL, seen: Vec::new() }
    }
}

impl Trials {
    /// The next trial; `None` after enough of them.
    pub fn next(&self) -> Option<SliceShape> {
        let (length, ramp, warmup) = (self.length, TRIAL_RAMP, TRIAL);
        (self.seen.len() < TRIALS).then_some(SliceShape { length, ramp, warmup, requests: None })
    }

    /// Records a trial. After too few replies, later trials are longer.
    pub fn take(&mut self, pace: Pace) {
        if pace.per_s * self.length.as_secs_f64() >= TRIAL_REPLIES {
            self.seen.push(pace);
            return;
        }
        if self.length >= LONGEST {
            self.seen = vec![pace; TRIALS];
        }
        self.length = DurationNs::from_ns(self.length.as_ns() * 4).min(LONGEST);
    }

    pub fn pace(mut self) -> Option<Pace> {
        self.seen.sort_by(|a, b| a.per_s.total_cmp(&b.per_s));
        let per_s = self.seen.get(self.seen.len() / 2)?.per_s;
        self.seen.sort_by_key(|pace| pace.latency);
        Some(Pace { per_s, latency: self.seen.get(self.seen.len() / 2)?.latency })
    }
}

impl Pace {
    /// The lower reply rate and the longer latency of the two.
    pub fn slowest(self, other: Self) -> Self {
        Self { per_s: self.per_s.min(other.per_s), latency: self.latency.max(other.latency) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_grow_until_they_hold_replies_and_their_median_counts() {
        let pace = |per_s: f64, ms: u64| Pace { per_s, latency: DurationNs::from_ms(ms) };
        let mut trials = Trials::default();
        for seen in [pace(1000.0, 1), pace(10.0, 50), pace(1100.0, 2), pace(900.0, 9)] {
            assert!(trials.next().is_some());
            trials.take(seen);
        }
        assert_eq!((trials.next(), trials.length), (None, DurationNs::from_ms(120)));
        assert_eq!(trials.pace(), Some(pace(1000.0, 2)));
        let mut dead = Trials::default();
        while dead.next().is_some() {
            dead.take(pace(0.5, 2000));
        }
        assert_eq!(dead.pace(), Some(pace(0.5, 2000)));
    }

    #[test]
    fn slices_hold_replies_of_the_slowest_and_what_was_settled_stays() {
        let pace = Pace { per_s: 1000.0, latency: DurationNs::from_ms(3) };
        let shape = Fit::default().shape(pace);
        assert_eq!((shape.length, shape.ramp), (DurationNs::from_ms(200), DurationNs::from_ms(6)));
        let length = Some(DurationNs::from_ms(50));
        assert_eq!(Fit { length, ..Fit::default() }.shape(pace).warmup, DurationNs::from_ms(50));
    }
}
