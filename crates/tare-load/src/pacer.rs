//! When requests are due.
//!
//! Closed loop: whenever a connection is free. Open loop: at times fixed in advance, whatever the
//! server does. A due request is never skipped: when every connection is busy the pacer simply
//! stays behind, and the requests that wait are those between its next due time and now. The queue
//! therefore costs no memory, however long it grows.

use serde::{Deserialize, Serialize};
use tare_io::{DurationNs, Instant, Random};

#[derive(Clone, Debug)]
pub enum Pacer {
    Closed,
    Open(Arrivals),
}

impl Pacer {
    pub fn is_open_loop(&self) -> bool {
        matches!(self, Self::Open(_))
    }

    /// Starts the schedule at `start`.
    pub fn begin(&mut self, start: Instant) {
        if let Self::Open(arrivals) = self {
            arrivals.begin(start);
        }
    }

    /// When the next request is due. [`Instant::FAR`] once the schedule has ended.
    pub fn next_due(&self, now: Instant) -> Instant {
        match self {
            Self::Closed => now,
            Self::Open(arrivals) => arrivals.next,
        }
    }

    /// Takes the next request, and returns when it was due.
    pub fn take(&mut self, now: Instant) -> Instant {
        match self {
            Self::Closed => now,
            Self::Open(arrivals) => arrivals.take(),
        }
    }
}

/// A rate over time: steps and ramps, one after another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Rates", into = "Rates")]
pub struct RateProfile {
    stages: Vec<Stage>,
}

/// A part of a profile: one rate, or a ramp between two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    pub duration_s: f64,
    pub from_per_s: f64,
    pub to_per_s: f64,
}

impl Stage {
    fn requests(&self) -> f64 {
        self.duration_s * (self.from_per_s + self.to_per_s) / 2.0
    }

    /// The time into the stage at which `requests` have been due: the inverse of the integral of
    /// its rate.
    fn time_of(&self, requests: f64) -> f64 {
        let slope = (self.to_per_s - self.from_per_s) / self.duration_s;
        if slope == 0.0 || self.duration_s.is_infinite() {
            return requests / self.from_per_s;
        }
        if requests <= 0.0 {
            return 0.0; // If a ramp starts from 0, the formula below is 0 / 0.
        }
        // from·t + slope·t²/2 = requests, in the form that does not cancel for a small slope.
        let root = (self.from_per_s * self.from_per_s + 2.0 * slope * requests).max(0.0).sqrt();
        2.0 * requests / (self.from_per_s + root)
    }
}

/// A [`RateProfile`] in JSON, which has no infinite number.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Rates {
    Constant(f64),
    Stages(Vec<Stage>),
}

impl From<RateProfile> for Rates {
    fn from(profile: RateProfile) -> Self {
        profile.constant_rate().map_or(Self::Stages(profile.stages), Self::Constant)
    }
}

impl TryFrom<Rates> for RateProfile {
    type Error = ProfileError;

    fn try_from(rates: Rates) -> Result<Self, ProfileError> {
        match rates {
            Rates::Constant(per_s) => Self::constant(per_s),
            Rates::Stages(stages) => {
                let input = format!("{stages:?}");
                Self { stages }.checked(input)
            }
        }
    }
}

impl RateProfile {
    /// A constant rate for the whole run.
    pub fn constant(per_s: f64) -> Result<Self, ProfileError> {
        let stage = Stage { duration_s: f64::INFINITY, from_per_s: per_s, to_per_s: per_s };
        Self { stages: vec![stage] }.checked(per_s.to_string())
    }

    /// The rate, if it is the same for as long as the run lasts.
    pub fn constant_rate(&self) -> Option<f64> {
        match self.stages.as_slice() {
            [only] if only.duration_s.is_infinite() && only.from_per_s == only.to_per_s => {
                Some(only.from_per_s)
            }
            _ => None,
        }
    }

