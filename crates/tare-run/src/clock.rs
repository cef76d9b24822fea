//! Time as a run sees it: this machine's, or a test's.

use std::thread::park_timeout;
use std::time::Duration;

use tare_io::time::{monotonic_now, wall_unix_ms};
use tare_io::{DurationNs, Instant};

pub trait Clock {
    fn now(&self) -> Instant;
    fn unix_ms(&self) -> u64;
    fn pause(&self, time: DurationNs);
}

/// The clock of this machine. A pause blocks the thread.
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        monotonic_now()
    }

    fn unix_ms(&self) -> u64 {
        wall_unix_ms()
    }

    fn pause(&self, time: DurationNs) {
        park_timeout(Duration::from_nanos(time.as_ns()));
    }
}
