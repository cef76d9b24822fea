//! `tare wrk`: wrk's and wrk2's command lines and output, with tare's measurements.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Args, Parser};
use tare_guards::{Code, Severity};
use tare_io::{DurationNs, Endpoint, SocketOptions};
use tare_load::pacer::RateProfile;
use tare_load::request::{Order, parse_header};
use tare_load::resolve::{WAIT, provide_files};
use tare_load::tls::{TlsClient, TlsOptions};
use tare_load::{EngineConfig, Lifetime, LoadPlan, LoadResult, Part, Stretch};
use tare_model::load::Family;
use tare_model::net::Protocol;
use tare_model::status::StatusSet;
use tare_model::text::si_number;
use tare_model::url::Url;
use tare_wrk::format::{self, Flavour, Report};
use tare_wrk::script::{Script, ScriptError, ScriptOptions};
use tare_wrk::statistics::{RateSamples, Statistic};

use crate::args::words::count;
use crate::load::addresses::{address_of, random_seed};
use crate::load::describe::{LoadOutcome, Request, describe};
use crate::load::interrupt;
use crate::load::outputs::{print, print_stderr};
use tare_model::Failure;

/// Load a server with wrk's or wrk2's flags, scripts and output, measured by tare
///
/// Samples are neither corrected nor invented: latency is the time that a request took, with -R
/// from when it was due. Problems that wrk does not report go to standard error. Called through a
/// link named wrk or wrk2, tare runs this command.
///
/// Example: tare wrk -t2 -c100 -d30s --latency http://127.0.0.1:8080/
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Wrk {
    /// Connections to keep open
    #[arg(short, long, value_name = "N", default_value = "10", value_parser = count)]
    connections: u64,
    /// Duration of the test: 10, 2s, 2m or 2h
    #[arg(short, long, value_name = "T", default_value = "10s", value_parser = wrk_time)]
    duration: DurationNs,
    /// Threads
    #[arg(short, long, value_name = "N", default_value = "2", value_parser = count)]
    threads: u64,
    /// Lua script
    #[arg(short, long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Request header, 'Name: value'; repeatable
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// Print the latency distribution
    #[arg(short = 'L', long)]
    latency: bool,
    /// wrk2: also print latencies without the time spent waiting to be sent
    #[arg(short = 'U', long = "u_latency")]
    u_latency: bool,
    /// wrk2: accepted, no effect; latency is always per reply
    #[arg(short = 'B', long = "batch_latency")]
    batch_latency: bool,
    /// Request timeout
    #[arg(long, value_name = "T", default_value = "2s", value_parser = wrk_time)]
    timeout: DurationNs,
    /// wrk2: requests per second
    #[arg(short = 'R', long, value_name = "N", value_parser = si_number)]
    rate: Option<f64>,
    /// Limit on reply-body bytes buffered for a script's response(), across all connections: 64K,
    /// 256M; replies beyond it count as read errors
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = body_size)]
    max_body: u64,
    /// Print the version
    #[arg(short = 'v', long = "version")]
    version: bool,
    /// http:// or https://host:port/path
    #[arg(value_name = "URL", required_unless_present = "version")]
    url: Option<String>,
    /// Arguments of the script
    #[arg(value_name = "ARGS", trailing_var_arg = true)]
    args: Vec<String>,
}

/// Load a server with wrk's or wrk2's flags, scripts and output, measured by tare
#[derive(Parser)]
#[command(name = "wrk", disable_version_flag = true, max_term_width = 100)]
struct Linked {
    #[command(flatten)]
    wrk: Wrk,
}

/// Runs when tare is called through a link named `wrk` or `wrk2`.
pub fn run_linked(name: &str) -> Result<(), Failure> {
    let linked = Linked::try_parse().map_err(super::one_line)?;
    if name == "wrk2" && linked.wrk.rate.is_none() && !linked.wrk.version {
        return Err(Failure::usage("wrk2 needs a rate: give -R, requests per second"));
    }
    run(&linked.wrk)
}

