//! One worker of a run of load: its thread, and the intervals that it hands over.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use tare_io::system::{CpuTime, pin_thread, sharpen_timers, thread_cpu_time};
use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant, ReactorKind};

use crate::engine::{Engine, IntervalSink};
use crate::error::LoadError;
use crate::exchange::{Exchange, tuning};
use crate::gate::Gate;
use crate::load_plan::WorkerPlan;
use crate::tally::Tally;

/// What workers tell the collecting thread.
pub(crate) enum Message {
    Interval(Box<Tally>, SyncSender<Box<Tally>>),
    Ended(Box<Result<WorkerReport, LoadError>>),
}

/// Intervals of one worker that may wait to be merged.
pub(crate) const SPARE_TALLIES: usize = 4;

/// What one worker did, beside what it counted in intervals.
#[derive(Debug)]
pub struct WorkerReport {
    pub reactor: ReactorKind,
    pub reactor_note: Option<String>,
    /// Connections opened before the window, and what went wrong with them.
    pub opening: Tally,
    /// The last interval, and what the drain added to it.
    pub last: Tally,
    /// What the window took: neither warm-up nor drain.
    pub cpu: CpuTime,
    pub elapsed: DurationNs,
}

impl WorkerReport {
    /// CPU time over elapsed time. Polling between due times counts as busy.
    pub fn busy_share(&self) -> f64 {
        match self.elapsed.as_ns() {
            0 => 0.0,
            ns => self.cpu.total().as_ns() as f64 / ns as f64,
        }
    }
}

pub(crate) fn work(
    plan: WorkerPlan,
    gate: &Gate,
    stop: &AtomicBool,
    messages: &SyncSender<Message>,
) -> Result<WorkerReport, LoadError> {
    if let Some(cpu) = plan.cpu {
        pin_thread(cpu)?;
    }
    sharpen_timers();
    let (tuning, reactor, stretch) = (tuning(&plan.engine), plan.reactor, plan.stretch);
    let engine = plan.engine(false).ok_or(LoadError::WorkerLost)?;
    let mut sink = ChannelSink::new(&engine, SPARE_TALLIES, messages);
    let (mut exchange, opening) = Exchange::open(engine, reactor, tuning, stop, &mut sink)?;
    gate.arrive();
    exchange.run(stretch, stop, &mut sink)?;
    let report = WorkerReport {
        reactor: exchange.kind(),
        reactor_note: exchange.note.take(),
        opening,
        last: exchange.tally().clone(),
        cpu: sink.cpu,
        elapsed: sink.elapsed,
    };
    exchange.close();
    Ok(report)
}

/// Sends full tallies to the collecting thread, and gets them back empty.
struct ChannelSink {
    messages: SyncSender<Message>,
    returns: SyncSender<Box<Tally>>,
    spares: Receiver<Box<Tally>>,
    opened: Instant,
    /// What the window took, once it is closed.
    elapsed: DurationNs,
    cpu: CpuTime,
}

impl ChannelSink {
    fn new(engine: &Engine, spares: usize, messages: &SyncSender<Message>) -> Self {
        let (returns, receiver) = sync_channel(spares);
        for _ in 0..spares {
            // The channel was made with room for all of them.
            let _ = returns.send(Box::new(Tally::for_series(engine.series())));
        }
        Self {
            messages: messages.clone(),
            returns,
            spares: receiver,
            opened: Instant::ZERO,
            elapsed: DurationNs::ZERO,
            cpu: CpuTime::default(),
        }
    }
}

impl IntervalSink for ChannelSink {
    fn window_opened(&mut self, idle: DurationNs) {
        self.opened = monotonic_now();
        self.cpu = thread_cpu_time().without(idle);
    }

    fn window_closed(&mut self, idle: DurationNs) {
        self.elapsed = monotonic_now().since(self.opened);
        self.cpu = thread_cpu_time().without(idle).since(self.cpu);
    }

    fn exchange(&mut self, tally: &mut Box<Tally>) -> bool {
        let Ok(spare) = self.spares.try_recv() else { return false };
        let full = std::mem::replace(tally, spare);
        let message = Message::Interval(full, self.returns.clone());
        match self.messages.try_send(message) {
            Ok(()) => true,
            Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) => {
                if let Message::Interval(full, _) = message {
                    let spare = std::mem::replace(tally, full);
                    let _ = self.returns.try_send(spare);
                }
                false
            }
        }
    }
}
