//! `tare runs`: lists and deletes stored runs.

use std::path::PathBuf;

use clap::Args;
use clap_complete::ArgValueCandidates;
use tare_io::DurationNs;
use tare_model::plain;
use tare_model::plan::PlanParts;
use tare_model::servers::ServerSpec;
use tare_model::variant::Variant;
use tare_report::format::counted;
use tare_report::formats::Form;
use tare_report::run::words::{point_of, time, verdict_word};
use tare_report::trend::TrendDocument;
use tare_results::{Conclusion, Conclusions, conclusions, document_of, is_running, plan_of};
use tare_stats::Verdict;
use tare_store::{RunFilter, RunRow, Store};

use super::completions;
use crate::load::outputs::{Outputs, files_of, print};
use crate::run::cpus_and_folders::store_path;
use tare_model::Failure;

/// List or delete stored runs, or follow an experiment over time
///
/// Example: tare runs wasm
///
/// Example: tare runs --delete 3,4
///
/// Example: tare runs --trend 'What does an access log cost nginx?' --html trend.html
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Runs {
    /// Only runs with this in their own or a variant's name
    #[arg(value_name = "TEXT")]
    contains: Option<String>,
    /// Also list each run that measured nothing; default: one line for several
    #[arg(long)]
    all: bool,
    /// Delete these runs and all their data
    #[arg(long, value_name = "RUNS", value_delimiter = ',', conflicts_with_all = ["contains", "events", "all"])]
    delete: Vec<String>,
    /// Print the log of this run: tare's decisions and the servers' output
    #[arg(long, value_name = "RUN", conflicts_with_all = ["contains", "all"],
          add = ArgValueCandidates::new(completions::runs))]
    events: Option<String>,
    /// Show the overheads of this experiment's runs over time (its newest 100), and where they
    /// changed
    #[arg(long, value_name = "EXPERIMENT", conflicts_with_all = ["contains", "all", "delete", "events"])]
    trend: Option<String>,
    #[command(flatten)]
    forms: TrendFiles,
    /// Run store; default: $TARE_STORE, or tare.db in your data directory
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
}

/// Files of a trend, besides standard output.
#[derive(Args)]
struct TrendFiles {
    /// With --trend: write JSON to this file, or to standard output with -
    #[arg(long, value_name = "FILE", requires = "trend")]
    json: Option<PathBuf>,
    /// With --trend: write CSV to this file, or to standard output with -
    #[arg(long, value_name = "FILE", requires = "trend")]
    csv: Option<PathBuf>,
    /// With --trend: write an HTML page to this file, or to standard output with -
    #[arg(long, value_name = "FILE", requires = "trend")]
    html: Option<PathBuf>,
    /// With --trend: write a table for Apache Otava to this file, or to standard output with -
    #[arg(long, value_name = "FILE", requires = "trend")]
    otava_csv: Option<PathBuf>,
}

pub fn run(args: &Runs) -> Result<(), Failure> {
    let mut store = Store::open_existing(&store_path(args.store.as_ref())?)?;
    if let Some(experiment) = &args.trend {
        return args.trend(&store, experiment);
    }
    let text = if !args.delete.is_empty() {
        delete(&mut store, &args.delete)?
    } else if let Some(text) = &args.events {
        events(&store, text)?
    } else {
        let runs = store.runs(&RunFilter { contains: args.contains.clone() })?;
        let concluded = conclusions(&store, &runs, PATIENCE);
        let mut text = match runs.is_empty() {
            true => format!("no such runs in {}\n", store.path().display()),
            false => list(&store, &runs, &concluded, args.all),
        };
        // A store that cannot be written to keeps no verdicts; listing again would not help.
        if concluded.missing > 0 && store.is_writable() {
            let runs = counted(concluded.missing as u64, "run", "runs");
            text += &format!("the verdicts of {runs} are not worked out yet: list them again\n");
        }
        text
    };
    print(&text).map_err(|error| Failure::environment(format!("standard output: {error}")))
}

/// Most runs of a trend, the newest.
const TREND_MAX: usize = 100;

