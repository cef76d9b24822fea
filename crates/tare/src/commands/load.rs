//! `tare load URL`: load on one target.

use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use tare_io::time::wall_unix_ms;
use tare_io::{DurationNs, Endpoint, ReactorKind};
use tare_load::pacer::RateProfile;
use tare_load::request::{RequestParts, parse_header};
use tare_load::source::FixedRequest;
use tare_load::tls::{TlsClient, TlsOptions, TlsVersion};
use tare_load::{
    EngineConfig, Lifetime, LoadPlan, Observer, PlannedSource, Progress, StatusSet, Stretch, Tally,
    WaitPolicy,
};
use tare_report::load::{Interval, LoadReport};
use tare_report::{hdr_log, load_text};

use crate::failure::Failure;
use crate::load::arguments::{count, cpu_list, duration, positive_duration, reactor, si_number};
use crate::load::describe::{Request, TimeSeries, describe};
use crate::load::interrupt;
use crate::load::live::Live;
use crate::load::outputs::{Output, print};
use crate::load::plan::{Family, WAIT, check_binds, provide_files, random_seed, resolve};
use crate::url::Url;

/// Put load on one target, and say what it did
///
/// Closed loop by default: each connection sends its next request when the reply is there. With
/// --rate or --stages the loop is open: requests are due at fixed times, none is skipped, and
/// latency counts from when each was due.
///
/// Example: tare load http://127.0.0.1:8080/ -c 50 -d 30s --rate 10k
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Load {
    /// http:// or https://host:port/path
    #[arg(value_name = "URL", required_unless_present = "urls")]
    url: Option<String>,

    /// Connections kept open, or requests at a time with --new-connections
    #[arg(short, long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Threads; default is one for each of --cpus, or half of the CPUs, so that the server has the
    /// others
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// How long; default 10s, or for as long as --requests or --stages take
    #[arg(short, long, value_name = "DURATION", value_parser = positive_duration)]
    duration: Option<DurationNs>,
    /// Stop after so many requests
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    requests: Option<u64>,
    /// Load before the measurement, thrown away
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    warmup: Option<DurationNs>,

    /// Open loop: requests a second, due at even spaces
    #[arg(long, value_name = "PER_SECOND", value_parser = si_number, conflicts_with = "stages")]
    rate: Option<f64>,
    /// Open loop with changing rates: 10s:1000,30s:5000 are steps, 10s:0..1000 is a ramp
    #[arg(long, value_name = "STAGES")]
    stages: Option<String>,
    /// Open loop: random spaces between requests, as independent users make them
    #[arg(long)]
    poisson: bool,
    /// Open loop: open more connections, up to so many, when all are busy; default none beyond -c
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_connections: Option<u32>,
    /// A connection for each request; latency is the total from the start of connecting
    #[arg(long)]
    new_connections: bool,
    /// Give a request up after this long
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = positive_duration)]
    timeout: DurationNs,

    /// Request method
    #[arg(short = 'X', long, value_name = "NAME")]
    method: Option<String>,
    /// Request header, 'Name: value'; may be repeated
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// Request body; the method becomes POST unless given
    #[arg(short, long, value_name = "TEXT", conflicts_with = "body_file")]
    body: Option<String>,
    /// Request body from a file
    #[arg(long, value_name = "FILE")]
    body_file: Option<PathBuf>,
    /// URLs or paths from a file, one a line, asked in turn; all on the first one's server
    #[arg(long, value_name = "FILE")]
    urls: Option<PathBuf>,
    /// With --urls: in random order
    #[arg(long, requires = "urls")]
    random_order: bool,
    /// Statuses that count as good: 200, 2xx, 200-399, or a list of these
    #[arg(long, value_name = "STATUS", default_value = "2xx", value_parser = status_set)]
    expect_status: StatusSet,

    /// Connect to this unix socket instead of the URL's host
    #[arg(long, value_name = "PATH", conflicts_with = "bind")]
    unix_socket: Option<PathBuf>,
    /// Source address; may be repeated, and is then used in turn
    #[arg(long, value_name = "IP")]
    bind: Vec<IpAddr>,
    /// Only IPv4 addresses of the host
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Only IPv6 addresses of the host
    #[arg(short = '6', long)]
    ipv6: bool,

    /// TLS: believe any certificate
    #[arg(short = 'k', long)]
    insecure: bool,
    /// TLS: trust the authorities in this file (PEM) instead of the machine's
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// TLS: the client's certificate (PEM)
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// TLS: the client's private key (PEM)
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// TLS: the server's name, where it is not the URL's host
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// TLS: only this version, 1.2 or 1.3
    #[arg(long, value_name = "VERSION", value_parser = tls_version)]
    tls_version: Option<TlsVersion>,
    /// TLS: only these cipher suites, by IANA name, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    ciphers: Vec<String>,
    /// TLS: resume sessions on new connections; full handshakes otherwise
    #[arg(long)]
    tls_resume: bool,

    /// Open loop: poll, not sleep, when the next request is due within this; precise, but keeps a
    /// CPU busy above 1,000/s a thread; default 1ms
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    spin: Option<DurationNs>,
    /// CPUs for the threads, in turn: 0,2-3
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    cpus: Option<Vec<usize>>,
    /// How to talk to the kernel: io_uring or epoll; the first that works when left out
    #[arg(long, value_name = "NAME", value_parser = reactor)]
    reactor: Option<ReactorKind>,
    /// Write results as JSON to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the time series as CSV to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write an HdrHistogram log, a line an interval, to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
    /// Length of an interval of the time series
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    interval: DurationNs,
    /// Seed of every random choice; a random one is printed when left out
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

