//! `tare target`: a server with exactly known costs and latencies.

use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

use clap::Args;
use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Endpoint, ReactorKind, system};
use tare_load::protocol::http2;
use tare_model::text::parse_reactor;
use tare_target::behaviour::{Behaviour, Defect, Delay, Http2Behaviour, Service, Stall};
use tare_target::effort::Habit;
use tare_target::serve::{Target, TargetPlan};
use tare_target::tls::TlsServer;

use crate::args::words::{cpu_list, duration};
use crate::load::outputs::{Output, print};
use tare_model::Failure;

/// Run a server with exactly known costs and latencies, for testing load generators
///
/// Answers every path; /stats returns exact counters (requests to /stats are counted separately).
///
/// Example: tare target --listen 127.0.0.1:8080 --service-time 1ms --workers 1
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct TargetArgs {
    /// Address and port, or unix:PATH; with port 0 the kernel chooses a port, which is printed
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: String,
    /// Wait before each reply: 5ms, exp:5ms (exponential with that mean), or percentiles as
    /// 50:1ms,99:20ms,100:100ms
    #[arg(long, value_name = "DELAY")]
    delay: Option<String>,
    /// Queue requests: service time of each, using no CPU
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    service_time: Option<DurationNs>,
    /// Workers of the queue of --service-time
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    workers: u32,
    /// Fixed time per batch of the queue: a free worker takes all waiting requests together
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "service_time")]
    turn: Option<DurationNs>,
    /// Keep each connection with one randomly chosen worker of the queue
    #[arg(long, requires = "service_time")]
    sticky: bool,
    /// CPU time to burn for each request
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    busy: Option<DurationNs>,
    #[command(flatten)]
    habits: HabitArgs,
    /// Stall: answer nothing for this long, at the start of every period (--every)
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "every")]
    stall: Option<DurationNs>,
    /// Period of --stall
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "stall")]
    every: Option<DurationNs>,
    /// Size of the body in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 612,
          value_parser = clap::value_parser!(u32).range(0..=256 << 20))]
    body: u32,
    /// Use chunked transfer coding
    #[arg(long)]
    chunked: bool,
    /// After this many requests, send a different body of the same length
    #[arg(long, value_name = "N")]
    change_after: Option<u64>,
    /// Share of replies (0 to 1) with a different body of the same length
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    odd_rate: f64,
    /// Share of connections (0 to 1) with a different body of the same length
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    odd_connections: f64,
    /// Close each connection after this many replies
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    close_after: Option<u64>,
    /// Share of replies (0 to 1) with the status of --status
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    error_rate: f64,
    /// Status of the replies of --error-rate
    #[arg(long, value_name = "CODE", default_value_t = 503,
          value_parser = clap::value_parser!(u16).range(200..=599))]
    status: u16,
    /// Share of requests (0 to 1) answered with a connection reset
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    reset_rate: f64,
    /// Send the head in four pieces, this far apart
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    slow_head: Option<DurationNs>,
    /// Serve HTTP/2 instead of HTTP/1.1: by ALPN with --tls, else with prior knowledge
    #[arg(long, conflicts_with_all = ["defect", "slow_head"])]
    http2: bool,
    /// HTTP/2: limit of concurrent streams on a connection; of several (100,2), the next applies
    /// after every 100 requests
    #[arg(long, value_name = "LIST", requires = "http2", value_delimiter = ',')]
    max_streams: Vec<u32>,
    /// HTTP/2: share of requests (0 to 1) refused with REFUSED_STREAM
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share,
          requires = "http2")]
    refuse_rate: f64,
    /// Break HTTP in every reply: cut-body, bad-chunk-size, silence, … (an invalid name lists them
    /// all)
    #[arg(long, value_name = "KIND", value_parser = defect)]
    defect: Option<Defect>,
    /// With --defect: break only every Nth reply
    #[arg(long, value_name = "N", requires = "defect",
          value_parser = clap::value_parser!(u64).range(1..))]
    defect_every: Option<u64>,
    /// Exit with status 9 after this many requests, like a server that crashes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    die_after: Option<u64>,
    /// Use TLS, with a newly generated certificate (or --cert and --key)
    #[arg(long)]
    tls: bool,
    /// Certificate chain, PEM
    #[arg(long, value_name = "FILE", requires = "key", requires = "tls")]
    cert: Option<PathBuf>,
    /// Private key, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Write the generated certificate to this file (PEM), for clients' --cacert
    #[arg(long, value_name = "FILE", requires = "tls")]
    write_cert: Option<PathBuf>,
    /// Threads; each has its own queue, delays and connections
    #[arg(short, long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// CPUs to pin the threads to: 0,2-3
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    cpus: Option<Vec<usize>>,
    /// Kernel interface: io_uring or epoll; default: the first that works
    #[arg(long, value_name = "NAME", value_parser = parse_reactor)]
    reactor: Option<ReactorKind>,
    /// Connections per thread; default: 16384, or what the open-file limit allows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_connections: Option<u32>,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// Options for a cost that changes over time.
