//! A lane of system calls, which the endpoint makes and times.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tare_io::calls::Call;
use tare_io::system::{errno_text, thread_cpu_time};
use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant};

use super::control::Control;
use super::wire::{CALLED_BYTES, CallOrder, Greeting, Purpose, parse_called};
use crate::engine::{EngineConfig, Life, Stretch};
use crate::error::LoadError;
use crate::session::WorkerReport;
use crate::tally::Tally;

pub struct CallsLane {
    call: Call,
    /// Connection for call orders. Only the first worker has one; the others do nothing.
    control: Option<Control>,
    life: Life,
}

/// Timeout of an answer, in addition to the length of the order.
const TIMEOUT: DurationNs = DurationNs::from_secs(20);

impl CallsLane {
    pub fn open(
        config: &EngineConfig,
        call: Call,
        worker: u32,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, LoadError> {
        let greeting = Greeting { purpose: Purpose::Calls, session: 0 };
        let control = match worker {
            0 => Some(Control::open(config, greeting, stop)?),
            _ => None,
        };
        Ok(Self { call, control, life: Life::default() })
    }

    pub fn slice(
        &mut self,
        stretch: Stretch,
        start: Instant,
    ) -> Result<(Tally, WorkerReport), LoadError> {
        let mut report = WorkerReport { began: start, ..WorkerReport::default() };
        let mut tally = Tally::default();
        let Some(control) = &mut self.control else { return Ok((tally, report)) };
        let (began, cpu) = (monotonic_now(), thread_cpu_time());
        let mut made = 0;
        for (length, counts) in [(stretch.ramp, false), (stretch.window, true)] {
            if length == DurationNs::ZERO {
                continue;
            }
            control.set_timeout(length + TIMEOUT);
            control.say(&CallOrder { call: self.call, length }.bytes())?;
            let mut answer = [0; CALLED_BYTES];
            control.hear(&mut answer)?;
            let counted = parse_called(&answer).map_err(|errno| LoadError::Call {
                call: self.call.name(),
                why: errno_text(errno),
            })?;
            made += counted.calls;
            if counts {
                let calls = counted.calls;
                // Measured by the endpoint's clock.
                tally.end = Instant::ZERO + counted.elapsed;
                let counts = &mut tally.counts;
                (counts.started, counts.completed, counts.good) = (calls, calls, calls);
            }
        }
        self.life.sent += made;
        self.life.answered += made;
        report.sent = made;
        tally.counts.answered = made;
        report.elapsed = monotonic_now().since(began);
        report.cpu = thread_cpu_time().since(cpu);
        Ok((tally, report))
    }

    pub fn life(&self) -> &Life {
        &self.life
    }
}
