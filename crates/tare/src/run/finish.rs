//! From a plan to the end: the run in the store, the report from the store, gates.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tare_io::time::wall_unix_ms;
use tare_lab::machine::Machine;
use tare_model::plain;
use tare_model::plan::{Plan, PlanParts};
use tare_model::samples::Round;
use tare_report::form::Form;
use tare_report::run::build::RunFacts;
use tare_report::run::document::RunDocument;
use tare_report::sweep::cells::MissingCell;
use tare_report::sweep::document::SweepDocument;
use tare_report::timeline::{self, Timeline};
use tare_stats::stopping::CYCLES_MIN;
use tare_stats::{RoundDigest, digest};
use tare_store::{Entry, NewRun, RunEnd, RunRow, Store, Writer};

use super::cell::Cell;
use super::command;
use super::gate::{self, Gate};
use super::live::LiveTable;
use super::outcome::Stopped;
use super::plan::check_machine;
use super::runner::{Runner, Start};
use crate::failure::Failure;
use crate::load::interrupt;
use crate::load::outputs::{Outputs, tell};

/// What the user wants done with a run.
pub struct RunOptions {
    pub store: PathBuf,
    /// Forms of the report, and the files they go to.
    pub forms: Vec<(Form, PathBuf)>,
    pub gates: Vec<Gate>,
    pub quiet: bool,
}

/// Below this much free space a run is not begun: a minute of slices takes a few megabytes.
const FREE_BYTES_MIN: u64 = 16 << 20;

/// Runs a plan that is new.
pub fn run_new(plan: &Plan, options: &RunOptions) -> Result<(), Failure> {
    let mut outputs = Outputs::create(&options.forms)?;
    let stop = stop_on_interrupt()?;
    let mut store = open_store(options)?;
    let row = begin(plan, &mut store)?;
    let begun = Begun { plan, row: &row, digests: Vec::new() };
    let done = carry_out(vec![begun], store, Start::default(), options, &stop)?;
    conclude(plan, done, &row, options, &mut outputs)
}

/// Runs the cells of a sweep, all on the same launches.
pub fn run_sweep(cells: &[Plan], options: &RunOptions) -> Result<(), Failure> {
    let mut outputs = Outputs::create(&options.forms)?;
    let stop = stop_on_interrupt()?;
    let mut store = open_store(options)?;
    let rows: Result<Vec<RunRow>, Failure> =
        cells.iter().map(|cell| begin(cell, &mut store)).collect();
    let rows = rows?;
    let begun = cells.iter().zip(&rows);
    let begun = begun.map(|(plan, row)| Begun { plan, row, digests: Vec::new() }).collect();
    let Measured { documents, stopped, written } =
        carry_out(begun, store, Start::default(), options, &stop)?;
    written?;
    let mut cells_measured = Vec::new();
    let mut missing = Vec::new();
    let mut judged = Ok(());
    for ((cell, mut document), stopped) in cells.iter().zip(documents).zip(&stopped) {
        let rounds = document.report.run.rounds;
        if rounds > 0 {
            document.report.gates =
                gate::results(&options.gates, &cell.stop.metrics, &document.report);
            let report = &document.report;
            judged = judged
                .and(gate::judge(&options.gates, &cell.stop.metrics, report))
                .and_then(|()| gate::judge_void(report));
            cells_measured.push((cell.cell.clone(), document));
        }
        let reason = match stopped {
            Stopped::Failed(failure) => failure.to_string(),
            Stopped::MaxTime if rounds == 0 => "the time limit came before its first round".into(),
            _ => continue,
        };
        missing.push(MissingCell { values: cell.cell.clone(), reason });
    }
    outputs.write(&SweepDocument::new(cells_measured, missing), None)?;
    let failed = stopped.iter().find_map(|stopped| match stopped {
        Stopped::Failed(failure) => Some(failure.clone()),
        _ => None,
    });
    match failed {
        _ if stopped.contains(&Stopped::Interrupted) => Err(Failure::Interrupted),
        Some(failure) => Err(failure),
        None => judged,
    }
}

fn stop_on_interrupt() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    interrupt::on_interrupt(stop.clone())?;
    Ok(stop)
}

/// Enters a new run in the store.
pub fn begin(plan: &Plan, store: &mut Store) -> Result<RunRow, Failure> {
    let machine = serde_json::to_string(&Machine::look()).unwrap_or_default();
    let id = store.begin_run(&NewRun {
        name: plan.name.clone(),
        seed: plan.seed,
        tare_version: env!("CARGO_PKG_VERSION").into(),
        started_unix_ms: wall_unix_ms(),
        command: command::with_seed(std::env::args_os(), plan.seed),
        plan: serde_json::to_string(plan).unwrap_or_default(),
        machine,
        variants: plan.variants.iter().map(|variant| variant.name.clone()).collect(),
    })?;
    Ok(store.find_run(&id.to_string())?)
}

