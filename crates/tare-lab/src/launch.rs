//! One launch of one server: how it is spoken to wherever it runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tare_io::time::{monotonic_now, wall_unix_ms};
use tare_io::{DurationNs, Instant};

use crate::count;
use crate::error::LabError;
use crate::launch_spec::LaunchSpec;
use crate::meter::Meter;
use crate::server::Server;

/// When a count is believed to be the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    AtLeast(u64),
    /// Twice the same.
    Quiet,
}

const SETTLED_WITHIN: DurationNs = DurationNs::from_ms(1000);
const SETTLED_CHECK: Duration = Duration::from_millis(10);

/// A launch: dropped, it ends.
#[derive(Debug)]
pub struct Launched {
    pub launch_spec: LaunchSpec,
    pub started_unix_ms: u64,
    started: Instant,
    /// How often its count was read.
    readings: AtomicU64,
    /// Carries all that it sends and receives.
    link: Option<String>,
    pub server: Box<dyn Server>,
}

impl Launched {
    pub fn begin(
        launch_spec: LaunchSpec,
        link: Option<String>,
        start: impl FnOnce(LaunchSpec) -> Result<Box<dyn Server>, LabError>,
    ) -> Result<Self, LabError> {
        let (started, started_unix_ms) = (monotonic_now(), wall_unix_ms());
        let server = start(launch_spec.clone())?;
        let readings = AtomicU64::new(0);
        Ok(Self { launch_spec, started_unix_ms, started, readings, link, server })
    }

    /// What it uses, with the packets of its place.
    pub fn meter(&self) -> Meter {
        self.server.meter().with_link(self.link.as_deref())
    }

    pub fn started(&self) -> Instant {
        self.started
    }

    /// When it counts as not having become ready.
    pub fn ready_limit(&self) -> Instant {
        self.started + self.launch_spec.ready_within()
    }

    /// Requests that it served so far, without those that asked for this; where it can be asked. A
    /// line of a log may come after the reply: then it is waited for until there are `expected`.
    pub fn served(&self, expected: Expected) -> Option<u64> {
        let source = self.launch_spec.count.as_ref()?;
        let limit = monotonic_now() + SETTLED_WITHIN;
        let mut before = None;
        loop {
            let now = count::read(source, self.server.as_ref())?;
            // What the asking itself adds is the same with each reading.
            let readings = self.readings.fetch_add(1, Ordering::Relaxed) + 1;
            let now = now.saturating_sub(readings * source.own_requests());
            let is_settled = match expected {
                Expected::AtLeast(n) => now >= n,
                Expected::Quiet => before == Some(now),
            };
            if is_settled || !source.is_late() || monotonic_now() > limit {
                return Some(now);
            }
            before = Some(now);
            std::thread::park_timeout(SETTLED_CHECK);
        }
    }
}
