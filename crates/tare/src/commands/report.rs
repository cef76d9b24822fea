//! `tare report RUN`: a stored run again.

use std::path::PathBuf;

use clap::Args;
use tare_store::Store;

use crate::failure::Failure;
use crate::run::finish::{Outputs, Wishes, plan_of, report_of};
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
    /// Exit with 1 where the whole interval of an overhead is beyond this; see tare compare --help
    #[arg(long, value_name = "GATE", value_parser = Gate::parse)]
    fail_if: Vec<Gate>,
    /// The store; default $TARE_STORE, or tare.db in your data directory
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
}

pub fn run(args: &Report) -> Result<(), Failure> {
    let path = store_path(args.store.as_ref())?;
    let store = Store::open_existing(&path)?;
    let row = store.find_run(&args.run)?;
    let report = report_of(&store, &row)?;
    let names: Vec<&str> = report.variants.iter().map(|v| v.name.as_str()).collect();
    args.fail_if.iter().try_for_each(|gate| gate.check_names(&names))?;
    let wishes = Wishes {
        store: path,
        json: args.json.clone(),
        markdown: args.markdown.clone(),
        csv: args.csv.clone(),
        gates: Vec::new(),
        quiet: true,
    };
    Outputs::create(&wishes)?.write(&report, None)?;
    gate::judge(&args.fail_if, &plan_of(&row)?.stop.metrics, &report)
}