    /// Parses `10s:1000,30s:5000`: 1,000 per second for 10 s, then 5,000 for 30 s. `10s:0..1000` is
    /// a ramp.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let mut stages = Vec::new();
        for part in text.split(',') {
            let bad = || ProfileError { input: part.to_owned() };
            let (duration, rate) = part.split_once(':').ok_or_else(bad)?;
            let duration = DurationNs::parse(duration).map_err(|_| bad())?;
            let (from, to) = rate.split_once("..").unwrap_or((rate, rate));
            let number = |text: &str| text.parse::<f64>().map_err(|_| bad());
            let stage = Stage {
                duration_s: duration.as_secs_f64(),
                from_per_s: number(from)?,
                to_per_s: number(to)?,
            };
            if duration == DurationNs::ZERO {
                return Err(bad());
            }
            stages.push(stage);
        }
        Self { stages }.checked(text.to_owned())
    }

    /// The stages of the profile; empty if its rate has no end.
    pub fn stages(&self) -> &[Stage] {
        if self.duration().is_some() { &self.stages } else { &[] }
    }

    /// The length of the profile; `None` if its rate has no end.
    pub fn duration(&self) -> Option<DurationNs> {
        let total: f64 = self.stages.iter().map(|stage| stage.duration_s).sum();
        total.is_finite().then(|| DurationNs::from_secs_f64(total))
    }

    pub fn peak_per_s(&self) -> f64 {
        self.stages.iter().flat_map(|s| [s.from_per_s, s.to_per_s]).fold(0.0, f64::max)
    }

    /// Requests due in the first `seconds`.
    pub fn requests_within(&self, seconds: f64) -> f64 {
        let mut left = seconds;
        let mut due = 0.0;
        for stage in &self.stages {
            let inside = left.min(stage.duration_s);
            let slope = (stage.to_per_s - stage.from_per_s) / stage.duration_s;
            due += inside * (stage.from_per_s + slope * inside / 2.0);
            left -= inside;
            if left <= 0.0 {
                break;
            }
        }
        due
    }

    fn checked(self, input: String) -> Result<Self, ProfileError> {
        let good = self.stages.iter().all(|stage| {
            let rates = [stage.from_per_s, stage.to_per_s];
            rates.iter().all(|rate| (0.0..=MAX_PER_S).contains(rate))
                && rates != [0.0, 0.0]
                && stage.duration_s > 0.0
        });
        if good { Ok(self) } else { Err(ProfileError { input }) }
    }
}

/// Faster than any machine sends today; a higher rate is probably a typing error.
const MAX_PER_S: f64 = 1e7;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{input}' is not a rate; write requests per second above 0 and up to 10000000, \
     in stages as 10s:1000,30s:5000 or 10s:0..1000"
)]
pub struct ProfileError {
    input: String,
}

/// The sequence of due times of one worker.
///
/// Requests are evenly spaced, or Poisson, in *expected requests*; the profile turns those into
/// time. Every combination of profile and spacing is therefore exact, and rounding does not add up.
#[derive(Clone, Debug)]
pub struct Arrivals {
    profile: RateProfile,
    /// This worker's part of the profile's rate.
    share: f64,
    spacing: Spacing,
    start: Instant,
    next: Instant,
    /// Expected requests before the next one.
    position: f64,
    stage: usize,
    stage_starts_s: f64,
    stage_starts_at: f64,
}

#[derive(Clone, Debug)]
pub enum Spacing {
    /// `phase` in 0..1 offsets the requests of this worker from those of others.
    Even {
        phase: f64,
    },
    Poisson(Random),
}

impl Arrivals {
    pub fn new(profile: RateProfile, share: f64, spacing: Spacing) -> Self {
        Self {
            profile,
            share,
            spacing,
            start: Instant::ZERO,
            next: Instant::FAR,
            position: 0.0,
            stage: 0,
            stage_starts_s: 0.0,
            stage_starts_at: 0.0,
        }
    }

    fn begin(&mut self, start: Instant) {
        self.start = start;
        self.stage = 0;
        self.stage_starts_s = 0.0;
        self.stage_starts_at = 0.0;
        self.position = match &mut self.spacing {
            Spacing::Even { phase } => *phase,
            Spacing::Poisson(random) => random.exponential(),
        };
        self.next = self.time_of_position();
    }

