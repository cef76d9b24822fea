//! Starts servers, meters and probes them and makes load, in this process or in an agent at the end
//! of a byte stream. It holds any number of servers, meters and loads, each by its number; a
//! request about one does not wait for another.
//!
//! [`requests`] lists what it can do. A server is [`local`], on top of `running` (any process); its
//! output goes through `drain` and [`log_file`], [`count`] reads how many requests it served, and
//! `ending` and `orphans` end processes.

pub(crate) mod adopted;
pub mod count;
pub(crate) mod drain;
pub(crate) mod ending;
pub mod local;
pub mod log_file;
pub mod requests;
pub(crate) mod running;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard};

use serde::{Deserialize, Serialize};
use tare_io::time::{monotonic_now, wall_unix_ns};
use tare_io::{DurationNs, Instant};
use tare_load::engine::Life;
use tare_load::measured::Measured;
use tare_load::probe::Prober;
use tare_load::resolve::provide_files;
use tare_load::session::{Sampling, Session};
use tare_load::{LaneId, LoadPlan, NoObserver, Observer, Progress, Stretch};
use tare_model::samples::{NUMBER_MAX, Probe, Series};

use crate::event::Event;
use crate::executor::local::{HostContext, LocalServer};
use crate::journal::Entries;
use crate::launch::spec::LaunchSpec;
use crate::machine::cgroup::Cgroup;
use crate::meters::groups::Group;
use crate::meters::{Footprint, Meter, MeterReading, Quiet, Reading, until_quiet};
use crate::network::peers;
use tare_model::{Failure, Fault};

/// Defines ID types for the servers, meters and loads of an executor.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(
                Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize,
            )]
            #[serde(transparent)]
            pub struct $name(u32);

            impl From<u32> for $name {
                fn from(number: u32) -> Self {
                    Self(number)
                }
            }
        )*
    };
}

ids! {
    /// A server or hop that was started.
    ServerId;
    /// Counters of a server, or of a group of processes.
    MeterId;
    /// Connections, in lanes, and the workers that make load on them.
    LoadId;
}

/// One entry, with a lock of its own.
type Shared<T> = Arc<Mutex<T>>;

/// Entries of one kind, by number.
struct Registry<I, T> {
    last: AtomicU32,
    by_id: Mutex<BTreeMap<I, Shared<T>>>,
}

impl<I: From<u32> + Ord + Copy, T> Registry<I, T> {
    fn new() -> Self {
        Self { last: AtomicU32::new(0), by_id: Mutex::default() }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<I, Shared<T>>> {
        locked(&self.by_id)
    }

    fn add(&self, what: T) -> I {
        let id = I::from(self.last.fetch_add(1, Ordering::Relaxed));
        self.all().insert(id, Arc::new(Mutex::new(what)));
        id
    }

    fn get(&self, id: I) -> Result<Shared<T>, Failure> {
        let found = self.all().get(&id).cloned();
        found.ok_or_else(|| Failure::usage("nothing of that number is held here"))
    }

    fn take(&self, id: I) -> Option<Shared<T>> {
        self.all().remove(&id)
    }

    fn take_all(&self) -> Vec<Shared<T>> {
        std::mem::take(&mut *self.all()).into_values().collect()
    }
}

/// Locks and ignores poisoning: the data is still valid after another thread's panic.
fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(|e| e.into_inner())
}

/// Called when a server ended although tare had not asked it to.
pub type OnServerEnd = Arc<dyn Fn(ServerId, &str) + Send + Sync>;

/// Settings of an executor.
pub struct ExecutorPlan {
    /// Set when everything under way is to end.
    pub stop: Arc<AtomicBool>,
    pub on_end: OnServerEnd,
    /// Receives the output of servers.
    pub events: Sender<Event>,
    /// Records started processes; `None` for agents in a place that ends with them.
    pub journal: Option<Entries>,
    /// Control group of the container that the executor runs in, to meter the servers there.
    pub own_group: Option<Group>,
    /// Whether to end every process that servers leave behind; set only in a process that has no
    /// other children.
    pub ends_orphans: bool,
}

