//! One worker: a thread, a reactor, an engine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use tare_io::epoll::EpollReactor;
use tare_io::system::{CpuTime, pin_thread, sharpen_timers, thread_cpu_time};
use tare_io::time::monotonic_now;
use tare_io::uring::UringReactor;
use tare_io::{DurationNs, Instant, Reactor, ReactorKind, SetupError};

use crate::engine::{Engine, EngineConfig, IntervalSink, Next, Stretch};
use crate::pacer::Pacer;
use crate::run::{Gate, LoadError, Message};
use crate::source::Source;
use crate::tally::Tally;

pub(crate) struct WorkerPlan {
    pub index: u32,
    /// There are no other workers.
    pub alone: bool,
    pub engine: EngineConfig,
    pub source: Box<dyn FnOnce() -> Box<dyn Source> + Send>,
    pub pacer: Pacer,
    pub stretch: Stretch,
    pub cpu: Option<usize>,
    pub reactor: Option<ReactorKind>,
    pub spares: usize,
}

/// What one worker did, beside what it counted in intervals.
#[derive(Debug)]
pub struct WorkerReport {
    pub reactor: ReactorKind,
    pub reactor_note: Option<String>,
    /// Connections opened before the window, and what went wrong with them.
    pub opening: Tally,
    /// The last interval, and what the drain added to it.
    pub last: Tally,
    /// Of the window: neither warm-up nor drain.
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

/// Waits end at least this often, so that a stop is heeded.
const STOP_CHECK: DurationNs = DurationNs::from_ms(50);

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
    let engine = Engine::new(plan.engine, (plan.source)(), plan.pacer);
    let sink = ChannelSink::new(&engine, plan.spares, messages);
    let job = Job { engine, stretch: plan.stretch, gate, stop, sink };
    let slots = job.engine.slots();
    let uring = match plan.reactor {
        Some(ReactorKind::Epoll) => Err(None),
        _ => UringReactor::new(slots).map_err(Some),
    };
    match (uring, plan.reactor) {
        (Ok(reactor), _) => job.run(reactor, ReactorKind::IoUring, None),
        (Err(Some(error)), Some(ReactorKind::IoUring)) => Err(error.into()),
        (Err(error), _) => {
            let note = error.map(|error: SetupError| error.to_string());
            job.run(EpollReactor::new(slots)?, ReactorKind::Epoll, note)
        }
    }
}

struct Job<'a> {
    engine: Engine,
    stretch: Stretch,
    gate: &'a Gate,
    stop: &'a AtomicBool,
    sink: ChannelSink,
}

impl Job<'_> {
    fn run<R: Reactor>(
        mut self,
        mut io: R,
        reactor: ReactorKind,
        reactor_note: Option<String>,
    ) -> Result<WorkerReport, LoadError> {
        let opening = open(&mut self.engine, &mut io, self.stop, &mut self.sink)?;
        self.gate.arrive();
        self.engine.begin(self.stretch, io.now());
        turn_until_finished(&mut self.engine, &mut io, self.stop, &mut self.sink)?;
        let report = WorkerReport {
            reactor,
            reactor_note,
            opening,
            last: self.engine.tally().clone(),
            cpu: self.sink.cpu,
            elapsed: self.sink.elapsed,
        };
        self.engine.close(&mut io);
        Ok(report)
    }
}

/// Opens the engine's kept connections; none at all is an error.
pub(crate) fn open<R: Reactor>(
    engine: &mut Engine,
    io: &mut R,
    stop: &AtomicBool,
    sink: &mut dyn IntervalSink,
) -> Result<Tally, LoadError> {
    engine.open(io);
    turn_until_finished(engine, io, stop, sink)?;
    let opening = engine.tally().clone();
    if opening.connections.opened == 0 && opening.connections.not_opened > 0 {
        let why = opening.failures.seen().next().map_or("no reason known", |(_, _, why)| why);
        let endpoint = engine.endpoint().to_string();
        return Err(LoadError::NoConnection { endpoint, why: why.to_owned() });
    }
    Ok(opening)
}

/// Runs the phase that was begun to its end.
pub(crate) fn turn_until_finished<R: Reactor>(
    engine: &mut Engine,
    io: &mut R,
    stop: &AtomicBool,
    sink: &mut dyn IntervalSink,
) -> Result<(), SetupError> {
    let mut happened = Vec::with_capacity(8192);
    loop {
        if stop.load(Ordering::Relaxed) {
            engine.interrupt(io.now());
        }
        match engine.turn(io, &mut happened, sink) {
            Next::Finished => return Ok(()),
            Next::Wait(mut wait) => {
                let check = io.now() + STOP_CHECK;
                if check < wait.until {
                    wait.until = check;
                    wait.spin = DurationNs::ZERO;
                }
                io.wait(wait, &mut happened)?;
            }
        }
    }
}

/// Sends full tallies to the collecting thread, and gets them back empty.
struct ChannelSink {
    messages: SyncSender<Message>,
    returns: SyncSender<Box<Tally>>,
    spares: Receiver<Box<Tally>>,
    opened: Instant,
    /// Of the window, once it is closed.
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
    fn window_opened(&mut self) {
        self.opened = monotonic_now();
        self.cpu = thread_cpu_time();
    }

    fn window_closed(&mut self) {
        self.elapsed = monotonic_now().since(self.opened);
        self.cpu = thread_cpu_time().since(self.cpu);
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
