//! `tare filter bench`: nanoseconds per call. Each round starts fresh processes and calls them in
//! short slices, in random order; intervals are over rounds.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use serde::Serialize;
use tare_io::DurationNs;
use tare_io::time::monotonic_now;
use tare_lab::filters::caller::{CallReport, Caller, TRIAL_CALLS, calls_within};
use tare_lab::filters::environment;
use tare_lab::filters::memory::FilterMemory;
use tare_load::LaneId;
use tare_model::filters::{FilterKind, FilterSpec};
use tare_report::run::table::Table;
use tare_report::run::terminal::columns;
use tare_run::schedule;
use tare_stats::Estimate;
use tare_stats::estimate::{sidak, trimmed_mean};

use super::parse_filter;
use crate::args::words::positive_duration;
use crate::load::addresses::random_seed;
use crate::load::interrupt;
use crate::load::outputs::{Output, print};
use crate::run::choices::percent;
use crate::run::cpus_and_folders::{divide_cpus, journal_folder};
use tare_model::Failure;

/// Measure nanoseconds per call for accepted and refused URLs, without a server
///
/// Each round starts a process for every filter and calls the filters in short slices, in random
/// order; each URL must get the correct answer, and the filter's counters must agree.
///
/// Example: tare filter bench library wasm lua --url-length 100
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Bench {
    /// Filters, or paths of libraries with the plug-in interface; default: all built-in filters
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
    /// Prefix of accepted URLs
    #[arg(long, default_value = "/aaaa")]
    prefix: String,
    /// Length of the URLs
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    url_length: Option<u32>,
    /// Stop when every interval is ± this or narrower
    #[arg(long, value_name = "PERCENT", default_value = "2%", value_parser = percent)]
    precision: f64,
    /// Time limit
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = positive_duration)]
    max_time: DurationNs,
    /// Random seed of the order; default: a random one
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write the result as JSON to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const CYCLES: u32 = 5;
const SLICE: DurationNs = DurationNs::from_us(500);
const ROUNDS_MIN: usize = 10;
const ROUNDS_MAX: usize = 1000;
const LEVEL: f64 = 0.95;
/// Share of the allowed error rate that repeated looks at the intervals leave (docs/method.md).
const PRICE_OF_LOOKING: f64 = 0.8;

/// JSON report, schema `tare.filter/1`.
#[derive(Serialize)]
struct Report {
    schema: &'static str,
    prefix: String,
    url_bytes: usize,
    rounds: usize,
    seed: u64,
    filters: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    filter: String,
    accept_ns: Option<Estimate>,
    refuse_ns: Option<Estimate>,
    /// Why the numbers are void.
    wrong: Option<String>,
}

/// Results of one filter over all rounds.
struct BenchedFilter {
    name: String,
    spec: FilterSpec,
    /// Nanoseconds per call in each round, for accepted and for refused URLs.
    rounds: [Vec<f64>; 2],
    wrong: Option<String>,
}

pub fn run(args: &Bench) -> Result<(), Failure> {
    let mut output = args.json.as_deref().map(|path| Output::create("--json", path)).transpose()?;
    let mut all = filters(args)?;
    let seed = args.seed.unwrap_or_else(random_seed);
    let urls = urls(args)?;
    let stop = Arc::new(AtomicBool::new(false));
    interrupt::on_interrupt(stop.clone())?;
    let (_, cpus) = divide_cpus(None, None, None);
    let level = 1.0 - (1.0 - sidak(LEVEL, all.len() * 2)) * PRICE_OF_LOOKING;
    let started = monotonic_now();
    let mut rounds = 0;
    while rounds < ROUNDS_MAX && !stop.load(Ordering::Relaxed) {
        round(&mut all, &urls, seed, rounds as u32, &cpus)?;
        rounds += 1;
        let late = monotonic_now().since(started) > args.max_time;
        if late
            || (rounds >= ROUNDS_MIN && all.iter().all(|one| one.is_within(level, args.precision)))
        {
            break;
        }
    }
    let report = Report {
        schema: "tare.filter/1",
        prefix: args.prefix.clone(),
        url_bytes: urls[0].len(),
        rounds,
        seed,
        filters: all.iter().map(|one| one.row(level)).collect(),
    };
    if !output.as_ref().is_some_and(Output::is_stdout) {
        print(&text(&report))
            .map_err(|error| Failure::environment(format!("standard output: {error}")))?;
    }
    if let Some(output) = &mut output {
        output.write(&(serde_json::to_string_pretty(&report).unwrap_or_default() + "\n"))?;
    }
    let wrong = report.filters.iter().find_map(|row| Some((&row.filter, row.wrong.as_ref()?)));
    match wrong {
        Some((filter, why)) => Err(Failure::target(format!("filter {filter}: {why}"))),
        None if stop.load(Ordering::Relaxed) => Err(Failure::interrupted()),
        None => Ok(()),
    }
}

fn filters(args: &Bench) -> Result<Vec<BenchedFilter>, Failure> {
    let all = FilterKind::ALL.into_iter().filter(|(kind, ..)| *kind != FilterKind::Off);
    let names: Vec<String> = match args.filters.is_empty() {
        true => all.map(|(_, name, _)| name.to_owned()).collect(),
        false => args.filters.clone(),
    };
    let measured = names.into_iter().map(|name| {
        let spec = parse_filter(&name, &args.prefix)?;
        Ok(BenchedFilter { name, spec, rounds: Default::default(), wrong: None })
    });
    measured.collect()
}

