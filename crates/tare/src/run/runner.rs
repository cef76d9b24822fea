//! Runs rounds until the stopping rule, the clock or the user says stop.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

use tare_io::time::{monotonic_now, wall_unix_ms};
use tare_io::{DurationNs, Endpoint};
use tare_lab::lab::Placed;
use tare_lab::{Event, Lab, LabPlan, ServerSpec};
use tare_load::{Edges, Stretch};
use tare_stats::metric::Basis;
use tare_stats::stopping::{
    PILOT_ROUNDS, Pilot, choose_cycles, is_choice, is_look, precise_enough,
};
use tare_stats::{RoundDigest, analyse, digest};
use tare_store::{Entry, RunEnd, Writer};

use super::clients::Clients;
use super::live::LiveTable;
use super::outcome::Stopped;
use super::places::journal_folder;
use super::plan::Plan;
use super::schedule::RAMP_JITTER;
use crate::failure::Failure;
use crate::load::plan::resolve;

/// The shape of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub length: DurationNs,
    pub ramp: DurationNs,
    pub warmup: DurationNs,
    pub edges: Edges,
}

/// Several workers must count over the same time, which only the clock gives them.
pub(super) fn edges(plan: &Plan) -> Edges {
    if plan.load.workers() == 1 { Edges::Replies } else { Edges::Clock }
}

impl Window {
    const SHORTEST: DurationNs = DurationNs::from_ms(20);
    pub(super) const LONGEST: DurationNs = DurationNs::from_secs(1);
    /// Replies that a slice should hold.
    const REPLIES: f64 = 200.0;
    const SHORTEST_RAMP: DurationNs = DurationNs::from_ms(2);

    pub(super) fn first(plan: &Plan) -> Self {
        let length = plan.slices.window.unwrap_or(Self::SHORTEST);
        let warmup = plan.slices.warmup.unwrap_or(length);
        Self { length, ramp: Self::SHORTEST_RAMP, warmup, edges: edges(plan) }
    }

    /// For a slowest variant of so many replies a second, and a longest mean latency.
    pub(super) fn fit(&mut self, slowest_per_s: f64, longest: DurationNs, plan: &Plan) {
        let ms = (Self::REPLIES / slowest_per_s.max(1e-3) * 1000.0).ceil();
        let needed = DurationNs::from_ms(ms as u64).clamp(Self::SHORTEST, Self::LONGEST);
        self.length = plan.slices.window.unwrap_or(needed);
        // The first replies come in step; two latencies later they do not.
        let ramp = DurationNs::from_ns(longest.as_ns() * 2);
        self.ramp = ramp.clamp(Self::SHORTEST_RAMP, Self::LONGEST);
        self.warmup = plan.slices.warmup.unwrap_or(self.length);
    }

    pub(super) fn with_longer_ramp(self, share: f64) -> Self {
        let most = self.length.as_ns() / RAMP_JITTER;
        Self { ramp: self.ramp + DurationNs::from_ns((most as f64 * share) as u64), ..self }
    }

    pub(super) fn stretch(&self) -> Stretch {
        Stretch {
            ramp: self.ramp,
            window: self.length,
            requests: None,
            interval: DurationNs::from_secs(3600),
            edges: self.edges,
        }
    }

    pub(super) fn warmup(&self) -> Stretch {
        Stretch { window: self.warmup, ..self.stretch() }
    }
}

/// Everything that a run holds while it runs.
pub struct Runner<'a> {
    pub(super) plan: &'a Plan,
    pub(super) lab: Lab,
    pub(super) clients: Clients,
    pub(super) window: Option<Window>,
    /// Of variants that are already up.
    pub(super) endpoints: Vec<Endpoint>,
    writer: &'a Writer,
    events: Receiver<Event>,
    stop: Arc<AtomicBool>,
    live: LiveTable,
    digests: Vec<RoundDigest>,
    reactor_noted: bool,
}

/// What an earlier part of a resumed run left.
#[derive(Default)]
pub struct Earlier {
    pub digests: Vec<RoundDigest>,
    /// The number of the next round.
    pub next_round: u32,
    pub elapsed_ns: u64,
}

