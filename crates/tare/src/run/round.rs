//! One round: every variant launched, probed, put under slices in turn, and stopped.

use tare_io::time::{monotonic_now, wall_unix_ms};
use tare_io::{DurationNs, Endpoint, Instant};
use tare_lab::Launched;
use tare_lab::agent::protocol::LaneLife;
use tare_lab::launch::Expected;
use tare_lab::machine::{Reading, ports_used, throttled_periods};
use tare_lab::meter::Meter;
use tare_load::LoadPlan;
use tare_load::plan::plan as load_plan;
use tare_model::samples::{Launch, LaunchLoad, MachineUse, Probe, Round, ServerUse};
use tare_store::Entry;

use super::cell::Cell;
use super::clients::Client;
use super::outcome::Stopped;
use super::proof::FilterProof;
use super::runner::Runner;
use super::schedule;
use crate::failure::Failure;

/// A server that is late says so itself within this, with its last words.
const LATE: DurationNs = DurationNs::from_secs(2);

/// One variant while it is up.
pub(super) struct Up {
    pub variant: usize,
    pub launched: Option<Launched>,
    pub client: Client,
    /// Of each cell that is measured: what is asked, and what it answered.
    pub lanes: Vec<LanePlan>,
    started_unix_ms: u64,
    ready: DurationNs,
    pub meter: Option<Meter>,
    counted: Option<u64>,
    logged_before: (u64, u64),
    throttled_before: u64,
    filter: Option<FilterProof>,
}

/// One cell's load on one variant.
pub(super) struct LanePlan {
    pub plan: LoadPlan,
    probe: Option<Probe>,
    /// What the server used meanwhile.
    cpu_ns: u64,
    /// What it saw and did beside slices.
    pub load: LaunchLoad,
    /// Of load that was not the lane's own.
    pub beside: LaneLife,
}

impl LanePlan {
    fn new(plan: LoadPlan, probe: Option<Probe>) -> Self {
        let (load, beside) = (LaunchLoad::default(), LaneLife::default());
        Self { plan, probe, cpu_ns: 0, load, beside }
    }
}

impl Up {
    pub fn used(&self) -> Option<ServerUse> {
        self.meter.as_ref().and_then(Meter::read)
    }

    /// Periods in which a quota held its processes up, ever. Its first is its launcher in a
    /// container, its last is in the group that is limited.
    fn throttled(meter: Option<&Meter>) -> u64 {
        let pids = meter.map_or(&[][..], Meter::pids);
        let ends = pids.first().into_iter().chain(pids.last());
        ends.map(|pid| throttled_periods(&pid.to_string())).max().unwrap_or(0)
    }
}