pub fn run(args: &Load) -> Result<(), Failure> {
    let urls = urls(args)?;
    let plan = plan(args, &urls)?;
    let mut outputs = Outputs::create(args)?;
    let stop = Arc::new(AtomicBool::new(false));
    interrupt::on_interrupt(stop.clone())?;
    let mut watch = Watch {
        live: Live::new((plan.stretch.window != NO_END).then_some(plan.stretch.window)),
        series: TimeSeries::new(args.interval),
        hdr_log: hdr_log::head(env!("CARGO_PKG_VERSION"), wall_unix_ms()),
    };
    let result = tare_load::run(&plan, &stop, &mut watch);
    watch.live.clear();
    log_interval(&mut watch.hdr_log, watch.series.flush());
    if result.is_err() && interrupt::was_interrupted() {
        return Err(Failure::Interrupted);
    }
    let result = result?;
    let request = Request {
        url: &args.urls.as_ref().map_or_else(
            || args.url.clone().unwrap_or_default(),
            |path| format!("{} URLs of {}", urls.len(), path.display()),
        ),
        method: &method(args),
    };
    let interrupted = interrupt::was_interrupted();
    let report = describe(&request, &plan, &result, watch.series.intervals, interrupted);
    outputs.write(&report, &watch.hdr_log)?;
    if interrupted {
        return Err(Failure::Interrupted);
    }
    nothing_good(&report)
}

/// A run without one good reply measured nothing.
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
    Err(Failure::Target(format!("not one good reply from {}: {why}", report.asked.address)))
}

/// Follows a run: the live line, the time series, the histogram log.
struct Watch {
    live: Live,
    series: TimeSeries,
    hdr_log: String,
}

impl Observer for Watch {
    fn interval(&mut self, progress: Progress<'_>) {
        self.live.draw(progress.elapsed, progress.interval, progress.total);
        log_interval(&mut self.hdr_log, self.series.add(progress.interval));
    }
}

fn log_interval(log: &mut String, interval: Option<(&Interval, &Tally)>) {
    if let Some((interval, tally)) = interval
        && let Some(histogram) = tally.latency.headline().hdr()
    {
        log.push_str(&hdr_log::line(&hdr_log::LoggedInterval {
            start_s: interval.start_ns as f64 / 1e9,
            length_s: (interval.end_ns - interval.start_ns) as f64 / 1e9,
            histogram,
        }));
    }
}

/// Where results go.
struct Outputs {
    json: Option<Output>,
    csv: Option<Output>,
    hdr: Option<Output>,
}

impl Outputs {
    fn create(args: &Load) -> Result<Self, Failure> {
        let create = |flag: &str, path: &Option<PathBuf>| {
            path.as_deref().map(|path| Output::create(flag, path)).transpose()
        };
        let outputs = Self {
            json: create("--json", &args.json)?,
            csv: create("--csv", &args.csv)?,
            hdr: create("--hdr", &args.hdr)?,
        };
        let paths: Vec<_> = [&args.json, &args.csv, &args.hdr].into_iter().flatten().collect();
        let twice = paths.iter().enumerate().any(|(at, path)| paths[..at].contains(path));
        if twice && !outputs.all().any(Output::is_stdout) {
            let text = "--json, --csv and --hdr: each needs a file of its own";
            return Err(Failure::Usage(text.into()));
        }
        if outputs.all().filter(|output| output.is_stdout()).count() > 1 {
            let text = "--json, --csv and --hdr: only one of them can be - (standard output)";
            return Err(Failure::Usage(text.into()));
        }
        Ok(outputs)
    }

