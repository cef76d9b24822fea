//! Results of `tare net`, as data (`tare.net/1`) and as text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tare_model::load::{Net, Workload};
use tare_model::samples::Series;
use tare_model::{Distribution, Metric};
use tare_stats::Estimate;

use crate::format::{bytes, count, duration, percent, rate};
use crate::run::document::RunDocument;
use crate::run::table::Table;
use crate::run::terminal::columns;

pub const SCHEMA: &str = "tare.net/1";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetReport {
    pub schema: String,
    pub endpoint: String,
    pub seed: u64,
    /// Runs in the store, one per cell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<i64>,
    pub interrupted: bool,
    pub cells: Vec<NetCell>,
}

/// One test with one size of message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetCell {
    pub test: String,
    pub message_bytes: u32,
    pub reply_bytes: Option<u32>,
    pub connections: u32,
    pub threads: u32,
    /// io_uring, epoll, or plain sends.
    pub how: String,
    /// Whether TCP_NODELAY is set; null over UDP.
    pub nodelay: Option<bool>,
    pub socket_buffer_bytes: Option<u32>,
    pub rate_per_s: Option<f64>,
    pub rounds: u32,
    /// Complete, good messages in the windows; for streams, as counted by the receiver.
    pub messages: u64,
    pub bytes: u64,
    pub elapsed_ns: u64,
    pub messages_per_s: Option<Estimate>,
    pub bandwidth_bytes_per_s: Option<Estimate>,
    /// Mean round trip; in an open loop, from the time the message was due.
    pub latency_ns_mean: Option<Estimate>,
    /// Mean over all rounds; known even with a single round.
    #[serde(skip)]
    pub mean_ns: Option<f64>,
    pub latency_ns_p50: Option<u64>,
    pub latency_ns_p90: Option<u64>,
    pub latency_ns_p99: Option<u64>,
    pub latency_ns_p99_9: Option<u64>,
    pub latency_ns_max: Option<u64>,
    /// Messages that arrived plus datagrams that were lost.
    pub sent: u64,
    pub lost: u64,
    pub disordered: u64,
    pub retransmits: u64,
    pub client_cpu_ns_per_message: f64,
    pub client_busiest: f64,
    pub errors: BTreeMap<String, u64>,
    pub first_error: Option<String>,
    /// Why the cell was not measured to the end.
    pub failed: Option<String>,
}

