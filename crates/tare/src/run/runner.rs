//! Runs rounds until the stopping rule, the clock or the user says stop.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

use tare_io::time::{monotonic_now, wall_unix_ms};
use tare_io::{DurationNs, Endpoint, Instant};
use tare_lab::lab::Placed;
use tare_lab::places::to_wait_for;
use tare_lab::{Event, Lab, LabPlan};
use tare_model::plan::Plan;
use tare_model::samples::Round;
use tare_model::servers::ServerSpec;
use tare_store::{Entry, RunEnd, RunId, Writer};

use super::cell::Cell;
use super::clients::Clients;
use super::live::LiveTable;
use super::outcome::Stopped;
use super::places::journal_folder;
use crate::failure::Failure;
use crate::load::plan::resolve;

/// Everything that a run holds while it runs.
pub struct Runner<'a> {
    /// What is measured on the same launches: they differ in load only.
    pub(super) cells: Vec<Cell<'a>>,
    pub(super) lab: Lab,
    /// By their number of workers.
    clients: BTreeMap<u32, Clients>,
    /// Of variants that are already up.
    pub(super) endpoints: Vec<Endpoint>,
    writer: &'a Writer,
    events: Receiver<Event>,
    stop: Arc<AtomicBool>,
    /// When `max_time` is over.
    pub(super) deadline: Instant,
    live: LiveTable,
    reactor_noted: bool,
}

/// Where a run begins: at its beginning, or where an earlier part of it ended.
#[derive(Clone, Copy, Default)]
pub struct Start {
    /// The number of the next round.
    pub next_round: u32,
    pub elapsed_ns: u64,
}

impl<'a> Runner<'a> {
    pub fn new(
        cells: Vec<Cell<'a>>,
        writer: &'a Writer,
        stop: Arc<AtomicBool>,
        live: LiveTable,
    ) -> Result<Self, Failure> {
        let Some(plan) = cells.first().map(|cell| cell.plan) else {
            return Err(Failure::Bug("a run of nothing".into()));
        };
        let (sender, events) = channel();
        let state = journal_folder()?;
        let (servers, endpoints) = placed(plan)?;
        let connections = cells.iter().map(|cell| &cell.plan.load);
        let connections = connections.map(|load| load.max_connections.unwrap_or(load.connections));
        let lab = Lab::open(LabPlan {
            state: &state,
            servers,
            cpus: plan.server_cpus.clone(),
            load_cpus: plan.load_cpus.clone(),
            place_launches: plan.slices.place_launches.unwrap_or(PLACE_LAUNCHES),
            stop: stop.clone(),
            connections: connections.max().unwrap_or(0),
            events: sender,
        })?;
        let mut clients = BTreeMap::new();
        for cell in &cells {
            let workers = cell.plan.load.workers();
            if let btree_map::Entry::Vacant(place) = clients.entry(workers) {
                place.insert(Clients::start(workers, &plan.load_cpus, &stop)?);
            }
        }
        Ok(Self {
            cells,
            lab,
            clients,
            endpoints,
            writer,
            events,
            stop,
            deadline: Instant::FAR,
            live,
            reactor_noted: false,
        })
    }