pub struct Executor {
    plan: ExecutorPlan,
    servers: Registry<ServerId, LocalServer>,
    meters: Registry<MeterId, AttachedMeter>,
    loads: Registry<LoadId, Load>,
    /// Number of connections of all open loads.
    connections: Arc<AtomicU32>,
    /// Workers kept for the next load.
    idle: Mutex<Vec<Session>>,
    prober: Mutex<Option<Prober>>,
}

/// A meter and its target.
struct AttachedMeter {
    target: Target,
    meter: Meter,
}

struct Load {
    session: Session,
    lanes: Vec<LoadPlan>,
    /// Intervals of the last slice, if it kept them.
    intervals: Vec<Measured>,
    _connections: Connections,
}

/// A load's share of the number of open connections; subtracted when dropped.
struct Connections {
    own: u32,
    all: Arc<AtomicU32>,
}

impl Connections {
    fn new(all: &Arc<AtomicU32>, own: u32) -> Self {
        all.fetch_add(own, Ordering::Relaxed);
        Self { own, all: Arc::clone(all) }
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Executor")
    }
}

/// The processes that a meter reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    Server(ServerId),
    /// All processes in a control group of tare's.
    Group {
        cgroup: Cgroup,
        leader: u32,
    },
    /// A pod of this node, or one of its containers.
    Pod {
        uid: String,
        container: Option<String>,
    },
}

/// How load is made, and measurements from opening its connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opened {
    pub load: LoadId,
    pub reactor: String,
    pub note: Option<String>,
    pub opening: Measured,
}

/// Keeps the intervals of a slice.
struct Intervals<'a> {
    plan: &'a LoadPlan,
    kept: &'a mut Vec<Measured>,
}

/// The most intervals kept of a slice; later ones are dropped.
pub const INTERVALS_MAX: usize = 10_000;
/// The most histogram buckets in one message of intervals, which keeps it well below the size limit.
const VALUES_AT_ONCE: usize = 200_000;

impl Observer for Intervals<'_> {
    fn interval(&mut self, progress: Progress<'_>) {
        if self.kept.len() < INTERVALS_MAX {
            let mut interval = Measured::from_tally(self.plan, progress.interval);
            // A time series shows only the headline latency.
            interval.latencies.retain(|(series, _)| *series == Series::Headline);
            self.kept.push(interval);
        }
    }
}

/// Totals of a lane over its lifetime.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneLife {
    pub sent: u64,
    /// Requests sent that got no complete reply.
    pub unanswered: u64,
    pub closed_by_server: u64,
    /// Complete replies on each kept connection.
    pub replies: Vec<u64>,
}

impl LaneLife {
    /// Adds the totals of another lane. They may come from an agent that others control.
    pub fn add(&mut self, more: &Self) {
        let sum = |a: u64, b: u64| a.saturating_add(b).min(NUMBER_MAX);
        self.sent = sum(self.sent, more.sent);
        self.unanswered = sum(self.unanswered, more.unanswered);
        self.closed_by_server = sum(self.closed_by_server, more.closed_by_server);
        self.replies.extend(&more.replies);
    }

    pub fn sum<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        parts.into_iter().fold(Self::default(), |mut all, part| {
            all.add(part);
            all
        })
    }

    /// Sums a lane's totals over all workers.
    fn from_workers(workers: &[Vec<Life>], lane: usize) -> Self {
        let own = workers.iter().filter_map(|lanes| lanes.get(lane));
        let lives = own.map(|life| Self {
            sent: life.sent,
            unanswered: life.sent.saturating_sub(life.answered),
            closed_by_server: life.closed_by_server,
            replies: life.replies.clone(),
        });
        Self::sum(&lives.collect::<Vec<_>>())
    }
}

/// The result of a probe, or why it failed; and the requests that it sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probed {
    pub probe: Result<Probe, String>,
    pub sent: u64,
}

