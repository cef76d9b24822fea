//! How far an agent's clocks are from this process's.

use tare_io::time::{monotonic_now, wall_unix_ns};
use tare_io::{DurationNs, Instant};

use crate::executor::Clocks;
use tare_model::Failure;

/// An agent's clocks minus this process's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offset {
    pub unix_ns: i64,
    pub monotonic_ns: i64,
    /// Round trip of the query; the offset is exact to within half of it.
    pub trip: DurationNs,
}

const QUESTIONS: u32 = 8;

impl Offset {
    /// Reads an agent's clocks a few times, and uses the reading with the shortest round trip.
    pub fn find(ask: impl Fn() -> Result<Clocks, Failure>) -> Result<Self, Failure> {
        let once = || -> Result<Self, Failure> {
            let (before, unix) = (monotonic_now(), wall_unix_ns());
            let there = ask()?;
            let trip = monotonic_now().since(before);
            let half = trip.as_ns() as i64 / 2;
            let own = before.as_ns() as i64;
            Ok(Self {
                unix_ns: (there.unix_ns as i64).saturating_sub((unix as i64).saturating_add(half)),
                monotonic_ns: (there.monotonic.as_ns() as i64)
                    .saturating_sub(own.saturating_add(half)),
                trip,
            })
        };
        let mut best = once()?;
        for _ in 1..QUESTIONS {
            let next = once()?;
            if next.trip < best.trip {
                best = next;
            }
        }
        Ok(best)
    }

    /// Converts a time of this process's clock to the agent's.
    pub fn there(&self, here: Instant) -> Instant {
        Instant::from_ns(here.as_ns().saturating_add_signed(self.monotonic_ns))
    }

    pub fn here(&self, there: Instant) -> Instant {
        Instant::from_ns(there.as_ns().saturating_add_signed(self.monotonic_ns.saturating_neg()))
    }

    /// Largest possible error of the offset.
    pub fn error(&self) -> DurationNs {
        DurationNs::from_ns(self.trip.as_ns() / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_off_is_found_within_its_error() {
        let skew = 3_600_000_000_000;
        let ask = || {
            let monotonic = Instant::from_ns(monotonic_now().as_ns() + skew);
            Ok(Clocks { unix_ns: wall_unix_ns(), monotonic })
        };
        let offset = Offset::find(ask).unwrap();
        let off = offset.monotonic_ns.abs_diff(skew as i64);
        assert!(off <= offset.error().as_ns() + 1, "{off} ns of {}", offset.error());
        let now = monotonic_now();
        assert_eq!(offset.here(offset.there(now)), now);
    }
}