impl<'a> Runner<'a> {
    pub fn new(
        plan: &'a Plan,
        writer: &'a Writer,
        stop: Arc<AtomicBool>,
        live: LiveTable,
    ) -> Result<Self, Failure> {
        let (sender, events) = channel();
        let state = journal_folder()?;
        let mut servers = Vec::new();
        let mut endpoints = Vec::new();
        for (index, variant) in plan.variants.iter().enumerate() {
            let fixed = !variant.url.contains("{port}");
            // A server that is not up yet cannot be asked which of its addresses answers.
            let url = plan.url(index, 1)?;
            let address = match (&variant.server, fixed) {
                (_, false) => None,
                _ => Some(resolve(&url.host, url.port, plan.load.family())?),
            };
            endpoints.push(Endpoint::Tcp(
                address.unwrap_or_else(|| std::net::SocketAddr::from(([127, 0, 0, 1], 0))),
            ));
            let server = variant.server.clone();
            let fixed = address.filter(|_| server != ServerSpec::Up);
            servers.push(Placed {
                name: variant.name.clone(),
                server,
                fixed,
                // A URL that leaves only the port open says where to listen.
                ip: url.host.parse().ok().filter(|ip: &IpAddr| !ip.is_loopback()),
                filter: variant.filter().cloned(),
                place: variant.place.clone(),
                client: variant.client.clone(),
            });
        }
        let lab = Lab::open(LabPlan {
            state: &state,
            servers,
            cpus: plan.server_cpus.clone(),
            load_cpus: plan.load_cpus.clone(),
            place_launches: plan.slices.place_launches.unwrap_or(PLACE_LAUNCHES),
            stop: stop.clone(),
            connections: plan.load.max_connections.unwrap_or(plan.load.connections),
            events: sender,
        })?;
        let clients = Clients::start(plan.load.workers(), &plan.load_cpus, &stop)?;
        Ok(Self {
            plan,
            lab,
            clients,
            window: None,
            endpoints,
            writer,
            events,
            stop,
            live,
            digests: Vec::new(),
            reactor_noted: false,
        })
    }

    /// Runs to the end, whatever that is; what was made is removed then.
    pub fn run(mut self, earlier: Earlier) -> Stopped {
        let stopped = match self.rounds(earlier) {
            Ok(stopped) => stopped,
            // What was stopped in its middle fails in some way of its own.
            Err(_) if self.interrupted() => Stopped::Interrupted,
            Err(failure) => Stopped::Failed(failure),
        };
        self.live.end();
        let outside = self.cpu_outside_load();
        let _ = self.note(format!("ended: {}; {outside}", stopped.word()));
        let _ = self.write_events();
        let _ = self.write(Entry::RunEnded(RunEnd { stopped_by: stopped.word().into() }));
        let Self { lab, clients, .. } = self;
        drop(clients);
        lab.end_orphans();
        let complaints = lab.close();
        if complaints.is_empty() || matches!(stopped, Stopped::Failed(_)) {
            return stopped;
        }
        Stopped::Failed(Failure::Environment(complaints.join("; ")))
    }

    fn rounds(&mut self, earlier: Earlier) -> Result<Stopped, Failure> {
        let begun = monotonic_now();
        let spent =
            |now: tare_io::Instant| DurationNs::from_ns(earlier.elapsed_ns) + now.since(begun);
        self.window = self.plan.slices.found.map(|found| Window {
            length: found.window,
            ramp: found.ramp,
            warmup: found.warmup,
            edges: edges(self.plan),
        });
        let waits = self.plan.variants.iter().filter_map(|v| v.place.to_wait_for());
        let mut waits: Vec<&str> = waits.collect();
        waits.sort_unstable();
        waits.dedup();
        if !waits.is_empty() {
            self.live.begin(&waits.join(", "));
        }
        if self.window.is_none() && self.plan.is_exclusive() {
            self.fit_alone()?;
        }
        self.digests = earlier.digests;
        let mut index = earlier.next_round;
        let mut cycles = self.choose(None, spent(monotonic_now()));
        self.note(self.first_words())?;
        loop {
            if spent(monotonic_now()) >= self.plan.stop.max_time {
                return Ok(Stopped::MaxTime);
            }
            let Some(round) = self.round(index, cycles)? else { return Ok(Stopped::Interrupted) };
            if round.slices.iter().all(|slice| slice.counts.good == 0) {
                return Err(self.nothing_good(&round));
            }
            let digest = digest(&round, self.plan.variants.len(), self.plan.baseline());
            self.digests.push(digest);
            index += 1;
            let rounds = self.digests.len() as u32;
            let now = spent(monotonic_now());
            if let Some(stopped) = self.verdict_on_going_on(rounds) {
                return Ok(stopped);
            }
            cycles = self.choose(Some(cycles), now);
            self.live.show(&self.digests);
            if self.interrupted() {
                return Ok(Stopped::Interrupted);
            }
        }
    }

    fn verdict_on_going_on(&self, rounds: u32) -> Option<Stopped> {
        if rounds == PILOT_ROUNDS && super::finish::all_void(self.plan, &self.digests) {
            return Some(Stopped::Void);
        }
        if self.plan.stop.rounds.is_some_and(|most| rounds >= most) {
            return Some(Stopped::Rounds);
        }
        if self.plan.stop.rounds.is_none() && is_look(rounds) {
            let analysis = analyse(&self.digests, &self.plan.question());
            if precise_enough(&analysis, self.plan.stop.precision) {
                return Some(Stopped::Precision);
            }
        }
        None
    }