    fn all(&self) -> impl Iterator<Item = &Output> {
        [&self.json, &self.csv, &self.hdr].into_iter().flatten()
    }

    /// The text goes to standard output, unless something else has that.
    fn write(&mut self, report: &LoadReport, hdr_log: &str) -> Result<(), Failure> {
        if !self.all().any(Output::is_stdout) {
            print(&load_text::render(report))
                .map_err(|error| Failure::Environment(format!("standard output: {error}")))?;
        }
        for (output, text) in [
            (&mut self.json, report.json()),
            (&mut self.csv, report.csv()),
            (&mut self.hdr, hdr_log.to_owned()),
        ] {
            if let Some(output) = output {
                output.write(&text)?;
            }
        }
        Ok(())
    }
}

fn plan(args: &Load, urls: &[Url]) -> Result<LoadPlan, Failure> {
    let first = &urls[0];
    let rate = rate(args)?;
    let endpoint = match &args.unix_socket {
        Some(path) => Endpoint::Unix(path.clone()),
        None => Endpoint::Tcp(resolve(&first.host, first.port, family(args))?),
    };
    check_binds(&args.bind, &endpoint)?;
    let max_connections = args.max_connections.unwrap_or(args.connections);
    if max_connections < args.connections {
        let text = max_connections.to_string();
        let allowed = format!("must be at least -c {}", args.connections);
        return Err(Failure::flag("--max-connections", &text, allowed));
    }
    provide_files(max_connections)?;
    let window = match (args.duration, &rate, args.requests) {
        (Some(duration), _, _) => duration,
        (None, Some(rate), _) if rate.duration().is_some() => rate.duration().unwrap_or_default(),
        (None, _, Some(_)) => NO_END,
        (None, _, None) => DEFAULT_DURATION,
    };
    let workers = match (args.threads, &args.cpus) {
        (Some(threads), _) => threads,
        (None, Some(cpus)) => cpus.len() as u32,
        (None, None) => (tare_io::system::allowed_cpus().len() as u32 / 2).max(1),
    };
    Ok(LoadPlan {
        engine: EngineConfig {
            endpoint,
            bind: args.bind.clone(),
            connections: args.connections,
            max_connections,
            lifetime: if args.new_connections { Lifetime::PerRequest } else { Lifetime::Kept },
            tls: first.tls.then(|| tls(args, first)).transpose()?,
            timeout: args.timeout,
            expected: args.expect_status.clone(),
            wait: WaitPolicy { spin: args.spin.unwrap_or(WAIT.spin), ..WAIT },
        },
        source: source(args, urls)?,
        worker_endpoints: Vec::new(),
        rate,
        poisson: args.poisson,
        stretch: Stretch {
            ramp: args.warmup.unwrap_or_default(),
            window,
            requests: args.requests,
            interval: tick(args.interval),
        },
        workers,
        cpus: args.cpus.clone().unwrap_or_default(),
        reactor: args.reactor,
        tls_resume: args.tls_resume,
        seed: args.seed.unwrap_or_else(random_seed),
    })
}

/// Workers hand over what they counted at least this often; the live line is drawn as often.
const TICK_MAX: DurationNs = DurationNs::from_ms(250);
const DEFAULT_DURATION: DurationNs = DurationNs::from_secs(10);
/// With --requests alone; the requests end it, or their timeouts do.
const NO_END: DurationNs = DurationNs::from_secs(366 * 86_400);
/// A whole number of ticks makes an interval.
fn tick(interval: DurationNs) -> DurationNs {
    let ticks = interval.as_ns().div_ceil(TICK_MAX.as_ns());
    DurationNs::from_ns(interval.as_ns() / ticks.max(1))
}

fn urls(args: &Load) -> Result<Vec<Url>, Failure> {
    let parse = |text: &str, from: &str| {
        Url::parse(text).map_err(|why| Failure::Usage(format!("{from} '{text}': {why}")))
    };
    let base = args.url.as_deref().map(|text| parse(text, "URL")).transpose()?;
    let Some(path) = &args.urls else { return Ok(base.into_iter().collect()) };
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Usage(format!("--urls {}: {error}", path.display())))?;
    let mut urls: Vec<Url> = Vec::new();
    // Some editors begin a file with a byte order mark.
    for (at, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let from = format!("--urls {}:{}", path.display(), at + 1);
        let url = match (line.starts_with('/'), urls.first().or(base.as_ref())) {
            (true, Some(server)) => Url { target: line.to_owned(), ..server.clone() },
            (true, None) => {
                let why = "a path needs a server: give a URL too, or start with a whole one";
                return Err(Failure::Usage(format!("{from} '{line}': {why}")));
            }
            (false, _) => parse(line, &from)?,
        };
        if let Some(first) = urls.first()
            && (&first.host, first.port, first.tls) != (&url.host, url.port, url.tls)
        {
            let why = format!("is on another server than {}", first.host_header());
            return Err(Failure::Usage(format!("{from} '{line}': {why}")));
        }
        urls.push(url);
    }
    if urls.is_empty() {
        return Err(Failure::Usage(format!("--urls {}: there is no URL in it", path.display())));
    }
    Ok(urls)
}