impl Runs {
    fn trend(&self, store: &Store, experiment: &str) -> Result<(), Failure> {
        let TrendFiles { json, csv, html, otava_csv } = &self.forms;
        let mut forms = files_of([json, &None, csv, html]);
        forms.extend(otava_csv.clone().map(|path| (Form::OtavaCsv, path)));
        let mut outputs = Outputs::create(&forms)?;
        let rows = store.runs(&RunFilter { contains: Some(experiment.to_owned()) })?;
        let is_measured = |row: &&RunRow| row.rounds > 0 && !row.is_import && !is_running(row);
        let rows: Vec<&RunRow> = rows.iter().filter(is_measured).collect();
        let mut names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let name = match names.as_slice() {
            all if all.contains(&experiment) => experiment,
            [only] => only,
            [] => {
                let text = "no measured run has this name; list runs with 'tare runs'";
                return Err(Failure::flag("--trend", experiment, text));
            }
            several => {
                let names: Vec<String> =
                    several.iter().take(NAMES_SHOWN).map(|name| plain::line(name).into()).collect();
                let text = format!(
                    "matches several experiments: {}; give the full name",
                    names.join("; ")
                );
                return Err(Failure::flag("--trend", experiment, text));
            }
        };
        // The newest run is first.
        let own = rows.iter().filter(|row| row.name == name).take(TREND_MAX);
        let documents = own.map(|row| {
            // Lists of runs leave out their plans.
            let row = store.find_run(&row.id.to_string())?;
            document_of(store, &row, &plan_of(&row)?)
        });
        let mut documents = documents.collect::<Result<Vec<_>, Failure>>()?;
        documents.reverse();
        let Some(trend) = TrendDocument::new(plain::line(name).into_owned(), documents) else {
            return Err(Failure::bug("a trend without runs"));
        };
        outputs.write(&trend, None)
    }
}

/// Most names in a message.
const NAMES_SHOWN: usize = 5;

/// Time for computing missing verdicts, those of the newest runs first.
const PATIENCE: DurationNs = DurationNs::from_ms(500);