/// Returns a URL to accept and one to refuse, of equal length.
fn urls(args: &Bench) -> Result<[String; 2], Failure> {
    let spec = FilterSpec::plain(FilterKind::Library, &args.prefix);
    let length = args.url_length.map_or(args.prefix.len(), |length| length as usize);
    if length < args.prefix.len() {
        let allowed = format!("shorter than the prefix, {} bytes", args.prefix.len());
        return Err(Failure::flag("--url-length", &length.to_string(), allowed));
    }
    let padded = |start: String| start.clone() + &"x".repeat(length - start.len());
    Ok([padded(args.prefix.clone()), padded(spec.refused_path())])
}

fn round(
    all: &mut [BenchedFilter],
    urls: &[String; 2],
    seed: u64,
    index: u32,
    cpus: &[usize],
) -> Result<(), Failure> {
    let mut running = Vec::new();
    for one in all.iter() {
        let memory = FilterMemory::create_for(&one.spec, &journal_folder()?)?;
        let shared = memory.as_ref().map(|memory| memory.name.as_str());
        let mut caller = Caller::start(&one.spec, &environment(&one.spec, shared)?, cpus)?;
        let mut calls = [0; 2];
        let mut last = CallReport::default();
        for (url, calls) in urls.iter().zip(&mut calls) {
            last = caller.call(&one.spec, url, TRIAL_CALLS)?;
            *calls = calls_within(SLICE, last.elapsed_ns, TRIAL_CALLS);
        }
        running.push((memory, caller, calls, last, [vec![], vec![]]));
    }
    for order in schedule::orders(seed, "slice order", index, all.len(), CYCLES) {
        for LaneId(at) in order {
            let (_, caller, calls, last, values) = &mut running[at];
            for (which, url) in urls.iter().enumerate() {
                let called = caller.call(&all[at].spec, url, calls[which])?;
                values[which].push(called.elapsed_ns as f64 / calls[which] as f64);
                if let Some(why) =
                    call_error(&called, last, which == 0, calls[which], &all[at].spec)
                {
                    all[at].wrong.get_or_insert(why);
                }
                *last = called;
            }
        }
    }
    for (one, (.., values)) in all.iter_mut().zip(running) {
        for (rounds, values) in one.rounds.iter_mut().zip(values) {
            rounds.push(trimmed_mean(&values, 0.2));
        }
    }
    Ok(())
}

/// Returns what was wrong: every URL must get the expected answer and be counted.
fn call_error(
    called: &CallReport,
    before: &CallReport,
    accepts: bool,
    calls: u64,
    spec: &FilterSpec,
) -> Option<String> {
    let counted = (
        called.counted_accepted.saturating_sub(before.counted_accepted),
        called.counted_refused.saturating_sub(before.counted_refused),
    );
    let accepts = accepts || spec.filter == FilterKind::Identity;
    let expected = if accepts { (calls, 0) } else { (0, calls) };
    if called.failed > 0 {
        return Some(format!("{} of {calls} calls failed", called.failed));
    }
    if called.accepted != expected.0 {
        let should = if accepts { "accepted" } else { "refused" };
        return Some(format!(
            "of {calls} URLs that should be {should} it accepted {}",
            called.accepted
        ));
    }
    (counted != expected).then(|| {
        format!("of {calls} calls it counted {} accepted and {} refused", counted.0, counted.1)
    })
}

impl BenchedFilter {
    fn row(&self, level: f64) -> Row {
        let estimate = |values: &[f64]| {
            let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
            Some(Estimate::of_mean(&logs, level)?.from_log())
        };
        Row {
            filter: self.name.clone(),
            accept_ns: estimate(&self.rounds[0]),
            refuse_ns: estimate(&self.rounds[1]),
            wrong: self.wrong.clone(),
        }
    }

    fn is_within(&self, level: f64, precision: f64) -> bool {
        let row = self.row(level);
        [row.accept_ns, row.refuse_ns]
            .into_iter()
            .all(|estimate| estimate.is_some_and(|e| e.half_width() <= precision * e.point))
    }
}

fn text(report: &Report) -> String {
    let cell = |estimate: Option<Estimate>| {
        estimate.map_or("–".into(), |e| format!("{:.1} ns ± {:.1}", e.point, e.half_width()))
    };
    let rows = report.filters.iter().map(|row| {
        let verdict = row.wrong.as_ref().map_or(String::new(), |why| format!("void: {why}"));
        vec![row.filter.clone(), cell(row.accept_ns), cell(row.refuse_ns), verdict]
    });
    let header = ["", "accepted", "refused", "verdict"].map(str::to_owned).to_vec();
    let mut table = Table { rows: rows.collect(), header };
    if report.filters.iter().all(|row| row.wrong.is_none()) {
        table.header.pop();
        table.rows.iter_mut().for_each(|row| drop(row.pop()));
    }
    let lines = columns(&table).join("\n");
    format!(
        "A call of a filter, prefix {}, URLs of {} bytes\n\n{lines}\n\n{} rounds, each in fresh \
         processes; the intervals hold together at 95 %; seed {}\n",
        report.prefix, report.url_bytes, report.rounds, report.seed
    )
}
