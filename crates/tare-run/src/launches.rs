//! Launches: servers are started, probed until they reply, and stopped.

use std::collections::BTreeMap;

use tare_io::{DurationNs, Endpoint, Instant, Random};
use tare_lab::HaltReason;
use tare_lab::executor::LaneLife;
use tare_lab::world;
use tare_lab::world::{
    CountSettled, Launch as _, LaunchUsage, LoadSource, MakeLoad as _, Meter as _, Placement,
    ProbeSender, World,
};
use tare_load::failure::{FailureKind, ONLY_TLS, is_wrong_protocol};
use tare_load::measured::Measured;
use tare_load::protocol::reply::ReplyDefect;
use tare_load::request::Order;
use tare_load::resolve;
use tare_load::{LoadPlan, Stretch};
use tare_model::load::{Idle, Paths};
use tare_model::net::Protocol;
use tare_model::plan::{Plan, VariantId};
use tare_model::samples::{Counts, Launch, LaunchLoad, LaunchPart, Probe, Sent};
use tare_model::servers::ServerSpec;
use tare_model::url::Url;
use tare_model::variant::Difference;
use tare_model::{Failure, Fault};
use tare_stats::design::CellOrder;

use crate::observer::Event;
use crate::runner::Runner;
use crate::schedule::CellId;

/// A server that misses its limit is reported within this time, with its last output.
const LATE: DurationNs = DurationNs::from_secs(2);

/// One variant that is up.
pub(crate) struct RunningVariant<L: World> {
    pub variant: VariantId,
    pub launched: Option<L::Launch>,
    pub clients: L::Clients,
    /// Connections, kept until the variant is stopped: a server may cost more on new ones, as
    /// Node.js does for the first thousands of requests.
    pub connections: L::Load,
    /// The cell for which they are open, and how its load is made.
    opened: Option<(CellId, LoadSource)>,
    /// Requests that were answered so far.
    answered: u64,
    /// Requests that timed out or were cut off so far.
    unanswered: u64,
    /// The load of each cell that is measured, and its results.
    pub lanes: BTreeMap<CellId, LanePlan>,
    started_unix_ms: u64,
    ready: DurationNs,
    /// The cost of starting the server with its place, if the plan measures startup.
    startup: Option<Startup>,
    pub meter: Option<L::Meter>,
    counted: Option<u64>,
    logged_before: (u64, u64),
    /// Its parts when it became ready; the server is last.
    parts_before: Vec<LaunchPart>,
}

/// A variant from its launch to its first good reply.
struct Starting<L: World> {
    variant: VariantId,
    launched: Option<L::Launch>,
    /// When its place began to start.
    from: Instant,
    /// The machine's counters at `from`, if the plan measures startup.
    machine: Option<tare_lab::machine::Counters>,
    at: Instant,
    unix_ms: u64,
}

/// The cost from nothing to the first good reply.
struct Startup {
    took: DurationNs,
    /// CPU time of the whole machine meanwhile.
    cpu_ns: u64,
}

/// One cell's load on one variant.
pub(crate) struct LanePlan {
    pub plan: LoadPlan,
    pub probe: Option<Probe>,
    /// CPU time of the server during the cell's turns.
    pub cpu_ns: u64,
    /// Observations outside slices.
    pub load: LaunchLoad,
    /// Totals of connections that are already closed.
    pub beside: LaneLife,
    /// Connections of this cell that the server closed; other cells share the launch.
    pub closed_by_server: u64,
}

impl LanePlan {
    fn new(plan: LoadPlan, probe: Option<Probe>) -> Self {
        let (load, beside) = (LaunchLoad::default(), LaneLife::default());
        Self { plan, probe, cpu_ns: 0, load, beside, closed_by_server: 0 }
    }
}

impl<L: World> RunningVariant<L> {
    pub fn lane(&self, cell: CellId) -> &LanePlan {
        &self.lanes[&cell]
    }

