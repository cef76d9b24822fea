//! One run of load: workers started, their intervals merged as they come, one result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use tare_io::system::CpuTime;
use tare_io::{DurationNs, ReactorKind, SetupError};

use crate::error::LoadError;
use crate::gate::Gate;
use crate::load_plan::{LoadPlan, worker_plans};
use crate::tally::Tally;
use crate::worker::{self, Message, SPARE_TALLIES, WorkerReport};

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
    let plans = worker_plans(plan, workers)?;
    std::thread::scope(|scope| {
        let mut not_started = None;
        for worker_plan in plans {
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
