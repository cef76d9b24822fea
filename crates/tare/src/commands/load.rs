//! `tare load URL`: puts load on one server.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use tare_io::{DurationNs, Endpoint};
use tare_lab::executor::INTERVALS_MAX;
use tare_load::pacer::RateProfile;
use tare_load::resolve;
use tare_load::{LoadPlan, Stretch};
use tare_model::load::Paths;
use tare_model::places::PlaceSpec;
use tare_model::url::Url;
use tare_report::hgrm;
use tare_report::load::LoadReport;
use tare_report::load::guards::Severity;
use tare_report::load::text;

use crate::args::load::{LoadArgs, default_threads};
use crate::args::words::{count, duration, positive_duration};
use crate::load::addresses::{address_of, random_seed};
use crate::load::describe::{LoadOutcome, Request, describe};
use crate::load::elsewhere;
use crate::load::interrupt;
use crate::load::outputs::{Output, print};
use crate::load::url_list;
use crate::load::watch::{IntervalLog, Watch};
use tare_model::Failure;

/// Put load on one server and report its throughput and latency
///
/// Closed loop by default: each connection sends its next request after the reply. With --rate or
/// --stages the loop is open: requests are due at fixed times, none is skipped, and latency counts
/// from the time each was due. Exits with 6 if a check makes the result void.
///
/// Example: tare load http://127.0.0.1:8080/ -c 50 -d 30s --rate 10k
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Load {
    /// http:// or https://host:port/path
    #[arg(value_name = "URL", required_unless_present = "urls")]
    url: Option<String>,

    #[command(flatten)]
    load: LoadArgs,
    /// Open loop with changing rates: 10s:1000,30s:5000 are steps, 10s:0..1000 is a ramp
    #[arg(long, value_name = "STAGES", conflicts_with = "rate")]
    stages: Option<String>,
    /// Duration; default: 10s, or as long as --requests or --stages take
    #[arg(short, long, value_name = "DURATION", value_parser = positive_duration)]
    duration: Option<DurationNs>,
    /// Stop after this many requests
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    requests: Option<u64>,
    /// Warm-up time, which is not counted
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    warmup: Option<DurationNs>,

    /// File with one URL or path per line, requested in turn; all on the first URL's server
    #[arg(long, value_name = "FILE")]
    urls: Option<PathBuf>,
    /// With --urls: request them in random order
    #[arg(long, requires = "urls")]
    random_order: bool,
    /// Connect to this Unix socket instead of the URL's host
    #[arg(long, value_name = "PATH", conflicts_with = "bind")]
    unix_socket: Option<PathBuf>,
    /// Generate load from pods: count=4,context=C,node=N; all settings: docs/kubernetes.md
    #[arg(long, value_name = "SETTINGS", value_parser = elsewhere::settings,
          conflicts_with_all = ["unix_socket", "bind", "cpus"])]
    kubernetes: Option<elsewhere::Pods>,
    /// Generate load from this ssh host; repeatable, the hosts share the load
    #[arg(long, value_name = "HOST", conflicts_with_all = ["kubernetes", "unix_socket", "bind", "cpus"])]
    ssh: Vec<String>,
    /// Write results as JSON to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the time series as CSV to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write an HdrHistogram log, one line per interval, to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
    /// Write all percentiles of latency (.hgrm) to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    hgrm: Option<PathBuf>,
    /// Write each interval as a line of JSON to this file, or to standard output with -, where each
    /// line appears when its interval ends
    #[arg(long, value_name = "FILE")]
    ndjson: Option<PathBuf>,
    /// Length of an interval of the time series
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    interval: DurationNs,
    /// Random seed; default: a random one, which is printed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