impl NetReport {
    pub fn json(&self) -> String {
        // Plain data: serialising it cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

impl NetCell {
    /// Returns the result of a run with one variant; `None` if its load is not a network test.
    pub fn from_run(document: &RunDocument, failed: Option<String>) -> Option<Self> {
        let load = &document.facts.plan.load;
        let Workload::Net(Net { test, message_bytes, reply_bytes, sockets }) = &load.workload
        else {
            return None;
        };
        let only = document.report.variants.first()?;
        let (counts, rounds) = (document.counts(0), document.report.run.rounds);
        let latency = document.latency(0, Series::Headline);
        let quantile = |q: f64| latency.as_ref()?.quantile(q);
        // A single round has no interval.
        let estimate = |metric: Metric| only.metric(metric).filter(|own| own.n > 1).copied();
        let mut launches =
            document.digests.iter().filter_map(|round| round.variants[0].launch.as_ref());
        let by = launches.find_map(|launch| launch.load.by.clone()).unwrap_or_default();
        Some(Self {
            test: test.name().to_owned(),
            message_bytes: *message_bytes,
            reply_bytes: (!test.is_stream()).then_some(*reply_bytes),
            connections: load.connections,
            threads: load.workers(),
            how: by.split(',').next().unwrap_or_default().to_owned(),
            nodelay: (!test.is_udp()).then_some(sockets.nodelay),
            socket_buffer_bytes: sockets.buffer_bytes,
            rate_per_s: load.rate(),
            rounds,
            messages: counts.good,
            bytes: counts.body_bytes,
            elapsed_ns: counts.window_ns,
            messages_per_s: estimate(Metric::Throughput),
            bandwidth_bytes_per_s: estimate(Metric::Bandwidth),
            latency_ns_mean: estimate(Metric::LatencyMean),
            mean_ns: latency.as_ref().and_then(Distribution::mean_ns),
            latency_ns_p50: quantile(0.5),
            latency_ns_p90: quantile(0.9),
            latency_ns_p99: quantile(0.99),
            latency_ns_p99_9: quantile(0.999),
            latency_ns_max: latency
                .as_ref()
                .filter(|all| all.count() > 0)
                .map(Distribution::max_ns),
            sent: counts.good + counts.lost,
            lost: counts.lost,
            disordered: counts.disordered,
            retransmits: counts.retransmits,
            client_cpu_ns_per_message: counts.client_cpu_ns as f64 / counts.good.max(1) as f64,
            client_busiest: counts.client_busiest,
            errors: counts.errors.iter().map(|(kind, n, _)| (kind.clone(), *n)).collect(),
            first_error: counts.errors.first().map(|(_, _, why)| why.clone()),
            failed,
        })
    }

    fn seconds(&self) -> f64 {
        (self.elapsed_ns as f64 / 1e9).max(1e-9)
    }

    fn is_udp(&self) -> bool {
        self.nodelay.is_none()
    }

    /// Datagrams lost, as a share of those sent.
    pub fn lost_share(&self) -> f64 {
        self.lost as f64 / self.sent.max(1) as f64
    }
}

pub fn render(report: &NetReport) -> String {
    let mut lines = vec![format!("tare net {}", report.endpoint), String::new()];
    let (exchanges, streams): (Vec<_>, Vec<_>) =
        report.cells.iter().partition(|cell| cell.reply_bytes.is_some());
    if !exchanges.is_empty() {
        lines.extend(columns(&exchange_table(&exchanges)));
        lines.push(String::new());
    }
    if !streams.is_empty() {
        lines.extend(columns(&stream_table(&streams)));
        lines.push(String::new());
    }
    lines.extend(report.cells.iter().flat_map(complaints));
    lines.push(ending(report));
    lines.join("\n") + "\n"
}

fn exchange_table(cells: &[&NetCell]) -> Table {
    let words =
        ["", "message", "round trip, mean", "p50", "p90", "p99", "p99.9", "max", "half", "per s"];
    let mut header: Vec<String> = words.map(str::to_owned).to_vec();
    header.push("CPU here".into());
    let udp = cells.iter().any(|cell| cell.is_udp());
    header.extend(udp.then(|| "lost".to_owned()));
    let rows = cells.iter().map(|cell| {
        let of = |ns: Option<u64>| ns.map_or("–".into(), duration);
        let mean = cell.latency_ns_mean.as_ref();
        let mut row = vec![
            cell.test.clone(),
            size(cell),
            match (mean, cell.mean_ns) {
                (Some(mean), _) => with_share(mean, |ns| duration(ns as u64)),
                (None, mean) => of(mean.map(|ns| ns as u64)),
            },
            of(cell.latency_ns_p50),
            of(cell.latency_ns_p90),
            of(cell.latency_ns_p99),
            of(cell.latency_ns_p99_9),
            of(cell.latency_ns_max),
            mean.map_or("–".into(), |mean| duration((mean.point / 2.0) as u64)),
            rate(cell.messages as f64 / cell.seconds()),
            duration(cell.client_cpu_ns_per_message as u64),
        ];
        row.extend(udp.then(|| match cell.is_udp() {
            true => percent(cell.lost_share()),
            false => "–".into(),
        }));
        row
    });
    Table { rows: rows.collect(), header }
}

fn stream_table(cells: &[&NetCell]) -> Table {
    let words = ["", "message", "bandwidth", "messages/s", "CPU here", "sent again", "lost"];
    let header = words.map(str::to_owned).to_vec();
    let rows = cells.iter().map(|cell| {
        let bandwidth = cell.bandwidth_bytes_per_s.as_ref();
        vec![
            cell.test.clone(),
            size(cell),
            // A single round has no interval.
            bandwidth.map_or_else(
                || format!("{}/s", bytes(cell.bytes as f64 / cell.seconds())),
                |b| with_share(b, |n| format!("{}/s", bytes(n))),
            ),
            rate(cell.messages as f64 / cell.seconds()),
            duration(cell.client_cpu_ns_per_message as u64),
            match cell.is_udp() || cell.test.ends_with("reverse") {
                true => "–".into(),
                false => count(cell.retransmits),
            },
            if cell.is_udp() { percent(cell.lost_share()) } else { "–".into() },
        ]
    });
    Table { rows: rows.collect(), header }
}

/// Formats an estimate: `1.24ms ± 0.5 %`.
fn with_share(estimate: &Estimate, words: impl Fn(f64) -> String) -> String {
    let share = estimate.half_width() / estimate.point * 100.0;
    let share = match share {
        share if share < 9.95 => format!("{share:.1}"),
        share if share < 1000.0 => format!("{share:.0}"),
        _ => "1000 or more".to_owned(),
    };
    format!("{} ± {share} %", words(estimate.point))
}

fn size(cell: &NetCell) -> String {
    let binary = |n: u32| match n {
        n if n >= 1 << 20 && n.is_multiple_of(1 << 20) => format!("{} MiB", n >> 20),
        n if n >= 1 << 10 && n.is_multiple_of(1 << 10) => format!("{} KiB", n >> 10),
        n => format!("{n} B"),
    };
    match cell.reply_bytes {
        Some(reply) if reply != cell.message_bytes => {
            format!("{} / {}", binary(cell.message_bytes), binary(reply))
        }
        _ => binary(cell.message_bytes),
    }
}

fn complaints(cell: &NetCell) -> Vec<String> {
    let mut lines = Vec::new();
    let who = format!("{} {}", cell.test, size(cell));
    if let Some(why) = &cell.failed {
        lines.push(format!("  failed: {who}: after {} rounds: {why}", cell.rounds));
    }
    if let (Some(why), false) = (&cell.first_error, cell.is_udp() && cell.errors.len() == 1) {
        let all: Vec<String> = cell.errors.iter().map(|(k, n)| format!("{k} {n}")).collect();
        lines.push(format!("  warning errors: {who}: {} ({why})", all.join(", ")));
    }
    if cell.disordered > 0 {
        let n = count(cell.disordered);
        lines.push(format!("  note disordered: {who}: {n} datagrams came after a later one"));
    }
    lines
}

fn many(n: u32, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn ending(report: &NetReport) -> String {
    let Some(first) = report.cells.first() else { return String::new() };
    let has = |wanted: bool| report.cells.iter().any(|cell| cell.nodelay == Some(wanted));
    let nodelay = match (has(true), has(false)) {
        (true, true) => Some("TCP_NODELAY on for exchanges, off for streams"),
        (true, false) => Some("TCP_NODELAY on"),
        (false, true) => Some("TCP_NODELAY off"),
        (false, false) => None,
    };
    let mut words = vec![
        format!("{}, {}", many(first.connections, "connection"), many(first.threads, "thread")),
        format!(
            "{} of {} for each, on new connections in each round",
            many(report.cells.iter().map(|cell| cell.rounds).max().unwrap_or(0), "round"),
            duration(first.elapsed_ns / u64::from(first.rounds.max(1)))
        ),
    ];
    words.extend(nodelay.map(str::to_owned));
    words.push("intervals are over rounds, 95 %".into());
    words.push(format!("seed {}", report.seed));
    words.extend(match report.runs[..] {
        [] => None,
        [only] => Some(format!("stored as run {only}")),
        [first, .., last] if last - first + 1 == report.runs.len() as i64 => {
            Some(format!("stored as a sweep: tare report {first}-{last}"))
        }
        _ => {
            let all: Vec<String> = report.runs.iter().map(i64::to_string).collect();
            Some(format!("stored as runs {}", all.join(", ")))
        }
    });
    let mut text = words.join("; ");
    if report.interrupted {
        text.push_str("; interrupted");
    }
    text
}
