//! Slices: short stretches of load on one of several servers, one after another, on connections
//! that stay open between them.
//!
//! A session has a few workers, each a thread of its own. A *lane* is one server's connections,
//! spread over the workers. Lanes are opened together, given slices in any order, and closed
//! together; only one lane is under load at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use tare_io::direct::DirectReactor;
use tare_io::epoll::EpollReactor;
use tare_io::system::{CpuTime, pin_thread, sharpen_timers, thread_cpu_time};
use tare_io::time::{monotonic_now, wall_unix_ns};
use tare_io::uring::UringReactor;
use tare_io::{
    Buffers, DurationNs, Endpoint, Instant, Random, Reactor, ReactorKind, SetupError, Tuning,
};
use tare_model::net::Protocol;

use crate::bodies::Seen;
use crate::engine::{Engine, EngineConfig, IntervalSink, Life, Stretch};
use crate::histogram::Histogram;
use crate::net::calls::CallsLane;
use crate::net::stream::{StreamLane, Who};
use crate::run::{LoadError, LoadPlan, plan_of};
use crate::tally::Tally;
use crate::worker::{WorkerPlan, open, turn_until_finished};

/// Load workers that wait for orders.
pub struct Session {
    workers: Vec<Worker>,
    answers: Receiver<(usize, Result<Answer, LoadError>)>,
}

struct Worker {
    orders: SyncSender<Order>,
    thread: Option<JoinHandle<()>>,
}

enum Order {
    Open(Vec<(WorkerPlan, u64)>),
    Slice { lane: usize, stretch: Stretch, start: Instant },
    Close,
}

enum Answer {
    Opened { how: &'static str, note: Option<String> },
    Slice(Box<SliceReport>),
    Closed(Vec<Life>),
}

/// One worker's part of a slice.
#[derive(Debug, Default)]
pub struct SliceReport {
    /// Counters of the window; its histograms are in the series below.
    pub tally: Tally,
    pub from_sent: Recorded,
    pub from_due: Recorded,
    pub send_lag: Recorded,
    pub connect: Recorded,
    pub tls: Recorded,
    pub first_byte: Recorded,
    /// In the window.
    pub cpu: CpuTime,
    pub elapsed: DurationNs,
    /// Over the whole stretch, ramp and drain included.
    pub answered: u64,
    pub sent: u64,
    pub closed_by_server: u64,
    /// Of streams: segments sent again, and datagrams that came after a later one.
    pub retransmits: u64,
    pub disordered: u64,
    /// At the end of each interval of the stretch: time since the window opened, and what had been
    /// answered in it by then.
    pub marks: Vec<(DurationNs, u64)>,
    /// SHA-256 of the bodies that were looked at, with how many had each.
    pub bodies: Vec<(String, u64)>,
}

/// A histogram's buckets that hold something, in ascending order.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    pub counts: Vec<(u64, u64)>,
    pub sum_ns: u128,
}

impl Recorded {
    fn of(histogram: &Histogram) -> Self {
        let counts = histogram.recorded().map(|(value, n)| (value.as_ns(), n)).collect();
        Self { counts, sum_ns: histogram.sum_ns() }
    }
}

/// How the workers of an opened session talk to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// io_uring, epoll, or what needs neither.
    pub how: &'static str,
    pub note: Option<String>,
}

impl Session {
    /// Starts workers, pinned to `cpus` in turn where there are any. `stop` ends whatever they do.
    pub fn start(workers: u32, cpus: &[usize], stop: &Arc<AtomicBool>) -> Result<Self, SetupError> {
        let (sender, answers) = sync_channel(workers as usize);
        let mut session = Self { workers: Vec::new(), answers };
        for index in 0..workers as usize {
            let (orders, inbox) = sync_channel(1);
            let cpu = (!cpus.is_empty()).then(|| cpus[index % cpus.len()]);
            let (sender, stop) = (sender.clone(), stop.clone());
            let work = move || obey(index, cpu, &stop, &inbox, &sender);
            let thread = std::thread::Builder::new()
                .name(format!("load-{index}"))
                .spawn(work)
                .map_err(|error| SetupError::new("cannot start a load worker", error))?;
            session.workers.push(Worker { orders, thread: Some(thread) });
        }
        Ok(session)
    }

    pub fn workers(&self) -> u32 {
        self.workers.len() as u32
    }