/// An executor's clocks at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clocks {
    pub unix_ns: u64,
    pub monotonic: Instant,
}

/// The result of a request.
type Answer<T> = Result<T, Failure>;

impl Executor {
    pub fn new(plan: ExecutorPlan) -> Self {
        Self {
            plan,
            servers: Registry::new(),
            meters: Registry::new(),
            loads: Registry::new(),
            connections: Arc::default(),
            idle: Mutex::default(),
            prober: Mutex::default(),
        }
    }

    pub(crate) fn start(
        &self,
        who: String,
        launch_spec: Box<LaunchSpec>,
        cpus: Vec<usize>,
        cgroup: Option<Cgroup>,
    ) -> Answer<ServerId> {
        let ExecutorPlan { events, journal, .. } = &self.plan;
        let (journal, events) = (journal.clone(), events.clone());
        let name = who.clone();
        let host = HostContext { who, cpus, cgroup, journal, events };
        let server = LocalServer::start(*launch_spec, &host)?;
        let watch = server.watch()?;
        let id = self.servers.add(server);
        if let Some(watch) = watch {
            let on_end = self.plan.on_end.clone();
            watch.call_at_end(move || on_end(id, &name))?;
        }
        Ok(id)
    }

    pub(crate) fn await_listening(&self, server: ServerId) -> Answer<u16> {
        let waited = locked(&*self.servers.get(server)?).wait_until_listening(&self.plan.stop);
        waited.map_err(|error| self.with_memory(error))
    }

    pub(crate) fn await_ready(&self, server: ServerId, late: bool) -> Answer<()> {
        let limit = if late { monotonic_now() } else { Instant::FAR };
        let waited = locked(&*self.servers.get(server)?).not_yet(limit);
        waited.map_err(|error| self.with_memory(error))
    }

    pub(crate) fn is_alive(&self, server: ServerId) -> Answer<bool> {
        Ok(locked(&*self.servers.get(server)?).is_alive())
    }

    pub(crate) fn how_it_ended(&self, server: ServerId) -> Answer<Option<String>> {
        let how = locked(&*self.servers.get(server)?).how_it_ended();
        let memory = self.out_of_memory();
        Ok(how.map(|how| how.message(&memory)))
    }

    pub(crate) fn logged(&self, server: ServerId) -> Answer<(u64, u64)> {
        Ok(locked(&*self.servers.get(server)?).logged())
    }

    pub(crate) fn ask_to_stop(&self, server: ServerId) -> Answer<()> {
        locked(&*self.servers.get(server)?).ask_to_stop();
        Ok(())
    }

    /// Ends a server and forgets its number; returns what it had logged.
    pub(crate) fn stop(&self, server: ServerId) -> Answer<(u64, u64)> {
        let held = self.servers.get(server)?;
        self.servers.take(server);
        self.meters.all().retain(|_, meter| locked(meter).target != Target::Server(server));
        let mut held = locked(&held);
        held.stop();
        if self.plan.ends_orphans && self.servers.all().is_empty() {
            adopted::end_children();
        }
        Ok(held.logged())
    }

    pub(crate) fn page(&self, address: SocketAddr, path: String) -> Answer<Option<String>> {
        Ok(count::fetch(address, &path))
    }

    pub(crate) fn lines(&self, path: PathBuf) -> Answer<Option<u64>> {
        Ok(log_file::lines(Path::new(&path)))
    }

    pub(crate) fn peers(&self, port: u16) -> Answer<BTreeMap<IpAddr, u64>> {
        Ok(peers::connected_to(port))
    }