#[derive(Args)]
struct HabitArgs {
    /// Defer this much work of each request until the server has been idle this long: 2us:3ms
    #[arg(long, value_name = "COST:IDLE", value_parser = |text: &str| Habit::parse("defer", text))]
    defer: Option<Habit>,
    /// After 10 ms of rest, requests are cheap for CREDIT, then cost COST more: 100ms:6us
    #[arg(long, value_name = "CREDIT:COST", value_parser = |text: &str| Habit::parse("burst", text))]
    burst: Option<Habit>,
    /// Pause and burn CPU in every period, like a garbage collector: 3s:200ms
    #[arg(long, value_name = "EVERY:LENGTH",
          value_parser = |text: &str| Habit::parse("pause-every", text))]
    pause_every: Option<Habit>,
    /// Requests cost COST more for TIME after the start: 2s:4us; repeatable for steps
    #[arg(long, value_name = "TIME:COST", value_parser = |text: &str| Habit::parse("warm-for", text))]
    warm_for: Vec<Habit>,
    /// The first requests cost more: 5000:4us
    #[arg(long, value_name = "N:COST", value_parser = |text: &str| Habit::parse("warm-requests", text))]
    warm_requests: Option<Habit>,
    /// Requests cost more for this long after a rest: 10ms:20us
    #[arg(long, value_name = "TIME:COST", value_parser = |text: &str| Habit::parse("idle-slow", text))]
    idle_slow: Option<Habit>,
    /// Requests cost more in the first part of every period; periods start with the load:
    /// 20ms:5ms:10us
    #[arg(long, value_name = "EVERY:SLOW:COST",
          value_parser = |text: &str| Habit::parse("period", text))]
    period: Option<Habit>,
    /// Leak: a request costs COST more for every N requests already served: 1us:10000
    #[arg(long, value_name = "COST:N", value_parser = |text: &str| Habit::parse("leak", text))]
    leak: Option<Habit>,
    /// Requests cost more in one of this many launches: 1/15:6us
    #[arg(long, value_name = "1/N:COST",
          value_parser = |text: &str| Habit::parse("launch-slow", text))]
    launch_slow: Option<Habit>,
    /// The first request of each connection costs more: 1ms
    #[arg(long, value_name = "COST",
          value_parser = |text: &str| Habit::parse("first-request", text))]
    first_request: Option<Habit>,
}

impl HabitArgs {
    fn all(&self) -> Vec<Habit> {
        let all = [
            self.defer,
            self.burst,
            self.pause_every,
            self.warm_requests,
            self.idle_slow,
            self.period,
            self.leak,
            self.launch_slow,
            self.first_request,
        ];
        all.into_iter().flatten().chain(self.warm_for.iter().copied()).collect()
    }
}

pub fn run(args: &TargetArgs) -> Result<(), Failure> {
    let tls = match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => Some(TlsServer::from_files(cert, key)),
        _ if args.tls => Some(TlsServer::self_signed()),
        _ => None,
    };
    let tls = tls.transpose().map_err(|error| Failure::usage(error.to_string()))?;
    let tls = tls.map(|tls| if args.http2 { tls.with_alpn(http2::ALPN) } else { tls });
    if let (Some(path), Some(tls)) = (&args.write_cert, &tls)
        && let Some(pem) = &tls.certificate_pem
    {
        Output::create("--write-cert", path)?.write(pem)?;
    }
    let listen = listen_address(&args.listen)?;
    if matches!(listen, Endpoint::Unix(_)) && args.threads > 1 {
        let allowed = "a unix socket has one queue; use -t 1";
        return Err(Failure::flag("--threads", &args.threads.to_string(), allowed));
    }
    let plan = TargetPlan {
        listen,
        behaviour: behaviour(args)?,
        tls,
        threads: args.threads,
        cpus: args.cpus.clone().unwrap_or_default(),
        reactor: args.reactor,
        slots: slots(args)?,
    };
    let mut target = Target::start(&plan)?;
    crate::load::interrupt::on_interrupt(target.stopper())?;
    let scheme = if args.tls { "https" } else { "http" };
    match &target.listens {
        Endpoint::Tcp(address) | Endpoint::Udp(address) => {
            print(&format!("{scheme}://{address}/\n"))
        }
        Endpoint::Unix(path) => print(&format!("unix:{}\n", path.display())),
    }
    .map_err(|error| Failure::environment(format!("standard output: {error}")))?;
    let waited = target.wait();
    if let Endpoint::Unix(path) = &target.listens
        && std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
    {
        let _ = std::fs::remove_file(path);
    }
    waited?;
    // Standard error may already be closed.
    let _ = std::io::stderr().write_all(target.stats.json().as_bytes());
    Ok(())
}

