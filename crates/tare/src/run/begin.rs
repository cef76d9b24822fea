//! Begins new runs and resumes stored ones.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tare_io::DurationNs;
use tare_io::time::wall_unix_ms;
use tare_lab::Halt;
use tare_lab::machine::Machine;
use tare_model::plan::{Plan, PlanParts};
use tare_results::{digests_of, facts, found_of, is_running, plan_of};
use tare_run::Start;
use tare_store::{NewRun, RunRow, Store};

use super::conclude::conclude;
use super::cpus_and_folders::journal_folder;
use super::live::LiveTable;
use super::machine::check_machine;
use super::measure::{Begun, StoredRuns, measure};
use super::{RunOptions, command};
use crate::load::interrupt;
use crate::load::outputs::Outputs;
use tare_model::Failure;

/// Free disk space needed to begin a run; a minute of slices takes a few megabytes.
const FREE_BYTES_MIN: u64 = 16 << 20;

pub fn run_new(plan: &Plan, options: &RunOptions) -> Result<(), Failure> {
    let mut outputs = Outputs::create(&options.forms)?;
    let halt = halt_within(plan, 0, options, stop_on_interrupt()?)?;
    let mut store = open_store(options)?;
    let row = begin(plan, &mut store)?;
    let begun = Begun::new(plan, &row);
    let done = carry_out(vec![begun], store, Start::default(), options, &halt)?;
    conclude(plan, done, &row, options, &mut outputs)
}

/// Resumes a run that was interrupted, killed, or stopped by its time limit.
pub fn resume(
    text: &str,
    options: &RunOptions,
    change: impl Fn(&mut PlanParts) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut store = open_store(options)?;
    let row = store.find_run(text)?;
    if is_running(&row) {
        let text = format!("run {} is being measured by process {}", row.id, row.owner_pid);
        return Err(Failure::environment(text));
    }
    if row.is_import {
        return Err(Failure::usage(format!("run {} was imported: it cannot be resumed", row.id)));
    }
    let mut parts = plan_of(&row)?;
    change(&mut parts)?;
    let plan = Plan::try_from(parts)?;
    check_machine(&plan)?;
    let found = found_of(&row, &plan)?;
    // Remove what a killed process left behind, which would be in the way.
    tare_lab::journal::clean(&journal_folder()?);
    let mut outputs = Outputs::create(&options.forms)?;
    // The report is made from the store, so the changed plan must be in it.
    store.resume_run(row.id, &serde_json::to_string(&plan).unwrap_or_default())?;
    let row = store.find_run(text)?;
    let digests = digests_of(&store, &row, &plan)?;
    let start = Start { next_round: store.next_round(row.id)? };
    let elapsed_ns = digests.iter().map(|digest| digest.elapsed_ns).sum();
    let halt = halt_within(&plan, elapsed_ns, options, stop_on_interrupt()?)?;
    let begun = Begun { digests, found, ..Begun::new(&plan, &row) };
    let done = carry_out(vec![begun], store, start, options, &halt)?;
    conclude(&plan, done, &row, options, &mut outputs)
}

/// Enters a new run in the store.
pub fn begin(plan: &Plan, store: &mut Store) -> Result<RunRow, Failure> {
    let machine = serde_json::to_string(&Machine::probe()).unwrap_or_default();
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

pub(super) fn open_store(options: &RunOptions) -> Result<Store, Failure> {
    open_with_room(&options.store)
}

/// Opens the store; fails if its disk is too full for a run.
pub(super) fn open_with_room(path: &Path) -> Result<Store, Failure> {
    let store = Store::open(path)?;
    let free = tare_io::process::free_bytes(path).unwrap_or(u64::MAX);
    if free < FREE_BYTES_MIN {
        return Err(Failure::environment(format!(
            "the store {} lies on a disk with {} free; a run needs {} (--store FILE)",
            path.display(),
            tare_report::format::bytes(free as f64),
            tare_report::format::bytes(FREE_BYTES_MIN as f64),
        )));
    }
    Ok(store)
}

pub(super) fn stop_on_interrupt() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    interrupt::on_interrupt(stop.clone())?;
    Ok(stop)
}

/// Returns the run's time limit less `elapsed_ns`, counted from the start of the command.
fn halt_within(
    plan: &Plan,
    elapsed_ns: u64,
    options: &RunOptions,
    stop: Arc<AtomicBool>,
) -> Result<Halt, Failure> {
    let left = DurationNs::from_ns(plan.stop.max_time.as_ns().saturating_sub(elapsed_ns));
    Halt::at(options.began + left, stop, interrupt::was_interrupted)
}

pub(super) fn carry_out(
    begun: Vec<Begun<'_>>,
    store: Store,
    start: Start,
    options: &RunOptions,
    halt: &Halt,
) -> Result<StoredRuns, Failure> {
    let facts = begun.iter().map(|begun| facts(begun.plan, begun.row)).collect();
    measure(begun, store, start, LiveTable::new(facts, options.quiet), halt, options)
}
