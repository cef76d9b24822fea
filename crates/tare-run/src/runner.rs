//! Runs rounds until the stopping rule, the deadline or the user ends the run.

use std::collections::BTreeSet;

use tare_guards::Rulebook;
use tare_io::DurationNs;
use tare_lab::places::to_wait_for;
use tare_lab::world::World;
use tare_lab::{Halt, HaltReason};
use tare_model::plan::{Plan, PlanParts};
use tare_model::samples::Round;
use tare_stats::design::{Design, History, RoundOrder};
use tare_stats::designs::{CheckDesign, ComparisonDesign, SweepDesign};
use tare_stats::stopping::Limit;
use tare_stats::surveys::Surveys;
use tare_store::{Entry, RunEnd, RunId};

use crate::cell::Cell;
use crate::clock::Clock;
use crate::launches::RunningVariant;
use crate::observer::{Event, Observer};
use crate::outcome::Stopped;
use crate::record::Record;
use crate::schedule::CellId;
use tare_model::{Failure, Fault};

/// The state of a run.
pub struct Runner<'a, L: World> {
    /// Cells measured on the same launches; they differ only in load.
    pub(crate) cells: Vec<Cell<'a>>,
    pub(crate) lab: L,
    /// Probes servers.
    pub(crate) load: L::Load,
    /// Decides what is measured next, and when the run ends.
    design: Box<dyn Design + 'a>,
    /// How long launches took to warm up.
    pub(crate) surveys: Surveys,
    pub(crate) services: RunServices<'a>,
    load_noted: bool,
    lost_rounds: u32,
    /// The error of a server that ended by itself.
    pub(crate) ended: Option<Failure>,
    /// Describes requests without a reply in the round that the deadline cut off.
    pub(crate) unanswered: Option<String>,
}

/// The receivers of a run's results, and the means to stop it.
pub struct RunServices<'a> {
    pub record: &'a dyn Record,
    pub clock: &'a dyn Clock,
    pub observer: &'a mut dyn Observer,
    pub halt: Halt,
    /// Whether void variants are measured all the same.
    pub allows_void: bool,
    /// Gates to decide, if that takes less than the precision of the plan.
    pub limits: Vec<Limit>,
}

/// The start of a run: at its first round, or after the earlier part of a resumed run.
#[derive(Clone, Copy, Default)]
pub struct Start {
    /// The number of the next round.
    pub next_round: u32,
}