/// Deletes runs, after all of them have been found.
fn delete(store: &mut Store, texts: &[String]) -> Result<String, Failure> {
    let rows: Result<Vec<RunRow>, _> = texts.iter().map(|text| store.find_run(text)).collect();
    let mut told = String::new();
    for row in rows? {
        if is_running(&row) {
            let text = format!("run {} is being measured by process {}", row.id, row.owner_pid);
            return Err(Failure::environment(text));
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

/// Writes a line per run; runs that measured nothing share one unless `all` is set.
fn list(store: &Store, runs: &[RunRow], concluded: &Conclusions, all: bool) -> String {
    let is_empty = |run: &RunRow| run.rounds == 0 && !run.is_import && !is_running(run);
    let groups = runs.chunk_by(|a, b| !all && is_empty(a) && is_empty(b));
    let told = groups.enumerate().map(|(at, group)| match group {
        [run] => line(run, &name(store, run, at < RECENT), concluded),
        many => summary_line(many),
    });
    told.collect()
}

fn line(run: &RunRow, name: &str, concluded: &Conclusions) -> String {
    format!(
        "{:>5}  {}  {:>4} rounds  {:>7}  {:<11}  {}{}\n",
        run.id,
        tare_report::date::utc(run.started_unix_ms),
        run.rounds,
        time(run.elapsed_ns as f64 / 1e9),
        state(run),
        plain::line(name),
        concluded.by_run.get(&run.id).map_or_else(String::new, |all| in_words(all))
    )
}

fn state(run: &RunRow) -> &str {
    match (&run.stopped_by, is_running(run)) {
        (Some(word), _) => ended(word),
        (None, true) => "running",
        (None, false) => "killed",
    }
}

/// Writes one line for several runs; the newest is first.
fn summary_line(runs: &[RunRow]) -> String {
    let [last, .., first] = runs else { return String::new() };
    let mut states: Vec<&str> = runs.iter().map(state).collect();
    states.sort_unstable();
    states.dedup();
    format!(
        "{:>5}  and back to {}: {} that measured nothing ({}; --all shows each)\n",
        last.id,
        first.id,
        counted(runs.len() as u64, "run", "runs"),
        states.join(", ")
    )
}

/// Plans are read only for this many of the newest runs.
const RECENT: usize = 200;

/// Returns a run's name; if it only lists the variants, adds how their commands differ.
fn name(store: &Store, run: &RunRow, is_recent: bool) -> String {
    if run.is_import || !is_recent || run.name != run.variants.join(" vs. ") {
        return run.name.clone();
    }
    let plan = store.find_run(&run.id.to_string()).ok().and_then(|row| plan_of(&row).ok());
    plan.and_then(|plan| describe_difference(&plan)).unwrap_or_else(|| run.name.clone())
}

/// Describes two variants by what differs in their commands: `b (s.js parse) against a (s.js)`.
fn describe_difference(plan: &PlanParts) -> Option<String> {
    let [a, b] = plan.variants.as_slice() else { return None };
    let (baseline, other) = if b.baseline { (b, a) } else { (a, b) };
    let command = |variant: &Variant| match &variant.server {
        ServerSpec::Command(spec) => Some(spec.command.clone()),
        _ => None,
    };
    let [mine, base] = differing_words(&command(other)?, &command(baseline)?)?;
    let text = format!("{} ({mine}) against {} ({base})", other.name, baseline.name);
    (text.chars().count() <= NAME_MAX).then_some(text)
}

/// Returns the words in which two commands differ. If one of them has none, both results include
/// the word before.
fn differing_words(a: &str, b: &str) -> Option<[String; 2]> {
    let [a, b] = [a, b].map(|text| text.split_whitespace().collect::<Vec<&str>>());
    let shared = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let (mine, theirs) = (&a[shared..], &b[shared..]);
    let end = mine.iter().rev().zip(theirs.iter().rev()).take_while(|(a, b)| a == b).count();
    if mine.is_empty() && theirs.is_empty() {
        return None;
    }
    // Include the word before if either result would be empty.
    let from = shared - usize::from(mine.len().min(theirs.len()) == end).min(shared);
    let words = |all: &[&str]| all[from..all.len() - end].join(" ");
    let both = [words(&a), words(&b)];
    both.iter().all(|words| !words.is_empty()).then_some(both)
}

/// Longest name shown, in characters.
const NAME_MAX: usize = 70;

/// Maximum number of verdicts shown on a line.
const VERDICTS_SHOWN: usize = 3;

/// Returns the verdicts on the first requested metric: `: slower, +3.9 %`.
fn in_words(all: &[Conclusion]) -> String {
    let Some(first) = all.first() else { return String::new() };
    let all: Vec<&Conclusion> = all.iter().filter(|one| one.metric == first.metric).collect();
    let said = |one: &Conclusion| {
        let word = verdict_word(one.metric, one.verdict);
        match one.verdict {
            Verdict::Void => word.to_owned(),
            _ => format!("{word}, {}", point_of(one.metric, one.overhead_percent)),
        }
    };
    if let [one] = all.as_slice() {
        return format!(": {}", said(one));
    }
    let told = all.iter().take(VERDICTS_SHOWN).map(|one| format!("{} {}", one.variant, said(one)));
    let told = told.collect::<Vec<_>>().join("; ");
    match all.len().saturating_sub(VERDICTS_SHOWN) {
        0 => format!(": {told}"),
        n => format!(": {told}; and {n} more"),
    }
}

/// Returns why a run ended, in words.
fn ended(word: &str) -> &str {
    match word {
        "rounds" => "round limit",
        "max-time" => "time limit",
        word => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_apart_by_what_they_do_not_share() {
        let told = |a: &str, b: &str| differing_words(a, b).map(|[a, b]| format!("{a} | {b}"));
        let told = |a: &str, b: &str| told(a, b).unwrap_or_default();
        assert_eq!(told("node s.js parse", "node s.js"), "s.js parse | s.js");
        assert_eq!(
            told("./server-1.1 -p {port}", "./server-1.0 -p {port}"),
            "./server-1.1 | ./server-1.0"
        );
        assert_eq!(told("s -p {port} --fast", "s -p {port}"), "{port} --fast | {port}");
        assert_eq!(told("s --log -p {port}", "s -p {port}"), "s --log | s");
        assert_eq!(told("same", "same"), "");
        assert_eq!(told("one", ""), "");
    }
}