    /// Cycles of the next round.
    fn choose(&self, now: Option<u32>, spent: DurationNs) -> u32 {
        if let Some(fixed) = self.plan.slices.cycles {
            return fixed;
        }
        let rounds = self.digests.len() as u32;
        let current = now.unwrap_or(tare_stats::stopping::PILOT_CYCLES);
        let due = if now.is_none() { rounds >= PILOT_ROUNDS } else { is_choice(rounds) };
        if !due {
            return current;
        }
        let slices: f64 =
            self.digests.iter().map(|digest| self.cycle_seconds() * f64::from(digest.cycles)).sum();
        let total: f64 = self.digests.iter().map(|digest| digest.elapsed_ns as f64 / 1e9).sum();
        let launch_cost = ((total - slices) / f64::from(rounds)).max(0.0);
        let (baseline, metrics) = (self.plan.baseline(), &self.plan.stop.metrics);
        let pilot = Pilot::of(&self.digests, baseline, metrics, launch_cost, self.cycle_seconds());
        let left = self.plan.stop.max_time.as_secs_f64() - spent.as_secs_f64();
        let chosen =
            pilot.map_or(current, |pilot| choose_cycles(&pilot, self.plan.stop.precision, left));
        chosen.max(self.cycles_for_tails())
    }

    /// A quantile needs ten replies beyond it in each round, of the slowest variant too.
    fn cycles_for_tails(&self) -> u32 {
        let beyond = self.plan.stop.metrics.iter().filter_map(|metric| match metric.basis() {
            Basis::Quantile(_, quantile) => Some(1.0 - quantile.max(1.0 - quantile)),
            _ => None,
        });
        let rarest = beyond.fold(1.0, f64::min);
        let per_cycle = self.digests.iter().flat_map(|digest| {
            let cycles = f64::from(digest.cycles.max(1));
            digest.variants.iter().map(move |variant| variant.counts.good as f64 / cycles)
        });
        let fewest = per_cycle.fold(f64::INFINITY, f64::min).max(1.0);
        if rarest == 1.0 || !fewest.is_finite() {
            return 0;
        }
        ((TAIL_REPLIES / rarest / fewest).ceil() as u32).min(TAIL_CYCLES_MAX)
    }

    /// What one slice of every variant takes.
    fn cycle_seconds(&self) -> f64 {
        let window = self.window.unwrap_or_else(|| Window::first(self.plan));
        let slice = (window.length + window.ramp + SLICE_COST).as_secs_f64();
        slice * self.plan.variants.len() as f64
    }

    fn first_words(&self) -> String {
        let meters = match &self.lab.cgroup_note {
            Some(note) => format!("servers are metered by process: {note}"),
            None => "servers are metered by control group".into(),
        };
        format!(
            "load on CPUs {:?}, servers on {:?}; {meters}",
            self.plan.load_cpus, self.plan.server_cpus
        )
    }

    fn nothing_good(&self, round: &tare_stats::samples::Round) -> Failure {
        let mut counts = tare_stats::samples::Counts::default();
        round.slices.iter().for_each(|slice| counts.add(&slice.counts));
        let why = match (counts.errors.first(), counts.status.first()) {
            (Some((_, _, why)), _) => why.clone(),
            (None, Some((status, _))) => {
                format!("every reply has status {status} (see --expect-status)")
            }
            (None, None) => "no request was answered in the time measured".into(),
        };
        Failure::Target(format!("not one good reply from any variant: {why}"))
    }

    pub(super) fn note_reactors(&mut self, said: Vec<String>) -> Result<(), Failure> {
        if self.reactor_noted {
            return Ok(());
        }
        self.reactor_noted = true;
        said.into_iter().try_for_each(|text| self.note(text))
    }

    /// For those who wait elsewhere.
    pub(super) fn stop_flag(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    pub(super) fn interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn write(&self, entry: Entry) -> Result<(), Failure> {
        Ok(self.writer.write(entry)?)
    }

    /// Into the run's log.
    pub(super) fn note(&self, text: String) -> Result<(), Failure> {
        self.write(Entry::Event { unix_ms: wall_unix_ms(), who: "tare".into(), text })
    }

    /// What servers said meanwhile.
    pub(super) fn write_events(&self) -> Result<(), Failure> {
        for Event { unix_ms, who, text } in self.events.try_iter() {
            self.write(Entry::Event { unix_ms, who, text })?;
        }
        Ok(())
    }

    /// CPU time of this process beside its load workers, in words for the log.
    fn cpu_outside_load(&self) -> String {
        let threads = tare_lab::processes::threads_cpu_ns(std::process::id());
        let load: u64 =
            threads.iter().filter(|(name, _)| name.starts_with("load-")).map(|(_, ns)| ns).sum();
        let own = tare_io::process::own_cpu_time().as_ns();
        let ms = |ns: u64| ns / 1_000_000;
        format!("CPU {} ms in load workers, {} ms beside", ms(load), ms(own.saturating_sub(load)))
    }
}

/// Starts of a place that takes long to start, over the first rounds.
const PLACE_LAUNCHES: u32 = 3;
/// Ten, and some room for slow rounds.
const TAIL_REPLIES: f64 = 12.0;
const TAIL_CYCLES_MAX: u32 = 1000;
/// Orders, wake-ups and readings around a slice.
const SLICE_COST: DurationNs = DurationNs::from_ms(1);