impl<'a, L: World> Runner<'a, L> {
    /// Compares the variants under each cell's load.
    pub fn new(cells: Vec<Cell<'a>>, lab: L, services: RunServices<'a>) -> Result<Self, Failure> {
        let plans: Vec<&'a PlanParts> =
            cells.iter().map(|cell| -> &PlanParts { cell.plan }).collect();
        let check = CheckDesign::new(&plans, &Rulebook);
        let design: Box<dyn Design + 'a> = match plans.as_slice() {
            _ if let Some(check) = check => Box::new(check),
            [plan] => {
                let design = ComparisonDesign::new(plan, &Rulebook, 0).deciding(&services.limits);
                Box::new(design.allowing_void(services.allows_void))
            }
            _ => {
                let plans = plans.into_iter();
                let (limits, allows_void) = (&services.limits, services.allows_void);
                Box::new(SweepDesign::new(plans, &Rulebook, limits, allows_void))
            }
        };
        Self::by_design(design, cells, lab, services)
    }

    /// Measures what the design asks for.
    pub fn by_design(
        design: Box<dyn Design + 'a>,
        cells: Vec<Cell<'a>>,
        lab: L,
        services: RunServices<'a>,
    ) -> Result<Self, Failure> {
        let Some(first) = cells.first() else {
            return Err(Failure::bug("a run of nothing"));
        };
        let (load, surveys) = (lab.load(), Surveys::from_rounds(&first.digests));
        Ok(Self {
            cells,
            lab,
            load,
            design,
            surveys,
            services,
            load_noted: false,
            lost_rounds: 0,
            ended: None,
            unanswered: None,
        })
    }

    /// Returns the plan of the first cell; all cells share its variants, seed and CPUs.
    pub(crate) fn plan(&self) -> &'a Plan {
        self.cells[0].plan
    }

    pub(crate) fn clock(&self) -> &'a dyn Clock {
        self.services.clock
    }

    pub(crate) fn on_event(&mut self, event: &Event<'_>) {
        self.services.observer.on_event(event);
    }

    /// Runs to the end and removes all that was made; returns why each cell ended.
    pub fn run(mut self, start: Start) -> Vec<Stopped> {
        let of_all = match self.rounds(start) {
            Ok(()) => None,
            // Work that a halt interrupts fails, so the halt's reason says more than the error.
            Err(failure) => Some(match self.halted() {
                None => Stopped::Failed(failure),
                Some(HaltReason::Interrupted) => Stopped::Interrupted,
                // More time would not have prevented these failures.
                Some(HaltReason::TimeOver) => match failure.fault {
                    Fault::Bug | Fault::Usage | Fault::Void => Stopped::Failed(failure),
                    _ => Stopped::MaxTime,
                },
                Some(HaltReason::ServerEnded) => Stopped::Failed(self.cause_of_end(failure)),
            }),
        };
        self.services.halt.lift();
        self.on_event(&Event::Ended);
        let (of_load, beside) = self.lab.own_cpu();
        let ms = |time: DurationNs| time.as_ns() / 1_000_000;
        let cpu = format!("CPU {} ms in load workers, {} ms beside", ms(of_load), ms(beside));
        let _ = self.write_events();
        let mut all = Vec::new();
        for cell in (0..self.cells.len()).map(CellId) {
            let own = self.cells[cell.0].stopped.take();
            let own = own.or_else(|| self.design.ended(cell.0).map(Stopped::from));
            let stopped = match own.or(of_all.clone()).unwrap_or(Stopped::Interrupted) {
                Stopped::MaxTime => self.out_of_time(cell),
                stopped => stopped,
            };
            let run = self.cells[cell.0].run;
            let _ = self.note(run, format!("ended: {}; {cpu}", stopped.word()));
            let end = RunEnd { stopped_by: stopped.word().into() };
            let _ = self.write(run, Entry::RunEnded(end));
            all.push(stopped);
        }
        let Self { lab, load, .. } = self;
        drop(load);
        lab.end_orphans();
        let complaints = lab.close();
        if let (false, Some(first)) = (complaints.is_empty(), all.first_mut())
            && !matches!(first, Stopped::Failed(_))
        {
            *first = Stopped::Failed(Failure::environment(complaints.join("; ")));
        }
        all
    }

    fn rounds(&mut self, start: Start) -> Result<(), Failure> {
        self.announce_slow_starts();
        let words = self.setup_note();
        for cell in &self.cells {
            self.note(cell.run, words.clone())?;
        }
        let mut index = start.next_round;
        let mut is_fitted = !self.plan().is_exclusive();
        loop {
            let left = self.services.halt.deadline().since(self.clock().now());
            let history = History {
                cells: self.cells.iter().map(Cell::history).collect(),
                surveys: &self.surveys,
                left,
            };
            let Some(asked) = self.design.next(&history) else { return Ok(()) };
            let may_end = self.has_rounds() && self.lost_rounds < self.plan().stop.lost_rounds;
            self.services.halt.ignore_ends(may_end);
            // The design comes first: if it has enough, the run is complete even if the user stops
            // it now.
            if self.is_halted() {
                return Err(Failure::interrupted());
            }
            if asked.cells.is_empty() {
                return Err(Failure::bug("a round of nothing"));
            }
            // Variants that run alone have trials before the first round.
            if !is_fitted {
                is_fitted = true;
                self.fit_all_alone(&asked)?;
                continue;
            }
            let active: Vec<CellId> = asked.cells.iter().map(|order| CellId(order.cell)).collect();
            let started_unix_ms = self.clock().unix_ms();
            let rounds = match self.round(index, asked) {
                Ok(Some(rounds)) => rounds,
                Ok(None) => return Err(Failure::interrupted()),
                Err(failure) if self.may_lose(&failure) => {
                    self.lose(index, started_unix_ms, &failure)?;
                    index += 1;
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            index += 1;
            for (cell, round) in rounds {
                self.take(cell, &round)?;
            }
            let shown = active[index as usize % active.len()];
            let digests = &self.cells[shown.0].digests;
            self.services.observer.on_event(&Event::EstimateChanged { cell: shown, digests });
        }
    }

    /// Returns whether the run goes on without the round in which this happened. A failure in the
    /// first round is likely to come again.
    pub(crate) fn may_lose(&self, failure: &Failure) -> bool {
        self.lost_rounds < self.plan().stop.lost_rounds
            && matches!(failure.fault, Fault::Environment | Fault::Target)
            && self.has_rounds()
            && !self.is_halted()
    }

    fn has_rounds(&self) -> bool {
        self.cells.iter().any(|cell| !cell.digests.is_empty())
    }

    /// Leaves a round out of the results; ends its probe connections and any orphans.
    fn lose(&mut self, index: u32, started_unix_ms: u64, why: &Failure) -> Result<(), Failure> {
        self.lost_rounds += 1;
        self.load = self.lab.load();
        self.lab.end_orphans();
        let why = why.to_string();
        self.on_event(&Event::RoundLost { round: index, why: &why });
        for cell in self.active() {
            let run = self.cells[cell.0].run;
            let lost = Entry::RoundLost { number: index, started_unix_ms, why: why.clone() };
            self.write(run, lost)?;
            self.note(run, format!("round {index} is lost: {why}"))?;
        }
        Ok(())
    }

    /// Finds the shape of slices for cells that have none.
    fn fit_all_alone(&mut self, asked: &RoundOrder) -> Result<(), Failure> {
        for order in asked.cells.iter().filter(|order| order.shape.is_none()) {
            if let Err(failure) = self.fit_alone(order) {
                self.fail(CellId(order.cell), failure)?;
            }
        }
        Ok(())
    }

    /// Returns the cells that are still measured.
    fn active(&self) -> Vec<CellId> {
        let is_active = |cell: &CellId| {
            self.cells[cell.0].stopped.is_none() && self.design.ended(cell.0).is_none()
        };
        (0..self.cells.len()).map(CellId).filter(is_active).collect()
    }

    fn take(&mut self, cell: CellId, round: &Round) -> Result<(), Failure> {
        if round.slices.iter().any(|slice| slice.counts.good > 0) {
            self.cells[cell.0].take(round);
            return Ok(());
        }
        self.fail(cell, nothing_good(round))
    }

    /// Records the failure of a cell. It does not end a sweep, as other values can still be
    /// measured.
    pub(crate) fn fail(&mut self, cell: CellId, failure: Failure) -> Result<(), Failure> {
        if self.cells.len() == 1 || self.is_halted() {
            return Err(failure);
        }
        self.note(self.cells[cell.0].run, failure.to_string())?;
        self.cells[cell.0].stopped = Some(Stopped::Failed(failure));
        Ok(())
    }

    fn announce_slow_starts(&mut self) {
        let variants = self.plan().variants.iter();
        let places = variants.flat_map(|v| v.places_of_hops().chain([&v.place]));
        let waits = places.filter_map(to_wait_for);
        let mut waits: Vec<&str> = waits.collect();
        waits.sort_unstable();
        waits.dedup();
        if !waits.is_empty() {
            self.on_event(&Event::Waiting(&waits.join(", ")));
        }
    }

    fn setup_note(&self) -> String {
        let meters = self.lab.metering();
        let plan = self.plan();
        format!("load on CPUs {:?}, servers on {:?}; {meters}", plan.load_cpus, plan.server_cpus)
    }

    /// Logs once how load is made.
    pub(crate) fn note_load(&mut self, run: RunId, made_by: Vec<String>) -> Result<(), Failure> {
        if self.load_noted {
            return Ok(());
        }
        self.load_noted = true;
        let all: BTreeSet<String> = made_by.into_iter().collect();
        all.into_iter().try_for_each(|by| self.note(run, format!("load by {by}")))
    }

    /// Returns why everything under way is to end.
    pub(crate) fn halted(&self) -> Option<HaltReason> {
        let halt = &self.services.halt;
        let is_over = || (self.clock().now() >= halt.deadline()).then_some(HaltReason::TimeOver);
        halt.reason().or_else(is_over)
    }

    pub(crate) fn name_of(&self, up: &RunningVariant<L>) -> &'a str {
        &self.plan().variants[up.variant.0].name
    }

    pub(crate) fn is_halted(&self) -> bool {
        self.halted().is_some()
    }

    /// Records which of these servers ended by itself, if that halted the run.
    pub(crate) fn note_ended(&mut self, up: &mut [RunningVariant<L>]) {
        if self.halted() == Some(HaltReason::ServerEnded) {
            let ended = up.iter_mut().find_map(|up| self.check_alive(up).err());
            self.ended = self.ended.take().or(ended);
        }
    }

    /// Returns the error of a server that ended by itself, or else the other failure; if that is
    /// only the halt, names the server.
    fn cause_of_end(&mut self, failure: Failure) -> Failure {
        match (self.ended.take(), failure) {
            (Some(ended), _) => ended,
            (None, Failure { fault: Fault::Interrupted, .. }) => {
                let name = self.services.halt.ended().unwrap_or_default();
                Failure::target(format!("{name}: a server, or the place of one, ended by itself"))
            }
            (None, failure) => failure,
        }
    }

    /// Returns how a cell out of time ended: as a failure if missing replies kept it from a first
    /// round.
    fn out_of_time(&self, cell: CellId) -> Stopped {
        let has_rounds = !self.cells[cell.0].digests.is_empty();
        match self.unanswered.as_ref().filter(|_| !has_rounds) {
            None => Stopped::MaxTime,
            Some(why) => {
                let max_time = self.plan().stop.max_time;
                let text = format!("no round was finished within --max-time {max_time}: {why}");
                Stopped::Failed(Failure::target(text))
            }
        }
    }

    pub(crate) fn write(&self, run: RunId, entry: Entry) -> Result<(), Failure> {
        self.services.record.write(run, entry)
    }

    /// Writes to a run's log.
    pub(crate) fn note(&self, run: RunId, text: String) -> Result<(), Failure> {
        self.write(run, Entry::Event { unix_ms: self.clock().unix_ms(), who: "tare".into(), text })
    }

    /// Writes the events of servers to the log of the first cell.
    pub(crate) fn write_events(&self) -> Result<(), Failure> {
        for tare_lab::Event { unix_ms, who, text } in self.lab.take_events() {
            self.write(self.cells[0].run, Entry::Event { unix_ms, who, text })?;
        }
        Ok(())
    }
}

fn nothing_good(round: &Round) -> Failure {
    let mut counts = tare_model::samples::Counts::default();
    round.slices.iter().for_each(|slice| counts.accumulate(&slice.counts));
    let why = match (counts.errors.first(), counts.status.first()) {
        (Some((_, _, why)), _) => why.clone(),
        (None, Some((status, _))) => {
            format!("every reply has status {status} (see --expect-status)")
        }
        (None, None) => "no request was answered in the time measured".into(),
    };
    Failure::target(format!("not one good reply from any variant: {why}"))
}
