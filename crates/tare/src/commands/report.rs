//! `tare report RUN`: reports a stored run.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use clap_complete::ArgValueCandidates;
use tare_model::Metric;
use tare_model::variant::Skipped;
use tare_report::check::CheckDocument;
use tare_report::formats::{Document, Form};
use tare_report::pair::PairDocument;
use tare_report::run::RunReport;
use tare_report::run::document::RunDocument;
use tare_report::sweep::cells::{MissingCell, name};
use tare_report::sweep::document::SweepDocument;
use tare_results::{conclude, document_of, is_running, plan_of};
use tare_store::Store;

use super::{completions, import};
use crate::load::outputs::{Outputs, files_of, print, print_report};
use crate::run::cpus_and_folders::store_path;
use crate::run::gate::{self, Gate};
use tare_model::Failure;

/// Report a stored run: as text, HTML, JSON, Markdown, CSV, or in other tools' formats
///
/// Uses only the stored slices: the same run gives a byte-identical report.
///
/// With two runs, shows what has changed from the first to the second. Variants are compared by
/// their ratio to the baseline, which cancels drift of the machine between the runs.
///
/// Example: tare report last --html report.html
///
/// Example: tare report 12 last --fail-if 'throughput > 3%'
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Report {
    /// Run number or 'last'; 3-8 for the runs of a sweep or a check
    #[arg(value_name = "RUN", default_value = "last",
          add = ArgValueCandidates::new(completions::runs))]
    run: String,
    /// Later run to compare with the first; --fail-if then applies to the change
    #[arg(value_name = "LATER", add = ArgValueCandidates::new(completions::runs))]
    later: Option<String>,
    /// Write the report as JSON to this file, or to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Write the report as Markdown to this file, or to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    markdown: Option<PathBuf>,
    /// Write the report as CSV to this file, or to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    csv: Option<PathBuf>,
    /// Write the report as one HTML file with charts, or to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    html: Option<PathBuf>,
    /// Write this format to standard output: any of the above, why, rounds-csv (the values behind a
    /// run's intervals, one row per round), openmetrics (Prometheus text format), fortio-csv (the
    /// table of Istio's benchmark runner), k6-csv (a summary of k6), bpftime-json (the result file
    /// of bpftime's nginx benchmark), bencher-json, github-bigger and github-smaller (for
    /// github-action-benchmark), go-bench (for benchstat), otava-csv; of checks junit, annotations
    #[arg(long, value_name = "FORMAT", value_parser = Form::parse,
          conflicts_with_all = ["json", "markdown", "csv", "html"])]
    format: Option<Form>,
    /// Show all evidence for and against the result: every guard, ratio and proof, with figures
    #[arg(long, conflicts_with_all = ["format", "json", "markdown", "csv", "html", "quiet"])]
    why: bool,
    /// Variant to compare the others with; default: the run's own baseline
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    /// Exit with 1 if an overhead's entire interval exceeds this limit; see tare compare --help
    #[arg(long, value_name = "LIMIT", value_parser = Gate::parse)]
    fail_if: Vec<Gate>,
    /// Print no text: write the files that are asked for, and let --fail-if set the exit code
    #[arg(short, long, conflicts_with = "format")]
    quiet: bool,
    /// Run store; default: $TARE_STORE, or tare.db in your data directory
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
}

pub fn run(args: &Report) -> Result<(), Failure> {
    let path = store_path(args.store.as_ref())?;
    let store = Store::open_existing(&path)?;
    if let Some(later) = &args.later {
        return args.pair(&store, later);
    }
    if let Some((first, last)) = range(&args.run) {
        return args.sweep(&store, first, last);
    }
    let row = store.find_run(&args.run)?;
    if let Some(found) = store.import(row.id)? {
        if !args.fail_if.is_empty() {
            let text =
                format!("--fail-if: run {} was imported; gates judge tare's own runs", row.id);
            return Err(Failure::usage(text));
        }
        return args.write(&import::stored(&found, &row, args.baseline.as_deref())?);
    }
    let (mut document, asked) = args.read(&store, &args.run)?;
    args.check_gates(&document.report)?;
    let measured_nothing = document.report.run.rounds == 0;
    if measured_nothing && document.report.run.stopped_by == "failed" && args.writes_text() {
        let events = store.events(row.id)?;
        let why = events.iter().rev().find_map(|event| event.text.strip_prefix("failed: "));
        let why = why.unwrap_or("it was ended by a failure");
        return print_report(&format!("run {} measured nothing: {why}\n", row.id))
            .map_err(|error| Failure::environment(format!("standard output: {error}")));
    }
    document.report.gates = gate::results(&args.fail_if, &asked, &document.report);
    args.write(&document)?;
    gate::judge(&args.fail_if, &asked, &document.report)
}

