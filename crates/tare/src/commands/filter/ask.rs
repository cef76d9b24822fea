//! `tare filter ask`: a filter's answers to URLs.

use clap::Args;
use tare_lab::filters::caller::Caller;
use tare_lab::filters::memory::FilterMemory;
use tare_lab::filters::{describe, environment};
use tare_model::filters::{FilterKind, FilterSpec};

use super::parse_filter;
use crate::load::outputs::print;
use crate::run::cpus_and_folders::journal_folder;
use tare_model::Failure;

/// Ask a filter about URLs, without a server; without arguments, list the filters
///
/// Prints its answer for each URL, and its counters at the end.
///
/// Example: tare filter ask wasm --prefix /aaaa /aaaa/index.html /other
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Ask {
    /// Filter, or the path of a library with the plug-in interface
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
    /// Prefix of accepted URLs
    #[arg(long, default_value = "/aaaa")]
    prefix: String,
    /// Shared memory of a running controller (filters shm and ebpf); default: a new one
    #[arg(long, value_name = "NAME")]
    shm: Option<String>,
    /// URLs to ask about
    #[arg(value_name = "URL")]
    urls: Vec<String>,
}

pub fn run(args: &Ask) -> Result<(), Failure> {
    let (text, failed) = match &args.filter {
        Some(filter) => ask(args, filter)?,
        None => (list(), 0),
    };
    print(&text).map_err(|error| Failure::environment(format!("standard output: {error}")))?;
    match (failed, &args.filter) {
        (1.., Some(filter)) => {
            Err(Failure::target(format!("filter {filter}: {failed} calls failed")))
        }
        _ => Ok(()),
    }
}

fn ask(args: &Ask, filter: &str) -> Result<(String, u64), Failure> {
    let spec = parse_filter(filter, &args.prefix)?;
    let memory = match &args.shm {
        Some(_) => None,
        None => FilterMemory::create_for(&spec, &journal_folder()?)?,
    };
    let shared = args.shm.as_deref().or(memory.as_ref().map(|memory| memory.name.as_str()));
    let mut caller = Caller::start(&spec, &environment(&spec, shared)?, &[])?;
    let mut text = String::new();
    let mut counted = (0, 0);
    let mut failed = 0;
    for url in &args.urls {
        let called = caller.call(&spec, url, 1)?;
        let answer = match (called.accepted, called.failed) {
            (1, _) => "accepted",
            (_, 0) => "refused ",
            _ => "failed  ",
        };
        failed += called.failed;
        text.push_str(&format!("{answer}  {}\n", url.escape_debug()));
        counted = (called.counted_accepted, called.counted_refused);
    }
    text.push_str(&format!("counted {} accepted, {} refused\n", counted.0, counted.1));
    Ok((text, failed))
}

fn list() -> String {
    let all = FilterKind::ALL.into_iter();
    let lines = all.map(|(kind, name, what)| {
        let spec = FilterSpec::plain(kind, "/aaaa");
        let built = match describe(&spec) {
            Ok(_) => String::new(),
            Err(why) => format!(" [{why}]"),
        };
        format!("{name:<10}  {what}{built}\n")
    });
    lines.collect()
}