    /// Opens a meter. If the target has an open one, that meter looks for the processes again.
    pub(crate) fn attach(&self, target: Target) -> Answer<MeterId> {
        let meter = match &target {
            Target::Server(server) => {
                let server = self.servers.get(*server)?;
                let server = locked(&server);
                Meter::of_server(&server, self.plan.own_group.as_ref())
            }
            Target::Group { cgroup, leader } => Meter::new(Some(cgroup), *leader),
            Target::Pod { uid, container } => Meter::of_pod(uid, container.as_deref()),
        };
        let known = self.meters.all().iter().find_map(|(id, held)| {
            let is_same = locked(held).target == target;
            is_same.then(|| (*id, held.clone()))
        });
        Ok(match known {
            Some((id, held)) => {
                locked(&held).meter = meter;
                id
            }
            None => self.meters.add(AttachedMeter { target, meter }),
        })
    }

    pub(crate) fn read(&self, meter: MeterId) -> Answer<MeterReading> {
        Ok(locked(&*self.meters.get(meter)?).meter.read())
    }

    pub(crate) fn footprint(&self, meter: MeterId) -> Answer<Footprint> {
        Ok(locked(&*self.meters.get(meter)?).meter.footprint())
    }

    pub(crate) fn processes(&self, meter: MeterId) -> Answer<Vec<u32>> {
        Ok(locked(&*self.meters.get(meter)?).meter.pids().to_vec())
    }

    /// Waits until the targets of these meters are idle; returns whether they are.
    pub(crate) fn quiesce(&self, meters: Vec<MeterId>, quiet: Quiet) -> Answer<bool> {
        let meters = self.several(&meters)?;
        let used = || meters.iter().filter_map(|meter| locked(meter).meter.cpu_ns()).sum();
        Ok(until_quiet(&quiet, monotonic_now, sleep, used))
    }

    /// Reads these meters at `from` and again after each interval, `times` times; returns a row for
    /// each meter.
    pub(crate) fn sample(
        &self,
        meters: Vec<MeterId>,
        from: Instant,
        interval: DurationNs,
        times: u32,
    ) -> Answer<Vec<Vec<Reading>>> {
        let meters = self.several(&meters)?;
        let mut rows = vec![Vec::new(); meters.len()];
        let mut next = from;
        for _ in 0..times.min(SAMPLES_MAX) {
            while !self.plan.stop.load(Ordering::Relaxed) {
                match next.since(monotonic_now()) {
                    DurationNs::ZERO => break,
                    left => sleep(left.min(STOP_CHECK)),
                }
            }
            for (row, meter) in rows.iter_mut().zip(&meters) {
                let (cpu_ns, threads) = locked(meter).meter.cpu_and_threads();
                row.push(Reading { ns: monotonic_now().since(from).as_ns(), cpu_ns, threads });
            }
            next = next + interval;
        }
        Ok(rows)
    }

    fn several(&self, meters: &[MeterId]) -> Answer<Vec<Shared<AttachedMeter>>> {
        meters.iter().map(|meter| self.meters.get(*meter)).collect()
    }

    /// Opens connections, a lane for each plan.
    pub(crate) fn open(&self, lanes: Vec<LoadPlan>) -> Answer<Opened> {
        let Some(first) = lanes.first() else {
            return Err(Failure::usage("a load of nothing"));
        };
        let most: u32 = lanes.iter().map(LoadPlan::max_connections).sum();
        // Other loads may be open at the same time.
        let connections = Connections::new(&self.connections, most);
        provide_files(self.connections.load(Ordering::Relaxed))?;
        let mut session = self.session(first.workers, &first.cpus)?;
        let opened =
            session.open(&lanes.iter().collect::<Vec<_>>(), Sampling::Few, &mut NoObserver)?;
        let opening = Measured::from_tally(first, &opened.opening);
        let intervals = Vec::new();
        let load = self.loads.add(Load { session, lanes, intervals, _connections: connections });
        Ok(Opened { load, reactor: opened.how.to_owned(), note: opened.note, opening })
    }

    fn session(&self, workers: u32, cpus: &[usize]) -> Answer<Session> {
        let mut idle = locked(&self.idle);
        match idle.iter().position(|session| session.matches(workers, cpus)) {
            Some(at) => Ok(idle.swap_remove(at)),
            None => Ok(Session::start(workers, cpus, &self.plan.stop)?),
        }
    }

