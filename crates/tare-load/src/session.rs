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

use tare_io::system::{CpuTime, pin_thread, sharpen_timers, thread_cpu_time};
use tare_io::time::{monotonic_now, wall_unix_ns};
use tare_io::{DurationNs, Instant, Random, ReactorKind, SetupError};
use tare_model::net::Protocol;

use crate::LaneId;
use crate::engine::{IntervalSink, Life, Stretch};
use crate::error::LoadError;
use crate::exchange::{Exchange, tuning};
use crate::load_plan::{LoadPlan, Part, WorkerPlan, worker_plans};
use crate::protocol::calls::CallsLane;
use crate::protocol::stream::{StreamLane, Who};
use crate::slice_report::{Recorded, SliceReport};
use crate::tally::Tally;

/// Load workers that wait for orders.
pub struct Session {
    workers: Vec<Worker>,
    cpus: Vec<usize>,
    /// What this client makes of each lane's load.
    parts: Vec<Part>,
    answers: Receiver<(usize, Result<Answer, LoadError>)>,
}

struct Worker {
    orders: SyncSender<Order>,
    thread: Option<JoinHandle<()>>,
}

enum Order {
    Open(Vec<(WorkerPlan, u64)>),
    Slice { lane: LaneId, stretch: Stretch, start: Instant },
    Close,
}

