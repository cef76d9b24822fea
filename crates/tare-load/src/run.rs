//! One run of load: workers started, their intervals merged as they come, one result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tare_io::system::CpuTime;
use tare_io::{DurationNs, Endpoint, Random, ReactorKind, SetupError};

use crate::engine::{EngineConfig, Stretch};
use crate::pacer::{Arrivals, Pacer, RateProfile, Spacing};
use crate::source::{FixedRequest, ListedRequests, Source};
use crate::tally::Tally;
use crate::tls::TlsClient;
use crate::worker::{self, WorkerPlan, WorkerReport};

/// A load with every default resolved.
pub struct LoadPlan {
    /// Shared by all workers; `connections` and `max_connections` are totals.
    pub engine: EngineConfig,
    pub source: PlannedSource,
    /// Where each worker connects to, in turn; empty is the engine's endpoint for all.
    pub worker_endpoints: Vec<Endpoint>,
    /// `None` is the closed loop.
    pub rate: Option<RateProfile>,
    pub poisson: bool,
    pub stretch: Stretch,
    pub workers: u32,
    /// A CPU for each worker, in turn; empty leaves them unpinned.
    pub cpus: Vec<usize>,
    /// `None` takes io_uring where the kernel lets us.
    pub reactor: Option<ReactorKind>,
    pub tls_resume: bool,
    pub seed: u64,
}

/// What a worker is to ask.
pub enum PlannedSource {
    Fixed(FixedRequest),
    /// What the engine's protocol says: messages, a stream, calls.
    Messages,
    /// A list, in order (each worker from a place of its own) or at random.
    Listed {
        requests: Arc<[FixedRequest]>,
        random: bool,
    },
    /// Made by each worker in its own thread (a script's state cannot move between threads).
    Made(Arc<dyn Fn(u32) -> Box<dyn Source> + Send + Sync>),
}

/// One interval of all workers, and everything so far.
pub struct Progress<'a> {
    /// Since the start of the window.
    pub elapsed: DurationNs,
    pub interval: &'a Tally,
    pub total: &'a Tally,
}

/// Told what is measured while it is: for progress displays, time series, statistics.
pub trait Observer {
    /// One worker's interval.
    fn worker_interval(&mut self, _tally: &Tally) {}

    /// The same interval of all workers.
    fn interval(&mut self, _progress: Progress<'_>) {}
}

/// Looks away.
pub struct NoObserver;

impl Observer for NoObserver {}

/// Everything a run of load found.
#[derive(Debug)]
pub struct LoadResult {
    /// All workers and intervals merged.
    pub total: Tally,
    pub reactor: ReactorKind,
    /// Why io_uring was not used, where it was wanted.
    pub reactor_note: Option<String>,
    pub workers: Vec<WorkerReport>,
    /// CPU time of all workers, in the window.
    pub cpu: CpuTime,
}

impl LoadResult {
    /// The share of the window that the busiest worker spent on a CPU.
    pub fn busiest_worker(&self) -> f64 {
        self.workers.iter().map(WorkerReport::busy_share).fold(0.0, f64::max)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// Not one connection could be opened.
    #[error("cannot connect to {endpoint}: {why}")]
    NoConnection { endpoint: String, why: String },
    /// An endpoint of `tare net` that was there, and fell silent.
    #[error("{endpoint}: {why}")]
    EndpointLost { endpoint: String, why: String },
    #[error("{pieces} pieces of the stream did not hold what was sent")]
    WrongContent { pieces: u64 },
    /// A call that does not work where it is made.
    #[error("{call}: {why}")]
    Call { call: &'static str, why: String },
    #[error("a load worker ended unexpectedly; this is a bug in tare")]
    WorkerLost,
}

/// Intervals of one worker that may wait to be merged.
const SPARE_TALLIES: usize = 4;

/// Runs the plan. `stop` ends it early; `observer` sees every interval.
pub fn run(
    plan: &LoadPlan,
    stop: &Arc<AtomicBool>,
    observer: &mut dyn Observer,
) -> Result<LoadResult, LoadError> {
    let workers = plan.workers.clamp(1, plan.engine.connections.max(1));
    // Everything that comes from workers goes through one channel, in the order it happened.
    let (sender, receiver) = sync_channel(workers as usize * (SPARE_TALLIES + 2));
    let gate = Arc::new(Gate::new(workers));
    std::thread::scope(|scope| {
        let mut not_started = None;
        for index in 0..workers {
            let worker_plan = plan_of(plan, index, workers);
            let (sender, gate, stop) = (sender.clone(), gate.clone(), stop.clone());
            let (waiting, stopping) = (gate.clone(), stop.clone());
            let worker = move || {
                let work = || worker::work(worker_plan, &gate, &stop, &sender);
                // A bug of ours in one worker must not leave the others waiting for it.
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work))
                    .unwrap_or(Err(LoadError::WorkerLost));
                // The channel outlives every worker; a failed send means nobody listens any more.
                gate.leave();
                let _ = sender.send(Message::Ended(Box::new(result)));
            };
            if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, worker) {
                let what = format!("cannot start {workers} threads");
                not_started.get_or_insert(SetupError::new(what, error));
                stopping.store(true, Ordering::Relaxed);
                waiting.leave();
            }
        }
        drop(sender);
        let result = collect(workers, &receiver, stop, observer);
        not_started.map_or(result, |error| Err(error.into()))
    })
}

/// What workers tell the collecting thread.
pub(crate) enum Message {
    Interval(Box<Tally>, SyncSender<Box<Tally>>),
    Ended(Box<Result<WorkerReport, LoadError>>),
}

