//! Reads a stored run: its plan, its rounds, its report.

use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant};
use tare_model::calibration::Calibration;
use tare_model::plain;
use tare_model::plan::PlanParts;
use tare_model::samples::Round;
use tare_report::run::document::RunDocument;
use tare_report::run::from_rounds::RunFacts;
use tare_report::timeline::{self, Timeline};
use tare_stats::round_digest::{RoundDigest, digest, weigh};
use tare_store::{RunRow, Store};

use tare_model::Failure;

/// Whether the run's process is alive and is named tare: good enough to say "being measured".
pub fn is_running(row: &RunRow) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{}/comm", row.owner_pid));
    row.stopped_by.is_none()
        && row.owner_pid != std::process::id()
        && name.is_ok_and(|name| name.trim_end() == "tare")
}

/// Reads a stored plan as it was measured. Whether it could run today is checked only for runs that
/// are to be resumed.
pub fn plan_of(row: &RunRow) -> Result<PlanParts, Failure> {
    let mut parts: PlanParts = serde_json::from_str(&row.plan).map_err(|error| {
        let text = format!("the plan of run {} is of another version of tare: {error}", row.id);
        Failure::environment(text)
    })?;
    if parts.variants.is_empty() {
        return Err(Failure::environment(format!("the plan of run {} has no variants", row.id)));
    }
    // Somebody else may have written the store: names are made one line without terminal escapes.
    parts.name = plain::line(&parts.name).into_owned();
    for variant in &mut parts.variants {
        variant.name = plain::line(&variant.name).into_owned();
    }
    Ok(parts)
}

/// The report of a stored run: the same slices give the same report, to the byte.
pub fn document_of(store: &Store, row: &RunRow, plan: &PlanParts) -> Result<RunDocument, Failure> {
    document_until(store, row, plan, Instant::FAR)
}

/// Like [`document_of`], with a time limit.
pub(crate) fn document_within(
    store: &Store,
    row: &RunRow,
    plan: &PlanParts,
    patience: DurationNs,
) -> Result<RunDocument, Failure> {
    document_until(store, row, plan, monotonic_now() + patience)
}

fn document_until(
    store: &Store,
    row: &RunRow,
    plan: &PlanParts,
    limit: Instant,
) -> Result<RunDocument, Failure> {
    let metric = timeline::metric_of(&plan.stop.metrics);
    let (mut digests, mut timeline) = (Vec::new(), Timeline::default());
    for_each_round(store, row, plan, limit, |round| {
        digests.push(digest(round, plan.variants.len(), plan.baseline()));
        timeline.add(round, metric);
    })?;
    weigh(&mut digests);
    Ok(RunDocument::new(facts(plan, row), digests, timeline))
}

pub fn digests_of(
    store: &Store,
    row: &RunRow,
    plan: &PlanParts,
) -> Result<Vec<RoundDigest>, Failure> {
    let mut digests = Vec::new();
    for_each_round(store, row, plan, Instant::FAR, |round| {
        digests.push(digest(round, plan.variants.len(), plan.baseline()));
    })?;
    weigh(&mut digests);
    Ok(digests)
}

/// Limit of this process's memory while it reads a run. A day of rounds takes less, but a store
/// from somebody else may hold any number.
const MEMORY_MAX: u64 = 1 << 30;

/// Reads the rounds that count, one at a time: together they would fill the memory.
fn for_each_round(
    store: &Store,
    row: &RunRow,
    plan: &PlanParts,
    limit: Instant,
    mut see: impl FnMut(&Round),
) -> Result<(), Failure> {
    for (seen, number) in store.round_numbers(row.id)?.into_iter().enumerate() {
        if monotonic_now() > limit {
            let text = format!("run {} takes longer to read than there is time", row.id);
            return Err(Failure::environment(text));
        }
        if tare_io::process::resident_bytes() > MEMORY_MAX {
            return Err(Failure::environment(format!(
                "run {} does not fit: {seen} of its rounds take {}, and no more are read",
                row.id,
                tare_report::format::bytes(MEMORY_MAX as f64)
            )));
        }
        if let Some(round) = whole_cycles(store.round(row.id, number)?, plan.variants.len()) {
            see(&round);
        }
    }
    Ok(())
}

/// Whole cycles that an interrupted round needs to count.
const WHOLE_MIN: u32 = 2;

/// Reduces an interrupted round to its whole cycles, if there are enough.
fn whole_cycles(mut round: Round, variants: usize) -> Option<Round> {
    if round.elapsed_ns > 0 {
        return Some(round);
    }
    let in_cycle = |cycle: u32| round.slices.iter().filter(|s| s.cycle == cycle).count();
    let whole = (0..round.cycles).take_while(|cycle| in_cycle(*cycle) == variants).count() as u32;
    if whole < WHOLE_MIN {
        return None;
    }
    round.slices.retain(|slice| slice.cycle < whole);
    let slept: Vec<u32> = round.by_sleepers.iter().map(|slice| slice.cycle).collect();
    round
        .by_sleepers
        .retain(|slice| slept.iter().filter(|cycle| **cycle == slice.cycle).count() == variants);
    round.cycles = whole;
    let all = round.slices.iter().chain(&round.by_sleepers);
    round.elapsed_ns = all.map(|slice| slice.counts.window_ns).sum();
    Some(round)
}

/// The values that a run's first rounds determined, with which it continues.
pub fn found_of(row: &RunRow, plan: &PlanParts) -> Result<Option<Calibration>, Failure> {
    let Some(found) = &row.found else { return Ok(None) };
    let wrong = |why: String| Failure::environment(format!("run {}: {why}", row.id));
    let found: Calibration = serde_json::from_str(found)
        .map_err(|error| wrong(format!("what it found is of another version: {error}")))?;
    found.check(plan).map_err(|invalid| wrong(invalid.to_string()))?;
    Ok(Some(found))
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
        // Invalid values, which somebody else may have written, are not shown.
        found: found_of(row, plan).ok().flatten(),
        lost: row.lost.clone(),
    }
}
