//! An endpoint measured: tests and sizes in turn, in short slices, each round on new connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tare_io::{DurationNs, Endpoint, Random};
use tare_load::measured::Measured;
use tare_load::session::{Sampling, Session};
use tare_load::{Edges, LaneId, LoadPlan, NoObserver, Stretch, resolve};
use tare_model::load::{Load, Net, Workload};
use tare_model::net::Protocol;
use tare_model::samples::{Counts, Series};
use tare_model::url::Url;
use tare_report::net::NetCell;
use tare_stats::Estimate;

use crate::failure::Failure;

/// How long, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    pub rounds: u32,
    /// Of each cell in each round.
    pub window: DurationNs,
    pub seed: u64,
}

/// What a cell saw in each round.
#[derive(Default)]
struct CellRounds {
    messages_per_s: Vec<f64>,
    bytes_per_s: Vec<f64>,
    mean_ns: Vec<f64>,
    latency: tare_model::Distribution,
    counts: Counts,
    /// Over whole stretches, ramp and drain included: what loss is a share of.
    sent: u64,
    how: &'static str,
    /// Why it is measured no further.
    failed: Option<Failure>,
}

const LEVEL: f64 = 0.95;
/// Thrown away at the start of each slice, as a share of it, and at most.
const RAMP_SHARE: u64 = 10;
const RAMP_MAX: DurationNs = DurationNs::from_ms(100);
const RAMP_MIN: DurationNs = DurationNs::from_ms(2);

/// Measures each cell in each round, in an order of the seed's. `stop` ends it between slices.
pub fn measure(
    address: SocketAddr,
    cells: &[Load],
    rounds: Rounds,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<NetCell>, Failure> {
    let Some(first) = cells.first() else { return Ok(Vec::new()) };
    let cpus = first.client.cpus.clone().unwrap_or_default();
    let url = Url::parse(&format!("http://{address}/"))
        .map_err(|error| Failure::Bug(error.to_string()))?;
    let mut session = Session::start(first.workers(), &cpus, stop)?;
    let mut seen: Vec<CellRounds> = cells.iter().map(|_| CellRounds::default()).collect();
    for round in 0..rounds.rounds {
        if seen.iter().all(|seen| seen.failed.is_some()) {
            break;
        }
        let mut random = Random::stream(rounds.seed, "net order", u64::from(round));
        let mut left: Vec<usize> = (0..cells.len()).collect();
        while !left.is_empty() && !stop.load(Ordering::Relaxed) {
            let at = left.swap_remove(random.below(left.len() as u64) as usize);
            let plan = resolve(&cells[at], &url, Endpoint::Tcp(address), rounds.seed)?;
            if seen[at].failed.is_none()
                && let Err(failure) = slice(&mut session, &plan, rounds.window, &mut seen[at])
                && !stop.load(Ordering::Relaxed)
            {
                // It would fail in every round.
                seen[at].failed = Some(failure);
            }
        }
    }
    if seen.iter().all(|seen| seen.counts.window_ns == 0) {
        let failed = seen.iter_mut().find_map(|seen| seen.failed.take());
        return Err(match failed {
            _ if stop.load(Ordering::Relaxed) => Failure::Interrupted,
            Some(failure) => failure,
            None => Failure::Target(format!("{address}: no time passed by the endpoint's clock")),
        });
    }
    let cells = cells.iter().zip(seen).filter_map(|(load, seen)| match &load.workload {
        Workload::Net(net) => Some(cell(load, net, seen)),
        _ => None,
    });
    Ok(cells.collect())
}

fn slice(
    session: &mut Session,
    plan: &LoadPlan,
    window: DurationNs,
    seen: &mut CellRounds,
) -> Result<(), Failure> {
    seen.how = session.open(&[plan], Sampling::None, &mut NoObserver)?.how;
    let ramp = DurationNs::from_ns(window.as_ns() / RAMP_SHARE).clamp(RAMP_MIN, RAMP_MAX);
    // One worker's window ends with a reply, so that it holds whole exchanges.
    let edges = if session.workers() == 1 { Edges::Replies } else { Edges::Clock };
    let stretch = Stretch { ramp, window, edges, ..Stretch::NONE };
    let sliced = session.slice(LaneId(0), stretch, &mut NoObserver)?;
    let measured = Measured::of(plan, &sliced);
    let sent = sliced.workers.iter().map(|worker| worker.sent).sum::<u64>();
    session.close()?;
    let (counts, seconds) = (&measured.counts, measured.counts.window_ns as f64 / 1e9);
    if seconds > 0.0 {
        seen.messages_per_s.push(counts.good as f64 / seconds);
        seen.bytes_per_s.push(counts.body_bytes as f64 / seconds);
    }
    for (series, distribution) in &measured.latencies {
        if *series == Series::Headline {
            seen.mean_ns.extend(distribution.mean_ns());
            seen.latency.merge(distribution);
        }
    }
    seen.sent += sent;
    seen.counts.then(counts);
    let is_exchange = matches!(plan.engine.protocol, Protocol::Messages { .. });
    match is_exchange && sent > 0 && counts.good == 0 {
        true => Err(Failure::Target(nothing_came(counts, plan.engine.timeout))),
        false => Ok(()),
    }
}

fn nothing_came(counts: &Counts, timeout: DurationNs) -> String {
    let seen = counts.errors.first().map(|(_, _, why)| format!(": {why}")).unwrap_or_default();
    format!("not one message came in a whole round (time limit {timeout}){seen}")
}

fn cell(load: &Load, net: &Net, seen: CellRounds) -> NetCell {
    let counts = &seen.counts;
    let exchanges = !net.test.is_stream();
    let quantile = |q: f64| seen.latency.quantile(q);
    NetCell {
        test: net.test.name().to_owned(),
        message_bytes: net.message_bytes,
        reply_bytes: exchanges.then_some(net.reply_bytes),
        connections: load.connections,
        threads: load.workers(),
        how: seen.how.to_owned(),
        nodelay: (!net.test.is_udp()).then_some(net.sockets.nodelay),
        socket_buffer_bytes: net.sockets.buffer_bytes,
        rate_per_s: load.rate(),
        rounds: seen.messages_per_s.len() as u32,
        messages: counts.good,
        bytes: counts.body_bytes,
        elapsed_ns: counts.window_ns,
        messages_per_s: Estimate::of_mean(&seen.messages_per_s, LEVEL),
        bandwidth_bytes_per_s: Estimate::of_mean(&seen.bytes_per_s, LEVEL),
        latency_ns_mean: Estimate::of_mean(&seen.mean_ns, LEVEL),
        mean_ns: seen.latency.mean_ns(),
        latency_ns_p50: quantile(0.5),
        latency_ns_p90: quantile(0.9),
        latency_ns_p99: quantile(0.99),
        latency_ns_p99_9: quantile(0.999),
        latency_ns_max: (seen.latency.count() > 0).then(|| seen.latency.max_ns()),
        sent: seen.sent,
        lost: counts.lost,
        disordered: counts.disordered,
        retransmits: counts.retransmits,
        client_cpu_ns_per_message: counts.client_cpu_ns as f64 / counts.good.max(1) as f64,
        client_busiest: counts.client_busiest,
        errors: counts.errors.iter().map(|(kind, n, _)| (kind.clone(), *n)).collect(),
        first_error: counts.errors.first().map(|(_, _, why)| why.clone()),
        failed: seen.failed.as_ref().map(Failure::to_string),
    }
}