    pub fn lane_mut(&mut self, cell: CellId) -> &mut LanePlan {
        match self.lanes.get_mut(&cell) {
            Some(lane) => lane,
            // Each measured cell gets a lane when a variant is launched.
            None => panic!("a cell without a lane: {cell:?}"),
        }
    }

    /// Opens its connections for a cell, unless they are open for it; returns how load is made.
    pub fn open(&mut self, cell: CellId) -> Result<LoadSource, Failure> {
        match &self.opened {
            Some((open, made_by)) if *open == cell => Ok(made_by.clone()),
            _ => {
                let made_by = self.connections.open(&self.clients, &self.lanes[&cell].plan)?;
                self.opened = Some((cell, made_by.clone()));
                Ok(made_by)
            }
        }
    }

    pub fn load(&mut self, stretch: Stretch) -> Result<Measured, Failure> {
        let measured = self.connections.slice(stretch)?;
        self.add_counts(&measured.counts);
        Ok(measured)
    }

    pub fn add_counts(&mut self, counts: &Counts) {
        self.answered += counts.answered;
        let timed_out =
            counts.errors.iter().filter(|(kind, ..)| kind == FailureKind::TimedOut.name());
        self.unanswered += counts.cut + timed_out.map(|(_, n, _)| n).sum::<u64>();
    }

    /// Describes how many requests had no reply, if there are any.
    pub fn without_reply(&self, name: &str) -> Option<String> {
        let all = self.answered + self.unanswered;
        (self.unanswered > 0)
            .then(|| format!("{name}: {} of {all} requests had no reply", self.unanswered))
    }

    pub fn close(&mut self) -> Result<LaneLife, Failure> {
        self.opened = None;
        self.connections.close()
    }

    pub fn used(&self) -> LaunchUsage {
        self.meter.as_ref().map_or_else(LaunchUsage::default, L::Meter::used)
    }

    pub fn cpu_ns(&self) -> u64 {
        self.used().usage.map_or(0, |usage| usage.cpu_ns())
    }

    /// Returns its parts now, with the throttled periods since it was ready.
    fn parts(&self) -> Vec<LaunchPart> {
        let mut parts = self.meter.as_ref().map_or_else(Vec::new, L::Meter::parts);
        for (part, before) in parts.iter_mut().zip(&self.parts_before) {
            part.throttled_periods =
                part.throttled_periods.saturating_sub(before.throttled_periods);
        }
        parts
    }

    fn logged(&self) -> (u64, u64) {
        self.launched.as_ref().map_or((0, 0), L::Launch::logged)
    }

    /// Returns the record of a launch at the end of its load.
    pub fn end(&mut self, life: LaneLife, placement: Placement) -> Launch {
        let LaneLife { sent, closed_by_server, unanswered, .. } = life;
        let served = self.counted.and_then(|before| {
            let expected = CountSettled::AtLeast(before + sent);
            let now = self.launched.as_ref().and_then(|launched| launched.served(expected))?;
            Some(now.saturating_sub(before))
        });
        let (log_lines, log_bytes) = self.logged();
        let parts = self.parts();
        // An endpoint of tare's own counts nothing that could be compared.
        let is_served = self.lanes.values().all(|lane| lane.plan.engine.protocol.is_served());
        let unanswered = if is_served { unanswered } else { 0 };
        let proven = Sent { requests: sent, unsure: unanswered };
        let own = self.launched.as_mut().map(|launched| launched.end_proofs(proven));
        Launch {
            variant: self.variant.number(),
            fresh: self.launched.is_some(),
            started_unix_ms: self.started_unix_ms,
            ready_ns: self.ready.as_ns(),
            startup_ns: self.startup.as_ref().map(|startup| startup.took.as_ns()),
            startup_cpu_ns: self.startup.as_ref().map(|startup| startup.cpu_ns),
            requests_sent: sent,
            requests_unsure: unanswered,
            requests_served: served,
            rss_bytes: parts
                .iter()
                .map(|part| part.rss_bytes)
                .reduce(|a, b| Some(a? + b?))
                .flatten(),
            layers_rss_bytes: None,
            // Its log output at start is not a cost of requests.
            log_lines: log_lines.saturating_sub(self.logged_before.0),
            log_bytes: log_bytes.saturating_sub(self.logged_before.1),
            closed_by_server,
            probe: None,
            call_ns: self.launched.as_ref().and_then(L::Launch::call_ns),
            proofs: own.into_iter().flatten().chain(placement.proofs).collect(),
            emulated: placement.is_emulated,
            place_starts: placement.starts,
            cpu_ns: 0,
            load: LaunchLoad::default(),
            throttled_periods: parts.last().map_or(0, |server| server.throttled_periods),
            parts,
        }
    }
}

