//! `tare net HOST`: measures the network to an endpoint; `tare net --serve` is the endpoint.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use tare_io::{DurationNs, ReactorKind, SocketOptions};
use tare_model::load::{Family, Load, LoadSpec};
use tare_model::net::NetTest;
use tare_model::text::{parse_reactor, si_number};
use tare_report::net::{NetReport, SCHEMA, render};
use tare_target::endpoint::{EndpointPlan, Loss, RemoteControl};

use crate::args::words::{cpu_list, duration, positive_duration};
use crate::load::addresses::{address_of, random_seed};
use crate::load::interrupt;
use crate::load::outputs::{Output, print};
use crate::net::measure::{NetMeasured, Rounds, measure, plans};
use crate::net::serve::{connections_max, serve};
use crate::net::sizes::{size, sizes};
use crate::run::cpus_and_folders::store_path;
use tare_model::Failure;

/// Measure the network to an endpoint: round trips, bandwidth, connections, over TCP and UDP
///
/// Run tare net --serve on the other side as the endpoint. Tests are tcp_rr (round trips; also
/// half of the mean, as qperf reports it), tcp_crr (connect, request, close), tcp_stream,
/// tcp_stream_reverse (bandwidth, counted by the receiver), udp_rr and udp_stream (with losses).
/// All received data is verified.
///
/// Example: tare net 10.0.0.2 tcp_rr tcp_stream -m 1:256K:*64
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Net {
    /// Endpoint: host, host:port or [address]:port; default port: 12865
    #[arg(value_name = "HOST", required_unless_present = "serve")]
    host: Option<String>,
    /// tcp_rr, tcp_crr, tcp_stream, tcp_stream_reverse, udp_rr, udp_stream; default: tcp_rr and
    /// tcp_stream
    #[arg(value_name = "TEST", value_parser = NetTest::parse)]
    tests: Vec<NetTest>,
    /// Message sizes: 64, 4K, a list, or 1:256K:*64; default: 1 for round trips, 64K for TCP
    /// streams, 1K for UDP streams
    #[arg(short, long, value_name = "SIZES", value_parser = size_list)]
    message: Option<Sizes>,
    /// Reply size; default, and always over UDP: the message size
    #[arg(long, value_name = "SIZE", value_parser = size)]
    reply: Option<u32>,
    /// Connections; over UDP, sockets
    #[arg(short, long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,
    /// Threads
    #[arg(short, long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Time for each test and size, over all rounds
    #[arg(short, long, value_name = "DURATION", default_value = "2s",
          value_parser = positive_duration)]
    duration: DurationNs,
    /// Rounds: each opens new connections and measures every test and size once, in random order
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(2..=10_000))]
    rounds: u32,
    /// Open loop: messages per second, evenly spaced; latency counts from the time each was due
    #[arg(long, value_name = "PER_SECOND", value_parser = si_number)]
    rate: Option<f64>,
    /// With --rate: Poisson arrivals
    #[arg(long, requires = "rate")]
    poisson: bool,
    /// Reply timeout, after which a UDP message counts as lost; default: 1s over UDP, 10s over TCP
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    timeout: Option<DurationNs>,
    /// TCP_NODELAY: on or off; default: on for round trips, off for streams
    #[arg(long, value_name = "WORD", value_parser = on_off)]
    nodelay: Option<bool>,
    /// Socket buffer size on this side (or of --serve); default: the kernel's
    #[arg(long, value_name = "SIZE", value_parser = size)]
    socket_buffer: Option<u32>,
    /// Source address; repeatable, used in turn
    #[arg(long, value_name = "IP")]
    bind: Vec<IpAddr>,
    /// CPUs to pin the threads to: 0,2-3
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    cpus: Option<std::vec::Vec<usize>>,
    /// Kernel interface: io_uring or epoll; default: the first that works
    #[arg(long, value_name = "NAME", value_parser = parse_reactor)]
    reactor: Option<ReactorKind>,
    /// Write results as JSON to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Run store; default: the one that tare runs lists
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// Random seed; default: a random one, which is printed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Run the endpoint, open to anyone who can reach it; use only on trusted networks
    #[arg(long, conflicts_with_all = ["host", "tests", "message", "reply", "rate", "json"])]
    serve: bool,
    /// With --serve: address and port, for TCP and UDP
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:12865", requires = "serve")]
    listen: SocketAddr,
    /// With --serve: also make system calls on request (for tests in containers and VMs)
    #[arg(long, requires = "serve")]
    calls: bool,
    /// With --serve: wait before each reply, for testing
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration,
          requires = "serve")]
    delay: DurationNs,
    /// With --serve: drop this share (0 to 1) of datagrams, for testing
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share,
          requires = "serve")]
    loss: f64,
}

/// Sizes from one argument; clap would take a `Vec` for a repeatable argument.
type Sizes = std::sync::Arc<[u32]>;

fn size_list(text: &str) -> Result<Sizes, String> {
    Ok(sizes(text)?.into())
}

pub const PORT: u16 = 12_865;

