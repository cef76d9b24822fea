//! One worker's connections to one server, and its part of slices on them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tare_io::system::{CpuTime, thread_cpu_time, thread_wait_time};
use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant, ReactorKind, SetupError};
use tare_model::net::Protocol;

use super::{FilledTally, SPARE_TALLIES, Sampling, TallySender, WorkerReport};
use crate::engine::{IntervalSink, Life, Stretch};
use crate::engine_with_reactor::{Exchange, tuning};
use crate::error::LoadError;
use crate::load_plan::WorkerPlan;
use crate::protocol::calls::CallsLane;
use crate::protocol::stream::{StreamLane, StreamWorker};
use crate::tally::Tally;

pub(super) enum Lane {
    Exchange(Box<ExchangeLane>),
    Stream(Box<StreamLane>),
    Calls(CallsLane),
}

impl Lane {
    pub fn open(
        plan: WorkerPlan,
        session: u64,
        sampling: Sampling,
        stop: &Arc<AtomicBool>,
        opening: &mut Tally,
    ) -> Result<Self, LoadError> {
        match plan.engine.protocol {
            Protocol::Http | Protocol::Http2 { .. } | Protocol::Messages { .. } => {
                let (lane, opened) = ExchangeLane::open(plan, sampling, stop)?;
                opening.merge(&opened);
                Ok(Self::Exchange(Box::new(lane)))
            }
            Protocol::Stream { message_bytes, reverse } => {
                let who = StreamWorker { worker: plan.index, session, alone: plan.alone, stop };
                let lane = StreamLane::open(plan.engine, message_bytes, reverse, plan.pacer, who)?;
                Ok(Self::Stream(Box::new(lane)))
            }
            Protocol::Calls { call } => {
                Ok(Self::Calls(CallsLane::open(&plan.engine, call.0, plan.index, stop)?))
            }
        }
    }

    pub fn slice(
        &mut self,
        stretch: Stretch,
        start: Instant,
        stop: &AtomicBool,
        teller: &TallySender<'_>,
    ) -> Result<WorkerReport, LoadError> {
        let (tally, report) = match self {
            Self::Exchange(lane) => return Ok(lane.slice(stretch, start, stop, teller)?),
            Self::Stream(lane) => lane.slice(stretch, wait_until(start), stop)?,
            Self::Calls(lane) => lane.slice(stretch, wait_until(start))?,
        };
        teller.tell(FilledTally { tally: Box::new(tally), is_whole: false, home: None });
        Ok(report)
    }

    pub fn ended_life(&self) -> Life {
        match self {
            Self::Exchange(lane) => lane.exchange.ended_life(),
            Self::Stream(lane) => lane.life().clone(),
            Self::Calls(lane) => lane.life().clone(),
        }
    }

    pub fn close(&mut self) {
        // Lanes of other kinds close their sockets when they are dropped.
        if let Self::Exchange(lane) = self {
            lane.close();
        }
    }

    pub fn how(&self) -> &'static str {
        match self {
            Self::Exchange(lane) => lane.exchange.kind().name(),
            Self::Stream(_) => "plain sends",
            Self::Calls(_) => "orders to where calls are made",
        }
    }

    pub fn note(&self) -> Option<String> {
        match self {
            Self::Exchange(lane) => lane.exchange.note.clone(),
            _ => None,
        }
    }
}

/// Waits until `start`, and returns the time after that.
fn wait_until(start: Instant) -> Instant {
    loop {
        let now = monotonic_now();
        let left = start.since(now);
        if left == DurationNs::ZERO {
            return now;
        }
        // A sleeping thread wakes late, so the thread stays awake for the last part of the wait.
        if left > AWAKE {
            std::thread::park_timeout(std::time::Duration::from_nanos(
                left.as_ns() - AWAKE.as_ns(),
            ));
        }
    }
}

const AWAKE: DurationNs = DurationNs::from_us(200);

/// A lane of requests and replies.
pub(super) struct ExchangeLane {
    exchange: Exchange,
    spares: Spares,
}

/// Empty tallies; those that were sent to the session come back once merged.
struct Spares {
    made: usize,
    home: SyncSender<Box<Tally>>,
    here: Receiver<Box<Tally>>,
}

impl Spares {
    fn new() -> Self {
        let (home, here) = sync_channel(SPARE_TALLIES);
        Self { made: 0, home, here }
    }