impl<L: World> Runner<'_, L> {
    /// Starts all of them, then waits for each until it gives a good reply. Returns fewer if the
    /// run is halted meanwhile.
    pub(crate) fn launch_all(
        &mut self,
        group: &[VariantId],
        round: u32,
        orders: &[(CellId, &CellOrder)],
    ) -> Result<Vec<RunningVariant<L>>, Failure> {
        let (mut started, mut up) = (Vec::new(), Vec::new());
        let launched = self.start_each(group, round, &mut started).and_then(|()| {
            started.iter_mut().try_for_each(|one| {
                up.extend(self.wait_until_up(one, round, orders)?);
                Ok(())
            })
        });
        if self.halted() == Some(HaltReason::ServerEnded) {
            self.note_ended(&mut up);
            let waiting = started.iter_mut().filter_map(|one| one.launched.as_mut());
            let ended =
                waiting.filter_map(|launched| launched.wait_until_ready(Instant::FAR).err()).next();
            self.ended = self.ended.take().or(ended);
        }
        launched.map(|()| up)
    }

    fn start_each(
        &mut self,
        group: &[VariantId],
        round: u32,
        started: &mut Vec<Starting<L>>,
    ) -> Result<(), Failure> {
        let from_nothing = self.plan().measures_startup();
        for variant in group.iter().copied() {
            if self.is_halted() {
                return Ok(());
            }
            if from_nothing {
                self.lab.tear_down_place(variant);
            }
            let machine = from_nothing.then(|| self.lab.machine());
            let from = self.clock().now();
            let launched = self.lab.launch(variant, round)?;
            // The start of a place is not part of the server's start.
            let began = launched.as_ref().map(L::Launch::started);
            let at = began.unwrap_or_else(|| self.clock().now());
            let unix_ms = self.clock().unix_ms();
            started.push(Starting { variant, launched, from, machine, at, unix_ms });
        }
        Ok(())
    }

    /// Waits for its first good reply; `None` if the run is halted first.
    fn wait_until_up(
        &mut self,
        started: &mut Starting<L>,
        round: u32,
        orders: &[(CellId, &CellOrder)],
    ) -> Result<Option<RunningVariant<L>>, Failure> {
        let Starting { variant, launched, .. } = started;
        let variant = *variant;
        if self.is_halted() {
            return Ok(None);
        }
        if let Some(launched) = launched {
            launched.wait_until_listening()?;
        }
        if self.is_halted() {
            self.note_unready(variant, launched.as_mut());
            return Ok(None);
        }
        let clients = self.lab.clients(variant, round)?;
        self.load.take_sent();
        let mut lanes = BTreeMap::new();
        for (cell, order) in orders {
            let rate = order.rate(variant.0);
            let mut plan = self.lane_plan(*cell, variant, rate, launched.as_ref())?;
            randomise_list_start(&mut plan, round);
            let probe = self.first_reply(variant, launched.as_mut(), &clients, &plan)?;
            if let Some(probe) = &probe {
                self.check_status(*cell, variant, &plan, probe)?;
            }
            lanes.insert(*cell, LanePlan::new(plan, probe));
            if self.is_halted() {
                return Ok(None);
            }
        }
        let now = self.clock().now();
        let startup = launched.as_ref().and(started.machine.as_ref()).map(|machine| Startup {
            took: now.since(started.from),
            cpu_ns: self.lab.machine().since(machine).busy_ns,
        });
        if let Some(launched) = launched {
            self.begin_proofs(orders[0].0, variant, launched, &clients)?;
        }
        if self.is_halted() {
            return Ok(None);
        }
        let launched = launched.take();
        let mut up = RunningVariant {
            variant,
            lanes,
            started_unix_ms: started.unix_ms,
            ready: now.since(started.at),
            startup,
            counted: launched.as_ref().and_then(|l| l.served(CountSettled::Quiet)),
            logged_before: (0, 0),
            parts_before: Vec::new(),
            meter: launched.as_ref().map(L::Launch::meter),
            launched,
            clients,
            connections: self.lab.load(),
            opened: None,
            answered: 0,
            unanswered: 0,
        };
        up.logged_before = up.logged();
        up.parts_before = up.parts();
        self.on_event(&Event::Up { variant });
        Ok(Some(up))
    }

    /// Begins the proofs of a variant's layers, as far as they exist before load.
    fn begin_proofs(
        &mut self,
        cell: CellId,
        variant: VariantId,
        launched: &mut L::Launch,
        clients: &L::Clients,
    ) -> Result<(), Failure> {
        let plan = self.cells[cell.0].plan;
        let address = launched.address();
        let url = url_of(plan, variant, launched)?;
        let path = url.target.split('?').next().unwrap_or_default().to_owned();
        let endpoint = Endpoint::Tcp(address);
        let load = &mut self.load;
        let failed = None;
        let mut asker = VariantAsker::<L> { plan, variant, url, endpoint, clients, load, failed };
        let begun = launched.begin_proofs(&path, &mut asker);
        // The error of a failed probe is more exact than the layer's.
        begun.map_err(|error| asker.failed.map_or(error, Failure::from))
    }

    /// Plans the load of a variant: where it goes and what it requests.
    fn lane_plan(
        &self,
        cell: CellId,
        variant: VariantId,
        rate: Option<f64>,
        launched: Option<&L::Launch>,
    ) -> Result<LoadPlan, Failure> {
        let plan = self.cells[cell.0].plan;
        let mut load = plan.load_of(variant);
        if let Some(rate) = rate {
            load.set_rate(rate);
        }
        if !self.lab.clients_share_cpu_numbers(variant) {
            load.client.cpus = None;
        }
        let (url, endpoint) = match launched {
            Some(launched) => {
                let endpoint = Endpoint::Tcp(launched.address());
                (url_of(plan, variant, launched)?, endpoint)
            }
            None => (plan.variants[variant.0].url(1)?, self.lab.endpoint(variant)),
        };
        let are_shared = plan.load_cpus.iter().any(|cpu| plan.server_cpus.contains(cpu));
        let is_limited = plan.variants[variant.0].client_is_limited();
        if (are_shared || is_limited) && load.client.idle.is_none() {
            load.client.idle = Some(Idle::Sleep);
        }

        resolve(&load, &url, endpoint, plan.seed)
    }

    /// Probes until a status is expected or below 500; after the limit, any reply will do.
    fn first_reply(
        &mut self,
        variant: VariantId,
        launched: Option<&mut L::Launch>,
        clients: &L::Clients,
        plan: &LoadPlan,
    ) -> Result<Option<Probe>, Failure> {
        let name = &self.plan().variants[variant.0].name;
        let Some(launched) = launched else {
            let answer = self.load.ask(clients, plan);
            return match answer {
                Ok(Ok(probe)) => Ok(Some(probe)),
                _ if self.is_halted() => {
                    let none = || format!("{name}: no reply yet from {}", plan.engine.endpoint);
                    self.unanswered.get_or_insert_with(none);
                    Ok(None)
                }
                // A datagram may be lost; the slices will show whether replies come back.
                Ok(Err(_)) if matches!(plan.engine.endpoint, Endpoint::Udp(_)) => Ok(None),
                Ok(Err(why)) => Err(Failure::target(self.without_replies(variant, plan, why))),
                Err(error) => Err(error),
            };
        };
        let limit = launched.ready_limit();
        loop {
            let answer = self.load.ask(clients, plan)?;
            if self.is_halted() {
                if answer.is_err() {
                    self.note_unready(variant, Some(launched));
                }
                return Ok(None);
            }
            match answer {
                Ok(probe)
                    if probe.status < 500
                        || plan.engine.expected.contains(probe.status)
                        || self.clock().now() > limit =>
                {
                    return Ok(Some(probe));
                }
                Ok(_) => launched.wait_until_ready(Instant::FAR)?,
                // A server that starts does not change its protocol.
                Err(why) if is_wrong_protocol(&why) => {
                    return Err(Failure::target(format!("{name}: {why}")));
                }
                // An agent may not notice, or not report, that its server is late.
                Err(why) if self.clock().now() > limit + LATE => {
                    let text =
                        format!("{name}: no good reply within --ready-within (last error: {why})");
                    return Err(Failure::environment(text));
                }
                Err(why) => launched.wait_until_ready(limit).map_err(|error| match error {
                    Failure { fault: Fault::Environment, text } if !text.contains('\n') => {
                        let hint = hint(plan.engine.protocol, &why);
                        Failure::environment(format!("{text} (last error: {why}{hint})"))
                    }
                    error => error,
                })?,
            }
        }
    }

    /// Records why a server is not ready when the time is over.
    fn note_unready(&mut self, variant: VariantId, launched: Option<&mut L::Launch>) {
        let why = launched.and_then(|launched| launched.wait_until_ready(Instant::ZERO).err());
        let name = &self.plan().variants[variant.0].name;
        let none = || why.map_or(format!("{name}: no good reply yet"), |why| why.to_string());
        self.unanswered.get_or_insert_with(none);
    }

    /// Fails at once on a status that would make every reply of the run bad.
    fn check_status(
        &self,
        cell: CellId,
        variant: VariantId,
        load: &LoadPlan,
        probe: &Probe,
    ) -> Result<(), Failure> {
        let facts = &self.cells[cell.0].plan.variants[variant.0];
        let may_differ = facts.may_differ_in(Difference::Status) || self.services.allows_void;
        // Other values of a sweep may get good replies.
        let is_good = load.engine.expected.contains(probe.status);
        let run = &self.cells[cell.0];
        // In later rounds and for lists of paths, the guard on errors decides.
        let Some(http) = run.plan.load.http() else { return Ok(()) };
        let paths = http.paths.several();
        let is_for_guards = !run.digests.is_empty() || paths.len() > 1;
        if is_good || may_differ || is_for_guards || self.cells.len() > 1 {
            return Ok(());
        }
        let Probe { status, body_start, .. } = probe;
        // nginx, Apache and Go reply to plain text on a TLS port with a page that says so.
        if *status == 400
            && ["HTTPS port", "HTTPS server", "SSL-enabled"]
                .iter()
                .any(|words| body_start.contains(words))
        {
            return Err(Failure::target(format!("{}: {ONLY_TLS}", facts.name)));
        }
        let (method, target) = (http.method(), facts.url(1)?.target);
        let path = paths.first().unwrap_or(&target);
        Err(Failure::target(format!(
            "{}: {method} {path} is answered with status {status}, which is not good; if it is \
             meant to be, say --expect-status {status}",
            facts.name
        )))
    }

    /// Explains why this server, which was up before the run, gave no reply. Adds all other such
    /// servers that give none.
    fn without_replies(&mut self, variant: VariantId, plan: &LoadPlan, why: String) -> String {
        let told = |name: &str, plan: &LoadPlan, why: &str| {
            let hint = hint(plan.engine.protocol, why);
            let endpoint = plan.engine.endpoint.to_string();
            match name == endpoint {
                true => format!("{name}: {why}{hint}"),
                false => format!("{name}: no reply from {endpoint}: {why}{hint}"),
            }
        };
        let run = self.plan();
        let mut all = vec![(variant, told(&run.variants[variant.0].name, plan, &why))];
        for (at, other) in run.variants.iter().enumerate() {
            if at == variant.0 || other.server != ServerSpec::External {
                continue;
            }
            let at = VariantId(at);
            let Ok(plan) = self.lane_plan(CellId(0), at, None, None) else { continue };
            let Ok(clients) = self.lab.clients(at, 0) else { continue };
            if let Ok(Err(why)) = self.load.ask(&clients, &plan) {
                all.push((at, told(&other.name, &plan, &why)));
            }
        }
        all.sort_by_key(|(variant, _)| *variant);
        let all: Vec<String> = all.into_iter().map(|(_, text)| text).collect();
        all.join("; ")
    }

    /// Fails if a server has ended; the error says how.
    pub(crate) fn check_alive(&self, up: &mut RunningVariant<L>) -> Result<(), Failure> {
        let Some(launched) = up.launched.as_mut().filter(|launched| !launched.is_alive()) else {
            return Ok(());
        };
        if let Some(gone) = launched.place_failure(DurationNs::ZERO) {
            return Err(gone);
        }
        let name = &self.plan().variants[up.variant.0].name;
        let (part, how) = launched.describe_end();
        let how = how.unwrap_or_default();
        let load = match up.answered {
            0 => "before any load".into(),
            n => format!("under load, after {n} requests"),
        };
        Err(Failure::target(format!("{name}: {part} ended {load}{how}")))
    }

    pub(crate) fn stop_all(&mut self, mut up: Vec<RunningVariant<L>>) -> Result<(), Failure> {
        for launched in up.iter_mut().filter_map(|up| up.launched.as_mut()) {
            launched.ask_to_stop();
        }
        for launched in up.iter_mut().filter_map(|up| up.launched.as_mut()) {
            launched.stop();
        }
        drop(up);
        self.lab.end_orphans();
        self.write_events()
    }
}

