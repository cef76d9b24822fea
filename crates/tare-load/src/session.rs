//! Slices: short stretches of load on one of several servers, one after another, on connections
//! that stay open between them.
//!
//! A session has a few workers, each a thread of its own. A *lane* is one server's connections,
//! spread over the workers. Lanes are opened together, given slices in any order, and closed
//! together; only one lane is under load at a time. `tare load` is one long slice, which reports its
//! intervals while it runs.

mod lane;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use tare_io::system::{CpuTime, pin_thread, sharpen_timers};
use tare_io::time::{monotonic_now, wall_unix_ns};
use tare_io::{DurationNs, Instant, Random, SetupError};

use crate::LaneId;
use crate::engine::{Life, Stretch};
use crate::error::LoadError;
use crate::load_plan::{LoadPlan, Part, WorkerPlan, worker_plans};
use crate::run::{NoObserver, Observer, Progress};
use crate::tally::Tally;

use lane::Lane;

/// Whether the bodies of replies are sampled under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// The bodies of a few replies are hashed, if all requests are the same.
    Few,
    None,
}

/// Load workers that wait for orders.
pub struct Session {
    workers: Vec<Worker>,
    cpus: Vec<usize>,
    /// This client's part of each lane's load.
    parts: Vec<Part>,
    /// Tally of all workers for the current or the last slice; its memory is reused.
    total: Tally,
    messages: Receiver<(usize, WorkerMessage)>,
}

struct Worker {
    orders: SyncSender<WorkerCommand>,
    thread: Option<JoinHandle<()>>,
}

enum WorkerCommand {
    Open(Vec<(WorkerPlan, u64)>, Sampling),
    Slice { lane: LaneId, stretch: Stretch, start: Instant },
    Close,
}

/// Messages from workers, while they carry out an order and at its end.
enum WorkerMessage {
    /// Counts of a slice since the last such message.
    Counted(FilledTally),
    Done(Result<Done, LoadError>),
}

enum Done {
    Opened { how: &'static str, note: Option<String>, opening: Box<Tally> },
    Slice(WorkerReport),
    Closed(Vec<Life>),
}

/// A tally filled by a worker; once merged, it goes back to the worker to be filled again.
struct FilledTally {
    tally: Box<Tally>,
    /// The tally covers a whole interval, and the slice goes on.
    is_whole: bool,
    home: Option<SyncSender<Box<Tally>>>,
}

impl FilledTally {
    fn give_back(self) {
        // Fails only if the worker has ended and needs no tally.
        if let Some(home) = self.home {
            let _ = home.try_send(self.tally);
        }
    }
}

/// How the workers of an opened session reach the kernel, and the tally of opening connections.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The reactor's name, or what is used instead of one.
    pub how: &'static str,
    pub note: Option<String>,
    pub opening: Tally,
}

/// One worker's report on a slice, besides its counts.
#[derive(Clone, Debug, Default)]
pub struct WorkerReport {
    /// When load began, by this machine's clock; never before the agreed start.
    pub began: Instant,
    /// CPU time in the window, without ramp and drain.
    pub cpu: CpuTime,
    pub elapsed: DurationNs,
    /// Time in the window in which it was ready to run but waited for a CPU.
    pub waited: DurationNs,
    /// Requests sent in the whole stretch, including ramp and drain.
    pub sent: u64,
    pub closed_by_server: u64,
    /// At the end of each interval of the stretch: nanoseconds since the window opened, and
    /// replies completed in it by then.
    pub marks: Vec<(u64, u64)>,
}

impl WorkerReport {
    /// CPU time over elapsed time. Polling between due times counts as busy.
    pub fn busy_share(&self) -> f64 {
        self.cpu.total().as_ns() as f64 / self.elapsed.as_ns().max(1) as f64
    }
}

/// Results of a slice.
pub struct SliceResult<'a> {
    pub total: &'a Tally,
    pub workers: Vec<WorkerReport>,
}

