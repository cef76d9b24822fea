//! A world of fake servers under simulated time, with a log of everything done to it.

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tare_io::{DurationNs, Endpoint, Instant};
use tare_lab::executor::LaneLife;
use tare_lab::machine;
use tare_lab::meters::{Quiet, Reading, until_quiet};
use tare_lab::world::{
    CountSettled, Launch, LaunchUsage, LoadSource, MakeLoad, Meter, Placement, ProbeSender, World,
};
use tare_lab::{Event, Halt};
use tare_load::measured::Measured;
use tare_load::pacer::RateProfile;
use tare_load::{LoadPlan, Stretch};
use tare_model::Distribution;
use tare_model::Failure;
use tare_model::counters::{Counter, Counters};
use tare_model::plan::{Stop, VariantId};
use tare_model::samples::{Counts, LaunchPart, Probe, Proof, Sent, Series};
use tare_model::usage::Usage;
use tare_stats::stopping::Limit;
use tare_store::{Entry, RunId};

use crate::clock::Clock;
use crate::observer;
use crate::record::Record;

/// The phases of a variant's server, in the order of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Launch,
    Listen,
    Ask,
    Slice,
    Sustained,
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// The user stops the run.
    Interrupt,
    /// The operation fails.
    Fail,
    /// The server ends by itself.
    Die,
    /// One request is never answered: everything waits until the run's time is over.
    Hang,
}

/// A fault that is triggered when a variant enters a phase for the nth time.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    pub phase: Phase,
    pub variant: usize,
    pub nth: u32,
    pub fault: InjectedFault,
}

pub struct Server {
    pub name: &'static str,
    /// Replies per second at full load; the time of one reply is the inverse.
    pub per_s: Cell<f64>,
    /// The share of that pace which it keeps if its clients sleep while they wait.
    pub waking: Cell<f64>,
    /// The share of a reply's time that is CPU time.
    pub busy: Cell<f64>,
    /// The share of a CPU that it uses even without requests.
    pub at_rest: Cell<f64>,
    pub body: &'static str,
    pub status: u16,
    launched: Cell<u32>,
    is_up: Cell<bool>,
    cpu_ns: Cell<u64>,
}

impl Server {
    pub fn new(name: &'static str, per_s: f64) -> Self {
        Self {
            name,
            per_s: Cell::new(per_s),
            waking: Cell::new(1.0),
            busy: Cell::new(1.0),
            at_rest: Cell::new(0.0),
            body: "same",
            status: 200,
            launched: Cell::new(0),
            is_up: Cell::new(false),
            cpu_ns: Cell::new(0),
        }
    }
}

pub struct FakeWorld {
    pub servers: Vec<Server>,
    pub stop: Arc<AtomicBool>,
    halt: RefCell<Halt>,
    pub allows_void: Cell<bool>,
    pub limits: RefCell<Vec<Limit>>,
    /// Whether clients poll while they wait.
    pub polls: Cell<bool>,
    /// Whether a request waits for its reply.
    hangs: Cell<bool>,
    /// The part of the time limit that was spent before the run began.
    pub spent: Cell<DurationNs>,
    pub faults: RefCell<Vec<Planned>>,
    /// What was done, in words.
    pub log: RefCell<Vec<String>>,
    pub entries: RefCell<Vec<(RunId, Entry)>>,
    seen: RefCell<Vec<(Phase, usize, u32)>>,
    now_ns: Cell<u64>,
    /// How often orphans were looked for.
    pub orphan_checks: Cell<u32>,
    /// How often connections were opened for slices.
    pub opened: Cell<u32>,
}

impl FakeWorld {
    pub fn new(servers: Vec<Server>) -> Rc<Self> {
        Rc::new(Self {
            servers,
            stop: Arc::new(AtomicBool::new(false)),
            halt: RefCell::default(),
            allows_void: Cell::default(),
            limits: RefCell::default(),
            polls: Cell::default(),
            hangs: Cell::default(),
            spent: Cell::default(),
            faults: RefCell::default(),
            log: RefCell::default(),
            entries: RefCell::default(),
            seen: RefCell::default(),
            now_ns: Cell::new(1_000_000_000),
            orphan_checks: Cell::new(0),
            opened: Cell::new(0),
        })
    }