enum Answer {
    Opened { how: &'static str, note: Option<String> },
    Slice(Box<SliceReport>),
    Closed(Vec<Life>),
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
        let mut session =
            Self { workers: Vec::new(), cpus: cpus.to_vec(), parts: Vec::new(), answers };
        for index in 0..workers as usize {
            let (orders, inbox) = sync_channel(1);
            let cpu = (!cpus.is_empty()).then(|| cpus[index % cpus.len()]);
            let (sender, stop) = (sender.clone(), stop.clone());
            let work = move || worker_loop(index, cpu, &stop, &inbox, &sender);
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

    /// Whether it has so many workers, on those CPUs.
    pub fn is_of(&self, workers: u32, cpus: &[usize]) -> bool {
        self.workers() == workers && self.cpus == cpus
    }

    /// Opens a lane for each plan: connections made, nothing asked yet.
    pub fn open(&mut self, plans: &[&LoadPlan]) -> Result<Opened, LoadError> {
        let workers = self.workers();
        // What the streams of these lanes are counted under: theirs alone.
        let random = &mut Random::stream(wall_unix_ns(), "session", u64::from(std::process::id()));
        let mut lanes: Vec<Vec<(WorkerPlan, u64)>> = (0..workers).map(|_| Vec::new()).collect();
        for plan in plans {
            let id = random.next_u64();
            for (lanes, worker) in lanes.iter_mut().zip(worker_plans(plan, workers)?) {
                lanes.push((worker, id));
            }
        }
        let answers =
            self.order(|index| Order::Open(std::mem::take(&mut lanes[index as usize])))?;
        self.parts = plans.iter().map(|plan| plan.part).collect();
        for answer in answers {
            if let Answer::Opened { how, note } = answer {
                return Ok(Opened { how, note });
            }
        }
        Err(LoadError::WorkerLost)
    }

    /// A slice of load on one lane; returns when its last reply is there, one report a worker.
    pub fn slice(&mut self, lane: LaneId, stretch: Stretch) -> Result<Vec<SliceReport>, LoadError> {
        // One start for all workers, so that their windows are the same. An instant that is far off
        // was meant for another clock.
        let soon = monotonic_now() + START_LEAD;
        let start = stretch.start_at.map_or(soon, |at| at.min(soon + START_MAX));
        let (part, workers) =
            (*self.parts.get(lane.0).ok_or(LoadError::WorkerLost)?, self.workers());
        let answers = self.order(|index| {
            let requests = stretch.requests.map(|all| part.of_worker(all, index, workers));
            Order::Slice { lane, stretch: Stretch { requests, ..stretch }, start }
        })?;
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
    fn order(&mut self, mut order: impl FnMut(u32) -> Order) -> Result<Vec<Answer>, LoadError> {
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
/// The longest that a slice is waited for.
const START_MAX: DurationNs = DurationNs::from_secs(5);

fn worker_loop(
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
            let lane = lanes.get_mut(lane.0).ok_or(LoadError::WorkerLost)?;
            Ok(Answer::Slice(Box::new(lane.slice(stretch, start, stop)?)))
        }
        Order::Close => {
            lanes.iter_mut().for_each(Lane::close);
            let lives = lanes.drain(..).map(|lane| lane.ended_life()).collect();
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
            Self::Stream(lane) => lane.slice(stretch, wait_until(start), stop),
            Self::Calls(lane) => lane.slice(stretch, wait_until(start)),
        }
    }

    fn ended_life(&self) -> Life {
        match self {
            Self::Exchange(lane) => lane.exchange.ended_life(),
            Self::Stream(lane) => lane.life().clone(),
            Self::Calls(lane) => lane.life().clone(),
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
            Self::Exchange(lane) => lane.exchange.kind().name(),
            Self::Stream(_) => "plain sends",
            Self::Calls(_) => "orders to where calls are made",
        }
    }

    fn note(&self) -> Option<String> {
        match self {
            Self::Exchange(lane) => lane.exchange.note.clone(),
            _ => None,
        }
    }
}

/// Sleeps until a slice is to start; when it does.
fn wait_until(start: Instant) -> Instant {
    loop {
        let now = monotonic_now();
        let left = start.since(now);
        if left == DurationNs::ZERO {
            return now;
        }
        // Whoever sleeps wakes late: the last of it is spent awake.
        if left > AWAKE {
            std::thread::park_timeout(std::time::Duration::from_nanos(
                left.as_ns() - AWAKE.as_ns(),
            ));
        }
    }
}

const AWAKE: DurationNs = DurationNs::from_us(200);

/// Requests and replies.
struct ExchangeLane {
    exchange: Exchange,
}

impl ExchangeLane {
    fn open(plan: WorkerPlan, stop: &AtomicBool) -> Result<Self, LoadError> {
        let (tuning, reactor) = (tuning(&plan.engine), plan.reactor);
        let engine = plan.engine(true).ok_or(LoadError::WorkerLost)?;
        let clock = &mut WindowClock::default();
        let (exchange, _) = Exchange::open(engine, reactor, tuning, stop, clock)?;
        Ok(Self { exchange })
    }

    fn slice(
        &mut self,
        stretch: Stretch,
        start: Instant,
        stop: &AtomicBool,
    ) -> Result<SliceReport, SetupError> {
        let before = self.exchange.life().clone();
        let mut clock = WindowClock::default();
        let began = self.exchange.run_from(start, stretch, stop, &mut clock)?;
        let bodies = self.exchange.take_bodies();
        let (tally, life) = (self.exchange.tally(), self.exchange.life());
        let report = SliceReport {
            began,
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
            bodies,
        };
        self.exchange.settle(&mut WindowClock::default())?;
        Ok(report)
    }

    fn close(&mut self) {
        self.exchange.close();
        if self.exchange.kind() != ReactorKind::Direct {
            // Should settling fail, dropping the reactor closes everything a little later.
            let _ = self.exchange.settle(&mut WindowClock::default());
        }
    }
}

/// Takes the time and the CPU time of the window, and marks its intervals: nothing is exchanged.
#[derive(Default)]
struct WindowClock {
    opened: Instant,
    elapsed: DurationNs,
    /// Without polling for nothing.
    cpu: CpuTime,
    marks: Vec<(u64, u64)>,
}

/// A window keeps so many.
const MARKS_MAX: usize = 10_000;

impl IntervalSink for WindowClock {
    fn window_opened(&mut self, idle: DurationNs) {
        self.opened = monotonic_now();
        self.cpu = thread_cpu_time().without(idle);
    }

    fn window_closed(&mut self, idle: DurationNs) {
        self.elapsed = monotonic_now().since(self.opened);
        self.cpu = thread_cpu_time().without(idle).since(self.cpu);
    }

    fn exchange(&mut self, tally: &mut Box<Tally>) -> bool {
        if self.marks.len() < MARKS_MAX {
            self.marks.push((monotonic_now().since(self.opened).as_ns(), tally.completed));
        }
        false
    }
}
