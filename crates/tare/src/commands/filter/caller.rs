//! `tare filter caller`: the process that loads a filter library. It reads what to call ([`Calls`])
//! from standard input and answers with the results ([`CallReport`]).

use std::ffi::CString;
use std::io::{BufRead, Write};
use std::path::PathBuf;

use clap::Args;
use tare_io::plugin::{Plugin, take_stdout};
use tare_io::process::{end_with_parent, pin_to};
use tare_io::time::monotonic_now;
use tare_lab::filters::caller::{CallReport, Calls, FAILED, READY};

use crate::args::words::cpu_list;
use tare_model::Failure;

/// Call a filter library as told on standard input; tare starts this itself
///
/// Example: tare filter caller --library ./libfilter.so --prefix /aaaa
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Caller {
    #[arg(long)]
    library: PathBuf,
    #[arg(long)]
    prefix: String,
    #[arg(long, value_parser = cpu_list)]
    cpus: Option<std::vec::Vec<usize>>,
}

pub fn run(args: &Caller) -> Result<(), Failure> {
    if let Some(cpus) = &args.cpus {
        pin_to(cpus)?;
    }
    let environment = |error| Failure::environment(format!("standard output: {error}"));
    // End together with the tare that started this process.
    end_with_parent().map_err(environment)?;
    // The library's output must not be mistaken for an answer, or fill a pipe that nobody reads.
    let mut out = take_stdout().map_err(environment)?;
    let mut say = |text: &str| out.write_all(format!("{text}\n").as_bytes()).map_err(environment);
    let prefix = c_string(&args.prefix)?;
    let plugin = match Plugin::load(&args.library, &prefix) {
        Ok(plugin) => plugin,
        Err(why) => return say(&format!("{FAILED}{why}")),
    };
    say(READY)?;
    for line in std::io::stdin().lock().lines() {
        let line =
            line.map_err(|error| Failure::environment(format!("standard input: {error}")))?;
        let asked: Calls = serde_json::from_str(&line)
            .map_err(|error| Failure::usage(format!("'{line}': {error}")))?;
        let called = call(&plugin, &c_string(&asked.url)?, asked.calls);
        say(&serde_json::to_string(&called).unwrap_or_default())?;
    }
    Ok(())
}

fn call(plugin: &Plugin, url: &CString, calls: u64) -> CallReport {
    let mut called = CallReport::default();
    let started = monotonic_now();
    for _ in 0..calls {
        match plugin.filter_url(url) {
            1 => called.accepted += 1,
            0 => {}
            _ => called.failed += 1,
        }
    }
    called.elapsed_ns = monotonic_now().since(started).as_ns();
    (called.counted_accepted, called.counted_refused) = plugin.counters();
    called
}

fn c_string(text: &str) -> Result<CString, Failure> {
    CString::new(text).map_err(|_| Failure::usage(format!("{text:?}: a zero byte cannot be in it")))
}
