//! Measures runs: opens a lab, runs the runner, and makes the reports from the store.

use std::net::SocketAddr;

use tare_io::time::wall_unix_ms;
use tare_lab::lab::{Deployment, PLACE_LAUNCHES};
use tare_lab::{Halt, HaltReason, Lab, LabPlan};
use tare_model::Failure;
use tare_model::calibration::Calibration;
use tare_model::plan::{Plan, VariantId};
use tare_report::run::document::RunDocument;
use tare_results::{conclude, document_of, plan_of};
use tare_run::clock::SystemClock;
use tare_run::runner::RunServices;
use tare_run::{Cell, Runner, Start, Stopped};
use tare_stats::RoundDigest;
use tare_store::{Entry, RunEnd, RunRow, Store, Writer};

use super::RunOptions;
use super::cpus_and_folders::journal_folder;
use super::gate::Gate;
use super::live::LiveTable;
use crate::load::addresses::address_of;

/// A run in the store, and its results so far.
pub struct Begun<'a> {
    pub plan: &'a Plan,
    pub row: &'a RunRow,
    pub found: Option<Calibration>,
    pub digests: Vec<RoundDigest>,
}

impl<'a> Begun<'a> {
    /// A run without results so far.
    pub fn new(plan: &'a Plan, row: &'a RunRow) -> Self {
        Self { plan, row, found: None, digests: Vec::new() }
    }
}

/// Results of runs, in their order.
pub struct StoredRuns {
    pub documents: Vec<RunDocument>,
    pub stopped: Vec<Stopped>,
    /// Whether everything is in the store.
    pub written: Result<(), Failure>,
}

/// Measures runs and makes their reports from the store.
pub fn measure(
    begun: Vec<Begun<'_>>,
    store: Store,
    start: Start,
    mut live: LiveTable,
    halt: &Halt,
    options: &RunOptions,
) -> Result<StoredRuns, Failure> {
    let limits = begun.first().map(|begun| Gate::limits(&options.gates, begun.plan));
    let path = store.path().to_owned();
    let runs: Vec<_> = begun.iter().map(|begun| begun.row.id).collect();
    let cells = begun.into_iter().map(|begun| {
        let Begun { plan, row, found, digests } = begun;
        Cell::new(plan, row.id, found.as_ref(), digests)
    });
    let writer = Writer::start(store)?;
    let services = RunServices {
        record: &writer,
        clock: &SystemClock,
        observer: &mut live,
        halt: halt.clone(),
        allows_void: options.allows_void,
        limits: limits.unwrap_or_default(),
    };
    let stopped = match runner(cells.collect(), services) {
        Ok(runner) => runner.run(start),
        Err(failure) => {
            let stopped = match halt.reason() {
                Some(HaltReason::TimeOver) => Stopped::MaxTime,
                _ => Stopped::Failed(failure),
            };
            halt.lift();
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
            // `finish` reports a failure of the writer.
            let _ = writer.write(*run, Entry::Event { unix_ms, who: "tare".into(), text });
        }
    }
    let (store, written) = match writer.finish() {
        Ok(store) => (store, Ok(())),
        // Report what the store holds, even if writing to it failed.
        Err(error) => (Store::open_existing(&path)?, Err(error.into())),
    };
    let documents = runs.iter().map(|run| {
        let row = store.find_run(&run.to_string())?;
        let document = document_of(&store, &row, &plan_of(&row)?)?;
        conclude(&store, &row, &document.report);
        Ok(document)
    });
    let documents: Result<Vec<RunDocument>, Failure> = documents.collect();
    Ok(StoredRuns { documents: documents?, stopped, written })
}

fn runner<'a>(cells: Vec<Cell<'a>>, services: RunServices<'a>) -> Result<Runner<'a, Lab>, Failure> {
    let Some(plan) = cells.first().map(|cell| cell.plan) else {
        return Err(Failure::bug("a run of nothing"));
    };
    for (cell, at) in
        cells.iter().flat_map(|cell| (0..cell.plan.variants.len()).map(move |at| (cell, at)))
    {
        // The port is not known yet, and does not affect this check.
        let url = cell.plan.variants[at].url(1)?;
        tare_load::resolve::check(&cell.plan.load_of(VariantId(at)), &url)?;
    }
    let connections = cells.iter().flat_map(|cell| {
        let variants = 0..cell.plan.variants.len();
        variants.map(|at| cell.plan.load_of(VariantId(at)).most_connections())
    });
    let deployments = plan.variants.iter().zip(addresses(plan)?);
    let lab = Lab::open(LabPlan {
        state: &journal_folder()?,
        servers: deployments
            .map(|(v, address)| Deployment::from_variant(v, address))
            .collect::<Result<_, _>>()?,
        cpus: plan.server_cpus.clone(),
        load_cpus: plan.load_cpus.clone(),
        exclusive: plan.is_exclusive(),
        place_launches: plan.slices.place_launches.unwrap_or(PLACE_LAUNCHES),
        halt: services.halt.clone(),
        connections: connections.max().unwrap_or(0),
    })?;
    Runner::new(cells, lab, services)
}

/// Resolves the variants' URLs, except URLs with `{port}`: their servers are not running yet, so it
/// is not known on which of a name's addresses they will answer.
fn addresses(plan: &Plan) -> Result<Vec<Option<SocketAddr>>, Failure> {
    let all = plan.variants.iter().map(|variant| {
        if variant.url.contains("{port}") || variant.unix_socket.is_some() {
            return Ok(None);
        }
        let url = variant.url(1)?;
        address_of(&url.host, url.port, plan.load.client.family).map(Some)
    });
    all.collect()
}