    fn take(&mut self) -> Instant {
        let due = self.next;
        self.position += match &mut self.spacing {
            Spacing::Even { .. } => 1.0,
            Spacing::Poisson(random) => random.exponential(),
        };
        self.next = self.time_of_position();
        due
    }

    fn time_of_position(&mut self) -> Instant {
        let wanted = self.position / self.share;
        while let Some(stage) = self.profile.stages.get(self.stage) {
            let inside = wanted - self.stage_starts_at;
            if inside < stage.requests() {
                let seconds = self.stage_starts_s + stage.time_of(inside);
                return self.start + DurationNs::from_secs_f64(seconds);
            }
            self.stage += 1;
            self.stage_starts_s += stage.duration_s;
            self.stage_starts_at += stage.requests();
        }
        Instant::FAR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due_times(profile: RateProfile, share: f64, spacing: Spacing, n: usize) -> Vec<u64> {
        let mut pacer = Pacer::Open(Arrivals::new(profile, share, spacing));
        pacer.begin(Instant::from_ns(0));
        (0..n).map(|_| pacer.take(Instant::ZERO).as_ns()).collect()
    }

    #[test]
    fn even_spacing_is_exact_and_workers_interleave() {
        let profile = RateProfile::constant(1000.0).unwrap();
        let first = due_times(profile.clone(), 0.5, Spacing::Even { phase: 0.0 }, 3);
        let second = due_times(profile.clone(), 0.5, Spacing::Even { phase: 0.5 }, 3);
        assert_eq!(first, [0, 2_000_000, 4_000_000]);
        assert_eq!(second, [1_000_000, 3_000_000, 5_000_000]);
        let far = due_times(profile, 1.0, Spacing::Even { phase: 0.0 }, 3_600_001);
        assert_eq!(far[3_600_000], 3_600_000_000_000, "no rounding adds up in an hour");
    }

    #[test]
    fn stages_follow_each_other_and_end() {
        let profile = RateProfile::parse("1s:2,1s:4").unwrap();
        let times = due_times(profile, 1.0, Spacing::Even { phase: 0.0 }, 7);
        let ms: Vec<_> = times[..6].iter().map(|ns| ns / 1_000_000).collect();
        assert_eq!(ms, [0, 500, 1000, 1250, 1500, 1750]);
        assert_eq!(times[6], Instant::FAR.as_ns());
    }

    #[test]
    fn a_ramp_integrates_to_its_mean_rate() {
        let profile = RateProfile::parse("10s:0..1000").unwrap();
        assert_eq!(profile.requests_within(10.0), 5000.0);
        let times = due_times(profile, 1.0, Spacing::Even { phase: 0.0 }, 5001);
        // Half of the requests are due after 1/√2 of the ramp.
        assert_eq!(times[2500] / 1_000_000, 7071);
        assert_eq!(times[5000], Instant::FAR.as_ns());
    }

    #[test]
    fn a_request_due_just_where_a_ramp_from_zero_begins() {
        let profile = RateProfile::parse("1s:4,1s:0..8").unwrap();
        let times = due_times(profile, 1.0, Spacing::Even { phase: 0.0 }, 6);
        let ms: Vec<_> = times.iter().map(|ns| ns / 1_000_000).collect();
        assert_eq!(ms, [0, 250, 500, 750, 1000, 1500]);
    }

    #[test]
    fn poisson_gaps_have_the_rate_and_the_spread_of_their_law() {
        let profile = RateProfile::constant(1000.0).unwrap();
        let random = Random::stream(7, "arrivals", 0);
        let times = due_times(profile, 1.0, Spacing::Poisson(random), 100_001);
        let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 1e6 - 1.0).abs() < 0.02, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "{variance}");
    }

    #[test]
    fn bad_rates_say_what_is_allowed() {
        for text in ["", "10s", "10s:", "x:1000", "10s:-1", "0s:5", "10s:1e9", "10s:0", "10s:nan"] {
            let error = RateProfile::parse(text).unwrap_err().to_string();
            assert!(error.contains("is not a rate; write requests per second"), "{text}: {error}");
        }
        assert!(RateProfile::constant(0.0).is_err());
    }
}