pub fn run(args: &Load) -> Result<(), Failure> {
    if let Some(path) = args.url.as_ref().filter(|url| url.starts_with(['.', '/'])) {
        let text = format!("not a URL; a command is measured by: tare compare '{path}'");
        return Err(Failure::flag("URL", path, text));
    }
    let base = args.url.as_deref().map(|text| url_list::parse(text, "URL")).transpose()?;
    let urls = match &args.urls {
        Some(path) => url_list::read(path, base.as_ref())?,
        None => base.into_iter().collect(),
    };
    let stop = Arc::new(AtomicBool::new(false));
    let plan = plan(args, &urls)?;
    interrupt::on_interrupt(stop.clone())?;
    let mut outputs = Outputs::create(args)?;
    let request = Request {
        url: &args.urls.as_ref().map_or_else(
            || args.url.clone().unwrap_or_default(),
            |path| format!("{} URLs of {}", urls.len(), path.display()),
        ),
        method: plan.requests.method(),
    };
    let length = (plan.stretch.window != NO_END).then_some(plan.stretch.window);
    let prints = args.ndjson.as_ref().is_some_and(|path| path.as_os_str() == "-");
    let mut watch = Watch::new(length, args.interval, prints);
    let interrupted = || interrupt::was_interrupted();
    let report = match places(args)?.as_slice() {
        [] => {
            let result = tare_load::run(&plan, &stop, &mut watch);
            let intervals = watch.intervals();
            if result.is_err() && interrupted() {
                return Err(Failure::interrupted());
            }
            describe(&request, &plan, LoadOutcome::local(&result?), intervals, interrupted())
        }
        places => elsewhere::run(places, &plan, &request, &mut watch, &stop)?,
    };
    outputs.write(&report, &watch.log)?;
    if report.interrupted {
        return Err(Failure::interrupted());
    }
    conclude(&report)
}

/// Returns the places of the clients; none if they run here.
fn places(args: &Load) -> Result<Vec<PlaceSpec>, Failure> {
    match &args.kubernetes {
        Some(pods) => Ok(pods.places()),
        None => elsewhere::hosts(&args.ssh),
    }
}

fn conclude(report: &LoadReport) -> Result<(), Failure> {
    nothing_good(report)?;
    // Void numbers are printed, but the command fails.
    match report.guards.iter().find(|guard| guard.severity == Severity::Void) {
        Some(guard) => Err(Failure::void(format!("void ({}): {}", guard.code, guard.text))),
        None => Ok(()),
    }
}

/// Fails if requests were started and none got a good reply.
fn nothing_good(report: &LoadReport) -> Result<(), Failure> {
    if report.requests.good > 0 || report.requests.started == 0 {
        return Ok(());
    }
    let why = match report.errors.values().next() {
        Some(error) => error.first.clone(),
        None if report.requests.completed > 0 => {
            let statuses: Vec<_> = report.status.keys().map(String::as_str).collect();
            format!("every reply has status {} (see --expect-status)", statuses.join(" or "))
        }
        None => "no request was answered in the time measured".to_owned(),
    };
    Err(Failure::target(format!("not one good reply from {}: {why}", report.asked.address)))
}

struct Outputs {
    json: Option<Output>,
    csv: Option<Output>,
    hdr: Option<Output>,
    hgrm: Option<Output>,
    ndjson: Option<Output>,
}

const FLAGS: &str = "--json, --csv, --hdr, --hgrm and --ndjson";

impl Outputs {
    fn create(args: &Load) -> Result<Self, Failure> {
        let create = |flag: &str, path: &Option<PathBuf>| {
            path.as_deref().map(|path| Output::create(flag, path)).transpose()
        };
        let outputs = Self {
            json: create("--json", &args.json)?,
            csv: create("--csv", &args.csv)?,
            hdr: create("--hdr", &args.hdr)?,
            hgrm: create("--hgrm", &args.hgrm)?,
            ndjson: create("--ndjson", &args.ndjson)?,
        };
        let paths = [&args.json, &args.csv, &args.hdr, &args.hgrm, &args.ndjson];
        let paths: Vec<_> = paths.into_iter().flatten().collect();
        let twice = paths.iter().enumerate().any(|(at, path)| paths[..at].contains(path));
        if twice && !outputs.all().any(Output::is_stdout) {
            return Err(Failure::usage(format!("{FLAGS}: each needs a file of its own")));
        }
        if outputs.all().filter(|output| output.is_stdout()).count() > 1 {
            let text = format!("{FLAGS}: only one of them can be - (standard output)");
            return Err(Failure::usage(text));
        }
        Ok(outputs)
    }

    fn all(&self) -> impl Iterator<Item = &Output> {
        let all = [&self.json, &self.csv, &self.hdr, &self.hgrm, &self.ndjson];
        all.into_iter().flatten()
    }

