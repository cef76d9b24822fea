//! Time in nanoseconds, with the unit in the type. Monotonic and wall time never mix.

use std::fmt;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// A point on the monotonic clock, or on the simulated one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Instant(u64);

impl Instant {
    pub const ZERO: Self = Self(0);
    /// Later than any instant a run can reach.
    pub const FAR: Self = Self(u64::MAX);

    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> DurationNs {
        DurationNs(self.0.saturating_sub(earlier.0))
    }
}

/// A length of time.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct DurationNs(u64);

impl DurationNs {
    pub const ZERO: Self = Self(0);

    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    pub const fn from_us(us: u64) -> Self {
        Self(us * 1_000)
    }

    pub const fn from_ms(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }

    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000_000)
    }

    /// Rounds to the nearest nanosecond. Negative and NaN become zero; too large a value saturates.
    pub fn from_secs_f64(secs: f64) -> Self {
        Self((secs * 1e9).round() as u64)
    }

    pub const fn as_ns(self) -> u64 {
        self.0
    }

    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Parses `250us`, `20ms`, `1.5s`, `2m`, `1h`. A bare number is an error: its unit is unknown.
    pub fn parse(text: &str) -> Result<Self, ParseDurationError> {
        let error = || ParseDurationError { input: text.to_owned() };
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(error)?;
        let (number, unit) = text.split_at(digits);
        let scale_ns = match unit {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return Err(error()),
        };
        let number: f64 = number.parse().map_err(|_| error())?;
        let ns = (number * scale_ns).round();
        // More than a century is a mistake, and sums of instants must not overflow.
        if ns.is_finite() && ns <= 3.2e18 { Ok(Self(ns as u64)) } else { Err(error()) }
    }
}

impl From<DurationNs> for std::time::Duration {
    fn from(duration: DurationNs) -> Self {
        Self::from_nanos(duration.0)
    }
}

impl Add<DurationNs> for Instant {
    type Output = Self;
    fn add(self, rhs: DurationNs) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl Sub<DurationNs> for Instant {
    type Output = Self;
    fn sub(self, rhs: DurationNs) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }
}

impl Add for DurationNs {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

/// Exact, in the largest unit that leaves no fraction: `90s`, `1500us`. [`DurationNs::parse`]
/// accepts it.
impl fmt::Display for DurationNs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
        let whole = units.iter().find(|(scale, _)| self.0.is_multiple_of(*scale));
        let (scale, unit) = whole.unwrap_or(&(1, "ns"));
        write!(f, "{}{unit}", self.0 / scale)
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{input}' is not a duration; write a number and ns, us, ms, s, m or h, for example 250ms")]
pub struct ParseDurationError {
    input: String,
}

/// The monotonic clock. Engines take `now` from their reactor instead, so that it can be simulated.
pub fn monotonic_now() -> Instant {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec for the call to fill; CLOCK_MONOTONIC always exists on
    // Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    Instant(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// Wall time, for people and file names only.
pub fn wall_unix_ms() -> u64 {
    #[allow(clippy::disallowed_methods)] // Wall time is read only in this file.
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Wall time in nanoseconds, to compare with another machine's.
pub fn wall_unix_ns() -> u64 {
    #[allow(clippy::disallowed_methods)]
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_number_and_a_unit() {
        for (text, ns) in [
            ("250us", 250_000),
            ("20ms", 20_000_000),
            ("1.5s", 1_500_000_000),
            ("2m", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("0s", 0),
        ] {
            assert_eq!(DurationNs::parse(text), Ok(DurationNs(ns)), "{text}");
        }
        for text in ["", "5", "ms", "1 s", "-1s", "1.2.3s", "99999999999999h", "1d"] {
            let error = DurationNs::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("'{text}' is not a duration; write")), "{error}");
        }
    }

    #[test]
    fn display_is_exact_and_reads_back() {
        for text in ["999ns", "87us", "1500us", "90s", "0s"] {
            assert_eq!(DurationNs::parse(text).unwrap().to_string(), text);
        }
    }
}