    /// Opens a lane for each plan: connections made, nothing asked yet.
    pub fn open(&mut self, plans: &[&LoadPlan]) -> Result<Opened, LoadError> {
        let workers = self.workers();
        // What the streams of these lanes are counted under: theirs alone.
        let random = &mut Random::stream(wall_unix_ns(), "session", u64::from(std::process::id()));
        let sessions: Vec<u64> = plans.iter().map(|_| random.next_u64()).collect();
        let answers = self.order(|index| {
            let lanes = plans.iter().zip(&sessions);
            Order::Open(lanes.map(|(plan, id)| (plan_of(plan, index, workers), *id)).collect())
        })?;
        for answer in answers {
            if let Answer::Opened { how, note } = answer {
                return Ok(Opened { how, note });
            }
        }
        Err(LoadError::WorkerLost)
    }

    /// A slice of load on one lane; returns when its last reply is there, one report a worker.
    pub fn slice(&mut self, lane: usize, stretch: Stretch) -> Result<Vec<SliceReport>, LoadError> {
        // One start for all workers, so that their windows are the same.
        let start = monotonic_now() + START_LEAD;
        let answers = self.order(|_| Order::Slice { lane, stretch, start })?;
        let reports = answers.into_iter().map(|answer| match answer {
            Answer::Slice(report) => Ok(*report),
            _ => Err(LoadError::WorkerLost),
        });
        reports.collect()
    }

    /// Closes all lanes; what each did in its life, by worker and lane.
    pub fn close(&mut self) -> Result<Vec<Vec<Life>>, LoadError> {
        let answers = self.order(|_| Order::Close)?;
        let lives = answers.into_iter().map(|answer| match answer {
            Answer::Closed(lives) => Ok(lives),
            _ => Err(LoadError::WorkerLost),
        });
        lives.collect()
    }

