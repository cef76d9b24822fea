//! Measures an endpoint: each test and size is a run of one variant, all in the same rounds.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tare_io::DurationNs;
use tare_model::load::{Load, Workload};
use tare_model::plan::{Plan, PlanParts, SLICE_LENGTHS, Slices, Stop};
use tare_model::servers::ServerSpec;
use tare_model::variant::Variant;
use tare_report::net::NetCell;
use tare_run::Stopped;

use crate::run::aside::measure_aside;
use crate::run::choices::PRECISION;
use crate::run::measure::StoredRuns;
use tare_model::Failure;

/// Number and length of rounds.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    pub rounds: u32,
    /// Time for each cell in each round.
    pub window: DurationNs,
    pub seed: u64,
}

/// The warm-up is 1 / this of a window; it is needed because TCP starts slowly.
const WARM_UP_SHARE: u64 = 10;
/// Shortest warm-up.
const WARM_UP_MIN: DurationNs = DurationNs::from_ms(2);
/// Longest warm-up.
const WARM_UP_MAX: DurationNs = DurationNs::from_ms(100);
/// A run that hangs is ended after this many times its planned length.
const PATIENCE: u64 = 4;
const PATIENCE_MIN: DurationNs = DurationNs::from_secs(30);
const PATIENCE_MAX: DurationNs = DurationNs::from_secs(366 * 86_400);

/// Returns a plan for each load on the endpoint.
pub fn plans(
    name: &str,
    address: SocketAddr,
    cells: Vec<Load>,
    rounds: Rounds,
) -> Result<Vec<Plan>, Failure> {
    let slices = u64::from(rounds.rounds).saturating_mul(cells.len() as u64);
    let slices_ns = rounds.window.as_ns().saturating_mul(slices).saturating_mul(PATIENCE);
    let max_time = DurationNs::from_ns(slices_ns.min(PATIENCE_MAX.as_ns())) + PATIENCE_MIN;
    let cycles = rounds.window.as_ns().div_ceil(SLICE_LENGTHS.end().as_ns());
    let window = DurationNs::from_ns(rounds.window.as_ns() / cycles);
    let warm_up = DurationNs::from_ns(rounds.window.as_ns() / WARM_UP_SHARE);
    let plan = |load: Load| {
        let (test, bytes) = match &load.workload {
            Workload::Net(net) => (net.test.name(), net.message_bytes.to_string()),
            _ => return Err(Failure::bug("a test of the network that is none")),
        };
        let cell = [("test", test.to_owned()), ("message_bytes", bytes.clone())];
        Ok(Plan::try_from(PlanParts {
            name: format!("net {name} (test {test}) (message_bytes {bytes})"),
            seed: rounds.seed,
            stop: Stop {
                precision: PRECISION,
                of_effect: 0.0,
                tolerance: PRECISION,
                max_time: max_time.max(load.timeout + PATIENCE_MIN),
                metrics: Vec::new(),
                rounds: Some(rounds.rounds),
                lost_rounds: 0,
            },
            slices: Slices {
                window: Some(window),
                warmup: Some(warm_up.clamp(WARM_UP_MIN, WARM_UP_MAX)),
                cycles: Some(cycles as u32),
                no_sustained: true,
                ..Slices::default()
            },
            load_cpus: load.client.cpus.clone().unwrap_or_default(),
            server_cpus: Vec::new(),
            variants: vec![Variant {
                baseline: true,
                ..Variant::new(name, &format!("http://{address}/"), ServerSpec::External)
            }],
            skipped: Vec::new(),
            cell: cell.map(|(key, value)| (key.to_owned(), value)).into(),
            check: None,
            load,
        })?)
    };
    cells.into_iter().map(plan).collect()
}

/// Results: one cell per plan, in order, and the numbers of the stored runs.
pub struct NetMeasured {
    pub cells: Vec<NetCell>,
    pub runs: Vec<i64>,
    /// Whether everything is in the store.
    pub written: Result<(), Failure>,
}

/// Measures the plans and stores the runs; a failed run does not affect the others.
pub fn measure(
    plans: &[Plan],
    store: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<NetMeasured, Failure> {
    let StoredRuns { documents, stopped, written } = measure_aside(plans, store, stop)?;
    let failed = |stopped: &Stopped| match stopped {
        Stopped::Failed(failure) => Some(failure.to_string()),
        _ => None,
    };
    let found = documents.iter().zip(&stopped);
    let cells: Vec<NetCell> = found
        .filter_map(|(document, stopped)| NetCell::from_run(document, failed(stopped)))
        .collect();
    if cells.iter().all(|cell| cell.rounds == 0) {
        written?;
        return Err(match stopped.into_iter().next() {
            Some(Stopped::Failed(failure)) => failure,
            Some(Stopped::Interrupted) | None => Failure::interrupted(),
            Some(_) => Failure::unresolved("no round was finished in time"),
        });
    }
    let runs = documents.iter().map(|document| document.report.run.id).collect();
    Ok(NetMeasured { cells, runs, written })
}
