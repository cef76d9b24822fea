//! One round: every variant is launched, probed, measured in slices, and stopped.

use tare_guards::replies::probes_forbid_all;
use tare_io::DurationNs;
use tare_lab::HaltReason;
use tare_lab::executor::LaneLife;
use tare_lab::world::{Launch as _, World};
use tare_model::plan::VariantId;
use tare_model::samples::{Launch, ReplySkew, Round};
use tare_model::usage::Usage;
use tare_stats::design::RoundOrder;
use tare_store::Entry;

use crate::launches::{LanePlan, RunningVariant};
use crate::observer::Event;
use crate::outcome::Stopped;
use crate::runner::Runner;
use crate::schedule::{self, CellId};
use tare_model::Failure;

impl<L: World> Runner<'_, L> {
    /// Runs a round as the design asked. Cells that failed are left out of the result. Returns
    /// `None` if the round was halted; the store then holds what was measured.
    pub(crate) fn round(
        &mut self,
        index: u32,
        mut asked: RoundOrder,
    ) -> Result<Option<Vec<(CellId, Round)>>, Failure> {
        let started_unix_ms = self.clock().unix_ms();
        let cells = asked.cells.iter().map(|order| CellId(order.cell));
        let round = Round { index, started_unix_ms, ..Round::default() };
        let mut rounds: Vec<(CellId, Round)> = cells.map(|cell| (cell, round.clone())).collect();
        let order = schedule::launches(self.plan().seed, index, self.plan().variants.len());
        self.on_event(&Event::RoundStarted { round: index, order: &order });
        let groups: Vec<Vec<VariantId>> = match self.plan().is_exclusive() {
            true => order.into_iter().map(|variant| vec![variant]).collect(),
            false => vec![order],
        };
        let last = groups.len() - 1;
        for (at, group) in groups.iter().enumerate() {
            self.run_group(group, &mut asked, &mut rounds)?;
            match self.halted() {
                None => {}
                // A round that is complete when the time is over counts.
                Some(HaltReason::TimeOver) if at == last => {}
                Some(HaltReason::TimeOver) => self.cut_short(&rounds),
                Some(_) => return Ok(None),
            }
        }
        rounds.retain(|(cell, _)| self.cells[cell.0].stopped.is_none());
        for (cell, round) in &mut rounds {
            round.launches.sort_by_key(|launch| launch.variant);
            self.write(
                self.cells[cell.0].run,
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

    /// Runs variants that are up at the same time, and measures each cell on them.
    fn run_group(
        &mut self,
        group: &[VariantId],
        asked: &mut RoundOrder,
        rounds: &mut [(CellId, Round)],
    ) -> Result<(), Failure> {
        let began = self.clock().now();
        let seed = self.plan().seed;
        let (index, cells) = (rounds[0].1.index, rounds.len());
        let orders = asked.cells.iter().map(|order| (CellId(order.cell), order));
        let mut up = self.launch_all(group, index, &orders.collect::<Vec<_>>())?;
        if self.is_halted() {
            self.cut_short(rounds);
            return Ok(());
        }
        if let Some(void) = self.compare_probes(&mut up, rounds) {
            self.stop_all(up)?;
            return Err(Failure::void(void));
        }
        let mut lives = vec![LaneLife::default(); up.len()];
        let mut measuring = DurationNs::ZERO;
        for turn in schedule::turns(seed, index, cells) {
            let (cell, round) = &mut rounds[turn];
            let at = self.clock().now();
            // In a sweep the deadline can pass before a cell's turn.
            if self.is_halted() {
                self.cells[cell.0].stopped.get_or_insert(Stopped::MaxTime);
                continue;
            }
            let is_first = measuring == DurationNs::ZERO;
            let (own, measured) = self.measure_cell(turn, is_first, asked, &mut up, round);
            for (sum, life) in lives.iter_mut().zip(&own) {
                sum.add(life);
            }
            match self.halted() {
                None => {}
                Some(HaltReason::TimeOver) => {
                    self.services.halt.lift();
                    if !measured.as_ref().is_ok_and(|measured| measured.is_whole) {
                        let unanswered =
                            up.iter().find_map(|up| up.without_reply(self.name_of(up)));
                        self.unanswered = self.unanswered.take().or(unanswered);
                        self.cells[cell.0].stopped.get_or_insert(Stopped::MaxTime);
                        continue;
                    }
                }
                Some(_) => {
                    self.note_ended(&mut up);
                    return measured.map(drop);
                }
            }
            if let Err(failure) = measured {
                let failure = place_gone(&up).unwrap_or(failure);
                if self.may_lose(&failure) {
                    return Err(failure);
                }
                self.fail(*cell, failure)?;
            }
            let took = self.clock().now().since(at);
            round.elapsed_ns += took.as_ns();
            measuring = measuring + took;
        }
        if rounds.iter().all(|(cell, _)| self.cells[cell.0].stopped.is_some()) {
            return self.stop_all(up);
        }
        for up in &mut up {
            // Workers may go on after their server's first process ended, but that is not the
            // server to measure.
            self.check_alive(up)?;
        }
        for (up, life) in up.iter_mut().zip(lives) {
            let launch = up.end(life, self.lab.placement(up.variant));
            for (cell, round) in rounds.iter_mut() {
                let lane = up.lane_mut(*cell);
                let probe = lane.probe.take();
                let load = std::mem::take(&mut lane.load);
                let (cpu_ns, closed_by_server) = (lane.cpu_ns, lane.closed_by_server);
                let own = Launch { probe, cpu_ns, closed_by_server, load, ..launch.clone() };
                round.launches.push(own);
            }
        }
        self.stop_all(up)?;
        // All cells share the time of launching and stopping equally.
        let shared = self.clock().now().since(began).as_ns() - measuring.as_ns();
        for (_, round) in rounds {
            round.elapsed_ns += shared / cells as u64;
        }
        Ok(())
    }

    /// Compares the probes. Returns why no variant can be compared with the baseline, if that
    /// should end the run.
    fn compare_probes(
        &self,
        up: &mut [RunningVariant<L>],
        rounds: &[(CellId, Round)],
    ) -> Option<String> {
        let plan = self.plan();
        let is_first = rounds.iter().all(|(cell, _)| self.cells[cell.0].digests.is_empty());
        let mut forbidden: Option<Option<String>> = None;
        for (cell, _) in rounds {
            let of = |up: &RunningVariant<L>| up.lane(*cell).probe.clone();
            let base = up.iter().find(|up| up.variant.0 == plan.baseline()).and_then(of);
            for up in up.iter_mut() {
                let Some(probe) = &mut up.lane_mut(*cell).probe else { continue };
                base.iter().for_each(|base| probe.compare_body(base));
                probe.body_start.clear();
            }
            let mut probes = vec![None; plan.variants.len()];
            up.iter().for_each(|up| probes[up.variant.0] = up.lane(*cell).probe.as_ref());
            let why = probes_forbid_all(self.cells[cell.0].plan, &probes);
            // A sweep goes on if one of its values can be compared.
            forbidden = Some(match forbidden {
                None => why,
                Some(before) => before.and(why),
            });
        }
        forbidden.flatten().filter(|_| is_first && !self.services.allows_void)
    }

    /// If the time is over, records that these cells get no further whole round.
    fn cut_short(&mut self, rounds: &[(CellId, Round)]) {
        if self.halted() == Some(HaltReason::TimeOver) {
            for (cell, _) in rounds {
                self.cells[cell.0].stopped.get_or_insert(Stopped::MaxTime);
            }
        }
    }

    /// Watches launches at rest and surveys their warm-up, before any other cell has loaded them.
    fn begin_load(
        &mut self,
        cell: CellId,
        asked: &mut RoundOrder,
        up: &mut [RunningVariant<L>],
    ) -> Result<(), Failure> {
        if asked.watches_rest {
            self.watch_rest(up);
        }
        match asked.survey {
            Some(survey) => self.survey(survey, cell, &mut asked.cells, up),
            None => Ok(()),
        }
    }

    /// Records the round before a cell's first slice, when the number of cycles is known.
    pub(crate) fn begin(
        &self,
        cell: CellId,
        cycles: u32,
        round: &mut Round,
    ) -> Result<(), Failure> {
        if !round.launches.is_empty() {
            return Ok(());
        }
        let run = self.cells[cell.0].run;
        round.cycles = cycles;
        let (number, started_unix_ms) = (round.index, round.started_unix_ms);
        self.write(run, Entry::RoundBegan { number, cycles, started_unix_ms })
    }

    /// Measures one cell's cycles and the machine meanwhile; returns the totals of the lanes too.
    fn measure_cell(
        &mut self,
        turn: usize,
        is_first: bool,
        asked: &mut RoundOrder,
        up: &mut [RunningVariant<L>],
        round: &mut Round,
    ) -> (Vec<LaneLife>, Result<CellMeasured, Failure>) {
        let cell = CellId(asked.cells[turn].cell);
        let (before, places_before) = (self.lab.machine(), self.lab.cpu_of_places());
        let used: Vec<Option<Usage>> = up.iter().map(|up| up.used().usage).collect();
        let begun = if is_first { self.begin_load(cell, asked, up) } else { Ok(()) };
        let order = &asked.cells[turn];
        let measured = begun.and_then(|()| self.measure(cell, order, up, round));
        let measured = measured.and_then(|()| {
            let is_whole = !self.is_halted();
            if let Some(sustained) = order.sustained.filter(|_| is_whole) {
                self.check_sustained(sustained, cell, up)?;
            }
            Ok(CellMeasured { is_whole })
        });
        // All are closed, even if one fails.
        let lives: Vec<_> = up.iter_mut().map(RunningVariant::close).collect();
        let lives: Result<Vec<LaneLife>, Failure> = lives.into_iter().collect();
        let mut of_servers = 0;
        for (up, before) in up.iter_mut().zip(used) {
            let used = up.used().usage.zip(before).map(|(after, before)| after.since(&before));
            up.lane_mut(cell).cpu_ns = used.as_ref().map_or(0, Usage::cpu_ns);
            if self.lab.placement(up.variant).starts > 0 {
                of_servers += used.map_or(0, |used| used.server().cpu_ns());
            }
        }
        let mut machine = self.lab.machine().since(&before);
        let in_places = self.lab.cpu_of_places().saturating_sub(places_before);
        // Clients and runtimes in places count as tare's own; servers do not.
        machine.own_cpu_ns += in_places.saturating_sub(of_servers);
        round.machine.then(&machine);
        if self.cells[cell.0].plan.load.has_new_connections() {
            let used = [round.machine.ports_used, self.lab.ports_used()].into_iter().flatten();
            round.machine.ports_used = used.reduce(f64::max);
        }
        match lives {
            Ok(mut lives) => {
                for (life, up) in lives.iter_mut().zip(up) {
                    let LanePlan { load, beside, closed_by_server, .. } = up.lane_mut(cell);
                    load.favoured = ReplySkew::from_replies(&life.replies);
                    life.add(beside);
                    *closed_by_server = life.closed_by_server;
                }
                (lives, measured)
            }
            Err(failure) => (Vec::new(), measured.and(Err(failure))),
        }
    }
}

/// The result of a cell's turn in a round.
struct CellMeasured {
    /// Whether all of its slices were made.
    is_whole: bool,
}

/// The end of a place is reported within this time.
const PLACE_GONE_WITHIN: DurationNs = DurationNs::from_ms(1500);

/// Returns why a place is gone, if one is. Waits briefly, as requests fail before the end of their
/// place is reported.
fn place_gone<L: World>(up: &[RunningVariant<L>]) -> Option<Failure> {
    up.iter()
        .filter_map(|up| up.launched.as_ref())
        .find_map(|launched| launched.place_failure(PLACE_GONE_WITHIN))
}