    /// Writes the files; prints the text unless one of them is standard output.
    fn write(&mut self, report: &LoadReport, log: &IntervalLog) -> Result<(), Failure> {
        if !self.all().any(Output::is_stdout) {
            print(&text::render(report))
                .map_err(|error| Failure::environment(format!("standard output: {error}")))?;
        }
        if let Some(json) = &mut self.json {
            json.write_json(&report.json())?;
        }
        if let Some(csv) = &mut self.csv {
            csv.write(&report.csv())?;
        }
        if let Some(hgrm) = &mut self.hgrm {
            hgrm.write(&log.latency.hdr().map_or_else(String::new, hgrm::render))?;
        }
        // Lines on standard output are there already.
        if let Some(ndjson) = self.ndjson.as_mut().filter(|ndjson| !ndjson.is_stdout()) {
            ndjson.write(&log.ndjson)?;
        }
        self.hdr.as_mut().map_or(Ok(()), |hdr| hdr.write(&log.hdr))
    }
}

fn plan(args: &Load, urls: &[Url]) -> Result<LoadPlan, Failure> {
    let first = &urls[0];
    let stages = args.stages.as_deref().map(RateProfile::parse).transpose();
    let stages = stages.map_err(|error| Failure::usage(format!("--stages: {error}")))?;
    // Remote clients have CPUs of their own: for more load, add clients instead of threads.
    let is_here = args.kubernetes.is_none() && args.ssh.is_empty();
    let threads = if is_here { default_threads() } else { 1 };
    let mut spec = args.load.spec_on(threads);
    // Stages make the loop open; this peak rate stands in until they replace it below.
    spec.rate = spec.rate.or(stages.as_ref().map(RateProfile::peak_per_s));
    let mut load = tare_model::load::Load::try_from(spec)?;
    if let Some(http) = load.http_mut().filter(|_| urls.len() > 1) {
        let paths = urls.iter().map(|url| url.target.clone()).collect();
        http.paths = Paths::Several { paths, at_random: args.random_order };
    }
    let family = load.client.family;
    let endpoint = match (&args.unix_socket, &args.kubernetes) {
        (Some(path), _) => Endpoint::Unix(path.clone()),
        (None, Some(pods)) => Endpoint::Tcp(elsewhere::target(&pods.spec, first, family)?),
        (None, None) => Endpoint::Tcp(address_of(&first.host, first.port, family)?),
    };
    let seed = args.seed.unwrap_or_else(random_seed);
    let mut plan = resolve(&load, first, endpoint, seed)?;
    plan.rate = stages.or(plan.rate);
    let scheduled = plan.rate.as_ref().and_then(RateProfile::duration);
    plan.stretch = Stretch {
        ramp: args.warmup.unwrap_or_default(),
        window: match (args.duration, scheduled, args.requests) {
            (Some(duration), ..) => duration,
            (None, Some(duration), _) => duration,
            (None, None, Some(_)) => NO_END,
            (None, None, None) => DEFAULT_DURATION,
        },
        requests: args.requests,
        interval: if is_here { tick(args.interval) } else { args.interval },
        ..Stretch::NONE
    };
    let series_max = args.interval.as_ns().saturating_mul(INTERVALS_MAX as u64);
    if !is_here && plan.stretch.window != NO_END && plan.stretch.window.as_ns() > series_max {
        let least = DurationNs::from_ns(plan.stretch.window.as_ns() / INTERVALS_MAX as u64 + 1);
        let allowed = format!("{INTERVALS_MAX} intervals are kept elsewhere: at least {least}");
        return Err(Failure::flag("--interval", &args.interval.to_string(), allowed));
    }
    Ok(plan)
}

/// Workers report their counts, and the live line is redrawn, at least this often.
const TICK_MAX: DurationNs = DurationNs::from_ms(250);
const DEFAULT_DURATION: DurationNs = DurationNs::from_secs(10);
/// Window if only --requests is given: the last reply ends it, or the last timeout.
const NO_END: DurationNs = DurationNs::from_secs(366 * 86_400);
/// Divides an interval into equal ticks of at most [`TICK_MAX`].
fn tick(interval: DurationNs) -> DurationNs {
    let ticks = interval.as_ns().div_ceil(TICK_MAX.as_ns());
    DurationNs::from_ns(interval.as_ns() / ticks.max(1))
}

fn interval(text: &str) -> Result<DurationNs, String> {
    let interval = duration(text)?;
    if interval < DurationNs::from_ms(10) {
        Err("must be at least 10ms".into())
    } else {
        Ok(interval)
    }
}