    /// Returns a halt at the end of the run's time, on this world's clock.
    pub fn halt(&self, stop: &Stop) -> Halt {
        let left = stop.max_time.as_ns() - self.spent.get().as_ns();
        let deadline = Clock::now(self) + DurationNs::from_ns(left);
        let halt = Halt::without_timer(deadline, self.stop.clone());
        self.halt.replace(halt.clone());
        halt
    }

    pub fn say(&self, text: String) {
        self.log.borrow_mut().push(text);
    }

    pub fn elapsed(&self) -> DurationNs {
        DurationNs::from_ns(self.now_ns.get() - 1_000_000_000)
    }

    fn pass(&self, time: DurationNs) {
        self.now_ns.set(self.now_ns.get() + time.as_ns());
        for server in self.servers.iter().filter(|server| server.is_up.get()) {
            let cpu_ns = time.as_ns() as f64 * server.at_rest.get();
            server.cpu_ns.set(server.cpu_ns.get() + cpu_ns as u64);
        }
    }

    /// Enters a phase: counts it, and triggers the fault planned for it.
    fn enter(&self, phase: Phase, variant: usize) -> Result<(), Failure> {
        let nth = {
            let mut seen = self.seen.borrow_mut();
            let same = |entry: &&mut (Phase, usize, u32)| (entry.0, entry.1) == (phase, variant);
            match seen.iter_mut().find(same) {
                Some(entry) => {
                    entry.2 += 1;
                    entry.2
                }
                None => {
                    seen.push((phase, variant, 1));
                    1
                }
            }
        };
        let planned =
            self.faults.borrow().iter().copied().find(|planned| {
                (planned.phase, planned.variant, planned.nth) == (phase, variant, nth)
            });
        match planned.map(|planned| planned.fault) {
            None => {}
            Some(InjectedFault::Hang) => {
                let deadline = self.halt.borrow().deadline();
                self.pass(deadline.since(Clock::now(self)));
                self.hangs.set(true);
            }
            Some(InjectedFault::Interrupt) => self.stop.store(true, Ordering::Relaxed),
            Some(InjectedFault::Die) => {
                self.servers[variant].is_up.set(false);
                self.halt.borrow().on_end()(self.servers[variant].name);
            }
            Some(InjectedFault::Fail) => {
                let name = self.servers[variant].name;
                return Err(Failure::environment(format!("{name}: {phase:?} failed")));
            }
        }
        Ok(())
    }

    /// Returns the names of the servers that are up.
    pub fn up(&self) -> Vec<&'static str> {
        self.servers.iter().filter(|server| server.is_up.get()).map(|server| server.name).collect()
    }

    /// Returns how many replies a variant gives in `time`, limited by its capacity and `rate`, and
    /// adds their CPU time.
    fn answer(&self, variant: usize, rate: Option<f64>, time: DurationNs) -> u64 {
        let server = &self.servers[variant];
        if !server.is_up.get() {
            return 0;
        }
        let per_s = rate.map_or(server.per_s.get(), |rate| rate.min(server.per_s.get()));
        let answered = (per_s * time.as_secs_f64()).round();
        let cpu_ns = answered * 1e9 / server.per_s.get() * server.busy.get();
        server.cpu_ns.set(server.cpu_ns.get() + cpu_ns as u64);
        answered as u64
    }
}

pub struct FakeLab(pub Rc<FakeWorld>);

pub struct FakeLaunch {
    world: Rc<FakeWorld>,
    variant: usize,
    started: Instant,
}

pub struct FakeMeter {
    world: Rc<FakeWorld>,
    variant: usize,
}

pub struct FakeLoad {
    world: Rc<FakeWorld>,
    /// The lane that is open: the variant, its replies so far, and its rate.
    lane: Option<(usize, u64, Option<f64>)>,
}

/// The port of the first variant; the others follow.
const PORT: u16 = 9000;

fn variant_of(plan: &LoadPlan) -> usize {
    match &plan.engine.endpoint {
        Endpoint::Tcp(address) => usize::from(address.port() - PORT),
        other => panic!("{other}"),
    }
}

impl World for FakeLab {
    type Launch = FakeLaunch;
    type Meter = FakeMeter;
    type Clients = usize;
    type Load = FakeLoad;

