//! Runs that a command makes for its own report: measured without a live table or gates.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tare_io::time::monotonic_now;
use tare_lab::Halt;
use tare_lab::journal::Journal;
use tare_lab::journal::temporary;
use tare_model::plan::Plan;
use tare_results::facts;
use tare_run::Start;
use tare_store::RunRow;

use super::RunOptions;
use super::begin::{begin, open_with_room};
use super::cpus_and_folders::journal_folder;
use super::live::LiveTable;
use super::measure::{Begun, StoredRuns, measure};
use crate::load::interrupt;
use tare_model::Failure;

/// Measures plans that differ in load only, and keeps the runs in this store.
pub fn measure_aside(
    plans: &[Plan],
    store: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<StoredRuns, Failure> {
    let mut store = open_with_room(store)?;
    let rows: Result<Vec<RunRow>, Failure> =
        plans.iter().map(|plan| begin(plan, &mut store)).collect();
    let rows = rows?;
    let pairs = || plans.iter().zip(&rows);
    let live = LiveTable::new(pairs().map(|(plan, row)| facts(plan, row)).collect(), true);
    let options = RunOptions {
        store: store.path().to_owned(),
        forms: Vec::new(),
        gates: Vec::new(),
        quiet: true,
        allows_void: true,
        began: monotonic_now(),
    };
    let max_time = plans.iter().map(|plan| plan.stop.max_time).max().unwrap_or_default();
    let halt = Halt::at(options.began + max_time, stop.clone(), interrupt::was_interrupted)?;
    let begun = pairs().map(|(plan, row)| Begun::new(plan, row)).collect();
    measure(begun, store, Start::default(), live, &halt, &options)
}

/// A temporary folder that is removed at the end; the journal removes it after a crash.
pub struct Temporary {
    pub path: PathBuf,
    journal: Journal,
}

impl Temporary {
    pub fn new() -> Result<Self, Failure> {
        let journal = Journal::create(&journal_folder()?)?;
        let path = temporary::folder(&journal)?;
        Ok(Self { path, journal })
    }

    pub fn store(&self) -> PathBuf {
        self.path.join("runs.db")
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        self.journal.remove_all();
    }
}
