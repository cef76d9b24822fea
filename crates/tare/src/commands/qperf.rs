//! `tare qperf`: the tests of `tare net` with qperf's flags and output.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use tare_io::{DurationNs, SocketOptions};
use tare_lab::machine::Machine;
use tare_model::load::{Family, Load, LoadSpec};
use tare_model::net::NetTest;
use tare_report::net::NetCell;
use tare_target::endpoint::{EndpointPlan, Loss, RemoteControl};

use crate::load::addresses::{address_of, random_seed};
use crate::load::interrupt;
use crate::load::outputs::print;
use crate::net::measure::{Rounds, measure, plans};
use crate::net::remote;
use crate::net::serve::{connections_max, serve};
use crate::qperf::format::{Line, Value, block};
use crate::qperf::options::{self, AskedTest, Loop, Settings, TIME, Test, Variable};
use crate::run::aside::Temporary;
use tare_model::Failure;

/// Measure TCP and UDP with qperf's flags and output, against a tare qperf on the other side
///
/// Without a host, runs the server, on loopback unless -la is given. Flags are qperf's (-lp -ip
/// -oo -m -t -vu -vs -uu -ub -e -sb -ca -f -to); tests are tcp_bw, tcp_lat, udp_bw, udp_lat, conf
/// and quit. latency is half of the mean round trip, as in qperf; tare net reports full round trips
/// and percentiles. Both sides must run tare qperf, not the original. Called through a link named
/// qperf, tare runs this command.
///
/// Example: tare qperf 10.0.0.2 -lp 4000 -ip 4001 -oo msg_size:1:256K:*64 -vu tcp_bw tcp_lat
#[derive(Args)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub struct Qperf {
    /// qperf's arguments
    #[arg(value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Runs when tare is called through a link named qperf.
pub fn run_linked() -> Result<(), Failure> {
    run_words(&std::env::args().skip(1).collect::<Vec<_>>())
}

pub fn run(args: &Qperf) -> Result<(), Failure> {
    run_words(&args.words)
}

fn run_words(words: &[String]) -> Result<(), Failure> {
    if words.iter().any(|word| ["-h", "--help"].contains(&word.as_str())) {
        return print_out(HELP);
    }
    if words.iter().any(|word| ["-V", "--version"].contains(&word.as_str())) {
        return print_out(&format!("tare qperf {}\n", env!("CARGO_PKG_VERSION")));
    }
    let asked = options::parse(words).map_err(|why| Failure::usage(format!("qperf: {why}")))?;
    let Some(host) = &asked.host else { return run_server(&asked) };
    let stop = Arc::new(AtomicBool::new(false));
    interrupt::on_interrupt(stop.clone())?;
    let address = address_of(host, asked.listen_port, Family::Any)?;
    for test in &asked.tests {
        match test.test {
            Test::Conf => print_out(&conf(address, &test.with, &stop)?)?,
            Test::Quit => {
                remote::quit(address, asked.token.as_deref(), &stop)?;
                print_out("quit:\n")?;
            }
            _ => run_loops(test, &test.with.loops, test.with.clone(), address, &stop)?,
        }
    }
    Ok(())
}

/// Runs the test for all values; the first loop is the outermost.
fn run_loops(
    asked: &AskedTest,
    loops: &[Loop],
    with: Settings,
    address: SocketAddr,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    let Some((first, inner)) = loops.split_first() else {
        return run_test(asked.test, &with, address, stop);
    };
    for value in &first.values {
        let mut with = with.clone();
        match first.variable {
            Variable::MsgSize => with.msg_size = Some(*value),
            Variable::Time => with.time = Some(DurationNs::from_secs(u64::from(*value))),
            Variable::SocketBuffer => with.socket_buffer = Some(*value),
        }
        run_loops(asked, inner, with, address, stop)?;
    }
    Ok(())
}

fn run_test(
    test: Test,
    with: &Settings,
    address: SocketAddr,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    let kind = match (test, with.flip) {
        (Test::TcpBw, false) => NetTest::TcpStream,
        (Test::TcpBw, true) => NetTest::TcpStreamReverse,
        (Test::UdpBw, true) => {
            return Err(Failure::usage("qperf: -f: only tcp_bw can be turned round"));
        }
        (Test::UdpBw, false) => NetTest::UdpStream,
        (Test::UdpLat, _) => NetTest::UdpRr,
        _ => NetTest::TcpRr,
    };
    let spec = LoadSpec {
        test: Some(kind),
        message_bytes: Some(with.msg_size.unwrap_or(default_size(test))),
        connections: Some(1),
        threads: Some(1),
        socket_buffer: with.socket_buffer,
        cpus: with.cpu.map(|cpu| vec![cpu]),
        timeout: with.timeout,
        ..LoadSpec::default()
    };
    let load = Load::try_from(spec).map_err(|why| why.named(&format!("qperf: {}", test.name())))?;
    let address = match with.ip_port {
        Some(port) => remote::on_port(address, port, stop)?,
        None => address,
    };
    let rounds = Rounds { rounds: 1, window: with.time.unwrap_or(TIME), seed: random_seed() };
    let aside = Temporary::new()?;
    let plans = plans(&address.to_string(), address, vec![load], rounds)?;
    let cells = measure(&plans, &aside.store(), stop)?.cells;
    if interrupt::was_interrupted() {
        return Err(Failure::interrupted());
    }
    let Some(cell) = cells.first().filter(|cell| cell.messages > 0) else {
        let why = cells.first().and_then(|cell| cell.failed.clone().or(cell.first_error.clone()));
        let why = why.unwrap_or_else(|| "nothing came in the time given".into());
        return Err(Failure::target(format!("{}: {why}", test.name())));
    };
    print_out(&block(test.name(), &lines(test, with, cell), &with.show))
}

