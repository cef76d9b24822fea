//! One run of load: a session with a single slice, which reports its intervals while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tare_io::DurationNs;
use tare_io::system::CpuTime;

use crate::LaneId;
use crate::engine::Stretch;
use crate::error::LoadError;
use crate::load_plan::LoadPlan;
use crate::session::{Opened, Sampling, Session, WorkerReport};
use crate::tally::Tally;

/// One interval of all workers, and the total so far.
pub struct Progress<'a> {
    /// Time since the start of the window.
    pub elapsed: DurationNs,
    pub interval: &'a Tally,
    pub total: &'a Tally,
}

/// Receives measurements while load runs, for progress displays, time series, statistics.
pub trait Observer {
    /// Called with each interval of a single worker.
    fn worker_interval(&mut self, _tally: &Tally) {}

    /// Called with each interval of all workers together.
    fn interval(&mut self, _progress: Progress<'_>) {}

    /// Called when a worker cannot go on; the other workers continue.
    fn worker_failed(&mut self) {}
}

/// Ignores all measurements.
pub struct NoObserver;

impl Observer for NoObserver {}

/// Results of a run of load.
#[derive(Debug)]
pub struct LoadResult {
    /// All workers and intervals merged.
    pub total: Tally,
    pub opened: Opened,
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
    let mut session = Session::start(workers, &plan.cpus, stop)?;
    let opened = session.open(&[plan], Sampling::None, &mut StopOnFailure { observer, stop })?;
    let stretch = Stretch { hands_over: true, ..plan.stretch };
    let sliced = session.slice(LaneId(0), stretch, &mut StopOnFailure { observer, stop })?;
    let mut total = sliced.total.clone();
    total.counts.add_opening(&opened.opening.counts);
    total.failures.merge(&opened.opening.failures);
    total.assert_closed();
    let cpu = sliced.workers.iter().fold(CpuTime::default(), |sum, worker| sum + worker.cpu);
    let workers = sliced.workers;
    session.close()?;
    Ok(LoadResult { total, opened, workers, cpu })
}

/// Ends the load if one worker cannot go on.
struct StopOnFailure<'a> {
    observer: &'a mut dyn Observer,
    stop: &'a AtomicBool,
}

impl Observer for StopOnFailure<'_> {
    fn worker_interval(&mut self, tally: &Tally) {
        self.observer.worker_interval(tally);
    }

    fn interval(&mut self, progress: Progress<'_>) {
        self.observer.interval(progress);
    }

    fn worker_failed(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.observer.worker_failed();
    }
}