    fn tear_down_place(&mut self, variant: VariantId) {
        self.0.say(format!("make way for {}", self.0.servers[variant.0].name));
        self.0.pass(DurationNs::from_secs(3));
    }

    fn launch(
        &mut self,
        VariantId(variant): VariantId,
        _: u32,
    ) -> Result<Option<FakeLaunch>, Failure> {
        let world = self.0.clone();
        world.enter(Phase::Launch, variant)?;
        let server = &world.servers[variant];
        assert!(!server.is_up.replace(true), "{} is up already", server.name);
        server.launched.set(server.launched.get() + 1);
        world.say(format!("launch {}", server.name));
        world.pass(DurationNs::from_ms(50));
        let started = Clock::now(world.as_ref());
        Ok(Some(FakeLaunch { world, variant, started }))
    }

    fn clients(&mut self, variant: VariantId, _: u32) -> Result<usize, Failure> {
        Ok(variant.0)
    }

    fn clients_share_cpu_numbers(&self, _: VariantId) -> bool {
        true
    }

    fn neighbours(&self, _: VariantId, _: &Usage) -> Counters {
        Counters::default().with(Counter::Others, 0)
    }

    fn load(&self) -> FakeLoad {
        FakeLoad { world: self.0.clone(), lane: None }
    }

    fn load_at_once(
        &self,
        loads: &mut [&mut FakeLoad],
        stretch: Stretch,
        _: &[Option<&FakeMeter>],
    ) -> Result<Vec<(Measured, Vec<Reading>)>, Failure> {
        let world = &self.0;
        let variants: Vec<usize> = loads.iter().map(|load| load.lane.unwrap().0).collect();
        world.say(match variants.as_slice() {
            [alone] => format!("sustained, {} alone", world.servers[*alone].name),
            _ => "sustained".into(),
        });
        for variant in &variants {
            world.enter(Phase::Sustained, *variant)?;
        }
        let read = |variant: usize, ns: u64| {
            let cpu_ns = world.servers[variant].cpu_ns.get();
            Reading { ns, cpu_ns, threads: vec![[cpu_ns, 0]] }
        };
        let bins = stretch.window.as_ns() / stretch.interval.as_ns();
        let mut marks = vec![Vec::new(); variants.len()];
        let mut answered = vec![0; variants.len()];
        let mut readings: Vec<Vec<Reading>> =
            variants.iter().map(|variant| vec![read(*variant, 0)]).collect();
        // Each has an equal share of the CPU.
        let share = DurationNs::from_ns(stretch.interval.as_ns() / variants.len() as u64);
        for bin in 1..=bins {
            world.pass(stretch.interval);
            for (at, variant) in variants.iter().enumerate() {
                answered[at] += world.answer(*variant, None, share);
                marks[at].push((bin * stretch.interval.as_ns(), answered[at]));
            }
            for (row, variant) in readings.iter_mut().zip(&variants) {
                row.push(read(*variant, bin * stretch.interval.as_ns()));
            }
        }
        for (load, answered) in loads.iter_mut().zip(&answered) {
            load.lane.as_mut().unwrap().1 += answered;
        }
        let measured = marks.into_iter().zip(answered).map(|(marks, answered)| Measured {
            counts: counts(answered, stretch.window),
            latencies: Vec::new(),
            marks,
            began: Instant::ZERO,
        });
        Ok(measured.zip(readings).collect())
    }

    fn quiesce(&self, meters: &[&FakeMeter], quiet: Quiet) -> bool {
        let world = &self.0;
        let cpu_ns = |meter: &&FakeMeter| world.servers[meter.variant].cpu_ns.get();
        let used = || meters.iter().map(cpu_ns).sum();
        until_quiet(&quiet, || Clock::now(world.as_ref()), |time| world.pass(time), used)
    }

    fn endpoint(&self, _: VariantId) -> Endpoint {
        unreachable!("all servers are launched")
    }

    fn placement(&self, _: VariantId) -> Placement {
        Placement::default()
    }

    fn cpu_of_places(&self) -> u64 {
        0
    }

    fn machine(&self) -> machine::Counters {
        machine::Counters::default()
    }

    fn ports_used(&self) -> Option<f64> {
        None
    }

