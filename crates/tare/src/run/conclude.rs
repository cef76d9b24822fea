//! Ends runs: writes their reports and checks their gates.

use std::path::Path;

use tare_model::plan::Plan;
use tare_report::run::document::RunDocument;
use tare_report::sweep::cells::MissingCell;
use tare_report::sweep::document::SweepDocument;
use tare_run::Stopped;
use tare_stats::stopping::round_limit;
use tare_stats::verdict::ROUNDS_MIN;
use tare_store::RunRow;

use super::cpus_and_folders::store_path;
use super::measure::StoredRuns;
use super::{RunOptions, gate};
use crate::load::outputs::{Outputs, print_stderr};
use tare_model::Failure;

/// Writes a run's report and checks its gates.
pub(super) fn conclude(
    plan: &Plan,
    measured: StoredRuns,
    row: &RunRow,
    options: &RunOptions,
    outputs: &mut Outputs,
) -> Result<(), Failure> {
    let StoredRuns { mut documents, stopped, written } = measured;
    let (Some(document), Some(stopped)) = (documents.first_mut(), stopped.first()) else {
        return Err(Failure::bug("a run without a report"));
    };
    document.report.gates = gate::results(&options.gates, &plan.stop.metrics, &document.report);
    let report = &document.report;
    if report.run.rounds > 0 {
        outputs.write(document, Some(&stored_message(row, &options.store)))?;
    } else if *stopped == Stopped::Interrupted {
        let kept = stored_message(row, &options.store);
        print_stderr(&format!("tare: no round was finished, so there is no result; {kept}"));
    }
    written?;
    match stopped {
        Stopped::Failed(failure) => Err(failure.clone()),
        Stopped::Interrupted => Err(Failure::interrupted()),
        Stopped::MaxTime if report.run.rounds == 0 => {
            let max_time = plan.stop.max_time;
            let least = round_limit(max_time.as_secs_f64() * f64::from(ROUNDS_MIN));
            Err(Failure::unresolved(format!(
                "no round was finished within --max-time {max_time}; a verdict needs \
                 {ROUNDS_MIN} rounds: try --max-time {least}"
            )))
        }
        _ => {
            let void = if options.allows_void { Ok(()) } else { gate::judge_void(report) };
            void.and_then(|()| gate::judge(&options.gates, &plan.stop.metrics, report))
        }
    }
}

/// Why a value of a sweep is missing.
const NO_ROUND: &str = "the time limit came before its first round";

/// Result of one cell.
pub(super) struct SweptCell<'a> {
    pub plan: &'a Plan,
    pub document: RunDocument,
    pub stopped: Stopped,
}

/// Writes a sweep's report and checks its gates.
pub(super) fn conclude_sweep(
    swept: Vec<SweptCell<'_>>,
    options: &RunOptions,
    outputs: &mut Outputs,
) -> Result<(), Failure> {
    let (mut measured, mut missing) = (Vec::new(), Vec::new());
    let (mut judged, mut failed, mut interrupted) = (Ok(()), None, false);
    let mut void = Ok(());
    for SweptCell { plan, mut document, stopped } in swept {
        let rounds = document.report.run.rounds;
        if rounds > 0 {
            document.report.gates =
                gate::results(&options.gates, &plan.stop.metrics, &document.report);
            let report = &document.report;
            judged = judged.and(gate::judge(&options.gates, &plan.stop.metrics, report));
            if !options.allows_void {
                void = void.and(gate::judge_void(report));
            }
            measured.push((plan.cell.clone(), document));
        }
        let reason = match stopped {
            Stopped::Failed(failure) => {
                let reason = failure.to_string();
                failed.get_or_insert(failure);
                reason
            }
            Stopped::MaxTime if rounds == 0 => NO_ROUND.into(),
            Stopped::Interrupted => {
                interrupted = true;
                if rounds > 0 {
                    continue;
                }
                "interrupted before its first round".into()
            }
            _ => continue,
        };
        missing.push(MissingCell { values: plan.cell.clone(), reason });
    }
    let cut = missing.iter().filter(|cell| cell.reason == NO_ROUND).count();
    let is_nothing = measured.is_empty();
    outputs.write(&SweepDocument::new(measured, missing), None)?;
    match failed {
        _ if interrupted => Err(Failure::interrupted()),
        Some(failure) => Err(failure),
        // A gate on a cell that was not measured has not passed.
        None if cut > 0 && (is_nothing || !options.gates.is_empty()) => {
            let text = format!("not decided: {NO_ROUND} for {cut} of the values (--max-time)");
            void.and(judged).and(Err(Failure::unresolved(text)))
        }
        None => void.and(judged),
    }
}

fn stored_message(row: &RunRow, store: &Path) -> String {
    let is_default = store_path(None).is_ok_and(|path| path == store);
    let (id, path) = (row.id, store.display());
    let flag = if is_default { String::new() } else { format!(" (--store {path})") };
    format!("stored as run {id} in {path}{flag}\n")
}