impl Runner<'_> {
    /// Runs a round of these cells; `None` where the user interrupted it: what it measured is in
    /// the store. A cell that failed is not among those that come back.
    pub(super) fn round(
        &mut self,
        index: u32,
        active: &[usize],
    ) -> Result<Option<Vec<(usize, Round)>>, Failure> {
        let started_unix_ms = wall_unix_ms();
        let mut rounds = Vec::new();
        for cell in active {
            let Cell { run, cycles, .. } = self.cells[*cell];
            self.write(run, Entry::RoundBegan { number: index, cycles, started_unix_ms })?;
            rounds.push((*cell, Round { index, cycles, started_unix_ms, ..Round::default() }));
        }
        let order = schedule::launches(self.plan().seed, index, self.plan().variants.len());
        let groups: Vec<Vec<usize>> = match self.plan().is_exclusive() {
            true => order.into_iter().map(|variant| vec![variant]).collect(),
            false => vec![order],
        };
        for group in groups {
            self.run_group(&group, &mut rounds)?;
            if self.interrupted() {
                return Ok(None);
            }
        }
        rounds.retain(|(cell, _)| self.cells[*cell].stopped.is_none());
        for (cell, round) in &mut rounds {
            round.launches.sort_by_key(|launch| launch.variant);
            self.write(
                self.cells[*cell].run,
                Entry::RoundEnded {
                    number: index,
                    elapsed_ns: round.elapsed_ns,
                    machine: round.machine.clone(),
                    launches: round.launches.clone(),
                },
            )?;
        }
        Ok(Some(rounds))
    }

    /// Variants that are up at the same time; each cell is measured on them.
    fn run_group(&mut self, group: &[usize], rounds: &mut [(usize, Round)]) -> Result<(), Failure> {
        let began = monotonic_now();
        let seed = self.plan().seed;
        let (index, cells) = (rounds[0].1.index, rounds.len());
        let active: Vec<usize> = rounds.iter().map(|(cell, _)| *cell).collect();
        let mut up = self.launch_all(group, index, &active)?;
        if self.interrupted() {
            return Ok(());
        }
        let mut lives = vec![LaneLife::default(); up.len()];
        let mut measuring = DurationNs::ZERO;
        for lane in schedule::cells(seed, index, cells) {
            let (cell, round) = &mut rounds[lane];
            let at = monotonic_now();
            // In a sweep the deadline can pass during the first round.
            if at > self.deadline && measuring > DurationNs::ZERO {
                self.cells[*cell].stopped.get_or_insert(Stopped::MaxTime);
                continue;
            }
            let is_first = measuring == DurationNs::ZERO;
            let (own, measured) = self.measure_cell(*cell, (lane, is_first), &mut up, round);
            if self.interrupted() {
                return measured;
            }
            for (sum, life) in lives.iter_mut().zip(own) {
                sum.sent += life.sent;
                sum.closed_by_server += life.closed_by_server;
            }
            if let Err(failure) = measured {
                self.fail(*cell, failure)?;
            }
            let took = monotonic_now().since(at);
            round.elapsed_ns += took.as_ns();
            measuring = measuring + took;
        }
        for up in up.iter().filter(|up| up.launched.is_some()) {
            let is_alive = up.launched.as_ref().is_some_and(|l| l.server.is_alive());
            // Its workers may go on without it; that is not what was asked for.
            if !is_alive {
                let name = &self.plan().variants[up.variant].name;
                return Err(Failure::Target(format!("{name}: the server died under load")));
            }
        }
        for (up, life) in up.iter_mut().zip(lives) {
            let mut launch = end_of(up, life.sent, life.closed_by_server);
            launch.proofs.extend(self.lab.proofs(up.variant));
            launch.emulated = self.lab.is_emulated(up.variant);
            launch.place_starts = self.lab.place_starts(up.variant);
            for ((_, round), lane) in rounds.iter_mut().zip(&mut up.lanes) {
                let probe = lane.probe.take();
                let load = std::mem::take(&mut lane.load);
                round.launches.push(Launch { probe, cpu_ns: lane.cpu_ns, load, ..launch.clone() });
            }
        }
        self.stop_all(up)?;
        // Launching and stopping are every cell's alike.
        let shared = monotonic_now().since(began).as_ns() - measuring.as_ns();
        for (_, round) in rounds {
            round.elapsed_ns += shared / cells as u64;
        }
        Ok(())
    }

    /// One cell's cycles, and what the machine did meanwhile; what its lanes did in their lives.
    fn measure_cell(
        &mut self,
        cell: usize,
        (lane, is_first): (usize, bool),
        up: &mut [Up],
        round: &mut Round,
    ) -> (Vec<LaneLife>, Result<(), Failure>) {
        let (before, places_before) = (Reading::take(), self.lab.cpu_of_places());
        let used: Vec<Option<ServerUse>> = up.iter().map(Up::used).collect();
        // Only launches that no other cell has loaded yet can tell how long they take to be warm.
        let surveyed = if is_first { self.survey(cell, lane, up) } else { Ok(()) };
        let measured = surveyed.and_then(|()| self.measure(cell, lane, up, round));
        let lives = self.clients(cell).close();
        // The lanes' connections are closed: the others are alone.
        let measured = measured.and_then(|()| self.check_sustained(cell, lane, up));
        for (up, before) in up.iter_mut().zip(used) {
            let used = up.used().zip(before).map(|(after, before)| after.since(before).cpu_ns);
            up.lanes[lane].cpu_ns = used.unwrap_or(0);
        }
        let mut machine = Reading::take().since(&before);
        let in_places = self.lab.cpu_of_places().saturating_sub(places_before);
        // Clients and runtimes in places are ours as well as servers are.
        let placed = up.iter().filter(|up| self.lab.place_starts(up.variant) > 0);
        let of_servers: u64 = placed.map(|up| up.lanes[lane].cpu_ns).sum();
        machine.own_cpu_ns += in_places.saturating_sub(of_servers);
        add_use(&mut round.machine, machine);
        if self.cells[cell].plan.load.new_connections {
            let used = [round.machine.ports_used, ports_used()].into_iter().flatten();
            round.machine.ports_used = used.reduce(f64::max);
        }
        match lives {
            Ok(mut lives) => {
                for (life, up) in lives.iter_mut().zip(up) {
                    life.sent += up.lanes[lane].beside.sent;
                    life.closed_by_server += up.lanes[lane].beside.closed_by_server;
                }
                (lives, measured)
            }
            Err(failure) => (Vec::new(), measured.and(Err(failure))),
        }
    }

    /// Starts them all, then waits for each until it gives a good reply.
    pub(super) fn launch_all(
        &mut self,
        group: &[usize],
        round: u32,
        active: &[usize],
    ) -> Result<Vec<Up>, Failure> {
        let stop = self.stop_flag();
        let mut started = Vec::new();
        for variant in group {
            let launched = self.lab.launch(*variant, round)?;
            // What a place took to start is not the server's.
            let began = launched.as_ref().map(|launched| launched.started());
            let at = began.unwrap_or_else(monotonic_now);
            started.push((*variant, launched, at, wall_unix_ms()));
            if self.interrupted() {
                return Ok(Vec::new());
            }
        }
        let mut all = Vec::new();
        for (variant, mut launched, at, started_unix_ms) in started {
            if let Some(launched) = &mut launched {
                launched.server.wait_until_listening(&stop)?;
            }
            if self.interrupted() {
                return Ok(Vec::new());
            }
            let client = self.lab.client(variant, round)?;
            self.clients(active[0]).take_sent();
            let mut lanes = Vec::new();
            for cell in active {
                let plan = self.lane_plan(*cell, variant, launched.as_ref())?;
                let probe = self.first_reply(*cell, variant, launched.as_mut(), &client, &plan)?;
                lanes.push(LanePlan::new(plan, probe));
                if self.interrupted() {
                    return Ok(Vec::new());
                }
            }
            let ready = monotonic_now().since(at);
            let filter = match &launched {
                Some(launched) if !self.interrupted() => {
                    self.filter_proof(active[0], variant, launched, &client)?
                }
                _ => None,
            };
            let meter = launched.as_ref().map(|launched| launched.meter());
            all.push(Up {
                variant,
                lanes,
                started_unix_ms,
                ready,
                counted: launched.as_ref().and_then(|l| l.served(Expected::Quiet)),
                logged_before: logged(launched.as_ref()),
                throttled_before: Up::throttled(meter.as_ref()),
                meter,
                launched,
                client,
                filter,
            });
            if self.interrupted() {
                return Ok(Vec::new());
            }
        }
        Ok(all)
    }

    /// Evidence about a variant's filter, as far as it can be had before load.
    fn filter_proof(
        &mut self,
        cell: usize,
        variant: usize,
        launched: &Launched,
        client: &Client,
    ) -> Result<Option<FilterProof>, Failure> {
        let plan = self.cells[cell].plan;
        let Some(spec) = plan.variants[variant].filter() else { return Ok(None) };
        let port = launched.launch_spec.address.port();
        let mut url = plan.variants[variant].url(port)?;
        let path = url.target.split('?').next().unwrap_or_default().to_owned();
        url.target = spec.refused_path();
        let endpoint = Endpoint::Tcp(launched.launch_spec.address);
        let refused = load_plan(&plan.load_of(variant), &url, endpoint, plan.seed)?;
        let cpus = &plan.server_cpus;
        FilterProof::begin(spec, launched, self.clients(cell), client, &refused, &path, cpus)
    }

    /// Where the load of a variant goes, and what it asks.
    fn lane_plan(
        &self,
        cell: usize,
        variant: usize,
        launched: Option<&Launched>,
    ) -> Result<LoadPlan, Failure> {
        let plan = self.cells[cell].plan;
        let mut load = plan.load_of(variant);
        if !self.lab.client_has_our_cpus(variant) {
            load.cpus = None;
        }
        let (url, endpoint) = match launched {
            Some(launched) => {
                let address = launched.launch_spec.address;
                (plan.variants[variant].url(address.port())?, Endpoint::Tcp(address))
            }
            None => (plan.variants[variant].url(1)?, self.endpoints[variant].clone()),
        };
        Ok(load_plan(&load, &url, endpoint, plan.seed)?)
    }

    /// Probes until there is a reply that is not the server's "not yet".
    fn first_reply(
        &mut self,
        cell: usize,
        variant: usize,
        launched: Option<&mut Launched>,
        client: &Client,
        plan: &LoadPlan,
    ) -> Result<Option<Probe>, Failure> {
        let name = &self.plan().variants[variant].name;
        let Some(launched) = launched else {
            return match self.clients(cell).ask(client, plan)? {
                Ok(probe) => Ok(Some(probe)),
                Err(why) => {
                    let address = &plan.engine.endpoint;
                    Err(Failure::Target(format!("{name}: no reply from {address}: {why}")))
                }
            };
        };
        let limit = launched.ready_limit();
        loop {
            let answer = self.clients(cell).ask(client, plan)?;
            if self.interrupted() {
                return Ok(None);
            }
            match answer {
                Ok(probe)
                    if probe.status < 500
                        || plan.engine.expected.contains(probe.status)
                        || monotonic_now() > limit =>
                {
                    return Ok(Some(probe));
                }
                Ok(_) => launched.server.not_yet(Instant::FAR)?,
                // An agent may not notice, or not say, that its server is late.
                Err(why) if monotonic_now() > limit + LATE => {
                    let text = format!("{name}: no good reply in time (asked, it said: {why})");
                    return Err(Failure::Environment(text));
                }
                Err(why) => launched.server.not_yet(limit).map_err(|error| match error {
                    tare_lab::LabError::Environment(text) => {
                        Failure::Environment(format!("{text} (asked, it said: {why})"))
                    }
                    error => error.into(),
                })?,
            }
        }
    }

    pub(super) fn stop_all(&mut self, mut up: Vec<Up>) -> Result<(), Failure> {
        for launched in up.iter_mut().filter_map(|up| up.launched.as_mut()) {
            launched.server.ask_to_stop();
        }
        for launched in up.iter_mut().filter_map(|up| up.launched.as_mut()) {
            launched.server.stop();
        }
        drop(up);
        self.lab.end_orphans();
        self.write_events()
    }
}