impl Session {
    /// Starts workers, pinned to `cpus` in turn if there are any. Setting `stop` interrupts their
    /// work.
    pub fn start(workers: u32, cpus: &[usize], stop: &Arc<AtomicBool>) -> Result<Self, SetupError> {
        let (sender, told) = sync_channel(workers as usize * (SPARE_TALLIES + 2));
        let (parts, total) = (Vec::new(), Tally::default());
        let mut session =
            Self { workers: Vec::new(), cpus: cpus.to_vec(), parts, total, messages: told };
        for index in 0..workers as usize {
            let (orders, inbox) = sync_channel(1);
            let cpu = (!cpus.is_empty()).then(|| cpus[index % cpus.len()]);
            let (sender, stop) = (sender.clone(), stop.clone());
            let work = move || worker_loop(index, cpu, &stop, &inbox, &sender);
            let thread =
                std::thread::Builder::new().name(format!("load-{index}")).spawn(work).map_err(
                    |error| SetupError::new(format!("cannot start {workers} threads"), error),
                )?;
            session.workers.push(Worker { orders, thread: Some(thread) });
        }
        Ok(session)
    }

    pub fn workers(&self) -> u32 {
        self.workers.len() as u32
    }

    /// Whether the session has this many workers, on these CPUs.
    pub fn matches(&self, workers: u32, cpus: &[usize]) -> bool {
        self.workers() == workers && self.cpus == cpus
    }

    /// Opens a lane for each plan: makes connections, but sends no requests yet.
    pub fn open(
        &mut self,
        plans: &[&LoadPlan],
        sampling: Sampling,
        observer: &mut dyn Observer,
    ) -> Result<Opened, LoadError> {
        let workers = self.workers();
        // Each lane gets a random id, under which the endpoint counts its streams.
        let random = &mut Random::stream(wall_unix_ns(), "session", u64::from(std::process::id()));
        let mut lanes: Vec<Vec<(WorkerPlan, u64)>> = (0..workers).map(|_| Vec::new()).collect();
        for plan in plans {
            let id = random.next_u64();
            for (lanes, worker) in lanes.iter_mut().zip(worker_plans(plan, workers)?) {
                lanes.push((worker, id));
            }
        }
        let order =
            |index: u32| WorkerCommand::Open(std::mem::take(&mut lanes[index as usize]), sampling);
        let all = self.order(order, TallyMerger::new(&mut Tally::default(), observer))?;
        self.parts = plans.iter().map(|plan| plan.part).collect();
        let mut opened: Option<Opened> = None;
        for done in all {
            let Done::Opened { how, note, opening } = done else { continue };
            let new = || Opened { how, note, opening: Tally::default() };
            opened.get_or_insert_with(new).opening.merge(&opening);
        }
        opened.ok_or(LoadError::WorkerLost)
    }