    fn take_events(&self) -> Vec<Event> {
        Vec::new()
    }

    fn metering(&self) -> String {
        "servers are not metered".into()
    }

    fn own_cpu(&self) -> (DurationNs, DurationNs) {
        (DurationNs::ZERO, DurationNs::ZERO)
    }

    fn end_orphans(&self) {
        assert_eq!(self.0.up(), Vec::<&str>::new(), "servers of ours are no orphans");
        self.0.orphan_checks.set(self.0.orphan_checks.get() + 1);
    }

    fn close(self) -> Vec<String> {
        self.0.say("close".into());
        Vec::new()
    }
}

impl Launch for FakeLaunch {
    type Meter = FakeMeter;

    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, PORT + self.variant as u16))
    }

    fn started(&self) -> Instant {
        self.started
    }

    fn ready_limit(&self) -> Instant {
        self.started + DurationNs::from_secs(5)
    }

    fn wait_until_listening(&mut self) -> Result<(), Failure> {
        self.world.enter(Phase::Listen, self.variant)
    }

    fn wait_until_ready(&mut self, limit: Instant) -> Result<(), Failure> {
        self.world.pass(DurationNs::from_ms(1));
        let name = self.world.servers[self.variant].name;
        if !self.is_alive() {
            return Err(Failure::environment(format!("{name}: ended before it was ready")));
        }
        if Clock::now(self.world.as_ref()) > limit {
            return Err(Failure::environment(format!("{name}: not ready in time")));
        }
        Ok(())
    }

    fn is_alive(&self) -> bool {
        self.world.servers[self.variant].is_up.get()
    }

    fn describe_end(&mut self) -> (String, Option<String>) {
        ("the server".into(), Some(" (exit status: 9)".into()))
    }

    fn place_failure(&self, _: DurationNs) -> Option<Failure> {
        None
    }

    fn begin_proofs(&mut self, _: &str, _: &mut dyn ProbeSender) -> Result<(), Failure> {
        Ok(())
    }

    fn end_proofs(&mut self, sent: Sent) -> Vec<Proof> {
        vec![Proof { layer: "fake".into(), held: true, text: sent.to_string() }]
    }

    fn call_ns(&self) -> Option<f64> {
        None
    }

    fn served(&self, _: CountSettled) -> Option<u64> {
        None
    }

    fn logged(&self) -> (u64, u64) {
        (0, 0)
    }

    fn meter(&self) -> FakeMeter {
        FakeMeter { world: self.world.clone(), variant: self.variant }
    }

    fn ask_to_stop(&mut self) {}

    fn stop(&mut self) {
        let _ = self.world.enter(Phase::Stop, self.variant);
        if self.world.servers[self.variant].is_up.replace(false) {
            self.world.say(format!("stop {}", self.world.servers[self.variant].name));
            self.world.pass(DurationNs::from_ms(10));
        }
    }
}

impl Drop for FakeLaunch {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Meter for FakeMeter {
    fn used(&self) -> LaunchUsage {
        let cpu_ns = self.world.servers[self.variant].cpu_ns.get();
        let server = Counters::default().with(Counter::Cpu, cpu_ns).with(Counter::User, cpu_ns);
        LaunchUsage { usage: Some(server.into()), threads: vec![[cpu_ns, 0]] }
    }

    fn parts(&self) -> Vec<LaunchPart> {
        Vec::new()
    }
}

impl MakeLoad for FakeLoad {
    type Clients = usize;

    fn open(&mut self, variant: &usize, plan: &LoadPlan) -> Result<LoadSource, Failure> {
        assert_eq!(variant_of(plan), *variant);
        let rate = plan.rate.as_ref().and_then(RateProfile::constant_rate);
        self.lane = Some((*variant, 0, rate));
        self.world.opened.set(self.world.opened.get() + 1);
        let polls = self.world.polls.get();
        Ok(LoadSource { reactor: "arithmetic".into(), polls, ..LoadSource::default() })
    }