    /// Makes tallies beforehand, so that nothing is allocated while load is measured.
    fn provide(&mut self, n: usize, make: impl Fn() -> Tally) {
        while self.made < n {
            // The channel has room for all of them.
            let _ = self.home.try_send(Box::new(make()));
            self.made += 1;
        }
    }
}

impl ExchangeLane {
    fn open(
        plan: WorkerPlan,
        sampling: Sampling,
        stop: &AtomicBool,
    ) -> Result<(Self, Tally), LoadError> {
        let (tuning, reactor) = (tuning(&plan.engine), plan.reactor);
        let engine = plan.engine(sampling == Sampling::Few).ok_or(LoadError::WorkerLost)?;
        let (exchange, opening) = Exchange::open(engine, reactor, tuning, stop, &mut Unwatched)?;
        Ok((Self { exchange, spares: Spares::new() }, opening))
    }

    fn slice(
        &mut self,
        stretch: Stretch,
        start: Instant,
        stop: &AtomicBool,
        teller: &TallySender<'_>,
    ) -> Result<WorkerReport, SetupError> {
        let series = self.exchange.series();
        let spares = if stretch.hands_over { SPARE_TALLIES } else { 1 };
        self.spares.provide(spares, || Tally::for_series(series));
        let before = self.exchange.life().clone();
        let mut window = Window {
            report: WorkerReport::default(),
            opened: Instant::ZERO,
            handing: stretch.hands_over.then_some((&self.spares, teller)),
        };
        window.report.began = self.exchange.run_from(start, stretch, stop, &mut window)?;
        let mut report = window.report;
        let life = self.exchange.life();
        report.sent = life.sent - before.sent;
        report.closed_by_server = life.closed_by_server - before.closed_by_server;
        let answered = life.answered - before.answered;
        let spare = self.spares.here.try_recv();
        let spare = spare.unwrap_or_else(|_| Box::new(Tally::for_series(series)));
        let mut tally = self.exchange.exchange_tally(spare);
        tally.counts.answered = answered;
        tally.counts.bodies = self.exchange.take_bodies();
        teller.tell(FilledTally { tally, is_whole: false, home: Some(self.spares.home.clone()) });
        self.exchange.settle(&mut Unwatched)?;
        Ok(report)
    }

    fn close(&mut self) {
        self.exchange.close();
        if self.exchange.kind() != ReactorKind::Direct {
            // Should settling fail, dropping the reactor closes everything a little later.
            let _ = self.exchange.settle(&mut Unwatched);
        }
    }
}

/// Ignores everything: for work outside slices.
struct Unwatched;

impl IntervalSink for Unwatched {
    fn exchange(&mut self, _tally: &mut Box<Tally>) -> bool {
        false
    }
}

/// Measures the time and the CPU time of the window, and marks its intervals or hands them over.
struct Window<'a> {
    report: WorkerReport,
    opened: Instant,
    handing: Option<(&'a Spares, &'a TallySender<'a>)>,
}

/// The most marks that a window keeps.
const MARKS_MAX: usize = 10_000;

impl IntervalSink for Window<'_> {
    fn window_opened(&mut self, idle: DurationNs) {
        self.opened = monotonic_now();
        self.report.cpu = cpu_without(idle);
        self.report.waited = thread_wait_time();
    }

    fn window_closed(&mut self, idle: DurationNs) {
        self.report.elapsed = monotonic_now().since(self.opened);
        self.report.cpu = cpu_without(idle).since(self.report.cpu);
        let waited = thread_wait_time().as_ns().saturating_sub(self.report.waited.as_ns());
        self.report.waited = DurationNs::from_ns(waited);
    }

    fn exchange(&mut self, tally: &mut Box<Tally>) -> bool {
        let Some((spares, teller)) = self.handing else {
            if self.report.marks.len() < MARKS_MAX {
                let since = monotonic_now().since(self.opened).as_ns();
                self.report.marks.push((since, tally.counts.completed));
            }
            return false;
        };
        let Ok(spare) = spares.here.try_recv() else { return false };
        let full = std::mem::replace(tally, spare);
        let home = Some(spares.home.clone());
        match teller.try_tell(FilledTally { tally: full, is_whole: true, home }) {
            Ok(()) => true,
            Err(lent) => {
                let spare = std::mem::replace(tally, lent.tally);
                let _ = spares.home.try_send(spare);
                false
            }
        }
    }
}

/// CPU time of this thread, without the time of polling in vain.
fn cpu_without(idle: DurationNs) -> CpuTime {
    thread_cpu_time().without(idle)
}