/// Returns what the failure of a first request may mean.
fn hint(protocol: Protocol, why: &str) -> &'static str {
    let is = |defect: ReplyDefect| why == defect.to_string();
    match (protocol.is_served(), is(ReplyDefect::ClosedBeforeReply), is(ReplyDefect::WrongContent))
    {
        (true, true, _) => "; a server that speaks TLS does that: its URL begins with https://",
        (false, true, _) | (false, _, true) => ": it is not tare net --serve of this version",
        _ => "",
    }
}

/// Returns the URL for requests to a launch. Behind a Service, its host is the Service's: meshes
/// and gateways route by that name, and do not know localhost. With TLS the host must stay the
/// certificate's.
fn url_of(plan: &Plan, variant: VariantId, launched: &impl world::Launch) -> Result<Url, Failure> {
    let address = launched.address();
    let mut url = plan.variants[variant.0].url(address.port())?;
    if let Some(host) = launched.entry_host().filter(|_| !url.tls && url.is_loopback()) {
        url.host = host.to_owned();
    }
    Ok(url)
}

/// Begins a list of paths at a place that is random for each round but the same for all its
/// variants: a faster variant gets further in the list.
fn randomise_list_start(plan: &mut LoadPlan, round: u32) {
    if let Order::InTurn { from } = &mut plan.order {
        let mut random = Random::stream(plan.seed, "paths", u64::from(round));
        *from = random.below(plan.requests.len().max(1) as u64) as usize;
    }
}

/// Requests other paths of a variant, as its load would.
struct VariantAsker<'a, L: World> {
    plan: &'a Plan,
    variant: VariantId,
    url: Url,
    endpoint: Endpoint,
    clients: &'a L::Clients,
    load: &'a mut L::Load,
    failed: Option<Failure>,
}

impl<L: World> ProbeSender for VariantAsker<'_, L> {
    fn ask(&mut self, target: &str) -> Result<Result<Probe, String>, Failure> {
        target.clone_into(&mut self.url.target);
        let mut load = self.plan.load_of(self.variant);
        if let Some(http) = load.http_mut() {
            http.paths = Paths::OfUrl;
        }
        let plan = resolve(&load, &self.url, self.endpoint.clone(), self.plan.seed);
        self.load.ask(self.clients, &plan?).inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn take_sent(&mut self) -> u64 {
        self.load.take_sent()
    }
}