    /// What all cells have in common: variants, seed, CPUs.
    pub(super) fn plan(&self) -> &'a Plan {
        self.cells[0].plan
    }

    pub(super) fn clients(&mut self, cell: usize) -> &mut Clients {
        let workers = self.cells[cell].plan.load.workers();
        self.clients.get_mut(&workers).unwrap_or_else(|| unreachable!("made for each cell"))
    }

    /// Runs to the end, whatever that is; what was made is removed then. Why each cell ended.
    pub fn run(mut self, start: Start) -> Vec<Stopped> {
        let ended = self.rounds(start);
        let of_all = match ended {
            Ok(()) => None,
            // What was stopped in its middle fails in some way of its own.
            Err(_) if self.interrupted() => Some(Stopped::Interrupted),
            Err(failure) => Some(Stopped::Failed(failure)),
        };
        self.live.end();
        let outside = self.cpu_outside_load();
        let _ = self.write_events();
        let mut all = Vec::new();
        for cell in 0..self.cells.len() {
            let own = self.cells[cell].stopped.take();
            let stopped = own.or(of_all.clone()).unwrap_or(Stopped::Interrupted);
            let run = self.cells[cell].run;
            let _ = self.note(run, format!("ended: {}; {outside}", stopped.word()));
            let end = RunEnd { stopped_by: stopped.word().into() };
            let _ = self.write(run, Entry::RunEnded(end));
            all.push(stopped);
        }
        let Self { lab, clients, .. } = self;
        drop(clients);
        lab.end_orphans();
        let complaints = lab.close();
        if let (false, Some(first)) = (complaints.is_empty(), all.first_mut())
            && !matches!(first, Stopped::Failed(_))
        {
            *first = Stopped::Failed(Failure::Environment(complaints.join("; ")));
        }
        all
    }

    fn rounds(&mut self, start: Start) -> Result<(), Failure> {
        let max_ns = self.plan().stop.max_time.as_ns().saturating_sub(start.elapsed_ns);
        self.deadline = monotonic_now() + DurationNs::from_ns(max_ns);
        let left = |runner: &Self| runner.deadline.since(monotonic_now());
        self.say_what_is_waited_for();
        if self.plan().is_exclusive() {
            for cell in 0..self.cells.len() {
                if self.cells[cell].window.is_none()
                    && let Err(failure) = self.fit_alone(cell)
                {
                    self.fail(cell, failure)?;
                }
            }
        }
        let words = self.first_words();
        for cell in 0..self.cells.len() {
            let left = left(self);
            self.cells[cell].choose_cycles(left);
            self.note(self.cells[cell].run, words.clone())?;
        }
        let mut index = start.next_round;
        loop {
            let active = self.active();
            if active.is_empty() {
                return Ok(());
            }
            if left(self) == DurationNs::ZERO {
                active.iter().for_each(|cell| self.cells[*cell].stopped = Some(Stopped::MaxTime));
                return Ok(());
            }
            let Some(rounds) = self.round(index, &active)? else {
                return Err(Failure::Interrupted);
            };
            index += 1;
            // Time that a cell does not need is the others'.
            let share = DurationNs::from_ns(left(self).as_ns() / active.len() as u64);
            for (cell, round) in rounds {
                self.take(cell, &round, share)?;
            }
            let shown = active[index as usize % active.len()];
            self.live.show(shown, &self.cells[shown].digests);
            if self.interrupted() {
                return Err(Failure::Interrupted);
            }
        }
    }

    /// Cells that are still measured.
    pub(super) fn active(&self) -> Vec<usize> {
        (0..self.cells.len()).filter(|cell| self.cells[*cell].stopped.is_none()).collect()
    }

    /// The first cell that is still measured.
    pub(super) fn active_first(&self) -> usize {
        self.active().first().copied().unwrap_or(0)
    }

    fn take(&mut self, cell: usize, round: &Round, left: DurationNs) -> Result<(), Failure> {
        if round.slices.iter().any(|slice| slice.counts.good > 0) {
            self.cells[cell].take(round, left);
            return Ok(());
        }
        self.fail(cell, nothing_good(round))
    }

    /// A value that cannot be measured does not end a sweep: the others can.
    pub(super) fn fail(&mut self, cell: usize, failure: Failure) -> Result<(), Failure> {
        if self.cells.len() == 1 || self.interrupted() {
            return Err(failure);
        }
        self.note(self.cells[cell].run, failure.to_string())?;
        self.cells[cell].stopped = Some(Stopped::Failed(failure));
        Ok(())
    }

    fn say_what_is_waited_for(&mut self) {
        let waits = self.plan().variants.iter().filter_map(|v| to_wait_for(&v.place));
        let mut waits: Vec<&str> = waits.collect();
        waits.sort_unstable();
        waits.dedup();
        if !waits.is_empty() {
            self.live.begin(&waits.join(", "));
        }
    }

    fn first_words(&self) -> String {
        let meters = match &self.lab.cgroup_note {
            Some(note) => format!("servers are metered by process: {note}"),
            None => "servers are metered by control group".into(),
        };
        let plan = self.plan();
        format!("load on CPUs {:?}, servers on {:?}; {meters}", plan.load_cpus, plan.server_cpus)
    }

    pub(super) fn note_reactors(&mut self, run: RunId, said: Vec<String>) -> Result<(), Failure> {
        if self.reactor_noted {
            return Ok(());
        }
        self.reactor_noted = true;
        said.into_iter().try_for_each(|text| self.note(run, text))
    }

    /// For those who wait elsewhere.
    pub(super) fn stop_flag(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    pub(super) fn interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn write(&self, run: RunId, entry: Entry) -> Result<(), Failure> {
        Ok(self.writer.write(run, entry)?)
    }

    /// Into a run's log.
    pub(super) fn note(&self, run: RunId, text: String) -> Result<(), Failure> {
        self.write(run, Entry::Event { unix_ms: wall_unix_ms(), who: "tare".into(), text })
    }

    /// What servers said meanwhile; of all cells, the first keeps it.
    pub(super) fn write_events(&self) -> Result<(), Failure> {
        for Event { unix_ms, who, text } in self.events.try_iter() {
            self.write(self.cells[0].run, Entry::Event { unix_ms, who, text })?;
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

/// Servers where they are to be, and the endpoints of those that are up already.
fn placed(plan: &Plan) -> Result<(Vec<Placed>, Vec<Endpoint>), Failure> {
    let mut servers = Vec::new();
    let mut endpoints = Vec::new();
    for variant in &plan.variants {
        let fixed = !variant.url.contains("{port}");
        // A server that is not up yet cannot be asked which of its addresses answers.
        let url = variant.url(1)?;
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
    Ok((servers, endpoints))
}

fn nothing_good(round: &Round) -> Failure {
    let mut counts = tare_model::samples::Counts::default();
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

/// Starts of a place that takes long to start, over the first rounds.
const PLACE_LAUNCHES: u32 = 3;