    /// Runs a slice of load on one lane, and returns when its last reply has arrived. The observer
    /// sees its intervals if the stretch hands them over.
    pub fn slice(
        &mut self,
        lane: LaneId,
        stretch: Stretch,
        observer: &mut dyn Observer,
    ) -> Result<SliceResult<'_>, LoadError> {
        // All workers start at the same time, so that their windows are the same. A start that is
        // far off was meant for another clock.
        let soon = monotonic_now() + START_LEAD;
        let start = stretch.start_at.map_or(soon, |at| at.min(soon + START_MAX));
        let (part, workers) =
            (*self.parts.get(lane.0).ok_or(LoadError::WorkerLost)?, self.workers());
        let mut total = std::mem::take(&mut self.total);
        total.reset(Instant::ZERO);
        let mut merging = TallyMerger::new(&mut total, observer);
        if stretch.hands_over {
            merging.interval = Some((Tally::default(), vec![false; workers as usize]));
        }
        let order = |index| {
            let requests = stretch.requests.map(|all| part.worker_share(all, index, workers));
            WorkerCommand::Slice { lane, stretch: Stretch { requests, ..stretch }, start }
        };
        let done = self.order(order, merging);
        self.total = total;
        let reports = done?.into_iter().map(|done| match done {
            Done::Slice(report) => Ok(report),
            _ => Err(LoadError::WorkerLost),
        });
        Ok(SliceResult { workers: reports.collect::<Result<_, _>>()?, total: &self.total })
    }

    /// Closes all lanes, and returns the [`Life`] of each, by worker and lane.
    pub fn close(&mut self) -> Result<Vec<Vec<Life>>, LoadError> {
        let mut unused = Tally::default();
        let observer = &mut NoObserver;
        let merging = TallyMerger::new(&mut unused, observer);
        let lives = self.order(|_| WorkerCommand::Close, merging)?.into_iter();
        let lives = lives.map(|done| match done {
            Done::Closed(lives) => Ok(lives),
            _ => Err(LoadError::WorkerLost),
        });
        lives.collect()
    }

    /// Sends every worker its command, and waits until all are done, even if one fails.
    fn order(
        &mut self,
        mut order: impl FnMut(u32) -> WorkerCommand,
        mut merging: TallyMerger<'_>,
    ) -> Result<Vec<Done>, LoadError> {
        for (index, worker) in self.workers.iter().enumerate() {
            worker.orders.send(order(index as u32)).map_err(|_| LoadError::WorkerLost)?;
        }
        let mut all: Vec<(usize, Done)> = Vec::new();
        let mut failed = None;
        let mut busy = self.workers.len();
        while busy > 0 {
            match self.messages.recv().map_err(|_| LoadError::WorkerLost)? {
                (index, WorkerMessage::Counted(lent)) => merging.take(index, lent),
                (index, WorkerMessage::Done(done)) => {
                    busy -= 1;
                    match done {
                        Ok(done) => all.push((index, done)),
                        Err(error) => {
                            merging.observer.worker_failed();
                            failed = failed.or(Some(error));
                        }
                    }
                }
            }
        }
        merging.report_interval();
        if let Some(error) = failed {
            return Err(error);
        }
        all.sort_by_key(|(index, _)| *index);
        Ok(all.into_iter().map(|(_, done)| done).collect())
    }
}

/// Merges the tallies of workers as they arrive.
struct TallyMerger<'a> {
    total: &'a mut Tally,
    observer: &'a mut dyn Observer,
    /// The current interval, and which workers have delivered their parts of it; `None` if a slice
    /// is counted as a whole.
    interval: Option<(Tally, Vec<bool>)>,
}

impl<'a> TallyMerger<'a> {
    fn new(total: &'a mut Tally, observer: &'a mut dyn Observer) -> Self {
        Self { total, observer, interval: None }
    }

    fn take(&mut self, index: usize, lent: FilledTally) {
        if self.interval.as_ref().is_some_and(|(_, given)| given[index]) {
            // Another worker is late: its part goes into the next interval.
            self.report_interval();
        }
        self.total.merge(&lent.tally);
        if let Some((interval, given)) = &mut self.interval {
            if lent.is_whole {
                self.observer.worker_interval(&lent.tally);
            }
            interval.merge(&lent.tally);
            given[index] = true;
            if given.iter().all(|given| *given) {
                self.report_interval();
            }
        }
        lent.give_back();
    }

    /// Reports the current interval to the observer, if anything is in it, and begins the next.
    fn report_interval(&mut self) {
        if let Some((interval, given)) = &mut self.interval
            && given.contains(&true)
        {
            let elapsed = self.total.elapsed();
            self.observer.interval(Progress { elapsed, interval, total: self.total });
            interval.reset(interval.end);
            given.fill(false);
        }
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

/// Intervals of one worker that may wait to be merged.
const SPARE_TALLIES: usize = 4;
/// Time from the order to the start of a slice; long enough for every worker to wake.
const START_LEAD: DurationNs = DurationNs::from_us(200);
/// Longest wait for the start of a slice.
const START_MAX: DurationNs = DurationNs::from_secs(5);

fn worker_loop(
    index: usize,
    cpu: Option<usize>,
    stop: &Arc<AtomicBool>,
    inbox: &Receiver<WorkerCommand>,
    told: &SyncSender<(usize, WorkerMessage)>,
) {
    let mut not_pinned = cpu.and_then(|cpu| pin_thread(cpu).err());
    sharpen_timers();
    let mut lanes: Vec<Lane> = Vec::new();
    for order in inbox {
        let done = match not_pinned.take() {
            Some(error) => Err(error.into()),
            // A panic must not leave the session waiting.
            None => {
                let carry_out = || carry_out(order, &mut lanes, stop, &TallySender { index, told });
                catch_unwind(AssertUnwindSafe(carry_out)).unwrap_or(Err(LoadError::WorkerLost))
            }
        };
        if told.send((index, WorkerMessage::Done(done))).is_err() {
            break;
        }
    }
    lanes.iter_mut().for_each(Lane::close);
}

/// Sends a worker's tallies to the session.
struct TallySender<'a> {
    index: usize,
    told: &'a SyncSender<(usize, WorkerMessage)>,
}

impl TallySender<'_> {
    /// Gives the tally back if the channel is full.
    fn try_tell(&self, lent: FilledTally) -> Result<(), FilledTally> {
        match self.told.try_send((self.index, WorkerMessage::Counted(lent))) {
            Err(TrySendError::Full((_, WorkerMessage::Counted(lent)))) => Err(lent),
            _ => Ok(()),
        }
    }