pub fn run(args: &Wrk) -> Result<(), Failure> {
    let Some(url_text) = args.url.as_ref().filter(|_| !args.version) else {
        return show(concat!("wrk (tare ", env!("CARGO_PKG_VERSION"), ")\n"));
    };
    let url =
        Url::parse(url_text).map_err(|why| Failure::usage(format!("URL '{url_text}': {why}")))?;
    let threads = u32::try_from(args.threads).unwrap_or(u32::MAX);
    let connections = u32::try_from(args.connections).unwrap_or(u32::MAX);
    if threads > THREADS_MAX {
        let allowed = format!("at most {THREADS_MAX}");
        return Err(Failure::flag("-t", &threads.to_string(), allowed));
    }
    if connections < threads {
        let allowed = format!("must be at least the number of threads, {threads}");
        return Err(Failure::flag("-c", &connections.to_string(), allowed));
    }
    let address = address_of(&url.host, url.port, Family::Any)?;
    let script = Arc::new(load_script(args, &url, url_text, address, threads)?);
    let plan = plan(args, &url, &script, Endpoint::Tcp(address), threads, connections)?;
    let stop = Arc::new(AtomicBool::new(false));
    interrupt::on_interrupt(stop.clone())?;
    show(&format::opening(url_text, args.duration.as_secs_f64(), threads, connections))?;
    let mut samples = RateSamples::default();
    let result = tare_load::run(&plan, &stop, &mut samples);
    if result.is_err() && interrupt::was_interrupted() {
        return Err(Failure::interrupted());
    }
    let result = result?;
    finish(args, &script, &plan, &result, &samples)
}

const THREADS_MAX: u32 = 1024;

fn load_script(
    args: &Wrk,
    url: &Url,
    url_text: &str,
    address: std::net::SocketAddr,
    threads: u32,
) -> Result<Script, Failure> {
    let headers = args
        .headers
        .iter()
        .map(|text| parse_header(text).map_err(|error| Failure::usage(format!("-H: {error}"))))
        .collect::<Result<Vec<_>, _>>()?;
    let options = ScriptOptions {
        path: args.script.clone(),
        scheme: if url.tls { "https" } else { "http" },
        host: url.host.clone(),
        port: url.written_port,
        target: url.target.clone(),
        headers,
        args: std::iter::once(url_text.to_owned()).chain(args.args.iter().cloned()).collect(),
        address: Some(address),
        max_body_bytes: args.max_body,
    };
    Script::load(&options, threads).map_err(script_failure)
}

fn script_failure(error: ScriptError) -> Failure {
    Failure::usage(error.to_string())
}

fn plan(
    args: &Wrk,
    url: &Url,
    script: &Arc<Script>,
    endpoint: Endpoint,
    threads: u32,
    connections: u32,
) -> Result<LoadPlan, Failure> {
    provide_files(connections)?;
    let rate = args.rate.map(RateProfile::constant).transpose();
    let tls = TlsOptions { name: url.host.clone(), insecure: true, ..Default::default() };
    let tls = url.tls.then(|| TlsClient::new(&tls)).transpose();
    let made = script.clone();
    Ok(LoadPlan {
        engine: EngineConfig {
            protocol: Protocol::Http,
            sockets: SocketOptions::default(),
            endpoint,
            bind: Vec::new(),
            connections,
            max_connections: connections,
            lifetime: Lifetime::Kept,
            tls: tls.map_err(|error| Failure::usage(error.to_string()))?,
            timeout: args.timeout,
            // wrk counts every whole reply; those above 399 are also shown as errors.
            expected: StatusSet::any(),
            wait: WAIT,
        },
        requests: script.requests().map_err(script_failure)?,
        order: Order::InTurn { from: 0 },
        source: Some(Arc::new(move |worker| made.source(worker))),
        worker_endpoints: script.addresses().into_iter().flatten().map(Endpoint::Tcp).collect(),
        rate: rate.map_err(|error| Failure::usage(format!("-R: {error}")))?,
        poisson: false,
        stretch: Stretch { window: args.duration, interval: SAMPLE_INTERVAL, ..Stretch::NONE },
        workers: threads,
        cpus: Vec::new(),
        reactor: None,
        seed: random_seed(),
        part: Part::WHOLE,
    })
}