/// Goes on with a run that was interrupted, killed, or stopped by its time limit.
pub fn resume(
    text: &str,
    options: &RunOptions,
    change: impl Fn(&mut PlanParts) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut store = open_store(options)?;
    let row = store.find_run(text)?;
    if is_running(&row) {
        let text = format!("run {} is being measured by process {}", row.id, row.owner_pid);
        return Err(Failure::Environment(text));
    }
    if row.is_import {
        return Err(Failure::Usage(format!("run {} was imported: nothing can go on", row.id)));
    }
    let mut parts = plan_of(&row)?;
    change(&mut parts)?;
    let plan = Plan::try_from(parts)?;
    check_machine(&plan)?;
    // What the killed process left would stand in the way.
    tare_lab::journal::clean(&super::places::journal_folder()?);
    let mut outputs = Outputs::create(&options.forms)?;
    // The report is made from the store: it must know what was changed.
    store.resume_run(row.id, &serde_json::to_string(&plan).unwrap_or_default())?;
    let row = store.find_run(text)?;
    let numbers = store.round_numbers(row.id)?;
    let digests = digests_of(&store, &row, &plan)?;
    let start = Start {
        next_round: numbers.last().map_or(0, |last| last + 1),
        elapsed_ns: digests.iter().map(|digest| digest.elapsed_ns).sum(),
    };
    let stop = stop_on_interrupt()?;
    let begun = Begun { plan: &plan, row: &row, digests };
    let done = carry_out(vec![begun], store, start, options, &stop)?;
    conclude(&plan, done, &row, options, &mut outputs)
}

fn open_store(options: &RunOptions) -> Result<Store, Failure> {
    let store = Store::open(&options.store)?;
    let free = tare_io::process::free_bytes(&options.store).unwrap_or(u64::MAX);
    if free < FREE_BYTES_MIN {
        return Err(Failure::Environment(format!(
            "the store {} lies on a disk with {} free; a run needs {} (--store FILE)",
            options.store.display(),
            tare_report::units::bytes(free as f64),
            tare_report::units::bytes(FREE_BYTES_MIN as f64),
        )));
    }
    Ok(store)
}

/// A run that is in the store, and what is known of it already.
pub struct Begun<'a> {
    pub plan: &'a Plan,
    pub row: &'a RunRow,
    pub digests: Vec<RoundDigest>,
}

fn carry_out(
    begun: Vec<Begun<'_>>,
    store: Store,
    start: Start,
    options: &RunOptions,
    stop: &Arc<AtomicBool>,
) -> Result<Measured, Failure> {
    let facts = begun.iter().map(|begun| facts(begun.plan, begun.row)).collect();
    measure(begun, store, start, LiveTable::new(facts, options.quiet), stop)
}

/// Tells what a run found, and judges it.
fn conclude(
    plan: &Plan,
    measured: Measured,
    row: &RunRow,
    options: &RunOptions,
    outputs: &mut Outputs,
) -> Result<(), Failure> {
    let Measured { mut documents, stopped, written } = measured;
    let (Some(document), Some(stopped)) = (documents.first_mut(), stopped.first()) else {
        return Err(Failure::Bug("a run without a report".into()));
    };
    document.report.gates = gate::results(&options.gates, &plan.stop.metrics, &document.report);
    let report = &document.report;
    if report.run.rounds > 0 {
        outputs.write(document, Some(&kept(row, &options.store)))?;
    } else if !matches!(stopped, Stopped::Failed(_)) {
        let kept = kept(row, &options.store);
        tell(&format!("tare: no round was finished, so nothing can be said; {kept}"));
    }
    written?;
    match stopped {
        Stopped::Failed(failure) => Err(failure.clone()),
        Stopped::Interrupted => Err(Failure::Interrupted),
        _ => gate::judge(&options.gates, &plan.stop.metrics, report)
            .and_then(|()| gate::judge_void(report)),
    }
}

/// What came of runs, in their order.
pub struct Measured {
    pub documents: Vec<RunDocument>,
    pub stopped: Vec<Stopped>,
    /// Whether all of it is in the store.
    pub written: Result<(), Failure>,
}

/// Measures, and makes the reports from what the store holds then.
pub fn measure(
    begun: Vec<Begun<'_>>,
    store: Store,
    start: Start,
    live: LiveTable,
    stop: &Arc<AtomicBool>,
) -> Result<Measured, Failure> {
    let path = store.path().to_owned();
    let runs: Vec<_> = begun.iter().map(|begun| begun.row.id).collect();
    let cells = begun.into_iter().map(|begun| Cell::new(begun.plan, begun.row.id, begun.digests));
    let writer = Writer::start(store)?;
    let stopped = match Runner::new(cells.collect(), &writer, stop.clone(), live) {
        Ok(runner) => runner.run(start),
        Err(failure) => {
            let stopped = Stopped::Failed(failure);
            for run in &runs {
                let end = RunEnd { stopped_by: stopped.word().into() };
                writer.write(*run, Entry::RunEnded(end))?;
            }
            vec![stopped; runs.len()]
        }
    };
    for (run, stopped) in runs.iter().zip(&stopped) {
        if let Stopped::Failed(failure) = stopped {
            let (unix_ms, text) = (wall_unix_ms(), format!("failed: {failure}"));
            // The writer's own failure is told by its end.
            let _ = writer.write(*run, Entry::Event { unix_ms, who: "tare".into(), text });
        }
    }
    let (store, written) = match writer.finish() {
        Ok(store) => (store, Ok(())),
        // The store says what is in it, also where writing to it failed.
        Err(error) => (Store::open_existing(&path)?, Err(error.into())),
    };
    let documents = runs.iter().map(|run| {
        let row = store.find_run(&run.to_string())?;
        document_of(&store, &row, &plan_of(&row)?)
    });
    let documents: Result<Vec<RunDocument>, Failure> = documents.collect();
    Ok(Measured { documents: documents?, stopped, written })
}

