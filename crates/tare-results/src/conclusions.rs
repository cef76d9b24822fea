//! Short conclusions of runs, stored beside them for lists of many runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;
use tare_io::time::monotonic_now;
use tare_model::{Metric, plain};
use tare_report::run::RunReport;
use tare_stats::Verdict;
use tare_stats::analysis::VERSION;
use tare_store::{RunId, RunRow, Store};

use crate::stored::document_within;
use crate::{is_running, plan_of};
use tare_model::Failure;

/// The verdict on one variant in one metric asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conclusion {
    pub variant: String,
    pub metric: Metric,
    pub verdict: Verdict,
    pub overhead_percent: f64,
}

/// Extracts the conclusions from a report.
fn concluded(report: &RunReport) -> Vec<Conclusion> {
    let asked = report.comparisons.iter().filter(|comparison| comparison.asked);
    let of = |comparison: &tare_report::run::Comparison| Conclusion {
        variant: comparison.variant.clone(),
        metric: comparison.metric,
        verdict: comparison.verdict,
        overhead_percent: comparison.overhead_percent.point,
    };
    asked.map(of).collect()
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conclusions {
    pub by_run: BTreeMap<RunId, Vec<Conclusion>>,
    /// Runs that are still to be analysed.
    pub missing: usize,
}

/// Conclusions of these runs that are known or can be computed within `patience`, in the given
/// order. New ones are stored if the store is writable.
pub fn conclusions(store: &Store, rows: &[RunRow], patience: DurationNs) -> Conclusions {
    let limit = monotonic_now() + patience;
    let mut known = BTreeMap::new();
    // A store that others write to may contain anything.
    if store.is_writable() {
        for (run, rounds, text) in store.conclusions(VERSION) {
            known.insert(run, (rounds, text));
        }
    }
    let mut all = Conclusions::default();
    for row in rows.iter().filter(|row| !row.is_import && !is_running(row)) {
        let kept = known.get(&row.id).filter(|(rounds, _)| *rounds == row.rounds);
        let kept = kept.and_then(|(_, text)| serde_json::from_str(text).ok());
        let found = match kept {
            Some(found) => found,
            None if monotonic_now() > limit => {
                all.missing += 1;
                continue;
            }
            // A run that cannot be read, or not in time, reports that when it is opened.
            None => compute_conclusions(store, row, patience).unwrap_or_default(),
        };
        all.by_run.insert(row.id, found.into_iter().map(one_line).collect());
    }
    all
}

/// Stores the conclusions of a run, from its report.
pub fn conclude(store: &Store, row: &RunRow, report: &RunReport) {
    keep(store, row.id, row.rounds, &concluded(report));
}

fn compute_conclusions(
    store: &Store,
    row: &RunRow,
    patience: DurationNs,
) -> Result<Vec<Conclusion>, Failure> {
    // Rows of lists come without plans.
    let row = store.find_run(&row.id.to_string())?;
    let document = document_within(store, &row, &plan_of(&row)?, patience)?;
    let found = concluded(&document.report);
    keep(store, row.id, row.rounds, &found);
    Ok(found)
}

/// Errors are ignored: a read-only store can be read without conclusions.
fn keep(store: &Store, run: RunId, rounds: u32, found: &[Conclusion]) {
    if let Ok(text) = serde_json::to_string(found) {
        let _ = store.conclude(run, VERSION, rounds, &text);
    }
}

/// Reduces the variant's name to one line without terminal escapes, because somebody else may have
/// written the store.
fn one_line(found: Conclusion) -> Conclusion {
    Conclusion { variant: plain::line(&found.variant).into_owned(), ..found }
}