    fn tell(&self, lent: FilledTally) {
        // Fails only if the session has ended.
        let _ = self.told.send((self.index, WorkerMessage::Counted(lent)));
    }
}

fn carry_out(
    order: WorkerCommand,
    lanes: &mut Vec<Lane>,
    stop: &Arc<AtomicBool>,
    teller: &TallySender<'_>,
) -> Result<Done, LoadError> {
    match order {
        WorkerCommand::Open(plans, sampling) => {
            lanes.iter_mut().for_each(Lane::close);
            lanes.clear();
            let mut opening = Box::<Tally>::default();
            for (plan, session) in plans {
                lanes.push(Lane::open(plan, session, sampling, stop, &mut opening)?);
            }
            let first = lanes.first().ok_or(LoadError::WorkerLost)?;
            Ok(Done::Opened { how: first.how(), note: first.note(), opening })
        }
        WorkerCommand::Slice { lane, stretch, start } => {
            let lane = lanes.get_mut(lane.0).ok_or(LoadError::WorkerLost)?;
            Ok(Done::Slice(lane.slice(stretch, start, stop, teller)?))
        }
        WorkerCommand::Close => {
            lanes.iter_mut().for_each(Lane::close);
            let lives = lanes.drain(..).map(|lane| lane.ended_life()).collect();
            Ok(Done::Closed(lives))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_model::samples::Counts;

    /// Good replies of each interval and the total so far; and the number of single workers'
    /// intervals.
    #[derive(Default)]
    struct Seen(Vec<(u64, u64)>, u32);

    impl Observer for Seen {
        fn worker_interval(&mut self, _tally: &Tally) {
            self.1 += 1;
        }

        fn interval(&mut self, progress: Progress<'_>) {
            self.0.push((progress.interval.counts.good, progress.total.counts.good));
        }
    }

    fn lent(at_ms: u64, good: u64, is_whole: bool) -> FilledTally {
        let start = Instant::ZERO + DurationNs::from_ms(at_ms);
        let counts = Counts { started: good, completed: good, good, ..Counts::default() };
        let end = start + DurationNs::from_ms(10);
        FilledTally {
            tally: Box::new(Tally { start, end, counts, ..Tally::default() }),
            is_whole,
            home: None,
        }
    }

    #[test]
    fn intervals_are_told_once_all_have_given_theirs_or_one_is_ahead() {
        let (mut total, mut seen) = (Tally::default(), Seen::default());
        let mut merging = TallyMerger::new(&mut total, &mut seen);
        merging.interval = Some((Tally::default(), vec![false; 2]));
        merging.take(0, lent(0, 1, true));
        merging.take(1, lent(0, 10, true));
        // The second worker is late, then delivers its last tally; the first goes on alone.
        merging.take(0, lent(10, 2, true));
        merging.take(0, lent(20, 3, true));
        merging.take(1, lent(10, 20, false));
        merging.take(0, lent(30, 4, false));
        merging.report_interval();
        merging.report_interval();
        assert_eq!(seen.0, [(11, 11), (2, 13), (23, 36), (4, 40)]);
        assert_eq!((seen.1, total.counts.good), (4, 40));
        assert_eq!(total.elapsed(), DurationNs::from_ms(40));
    }
}
