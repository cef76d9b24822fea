//! How far an agent's clocks are from this process's.

use tare_io::time::{monotonic_now, wall_unix_ns};
use tare_io::{DurationNs, Instant};

use crate::agent::Agent;
use crate::agent::protocol::{Clock, Request};

/// What its clocks show beyond these, when this process's show zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offset {
    pub unix_ns: i64,
    pub monotonic_ns: i64,
    /// There and back: the offset is known to half of it.
    pub trip: DurationNs,
}

const QUESTIONS: u32 = 8;

impl Offset {
    /// The shortest of a few questions says it best.
    pub fn of(agent: &Agent) -> Option<Self> {
        let ask = || {
            let (before, unix) = (monotonic_now(), wall_unix_ns());
            let there: Clock = agent.ask(Request::Clock).ok()?;
            let trip = monotonic_now().since(before);
            let half = trip.as_ns() as i64 / 2;
            let own = before.since(Instant::default()).as_ns() as i64;
            Some(Self {
                unix_ns: (there.unix_ns as i64).saturating_sub((unix as i64).saturating_add(half)),
                monotonic_ns: (there.monotonic_ns as i64).saturating_sub(own.saturating_add(half)),
                trip,
            })
        };
        (0..QUESTIONS).filter_map(|_| ask()).min_by_key(|offset| offset.trip)
    }

    /// What its clock shows when this process's shows that.
    pub fn there(&self, here: Instant) -> Instant {
        Instant::from_ns(here.as_ns().saturating_add_signed(self.monotonic_ns))
    }

    pub fn here(&self, there: Instant) -> Instant {
        Instant::from_ns(there.as_ns().saturating_add_signed(self.monotonic_ns.saturating_neg()))
    }

    /// How far off it can be.
    pub fn error(&self) -> DurationNs {
        DurationNs::from_ns(self.trip.as_ns() / 2)
    }
}