    pub(crate) fn slice(&self, load: LoadId, lane: LaneId, stretch: Stretch) -> Answer<Measured> {
        let load = self.loads.get(load)?;
        let Load { session, lanes, intervals, .. } = &mut *locked(&load);
        let plan = lanes.get(lane.0).ok_or_else(|| Failure::usage("no such lane"))?;
        intervals.clear();
        let mut observer = Intervals { plan, kept: intervals };
        Ok(Measured::from_slice(plan, &session.slice(lane, stretch, &mut observer)?))
    }

    /// Returns intervals of the last slice from index `from`, as many as fit a message; none past
    /// the end.
    pub(crate) fn intervals(&self, load: LoadId, from: usize) -> Answer<Vec<Measured>> {
        let load = self.loads.get(load)?;
        let load = locked(&load);
        let mut values = 0;
        let fits = |interval: &&Measured| {
            let is_first = values == 0;
            let own = interval.latencies.iter().map(|(_, counted)| counted.counts().len());
            values += 100 + own.sum::<usize>();
            is_first || values <= VALUES_AT_ONCE
        };
        Ok(load.intervals.iter().skip(from).take_while(fits).cloned().collect())
    }

    /// Closes all lanes; returns the totals of each.
    pub(crate) fn close(&self, load: LoadId) -> Answer<Vec<LaneLife>> {
        let held = self.loads.get(load)?;
        self.loads.take(load);
        // The load is out of the table, so that this is the last reference unless a slice still
        // runs.
        let Some(held) = Arc::into_inner(held) else {
            return Err(Failure::usage("a load is closed while it is made"));
        };
        let Load { mut session, lanes, .. } = held.into_inner().unwrap_or_else(|e| e.into_inner());
        let lives = session.close()?;
        locked(&self.idle).push(session);
        Ok((0..lanes.len()).map(|lane| LaneLife::from_workers(&lives, lane)).collect())
    }

    /// Sends two requests on a connection of its own.
    pub(crate) fn probe(&self, plan: Box<LoadPlan>) -> Answer<Probed> {
        let mut prober = locked(&self.prober);
        let prober = match &mut *prober {
            Some(prober) => prober,
            none => none.insert(Prober::new(&self.plan.stop)?),
        };
        let probe = prober.ask(&plan)?;
        Ok(Probed { probe, sent: prober.take_sent() })
    }

    pub(crate) fn clocks(&self) -> Answer<Clocks> {
        Ok(Clocks { unix_ns: wall_unix_ns(), monotonic: monotonic_now() })
    }

    /// Adds to an error how often the kernel killed processes for lack of memory.
    fn with_memory(&self, error: Failure) -> Failure {
        match error.fault {
            // Added after the first line, because the lines below are the server's own output.
            Fault::Environment | Fault::Target => error.map(|text| {
                let (first, rest) = text.split_at(text.find('\n').unwrap_or(text.len()));
                format!("{first}{}{rest}", self.out_of_memory())
            }),
            _ => error,
        }
    }

    fn out_of_memory(&self) -> String {
        match self.plan.own_group.as_ref().map_or(0, Group::oom_kills) {
            0 => String::new(),
            n => format!("; its pod ran out of memory: the kernel ended {n} of its processes"),
        }
    }

    /// Ends everything that it holds.
    pub fn end(&self) {
        for server in self.servers.take_all() {
            locked(&server).stop();
        }
        self.loads.take_all();
        if self.plan.ends_orphans {
            adopted::end_children();
        }
    }
}

/// Longest wait between checks of the stop flag.
const STOP_CHECK: DurationNs = DurationNs::from_ms(20);
/// Limit of readings in one request; no stretch needs so many.
const SAMPLES_MAX: u32 = 100_000;

fn sleep(time: DurationNs) {
    std::thread::park_timeout(std::time::Duration::from_nanos(time.as_ns()));
}