/// Open files besides connections: rings, listeners, standard streams.
const SPARE_FILES: u64 = 64;

/// Returns the connections per thread, and raises the open-file limit for them.
fn slots(args: &TargetArgs) -> Result<u32, Failure> {
    let wanted = args.max_connections.unwrap_or(SLOTS_MAX_BY_DEFAULT);
    let wanted_files = u64::from(wanted) * u64::from(args.threads) + SPARE_FILES;
    let files = system::raise_open_files(wanted_files);
    if files >= wanted_files {
        return Ok(wanted);
    }
    if args.max_connections.is_some() {
        let text = format!(
            "needs {wanted_files} open files over {} threads, and this process may have {files} \
             (ulimit -n)",
            args.threads
        );
        return Err(Failure::flag("--max-connections", &wanted.to_string(), text));
    }
    let spare = files.saturating_sub(SPARE_FILES) / u64::from(args.threads);
    Ok(u32::try_from(spare.max(1)).unwrap_or(wanted))
}

const SLOTS_MAX_BY_DEFAULT: u32 = 16_384;

fn behaviour(args: &TargetArgs) -> Result<Behaviour, Failure> {
    let delay = match &args.delay {
        Some(text) => {
            Delay::parse(text).map_err(|error| Failure::usage(format!("--delay: {error}")))?
        }
        None => Delay::Fixed(DurationNs::ZERO),
    };
    let stall = match (args.stall, args.every) {
        (Some(length), Some(every)) if length < every => Some(Stall { length, every }),
        (Some(length), Some(every)) => {
            return Err(Failure::flag(
                "--stall",
                &length.to_string(),
                format!("must be shorter than --every {every}"),
            ));
        }
        _ => None,
    };
    Ok(Behaviour {
        delay,
        service: args.service_time.map(|time| Service {
            time,
            workers: args.workers,
            turn: args.turn.unwrap_or_default(),
            sticky: args.sticky,
        }),
        busy: args.busy.unwrap_or_default(),
        habits: args.habits.all(),
        launch: monotonic_now().as_ns() ^ u64::from(std::process::id()),
        stall,
        body_bytes: args.body as usize,
        chunked: args.chunked,
        change_after: args.change_after,
        odd_rate: args.odd_rate,
        odd_connections: args.odd_connections,
        close_after: args.close_after,
        error_rate: args.error_rate,
        error_status: args.status,
        reset_rate: args.reset_rate,
        slow_head: args.slow_head,
        http2: args.http2.then(|| Http2Behaviour {
            streams: args.max_streams.clone(),
            refuse_rate: args.refuse_rate,
        }),
        defect: args.defect,
        defect_every: args.defect_every,
        die_after: args.die_after,
        seed: args.seed,
    })
}

fn listen_address(text: &str) -> Result<Endpoint, Failure> {
    if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return Ok(Endpoint::Unix(path.into()));
    }
    let address = text.parse().map_err(|_| {
        Failure::flag(
            "--listen",
            text,
            "not an address; write 127.0.0.1:8080, [::1]:8080 or unix:PATH",
        )
    })?;
    Ok(Endpoint::Tcp(address))
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "write a share from 0 to 1".to_owned())
}

fn defect(text: &str) -> Result<Defect, String> {
    Defect::parse(text).ok_or_else(|| {
        let names: Vec<_> = Defect::ALL.iter().map(|(name, _)| *name).collect();
        format!("choose among {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        target: TargetArgs,
    }

    #[test]
    fn every_animal_of_the_zoo_can_be_asked_for() {
        let animals = include_str!("../../../../bench/zoo.json");
        let animals: Vec<serde_json::Value> = serde_json::from_str(animals).unwrap();
        let flags = animals.iter().flat_map(|animal| [&animal["a"], &animal["b"]]);
        let mut steps = 0;
        for flags in flags.map(|flags| flags.as_str().unwrap()) {
            let words = ["target"].into_iter().chain(flags.split_whitespace());
            let line =
                Line::try_parse_from(words).unwrap_or_else(|error| panic!("{flags}: {error}"));
            let steps_given = flags.matches("--warm-for").count();
            assert_eq!(line.target.habits.warm_for.len(), steps_given);
            steps = steps.max(steps_given);
        }
        assert_eq!(steps, 3);
    }
}