pub fn run(args: &Net) -> Result<(), Failure> {
    if args.serve {
        return run_serve(args);
    }
    let host = args.host.as_deref().unwrap_or_default();
    let (name, port) = host_and_port(host, PORT)?;
    let cells = cells(args)?;
    let mut json = args.json.as_deref().map(|path| Output::create("--json", path)).transpose()?;
    let stop = Arc::new(AtomicBool::new(false));
    interrupt::on_interrupt(stop.clone())?;
    let address = address_of(&name, port, Family::Any)?;
    let window = DurationNs::from_ns(args.duration.as_ns() / u64::from(args.rounds));
    if window < SHORTEST {
        let allowed = format!("with {} rounds, write {} or more", args.rounds, {
            DurationNs::from_ns(SHORTEST.as_ns() * u64::from(args.rounds))
        });
        return Err(Failure::flag("--duration", &args.duration.to_string(), allowed));
    }
    if args.duration > LONGEST {
        return Err(Failure::flag("--duration", &args.duration.to_string(), "write 24h or less"));
    }
    let seed = args.seed.unwrap_or_else(random_seed);
    let rounds = Rounds { rounds: args.rounds, window, seed };
    let store = store_path(args.store.as_ref())?;
    let plans = plans(host, address, cells, rounds)?;
    let NetMeasured { cells, runs, written } = measure(&plans, &store, &stop)?;
    let interrupted = interrupt::was_interrupted();
    let endpoint = address.to_string();
    let report = NetReport { schema: SCHEMA.into(), endpoint, seed, runs, interrupted, cells };
    if !json.as_ref().is_some_and(Output::is_stdout) {
        print(&render(&report))
            .map_err(|error| Failure::environment(format!("standard output: {error}")))?;
    }
    if let Some(json) = &mut json {
        json.write_json(&report.json())?;
    }
    written?;
    if interrupted {
        return Err(Failure::interrupted());
    }
    match report.cells.iter().find(|cell| cell.messages == 0 || cell.failed.is_some()) {
        None => Ok(()),
        Some(cell) => {
            let why = cell.failed.as_deref().or(cell.first_error.as_deref());
            let why = why.unwrap_or("not one message came in the time given");
            Err(Failure::target(format!("{}: {why}", cell.test)))
        }
    }
}

const SHORTEST: DurationNs = DurationNs::from_ms(10);
const LONGEST: DurationNs = DurationNs::from_secs(86_400);

/// Returns the loads: each test with each size.
fn cells(args: &Net) -> Result<Vec<Load>, Failure> {
    let defaults = [NetTest::TcpRr, NetTest::TcpStream];
    let tests = if args.tests.is_empty() { &defaults[..] } else { &args.tests };
    let mut cells = Vec::new();
    for test in tests {
        let sizes =
            args.message.as_deref().map_or_else(|| vec![default_size(*test)], <[u32]>::to_vec);
        for message_bytes in sizes {
            let spec = LoadSpec {
                test: Some(*test),
                message_bytes: Some(message_bytes),
                reply_bytes: args.reply,
                connections: Some(args.connections),
                threads: Some(args.threads.min(args.connections)),
                rate: args.rate,
                poisson: args.poisson,
                timeout: args.timeout,
                nodelay: args.nodelay,
                socket_buffer: args.socket_buffer,
                bind: args.bind.clone(),
                cpus: args.cpus.clone(),
                reactor: args.reactor,
                ..LoadSpec::default()
            };
            cells.push(Load::try_from(spec)?);
        }
    }
    Ok(cells)
}

pub fn default_size(test: NetTest) -> u32 {
    match test {
        NetTest::TcpStream | NetTest::TcpStreamReverse => 64 << 10,
        NetTest::UdpStream => 1 << 10,
        _ => 1,
    }
}

fn run_serve(args: &Net) -> Result<(), Failure> {
    let nodelay = args.nodelay.unwrap_or(true);
    let plan = EndpointPlan {
        listen: args.listen,
        cpus: args.cpus.clone().unwrap_or_default(),
        sockets: SocketOptions { nodelay, buffer_bytes: args.socket_buffer },
        connections_max: connections_max(),
        calls: args.calls,
        obeys: RemoteControl::Nobody,
        delay: args.delay,
        loss: Loss { share: args.loss, seed: args.seed.unwrap_or(0) },
    };
    serve(&plan, |listens| format!("tare net: serving on {listens}, TCP and UDP\n"))
}

/// Parses `host`, `host:port`, `[::1]:port`, or a bare IPv6 address.
pub fn host_and_port(text: &str, port: u16) -> Result<(String, u16), Failure> {
    let bad = || {
        let allowed = "write a host, host:port or [address]:port";
        Err(Failure::usage(format!("'{text}' is not where an endpoint can be; {allowed}")))
    };
    if text.parse::<IpAddr>().is_ok() {
        return Ok((text.to_owned(), port));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return match address.port() {
            0 => bad(),
            port => Ok((address.ip().to_string(), port)),
        };
    }
    let (host, port) = match text.rsplit_once(':') {
        None => (text, port),
        Some((host, given)) => match given.parse() {
            Ok(given) if given > 0 => (host, given),
            _ => return bad(),
        },
    };
    match host.is_empty() || host.contains([':', '/', '[', ']', ' ']) {
        true => bad(),
        false => Ok((host.to_owned(), port)),
    }
}

fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("choose on or off".into()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("write a share, 0 to 1".into()),
    }
}