fn kept(row: &RunRow, store: &Path) -> String {
    format!("stored as run {} in {}; show it: tare report {}\n", row.id, store.display(), row.id)
}

/// A process of that number lives, and is tare: good enough to say "being measured".
pub fn is_running(row: &RunRow) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{}/comm", row.owner_pid));
    row.stopped_by.is_none()
        && row.owner_pid != std::process::id()
        && name.is_ok_and(|name| name.trim_end() == "tare")
}

/// A stored plan, as it was when its run was measured: whether it could run today is asked of those
/// that are to be resumed.
pub fn plan_of(row: &RunRow) -> Result<PlanParts, Failure> {
    let mut parts: PlanParts = serde_json::from_str(&row.plan).map_err(|error| {
        let text = format!("the plan of run {} is of another version of tare: {error}", row.id);
        Failure::Environment(text)
    })?;
    if parts.variants.is_empty() {
        return Err(Failure::Environment(format!("the plan of run {} has no variants", row.id)));
    }
    // A stranger's store: a name is one line, and no command to a terminal.
    parts.name = plain::line(&parts.name).into_owned();
    for variant in &mut parts.variants {
        variant.name = plain::line(&variant.name).into_owned();
    }
    Ok(parts)
}

/// The report of a stored run: the same slices give the same report, to the byte.
pub fn document_of(store: &Store, row: &RunRow, plan: &PlanParts) -> Result<RunDocument, Failure> {
    let metric = timeline::metric_of(&plan.stop.metrics);
    let (mut digests, mut timeline) = (Vec::new(), Timeline::default());
    for_each_round(store, row, plan, |round| {
        digests.push(digest(round, plan.variants.len(), plan.baseline()));
        timeline.add(round, metric);
    })?;
    Ok(RunDocument::new(facts(plan, row), digests, timeline))
}

fn digests_of(store: &Store, row: &RunRow, plan: &PlanParts) -> Result<Vec<RoundDigest>, Failure> {
    let mut digests = Vec::new();
    for_each_round(store, row, plan, |round| {
        digests.push(digest(round, plan.variants.len(), plan.baseline()));
    })?;
    Ok(digests)
}

/// A day of rounds takes less; a stranger's store may hold any number.
const MEMORY_MAX: u64 = 1 << 30;

/// The rounds that count, one at a time: together they would fill the memory.
fn for_each_round(
    store: &Store,
    row: &RunRow,
    plan: &PlanParts,
    mut see: impl FnMut(&Round),
) -> Result<(), Failure> {
    for (seen, number) in store.round_numbers(row.id)?.into_iter().enumerate() {
        if tare_io::process::resident_bytes() > MEMORY_MAX {
            return Err(Failure::Environment(format!(
                "run {} does not fit: {seen} of its rounds take {}, and no more are read",
                row.id,
                tare_report::units::bytes(MEMORY_MAX as f64)
            )));
        }
        if let Some(round) = whole_cycles(store.round(row.id, number)?, plan.variants.len()) {
            see(&round);
        }
    }
    Ok(())
}

/// A round that was cut short counts as far as its cycles are whole, where there are enough.
fn whole_cycles(mut round: Round, variants: usize) -> Option<Round> {
    if round.elapsed_ns > 0 {
        return Some(round);
    }
    let in_cycle = |cycle: u32| round.slices.iter().filter(|s| s.cycle == cycle).count();
    let whole = (0..round.cycles).take_while(|cycle| in_cycle(*cycle) == variants).count() as u32;
    if whole < CYCLES_MIN {
        return None;
    }
    round.slices.retain(|slice| slice.cycle < whole);
    round.cycles = whole;
    round.elapsed_ns = round.slices.iter().map(|slice| slice.counts.window_ns).sum();
    Some(round)
}

pub fn facts(plan: &PlanParts, row: &RunRow) -> RunFacts {
    let stopped_by = row.stopped_by.clone();
    RunFacts {
        id: row.id.0,
        tare_version: row.tare_version.clone(),
        started_unix_ms: row.started_unix_ms,
        command: row.command.clone(),
        stopped_by: stopped_by.unwrap_or_else(|| "killed".into()),
        machine: serde_json::from_str(&row.machine).unwrap_or_default(),
        plan: plan.clone(),
        stored_plan: serde_json::from_str(&row.plan).unwrap_or_default(),
    }
}