/// Parses a range of runs such as "3-8".
fn range(text: &str) -> Option<(i64, i64)> {
    let (first, last) = text.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// Returns the experiment's name and the swept keys, which all runs of a sweep share.
fn sweep_identity(report: &RunReport, values: &BTreeMap<String, String>) -> (String, Vec<String>) {
    (name(&report.run.name, values), values.keys().cloned().collect())
}

const NAME_ITS_RUNS: &str = "name its first run and its last, as 'tare runs' lists them";

/// Maximum number of runs in the report of a sweep.
const CELLS_MAX: i64 = 10_000;

impl Report {
    /// Reports the runs of a sweep as one document, like `tare run` after measuring them.
    fn sweep(&self, store: &Store, first: i64, last: i64) -> Result<(), Failure> {
        if last < first || last - first >= CELLS_MAX {
            let allowed = format!("the first run and the last, up to {CELLS_MAX} of them");
            return Err(Failure::flag("RUN", &self.run, allowed));
        }
        if plan_of(&store.find_run(&first.to_string())?)?.check.is_some() {
            return self.check(store, first, last);
        }
        let (mut cells, mut missing, mut judged) = (Vec::new(), Vec::new(), Ok(()));
        let mut shared = None;
        for number in first..=last {
            let text = number.to_string();
            let values = match plan_of(&store.find_run(&text)?) {
                Ok(plan) if !plan.cell.is_empty() => plan.cell,
                _ => {
                    let text = format!("run {number} is not part of a sweep; {NAME_ITS_RUNS}");
                    return Err(Failure::usage(text));
                }
            };
            let (mut document, asked) = self.read(store, &text)?;
            let own = sweep_identity(&document.report, &values);
            if *shared.get_or_insert_with(|| own.clone()) != own {
                let text =
                    format!("runs {first} and {number} are not of one sweep; {NAME_ITS_RUNS}");
                return Err(Failure::usage(text));
            }
            self.check_gates(&document.report)?;
            if document.report.run.rounds == 0 {
                let reason = "no round was finished".to_owned();
                missing.push(MissingCell { values, reason });
                continue;
            }
            document.report.gates = gate::results(&self.fail_if, &asked, &document.report);
            judged = judged.and(gate::judge(&self.fail_if, &asked, &document.report));
            cells.push((values, document));
        }
        self.write(&SweepDocument::new(cells, missing))?;
        judged
    }

    /// Reports the runs of a check as `tare check` did after measuring them.
    fn check(&self, store: &Store, first: i64, last: i64) -> Result<(), Failure> {
        let documents = (first..=last).map(|number| {
            let (document, _) = self.read(store, &number.to_string())?;
            match document.facts.plan.check {
                Some(_) => Ok(document),
                None => Err(Failure::usage(format!("run {number} is not part of a check"))),
            }
        });
        let documents = documents.collect::<Result<Vec<_>, _>>()?;
        if !self.fail_if.is_empty() {
            let text = "--fail-if: a check has limits of its own (tare check --worse-by)";
            return Err(Failure::usage(text));
        }
        let (measured, empty): (Vec<_>, Vec<_>) =
            documents.into_iter().partition(|document| document.report.run.rounds > 0);
        let reason = "no round was finished".to_owned();
        let missing = empty
            .into_iter()
            .map(|document| Skipped { name: document.report.run.name, reason: reason.clone() });
        self.write(&CheckDocument::new(measured, missing.collect()))
    }

    fn check_gates(&self, report: &RunReport) -> Result<(), Failure> {
        let others = report.variants.iter().filter(|variant| !variant.baseline);
        let names: Vec<&str> = others.map(|variant| variant.name.as_str()).collect();
        self.fail_if.iter().try_for_each(|gate| gate.check_names(&names))
    }

    /// Reads a run that tare measured, and the metrics that it was to resolve.
    fn read(&self, store: &Store, text: &str) -> Result<(RunDocument, Vec<Metric>), Failure> {
        let row = store.find_run(text)?;
        if row.is_import {
            let text = format!("run {} was imported: it has no rounds to compare", row.id);
            return Err(Failure::usage(text));
        }
        let mut plan = plan_of(&row)?;
        if let Some(name) = &self.baseline {
            plan.rebase(name)?;
        }
        let document = document_of(store, &row, &plan)?;
        if self.baseline.is_none() && !is_running(&row) {
            conclude(store, &row, &document.report);
        }
        Ok((document, plan.stop.metrics))
    }

    fn pair(&self, store: &Store, later: &str) -> Result<(), Failure> {
        let (before, _) = self.read(store, &self.run)?;
        let (after, asked) = self.read(store, later)?;
        let (a, b) = (before.report.run.id, after.report.run.id);
        if a == b {
            return Err(Failure::usage(format!("run {a} and run {b} are the same: name two")));
        }
        let mut pair = PairDocument::new(&before, &after, &asked).map_err(Failure::usage)?;
        gate::check_names_of(&self.fail_if, &pair)?;
        pair.gates = gate::results_of_pair(&self.fail_if, &asked, &pair);
        self.write(&pair)?;
        gate::judge_changes(&self.fail_if, &asked, &pair)
    }

    /// Whether nothing but the ordinary text was asked for.
    fn writes_text(&self) -> bool {
        let forms = files_of([&self.json, &self.markdown, &self.csv, &self.html]);
        self.format.is_none() && !self.why && !self.quiet && forms.is_empty()
    }

    /// Writes the document in the requested formats.
    fn write(&self, document: &dyn Document) -> Result<(), Failure> {
        let Some(form) = self.format.or(self.why.then_some(Form::Why)) else {
            let forms = files_of([&self.json, &self.markdown, &self.csv, &self.html]);
            let mut outputs = Outputs::create(&forms)?;
            return match self.quiet {
                true => outputs.write_forms(document),
                false => outputs.write(document, None),
            };
        };
        let text = document.render(form).map_err(|why| match self.why {
            true => Failure::usage(format!("--why: {why}")),
            false => Failure::flag("--format", form.word(), why),
        })?;
        let printed = if self.why { print_report(&text) } else { print(&text) };
        printed.map_err(|error| Failure::environment(format!("standard output: {error}")))
    }
}