/// wrk samples the rate of its threads this often.
const SAMPLE_INTERVAL: DurationNs = DurationNs::from_ms(100);

fn finish(
    args: &Wrk,
    script: &Script,
    plan: &LoadPlan,
    result: &LoadResult,
    samples: &RateSamples,
) -> Result<(), Failure> {
    let total = &result.total;
    let flavour = if args.rate.is_some() { Flavour::Wrk2 } else { Flavour::Wrk };
    let latency = Statistic::of_latency(total.latency.headline());
    let requests = Statistic::of_samples(&samples.0);
    show(&format::results(&Report {
        flavour,
        total,
        latency: &latency,
        requests: &requests,
        distribution: args.latency || args.u_latency,
        uncorrected: args.u_latency,
    }))?;
    let url = args.url.as_deref().unwrap_or_default();
    for note in notes(script, plan, url, result) {
        print_stderr(&format!("tare: {note}\n"));
    }
    script.done(total, latency, requests, flavour == Flavour::Wrk2).map_err(script_failure)?;
    if let Some(error) = script.error() {
        return Err(Failure::usage(error));
    }
    if interrupt::was_interrupted() { Err(Failure::interrupted()) } else { Ok(()) }
}

/// Returns problems that wrk would not report.
fn notes(script: &Script, plan: &LoadPlan, url: &str, result: &LoadResult) -> Vec<String> {
    let total = &result.total;
    let mut notes = Vec::new();
    let errors = format::status_errors(total);
    if errors > 0 {
        let good = total.counts.completed - errors;
        let per_s = good as f64 / total.elapsed().as_secs_f64().max(1e-9);
        notes.push(format!(
            "{errors} of {} replies are errors (status 400 and above), though Requests/sec counts \
             them: without them it is {per_s:.2}",
            total.counts.completed
        ));
    }
    let request = Request { url, method: "GET" };
    let interrupted = interrupt::was_interrupted();
    let report = describe(&request, plan, LoadOutcome::local(result), Vec::new(), interrupted);
    let guards = report.guards.into_iter().filter(|guard| guard.severity > Severity::Note);
    // A script may send several requests at once on each connection.
    let guards = guards.filter(|one| one.code != Code::LittlesLaw || !script.is_pipelined());
    notes.extend(
        guards.map(|guard| format!("{} {}: {}", guard.severity.word(), guard.code, guard.text)),
    );
    let (closed, full) = (total.counts.closed_by_server, total.counts.handshakes_full);
    if closed > 0 && full > 0 {
        notes.push(format!("{full} TLS handshakes were full (wrk would have resumed sessions)"));
    }
    notes
}

fn show(text: &str) -> Result<(), Failure> {
    print(text).map_err(|error| Failure::environment(format!("standard output: {error}")))
}

fn body_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale: u64 = match &text[digits.len()..] {
        "" => 1,
        "K" | "k" => 1 << 10,
        "M" | "m" => 1 << 20,
        "G" | "g" => 1 << 30,
        _ => 0,
    };
    let bytes = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(scale));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| "write bytes, 64K, 256M or 1G".into())
}

/// Parses a time as wrk does: a bare number is seconds.
fn wrk_time(text: &str) -> Result<DurationNs, String> {
    let whole = text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty();
    let text = if whole { format!("{text}s") } else { text.to_owned() };
    match DurationNs::parse(&text) {
        Ok(DurationNs::ZERO) => Err("must be longer than 0".into()),
        Ok(duration) => Ok(duration),
        Err(_) => Err("write seconds, or a number and s, m or h, as 30 or 2m".into()),
    }
}
