//! The time of day, and threads that wait.

use std::thread::park_timeout;
use std::time::Duration;

use tare_io::time::{monotonic_now, wall_unix_ms};
use tare_io::{DurationNs, Instant};

use crate::lab::Clock;

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