    /// Gives every worker its order, and waits for all answers, also after one failed.
    fn order(&mut self, order: impl Fn(u32) -> Order) -> Result<Vec<Answer>, LoadError> {
        for (index, worker) in self.workers.iter().enumerate() {
            worker.orders.send(order(index as u32)).map_err(|_| LoadError::WorkerLost)?;
        }
        let mut answers: Vec<(usize, Answer)> = Vec::new();
        let mut failed = None;
        for _ in 0..self.workers.len() {
            match self.answers.recv() {
                Ok((index, Ok(answer))) => answers.push((index, answer)),
                Ok((_, Err(error))) => failed = failed.or(Some(error)),
                Err(_) => return Err(LoadError::WorkerLost),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        answers.sort_by_key(|(index, _)| *index);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for mut worker in self.workers.drain(..) {
            // Without a sender the worker's inbox ends, and so does the worker.
            drop(worker.orders);
            if let Some(thread) = worker.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

/// From the order to the start of a slice: long enough for every worker to wake.
const START_LEAD: DurationNs = DurationNs::from_us(200);

fn obey(
    index: usize,
    cpu: Option<usize>,
    stop: &Arc<AtomicBool>,
    inbox: &Receiver<Order>,
    answers: &SyncSender<(usize, Result<Answer, LoadError>)>,
) {
    let pinned = cpu.map_or(Ok(()), pin_thread);
    sharpen_timers();
    let mut lanes: Vec<Lane> = Vec::new();
    for order in inbox {
        let answer = match &pinned {
            Err(error) => {
                let error = std::io::Error::other(error.to_string());
                Err(SetupError::new("a load worker cannot be pinned", error).into())
            }
            // A bug of ours must not leave the session waiting.
            Ok(()) => catch_unwind(AssertUnwindSafe(|| carry_out(order, &mut lanes, stop)))
                .unwrap_or(Err(LoadError::WorkerLost)),
        };
        if answers.send((index, answer)).is_err() {
            break;
        }
    }
    lanes.iter_mut().for_each(Lane::close);
}

fn carry_out(
    order: Order,
    lanes: &mut Vec<Lane>,
    stop: &Arc<AtomicBool>,
) -> Result<Answer, LoadError> {
    match order {
        Order::Open(plans) => {
            lanes.iter_mut().for_each(Lane::close);
            lanes.clear();
            for (plan, session) in plans {
                lanes.push(Lane::open(plan, session, stop)?);
            }
            let first = lanes.first().ok_or(LoadError::WorkerLost)?;
            Ok(Answer::Opened { how: first.how(), note: first.note() })
        }
        Order::Slice { lane, stretch, start } => {
            let lane = lanes.get_mut(lane).ok_or(LoadError::WorkerLost)?;
            Ok(Answer::Slice(Box::new(lane.slice(stretch, start, stop)?)))
        }
        Order::Close => {
            lanes.iter_mut().for_each(Lane::close);
            let lives = lanes.drain(..).map(|lane| lane.life().clone()).collect();
            Ok(Answer::Closed(lives))
        }
    }
}

/// One worker's connections to one server.
enum Lane {
    Exchange(Box<ExchangeLane>),
    Stream(Box<StreamLane>),
    Calls(CallsLane),
}

impl Lane {
    fn open(plan: WorkerPlan, session: u64, stop: &Arc<AtomicBool>) -> Result<Self, LoadError> {
        match plan.engine.protocol {
            Protocol::Http | Protocol::Messages { .. } => {
                Ok(Self::Exchange(Box::new(ExchangeLane::open(plan, stop)?)))
            }
            Protocol::Stream { message_bytes, reverse } => {
                let who = Who { worker: plan.index, session, alone: plan.alone, stop };
                let lane = StreamLane::open(plan.engine, message_bytes, reverse, plan.pacer, who)?;
                Ok(Self::Stream(Box::new(lane)))
            }
            Protocol::Calls { call } => {
                Ok(Self::Calls(CallsLane::open(&plan.engine, call.0, plan.index, stop)?))
            }
        }
    }

    fn slice(
        &mut self,
        stretch: Stretch,
        start: Instant,
        stop: &AtomicBool,
    ) -> Result<SliceReport, LoadError> {
        match self {
            Self::Exchange(lane) => Ok(lane.slice(stretch, start, stop)?),
            Self::Stream(lane) => lane.slice(stretch, start, stop),
            Self::Calls(lane) => lane.slice(stretch),
        }
    }

    fn life(&self) -> &Life {
        match self {
            Self::Exchange(lane) => lane.engine.life(),
            Self::Stream(lane) => lane.life(),
            Self::Calls(lane) => lane.life(),
        }
    }

    fn close(&mut self) {
        // The others' sockets close as they are dropped.
        if let Self::Exchange(lane) = self {
            lane.close();
        }
    }

    fn how(&self) -> &'static str {
        match self {
            Self::Exchange(lane) => lane.io.kind().name(),
            Self::Stream(_) => "plain sends",
            Self::Calls(_) => "orders to where calls are made",
        }
    }

    fn note(&self) -> Option<String> {
        match self {
            Self::Exchange(lane) => lane.note.clone(),
            _ => None,
        }
    }
}

/// Requests and replies.
struct ExchangeLane {
    engine: Engine,
    io: Io,
    note: Option<String>,
    seen: Seen,
}

enum Io {
    Uring(Box<UringReactor>),
    Epoll(EpollReactor),
    Direct(DirectReactor),
}

impl Io {
    fn new(
        wanted: Option<ReactorKind>,
        engine: &Engine,
        tuning: Tuning,
    ) -> Result<(Self, Option<String>), SetupError> {
        let slots = engine.slots();
        if wanted.is_none() && engine.exchanges_one_message() || wanted == Some(ReactorKind::Direct)
        {
            return Ok((Self::Direct(DirectReactor::new(tuning)), None));
        }
        let epoll = || EpollReactor::tuned(slots, tuning).map(Self::Epoll);
        if wanted == Some(ReactorKind::Epoll) {
            return Ok((epoll()?, None));
        }
        match UringReactor::tuned(slots, tuning) {
            Ok(io) => Ok((Self::Uring(Box::new(io)), None)),
            Err(error) if wanted.is_some() => Err(error),
            Err(error) => Ok((epoll()?, Some(error.to_string()))),
        }
    }

    fn kind(&self) -> ReactorKind {
        match self {
            Self::Uring(_) => ReactorKind::IoUring,
            Self::Epoll(_) => ReactorKind::Epoll,
            Self::Direct(_) => ReactorKind::Direct,
        }
    }
}

impl ExchangeLane {
    fn open(plan: WorkerPlan, stop: &AtomicBool) -> Result<Self, LoadError> {
        let tuning = tuning(&plan.engine);
        let seen = Seen::default();
        let source = seen.of((plan.source)(), &plan.engine.expected);
        let engine = Engine::new(plan.engine, source, plan.pacer);
        let (io, note) = Io::new(plan.reactor, &engine, tuning)?;
        let mut lane = Self { engine, io, note, seen };
        let mut sink = WindowClock::default();
        match &mut lane.io {
            Io::Uring(io) => open(&mut lane.engine, io.as_mut(), stop, &mut sink)?,
            Io::Epoll(io) => open(&mut lane.engine, io, stop, &mut sink)?,
            Io::Direct(io) => open(&mut lane.engine, io, stop, &mut sink)?,
        };
        Ok(lane)
    }

    fn slice(
        &mut self,
        stretch: Stretch,
        start: Instant,
        stop: &AtomicBool,
    ) -> Result<SliceReport, SetupError> {
        let Self { engine, io, .. } = self;
        let report = match io {
            Io::Uring(io) => slice(engine, io.as_mut(), stretch, start, stop),
            Io::Epoll(io) => slice(engine, io, stretch, start, stop),
            Io::Direct(io) => slice(engine, io, stretch, start, stop),
        };
        report.map(|report| SliceReport { bodies: self.seen.take(), ..report })
    }

    fn close(&mut self) {
        let engine = &mut self.engine;
        // Should settling fail, dropping the reactor closes everything a little later.
        let _ = match &mut self.io {
            Io::Uring(io) => {
                engine.close(io.as_mut());
                settle(engine, io.as_mut())
            }
            Io::Epoll(io) => {
                engine.close(io);
                settle(engine, io)
            }
            Io::Direct(io) => {
                engine.close(io);
                Ok(())
            }
        };
    }
}

/// Large buffers where messages are large, or would be cut.
fn tuning(config: &EngineConfig) -> Tuning {
    let is_large = |bytes: u32| bytes as usize > Buffers::SMALL.bytes;
    let large = matches!(config.endpoint, Endpoint::Udp(_))
        || config.messages().is_some_and(|messages| is_large(messages.reply_bytes));
    let buffers = if large { Buffers::LARGE } else { Buffers::SMALL };
    Tuning { buffers, sockets: config.sockets, timeout: config.timeout }
}

fn slice<R: Reactor>(
    engine: &mut Engine,
    io: &mut R,
    stretch: Stretch,
    start: Instant,
    stop: &AtomicBool,
) -> Result<SliceReport, SetupError> {
    let before = engine.life().clone();
    let mut clock = WindowClock::default();
    // What happened since the last slice: servers close connections that idle.
    let mut happened = Vec::new();
    io.wait(tare_io::Wait::until(start), &mut happened)?;
    engine.turn(io, &mut happened, &mut clock);
    engine.begin(stretch, start);
    turn_until_finished(engine, io, stop, &mut clock)?;
    let (tally, life) = (engine.tally(), engine.life());
    let report = SliceReport {
        tally: tally.counters(),
        from_sent: Recorded::of(&tally.latency.from_sent),
        from_due: Recorded::of(&tally.latency.from_due),
        send_lag: Recorded::of(&tally.latency.send_lag),
        connect: Recorded::of(&tally.latency.connect),
        tls: Recorded::of(&tally.latency.tls),
        first_byte: Recorded::of(&tally.latency.first_byte),
        cpu: clock.cpu,
        elapsed: clock.elapsed,
        answered: life.answered - before.answered,
        sent: life.sent - before.sent,
        closed_by_server: life.closed_by_server - before.closed_by_server,
        retransmits: 0,
        disordered: 0,
        marks: clock.marks,
        bodies: Vec::new(),
    };
    settle(engine, io)?;
    Ok(report)
}

/// Lets the kernel do what it was told last: a connection that was closed must not stay open until
/// this lane has its next slice.
fn settle<R: Reactor>(engine: &mut Engine, io: &mut R) -> Result<(), SetupError> {
    let mut happened = Vec::new();
    // Once to hand it over, once to let its effects come back.
    for _ in 0..2 {
        io.wait(tare_io::Wait::until(io.now()), &mut happened)?;
        engine.turn(io, &mut happened, &mut WindowClock::default());
    }
    Ok(())
}

/// Takes the time and the CPU time of the window, and marks its intervals: nothing is exchanged.
#[derive(Default)]
struct WindowClock {
    opened: Instant,
    elapsed: DurationNs,
    cpu: CpuTime,
    marks: Vec<(DurationNs, u64)>,
}

/// Of a window; more are not kept.
const MARKS_MAX: usize = 10_000;

impl IntervalSink for WindowClock {
    fn window_opened(&mut self) {
        self.opened = monotonic_now();
        self.cpu = thread_cpu_time();
    }

    fn window_closed(&mut self) {
        self.elapsed = monotonic_now().since(self.opened);
        self.cpu = thread_cpu_time().since(self.cpu);
    }

    fn exchange(&mut self, tally: &mut Box<Tally>) -> bool {
        if self.marks.len() < MARKS_MAX {
            self.marks.push((monotonic_now().since(self.opened), tally.completed));
        }
        false
    }
}
