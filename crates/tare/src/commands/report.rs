//! `tare report RUN`: a stored run again.

use std::path::PathBuf;

use clap::Args;
use tare_report::bpftime_json;
use tare_report::run_build::build;
use tare_store::Store;

use crate::failure::Failure;
use crate::load::outputs::print;
use crate::run::finish::{Outputs, Wishes, digests_of, facts, plan_of};
use crate::run::gate::{self, Gate};
use crate::run::places::store_path;

/// Report a stored run: as text, JSON, Markdown or CSV
///
/// Made from the stored slices alone: the same run gives the same report, to the byte.
///
/// Example: tare report last --markdown -
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Report {
    /// The run's number, or 'last'
    #[arg(value_name = "RUN")]
    run: String,
    /// Write the report as JSON to this file, or to standard output without one
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Write the report as Markdown to this file, or to standard output without one
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    markdown: Option<PathBuf>,
    /// Write the report as CSV to this file, or to standard output without one
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    csv: Option<PathBuf>,
    /// The variant that others are compared with, instead of the run's own
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    /// Write another tool's form to standard output: bpftime-json, the result file of bpftime's
    /// nginx benchmark
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["json", "markdown", "csv"])]
    format: Option<Format>,
    /// Exit with 1 where the whole interval of an overhead is beyond this; see tare compare --help
    #[arg(long, value_name = "GATE", value_parser = Gate::parse)]
    fail_if: Vec<Gate>,
    /// The store; default $TARE_STORE, or tare.db in your data directory
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
}

/// What other tools read.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    BpftimeJson,
}

pub fn run(args: &Report) -> Result<(), Failure> {
    let path = store_path(args.store.as_ref())?;
    let store = Store::open_existing(&path)?;
    let row = store.find_run(&args.run)?;
    let mut plan = plan_of(&row)?;
    if let Some(name) = &args.baseline {
        plan.rebase(name)?;
    }
    let digests = digests_of(&store, &row, &plan)?;
    let known = facts(&plan, &row);
    let report = build(&known, &digests);
    let others = report.variants.iter().filter(|variant| !variant.baseline);
    let names: Vec<&str> = others.map(|variant| variant.name.as_str()).collect();
    args.fail_if.iter().try_for_each(|gate| gate.check_names(&names))?;
    let wishes = Wishes {
        store: path,
        json: args.json.clone(),
        markdown: args.markdown.clone(),
        csv: args.csv.clone(),
        gates: Vec::new(),
        quiet: true,
    };
    match args.format {
        None => Outputs::create(&wishes)?.write(&report, None)?,
        Some(Format::BpftimeJson) => {
            let seconds = row.started_unix_ms / 1000 % 60;
            let started = format!("{}:{seconds:02}", tare_io::time::utc(row.started_unix_ms));
            let url = plan.url(plan.baseline(), 1)?;
            let text = bpftime_json::render(&report, &known, &digests, &started, &url.target);
            print(&text)
                .map_err(|error| Failure::Environment(format!("standard output: {error}")))?;
        }
    }
    gate::judge(&args.fail_if, &plan.stop.metrics, &report)
}