/// Workers start their windows together, once all have their connections.
pub(crate) struct Gate {
    waiting: std::sync::Mutex<u32>,
    opened: std::sync::Condvar,
}

impl Gate {
    fn new(workers: u32) -> Self {
        Self { waiting: std::sync::Mutex::new(workers), opened: std::sync::Condvar::new() }
    }

    /// This worker is ready; returns when all are.
    pub(crate) fn arrive(&self) {
        self.leave();
        let mut waiting = self.waiting.lock().unwrap_or_else(|e| e.into_inner());
        while *waiting > 0 {
            waiting = self.opened.wait(waiting).unwrap_or_else(|e| e.into_inner());
        }
    }

    /// This worker will not keep the others waiting. Harmless when said twice.
    fn leave(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(|e| e.into_inner());
        *waiting = waiting.saturating_sub(1);
        if *waiting == 0 {
            self.opened.notify_all();
        }
    }
}

fn collect(
    workers: u32,
    receiver: &Receiver<Message>,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<LoadResult, LoadError> {
    let mut total = Tally::default();
    // Tallies of the interval under way, until every worker has given its own.
    let mut interval = Tally::default();
    let mut given = 0;
    let mut running = workers;
    let mut reports = Vec::new();
    let mut error = None;
    for message in receiver {
        match message {
            Message::Interval(tally, spares) => {
                observer.worker_interval(&tally);
                interval.merge(&tally);
                total.merge(&tally);
                let _ = spares.send(tally);
                given += 1;
                if given >= running {
                    let elapsed = total.elapsed();
                    observer.interval(Progress { elapsed, interval: &interval, total: &total });
                    interval.reset(interval.end);
                    given = 0;
                }
            }
            Message::Ended(report) => match *report {
                Ok(report) => {
                    running -= 1;
                    interval.merge(&report.last);
                    total.merge(&report.last);
                    reports.push(report);
                }
                Err(failed) => {
                    stop.store(true, Ordering::Relaxed);
                    error.get_or_insert(failed);
                }
            },
        }
    }
    if let Some(error) = error {
        return Err(error);
    }
    let Some(first) = reports.first() else { return Err(LoadError::WorkerLost) };
    if total.elapsed() > DurationNs::ZERO {
        let elapsed = total.elapsed();
        observer.interval(Progress { elapsed, interval: &interval, total: &total });
    }
    for report in &reports {
        total.connections += report.opening.connections;
        total.failures.merge(&report.opening.failures);
    }
    total.assert_closed();
    Ok(LoadResult {
        reactor: first.reactor,
        reactor_note: first.reactor_note.clone(),
        cpu: reports.iter().fold(CpuTime::default(), |sum, report| sum + report.cpu),
        workers: reports,
        total,
    })
}

/// One worker's part of the plan: its share of connections, of the rate, and of the requests.
pub(crate) fn plan_of(plan: &LoadPlan, index: u32, workers: u32) -> WorkerPlan {
    let share = |total: u64| {
        let (total, workers, index) = (total, u64::from(workers), u64::from(index));
        total / workers + u64::from(index < total % workers)
    };
    let mut engine = plan.engine.clone();
    if !plan.worker_endpoints.is_empty() {
        let at = index as usize % plan.worker_endpoints.len();
        engine.endpoint = plan.worker_endpoints[at].clone();
    }
    engine.connections = share(u64::from(plan.engine.connections)) as u32;
    engine.max_connections = share(u64::from(plan.engine.max_connections)) as u32;
    engine.tls = plan.engine.tls.as_ref().map(|tls: &TlsClient| tls.for_worker(plan.tls_resume));
    let mut stretch = plan.stretch;
    stretch.requests = plan.stretch.requests.map(share);
    let pacer = match &plan.rate {
        None => Pacer::Closed,
        Some(profile) => {
            let spacing = if plan.poisson {
                Spacing::Poisson(Random::stream(plan.seed, "arrivals", u64::from(index)))
            } else {
                Spacing::Even { phase: f64::from(index) / f64::from(workers) }
            };
            Pacer::Open(Arrivals::new(profile.clone(), 1.0 / f64::from(workers), spacing))
        }
    };
    let source: Box<dyn FnOnce() -> Box<dyn Source> + Send> = match &plan.source {
        PlannedSource::Fixed(request) => {
            let request = *request;
            Box::new(move || Box::new(request))
        }
        PlannedSource::Listed { requests, random } => {
            let (requests, random, seed) = (requests.clone(), *random, plan.seed);
            let start = requests.len() * index as usize / workers as usize;
            Box::new(move || match random {
                true => {
                    let random = Random::stream(seed, "requests", u64::from(index));
                    Box::new(ListedRequests::at_random(requests, random))
                }
                false => Box::new(ListedRequests::in_order(requests, start)),
            })
        }
        PlannedSource::Made(make) => {
            let make = make.clone();
            Box::new(move || make(index))
        }
        PlannedSource::Messages => {
            let messages = engine.messages();
            Box::new(move || {
                messages
                    .map_or_else(|| Box::new(FixedRequest::new(Vec::new())) as _, |m| m.source())
            })
        }
    };
    let cpu = match plan.cpus.len() {
        0 => None,
        n => Some(plan.cpus[index as usize % n]),
    };
    WorkerPlan {
        index,
        alone: workers == 1,
        engine,
        source,
        pacer,
        stretch,
        cpu,
        reactor: plan.reactor,
        spares: SPARE_TALLIES,
    }
}