fn logged(launched: Option<&Launched>) -> (u64, u64) {
    launched.map_or((0, 0), |launched| launched.server.logged())
}

/// What is known of a launch when its load has ended.
fn end_of(up: &mut Up, sent: u64, closed_by_server: u64) -> Launch {
    let served = up.counted.and_then(|before| {
        let expected = Expected::AtLeast(before + sent);
        let now = up.launched.as_ref().and_then(|launched| launched.served(expected))?;
        Some(now.saturating_sub(before))
    });
    let throttled = Up::throttled(up.meter.as_ref());
    let (log_lines, log_bytes) = logged(up.launched.as_ref());
    Launch {
        variant: up.variant as u32,
        fresh: up.launched.is_some(),
        started_unix_ms: up.started_unix_ms,
        ready_ns: up.ready.as_ns(),
        requests_sent: sent,
        requests_served: served,
        rss_bytes: up.meter.as_ref().and_then(Meter::rss_bytes),
        // What it says of its start is not the price of a request.
        log_lines: log_lines.saturating_sub(up.logged_before.0),
        log_bytes: log_bytes.saturating_sub(up.logged_before.1),
        closed_by_server,
        probe: None,
        call_ns: up.filter.as_ref().and_then(|filter| filter.call_ns),
        proofs: up
            .filter
            .take()
            .zip(up.launched.as_ref())
            .map(|(filter, launched)| filter.end(launched.server.as_ref(), sent))
            .into_iter()
            .collect(),
        emulated: false,
        place_starts: 0,
        cpu_ns: 0,
        load: LaunchLoad::default(),
        throttled_periods: throttled.saturating_sub(up.throttled_before),
    }
}

fn add_use(sum: &mut MachineUse, more: MachineUse) {
    sum.capacity_ns += more.capacity_ns;
    sum.busy_ns += more.busy_ns;
    sum.steal_ns += more.steal_ns;
    sum.own_cpu_ns += more.own_cpu_ns;
    sum.throttled_periods += more.throttled_periods;
    sum.thermal_throttles += more.thermal_throttles;
    sum.tcp_segments += more.tcp_segments;
    sum.tcp_retransmits += more.tcp_retransmits;
    sum.listen_drops += more.listen_drops;
}
