//! `tare runs`: what is in the store.

use std::path::PathBuf;

use clap::Args;
use tare_io::DurationNs;
use tare_model::plain;
use tare_report::run::words::{signed, time, verdict_word};
use tare_report::units::counted;
use tare_results::{Conclusion, Conclusions, conclusions, is_running};
use tare_stats::Verdict;
use tare_store::{RunFilter, RunRow, Store};

use crate::failure::Failure;
use crate::load::outputs::print;
use crate::run::places::store_path;

/// List or delete stored runs
///
/// Example: tare runs wasm
///
/// Example: tare runs --delete 3,4
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Runs {
    /// Only runs whose name, or a variant's name, contains this
    #[arg(value_name = "TEXT")]
    contains: Option<String>,
    /// Delete these runs and all their data
    #[arg(long, value_name = "RUNS", value_delimiter = ',', conflicts_with_all = ["contains", "events"])]
    delete: Vec<String>,
    /// Print the log of this run: tare's decisions and the servers' output
    #[arg(long, value_name = "RUN", conflicts_with = "contains")]
    events: Option<String>,
    /// Run store; default: $TARE_STORE, or tare.db in your data directory
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
}

pub fn run(args: &Runs) -> Result<(), Failure> {
    let mut store = Store::open_existing(&store_path(args.store.as_ref())?)?;
    let text = if !args.delete.is_empty() {
        delete(&mut store, &args.delete)?
    } else if let Some(text) = &args.events {
        events(&store, text)?
    } else {
        let runs = store.runs(&RunFilter { contains: args.contains.clone() })?;
        let concluded = conclusions(&store, &runs, PATIENCE);
        let mut text = list(&runs, &concluded, store.path());
        // Where nothing can be kept, the next list would begin with the same.
        if concluded.missing > 0 && store.is_ours() {
            let runs = counted(concluded.missing as u64, "run", "runs");
            text += &format!("the verdicts of {runs} are not worked out yet: list them again\n");
        }
        text
    };
    print(&text).map_err(|error| Failure::Environment(format!("standard output: {error}")))
}

/// For verdicts that are not known yet; the newest runs' come first.
const PATIENCE: DurationNs = DurationNs::from_ms(500);

/// All of them are looked up before the first is deleted.
fn delete(store: &mut Store, texts: &[String]) -> Result<String, Failure> {
    let rows: Result<Vec<RunRow>, _> = texts.iter().map(|text| store.find_run(text)).collect();
    let mut told = String::new();
    for row in rows? {
        if is_running(&row) {
            let text = format!("run {} is being measured by process {}", row.id, row.owner_pid);
            return Err(Failure::Environment(text));
        }
        if store.delete_run(row.id)? {
            told.push_str(&format!("deleted run {}: {}\n", row.id, plain::line(&row.name)));
        }
    }
    Ok(told)
}

fn events(store: &Store, text: &str) -> Result<String, Failure> {
    let row = store.find_run(text)?;
    let events = store.events(row.id)?;
    let lines = events.into_iter().map(|event| {
        let ms = event.unix_ms.saturating_sub(row.started_unix_ms);
        let seconds = ms as f64 / 1000.0;
        format!("{seconds:9.3} s  {}: {}\n", plain::line(&event.who), plain::line(&event.text))
    });
    Ok(lines.collect())
}

fn list(runs: &[RunRow], concluded: &Conclusions, path: &std::path::Path) -> String {
    if runs.is_empty() {
        return format!("no such runs in {}\n", path.display());
    }
    let line = |run: &RunRow| {
        let state = match (&run.stopped_by, is_running(run)) {
            (Some(word), _) => ended(word).to_owned(),
            (None, true) => "running".into(),
            (None, false) => "killed".into(),
        };
        format!(
            "{:>5}  {}  {:>4} rounds  {:>7}  {state:<11}  {}{}\n",
            run.id,
            tare_report::date::utc(run.started_unix_ms),
            run.rounds,
            time(run.elapsed_ns as f64 / 1e9),
            plain::line(&run.name),
            concluded.by_run.get(&run.id).map_or_else(String::new, |all| in_words(all))
        )
    };
    runs.iter().map(line).collect()
}

/// Verdicts that a line has room for.
const TOLD: usize = 3;

/// What a run concluded in the first of the metrics asked for: `: slower, +3.9 %`.
fn in_words(all: &[Conclusion]) -> String {
    let Some(first) = all.first() else { return String::new() };
    let all: Vec<&Conclusion> = all.iter().filter(|one| one.metric == first.metric).collect();
    let said = |one: &Conclusion| {
        let word = verdict_word(one.metric, one.verdict);
        match one.verdict {
            Verdict::Void => word.to_owned(),
            _ => format!("{word}, {} %", signed(one.overhead_percent)),
        }
    };
    if let [one] = all.as_slice() {
        return format!(": {}", said(one));
    }
    let told = all.iter().take(TOLD).map(|one| format!("{} {}", one.variant, said(one)));
    let told = told.collect::<Vec<_>>().join("; ");
    match all.len().saturating_sub(TOLD) {
        0 => format!(": {told}"),
        n => format!(": {told}; and {n} more"),
    }
}

/// Why a run ended, beside a number of rounds.
fn ended(word: &str) -> &str {
    match word {
        "rounds" => "round limit",
        "max-time" => "time limit",
        word => word,
    }
}