fn source(args: &Load, urls: &[Url]) -> Result<PlannedSource, Failure> {
    let body = match (&args.body, &args.body_file) {
        (Some(text), _) => text.clone().into_bytes(),
        (None, Some(path)) => read_body(path)
            .map_err(|error| Failure::Usage(format!("--body-file {}: {error}", path.display())))?,
        (None, None) => Vec::new(),
    };
    let method = method(args);
    let headers = args
        .headers
        .iter()
        .map(|text| parse_header(text).map_err(|error| Failure::Usage(format!("-H: {error}"))))
        .collect::<Result<Vec<_>, _>>()?;
    let request = |url: &Url| -> Result<FixedRequest, Failure> {
        let parts = RequestParts {
            method: method.clone(),
            target: url.target.clone(),
            host: url.host_header(),
            headers: headers.clone(),
            body: body.clone(),
            close: args.new_connections,
        };
        parts.build().map_err(|error| Failure::Usage(error.to_string()))
    };
    if let [only] = urls {
        return Ok(PlannedSource::Fixed(request(only)?));
    }
    let requests = urls.iter().map(request).collect::<Result<Vec<_>, _>>()?;
    Ok(PlannedSource::Listed { requests: requests.into(), random: args.random_order })
}

fn read_body(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    File::open(path)?.take(BODY_MAX_BYTES + 1).read_to_end(&mut body)?;
    if body.len() as u64 > BODY_MAX_BYTES {
        return Err(std::io::Error::other(format!("it is over {BODY_MAX_BYTES} bytes")));
    }
    Ok(body)
}

const BODY_MAX_BYTES: u64 = 256 << 20;

fn method(args: &Load) -> String {
    let has_body = args.body.is_some() || args.body_file.is_some();
    args.method.clone().unwrap_or_else(|| if has_body { "POST" } else { "GET" }.to_owned())
}

fn rate(args: &Load) -> Result<Option<RateProfile>, Failure> {
    let profile = match (args.rate, &args.stages) {
        (Some(rate), _) => RateProfile::constant(rate).map_err(|error| ("--rate", error)),
        (None, Some(stages)) => RateProfile::parse(stages).map_err(|error| ("--stages", error)),
        (None, None) if args.poisson || args.max_connections.is_some() => {
            let flag = if args.poisson { "--poisson" } else { "--max-connections" };
            return Err(Failure::Usage(format!(
                "{flag} needs an open loop: give --rate or --stages"
            )));
        }
        (None, None) => return Ok(None),
    };
    profile.map(Some).map_err(|(flag, error)| Failure::Usage(format!("{flag}: {error}")))
}

fn tls(args: &Load, url: &Url) -> Result<TlsClient, Failure> {
    let options = TlsOptions {
        name: args.sni.clone().unwrap_or_else(|| url.host.clone()),
        insecure: args.insecure,
        ca_file: args.cacert.clone(),
        cert_file: args.cert.clone(),
        key_file: args.key.clone(),
        version: args.tls_version,
        ciphers: args.ciphers.clone(),
        resume: args.tls_resume,
    };
    TlsClient::new(&options).map_err(|error| Failure::Usage(error.to_string()))
}

fn family(args: &Load) -> Family {
    match (args.ipv4, args.ipv6) {
        (true, _) => Family::V4,
        (_, true) => Family::V6,
        _ => Family::Any,
    }
}

fn status_set(text: &str) -> Result<StatusSet, String> {
    StatusSet::parse(text).ok_or_else(|| "write 200, 2xx, 200-399, or a list of these".to_owned())
}

fn interval(text: &str) -> Result<DurationNs, String> {
    let interval = duration(text)?;
    if interval < DurationNs::from_ms(10) {
        Err("must be at least 10ms".into())
    } else {
        Ok(interval)
    }
}

fn tls_version(text: &str) -> Result<TlsVersion, String> {
    match text {
        "1.2" => Ok(TlsVersion::V1_2),
        "1.3" => Ok(TlsVersion::V1_3),
        _ => Err("choose 1.2 or 1.3".into()),
    }
}