/// Default sizes of qperf.
fn default_size(test: Test) -> u32 {
    match test {
        Test::TcpBw => 64 << 10,
        Test::UdpBw => 32 << 10,
        _ => 1,
    }
}

fn lines(test: Test, with: &Settings, cell: &NetCell) -> Vec<Line> {
    let seconds = cell.elapsed_ns as f64 / 1e9;
    let mut lines = Vec::new();
    let mut add = |name, value| lines.push(Line { name, value });
    let received = cell.bytes as f64 / seconds;
    match test {
        Test::UdpBw => {
            // Lost messages were sent as well.
            let sent = received * cell.sent as f64 / (cell.sent - cell.lost).max(1) as f64;
            add("send_bw", Value::Bandwidth(sent));
            add("recv_bw", Value::Bandwidth(received));
        }
        Test::TcpBw => add("bw", Value::Bandwidth(received)),
        _ => add("latency", Value::Time(cell.mean_ns.unwrap_or_default() / 2e9)),
    }
    let is_latency = matches!(test, Test::TcpLat | Test::UdpLat);
    if with.show.statistics {
        // qperf counts messages received at both ends.
        let both = if is_latency { 2.0 } else { 1.0 };
        add("msg_rate", Value::Rate(cell.messages as f64 / seconds * both));
    }
    if with.show.used {
        with.msg_size.into_iter().for_each(|size| add("msg_size", Value::Size(size)));
        with.ip_port.into_iter().for_each(|port| add("port", Value::Port(port)));
    }
    if with.show.time || (with.show.used && with.time.is_some()) {
        add("time", Value::Time(with.time.unwrap_or(TIME).as_secs_f64()));
    }
    if with.show.statistics {
        let name = if is_latency { "loc_cpus_used" } else { "send_cpus_used" };
        add(name, Value::Percent(cell.client_busiest * 100.0));
    }
    lines
}

fn conf(address: SocketAddr, with: &Settings, stop: &Arc<AtomicBool>) -> Result<String, Failure> {
    remote::check_endpoint(address, stop)?;
    let machine = Machine::probe();
    let text = |name, text: String| Line { name, value: Value::Text(text) };
    let lines = [
        text("loc_node", machine.host.clone()),
        text("loc_cpu", format!("{} Cores: {}", machine.cpus.len(), machine.cpu_model)),
        text("loc_os", machine.kernel.clone()),
        text("loc_qperf", format!("tare {}", env!("CARGO_PKG_VERSION"))),
        text("rem_node", address.ip().to_string()),
    ];
    Ok(block("conf", &lines, &with.show))
}

fn run_server(asked: &options::Options) -> Result<(), Failure> {
    let ip = asked.listen_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let token = asked.token.as_deref().map(remote::token);
    let plan = EndpointPlan {
        listen: SocketAddr::new(ip, asked.listen_port),
        cpus: asked.cpu.into_iter().collect(),
        sockets: SocketOptions { nodelay: true, buffer_bytes: asked.socket_buffer },
        connections_max: connections_max(),
        calls: false,
        obeys: RemoteControl::Clients { token },
        delay: DurationNs::ZERO,
        loss: Loss::default(),
    };
    serve(&plan, |listens| match ip.is_loopback() {
        true => format!(
            "tare qperf: serving on {listens}, for this machine only (-la 0.0.0.0 or -la :: serves \
             others)\n"
        ),
        false => format!("tare qperf: serving on {listens}, for whoever reaches it\n"),
    })
}

fn print_out(text: &str) -> Result<(), Failure> {
    print(text).map_err(|error| Failure::environment(format!("standard output: {error}")))
}

const HELP: &str = "\
tare qperf [FLAGS]                 the server
tare qperf HOST [FLAGS] TEST...    tests against it

Tests: tcp_bw tcp_lat udp_bw udp_lat conf quit
Flags apply to the tests after them (defaults in parentheses):
  -lp PORT        the server's port (19765)
  -la ADDRESS     the server's address: 127.0.0.1 (default), 0.0.0.0 or :: for all
  --token TEXT    lets clients on other machines stop the server (quit) with the same token
  -ip PORT        the port for test data; the server opens it
  -m SIZE         message size: 64, 4K (4,096), 4k (4,000)
  -t TIME         seconds, or with m, h, d (2)
  -oo VAR:FIRST:LAST:STEP
                  repeat over msg_size, time or sock_buf_size; *N multiplies; loops nest
  -vu -vs -vt -v  show what was set; statistics; the time; all of them
  -uu -ub -e N    unscaled units; bits; digits
  -sb SIZE        this side's socket buffers (for the server's, start it with -sb)
  -ca CPU         pins this side to this CPU
  -f1             the other side sends (tcp_bw)
  -to TIME        reply timeout
Both sides must run tare qperf; the original's protocol is unsupported.
latency is half of the mean round trip; tare net reports full round trips and percentiles.

Example: tare qperf 10.0.0.2 -lp 4000 -ip 4001 -oo msg_size:1:256K:*64 -vu tcp_bw tcp_lat
";