    fn slice(&mut self, stretch: Stretch) -> Result<Measured, Failure> {
        let (variant, _, rate) = self.lane.unwrap();
        self.world.enter(Phase::Slice, variant)?;
        let server = &self.world.servers[variant];
        let by_pollers = server.per_s.get();
        if stretch.sleeps {
            server.per_s.set(by_pollers * server.waking.get());
        }
        let per_s = server.per_s.get();
        // Rounded up, or a request would be missing.
        let time_for = |n: u64| DurationNs::from_ns((n as f64 / per_s * 1e9).ceil() as u64);
        let window = stretch.requests.map_or(stretch.window, |n| time_for(n).min(stretch.window));
        self.world.pass(stretch.ramp + window);
        let in_ramp = self.world.answer(variant, rate, stretch.ramp);
        let answered = self.world.answer(variant, rate, window);
        self.lane.as_mut().unwrap().1 += in_ramp + answered;
        self.world.servers[variant].per_s.set(by_pollers);
        let mut counts = counts(answered, window);
        counts.answered += in_ramp;
        counts.cut = u64::from(self.world.hangs.take());
        counts.due = rate.map(|rate| rate * window.as_secs_f64());
        if answered == 0 {
            counts.errors.push(("refused".into(), 1, "connection refused".into()));
        }
        let mean = (1e9 / per_s) as u64;
        let sum = u128::from(mean) * u128::from(answered);
        let latencies = match answered {
            0 => Vec::new(),
            _ => vec![(Series::Headline, Distribution::new(vec![(mean, answered)], sum))],
        };
        Ok(Measured { began: Instant::ZERO, counts, latencies, marks: Vec::new() })
    }

    fn close(&mut self) -> Result<LaneLife, Failure> {
        let sent = self.lane.take().map_or(0, |(_, sent, _)| sent);
        Ok(LaneLife { sent, replies: vec![sent, 0, 0, 0], ..LaneLife::default() })
    }

    fn ask(&mut self, variant: &usize, _: &LoadPlan) -> Result<Result<Probe, String>, Failure> {
        self.world.enter(Phase::Ask, *variant)?;
        if self.world.hangs.take() {
            return Ok(Err("no complete reply within the time limit".into()));
        }
        let server = &self.world.servers[*variant];
        if !server.is_up.get() {
            return Ok(Err("connection refused".into()));
        }
        Ok(Ok(Probe {
            status: server.status,
            body_bytes: 4,
            body_sha256: server.body.into(),
            body_stable: true,
            connection_kept: true,
            ..Probe::default()
        }))
    }

    fn take_sent(&mut self) -> u64 {
        0
    }
}

fn counts(answered: u64, window: DurationNs) -> Counts {
    Counts {
        window_ns: window.as_ns(),
        started: answered,
        completed: answered,
        good: answered,
        answered,
        status: vec![(200, answered)],
        ..Counts::default()
    }
}

impl Clock for FakeWorld {
    fn now(&self) -> Instant {
        Instant::from_ns(self.now_ns.get())
    }

    fn unix_ms(&self) -> u64 {
        self.now_ns.get() / 1_000_000
    }

    fn pause(&self, time: DurationNs) {
        self.pass(time);
    }
}

impl Record for FakeWorld {
    fn write(&self, run: RunId, entry: Entry) -> Result<(), Failure> {
        if let Entry::RunEnded(end) = &entry {
            self.say(format!("run {run} ended: {}", end.stopped_by));
        }
        self.entries.borrow_mut().push((run, entry));
        Ok(())
    }
}

/// Puts a run's events into the world's log.
pub struct Logger(pub Rc<FakeWorld>);

impl observer::Observer for Logger {
    fn on_event(&mut self, event: &observer::Event<'_>) {
        let name = |variant: VariantId| self.0.servers[variant.0].name;
        self.0.say(match event {
            observer::Event::Waiting(what) => format!("wait: {what}"),
            observer::Event::RoundStarted { round, .. } => format!("round {round}"),
            observer::Event::Up { variant } => format!("{} is up", name(*variant)),
            observer::Event::SliceDone { cell, variant, cycle } => {
                format!("cell {}, cycle {cycle}: {}", cell.0, name(*variant))
            }
            observer::Event::EstimateChanged { digests, .. } => {
                format!("{} rounds known", digests.len())
            }
            observer::Event::RoundLost { round, .. } => format!("round {round} is lost"),
            observer::Event::Ended => "end".into(),
        });
    }
}
