//! `tare filter`: URL filters without a server.

mod ask;
mod bench;
mod caller;
mod control;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use tare_lab::filters::describe;
use tare_model::filters::{FilterKind, FilterSpec};

use tare_model::Failure;

/// Measure and query URL filters, and control their shared memory
///
/// Example: tare filter bench library wasm lua
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Filter {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Bench(bench::Bench),
    Ask(ask::Ask),
    Control(control::Control),
    #[command(hide = true)]
    Caller(caller::Caller),
}

pub fn run(args: &Filter) -> Result<(), Failure> {
    match &args.command {
        Command::Bench(args) => bench::run(args),
        Command::Ask(args) => ask::run(args),
        Command::Control(args) => control::run(args),
        Command::Caller(args) => caller::run(args),
    }
}

/// Parses the name of a filter or the path of a library.
fn parse_filter(text: &str, prefix: &str) -> Result<FilterSpec, Failure> {
    let usage = |why: String| Failure::usage(format!("filter '{text}': {why}"));
    let is_path = text.contains('/') || Path::new(text).extension().is_some_and(|e| e == "so");
    let spec = if is_path {
        let path = std::path::absolute(text).unwrap_or_else(|_| PathBuf::from(text));
        FilterSpec { path: Some(path), ..FilterSpec::plain(FilterKind::Library, prefix) }
    } else {
        FilterSpec::plain(FilterKind::parse(text).map_err(Failure::usage)?, prefix)
    };
    if spec.filter == FilterKind::Off {
        return Err(usage("there is nothing to call".into()));
    }
    describe(&spec)?;
    Ok(spec)
}
