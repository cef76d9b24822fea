//! Turns the engine's results into a report.

use std::collections::BTreeMap;

use tare_io::{DurationNs, ReactorKind};
use tare_load::tls::TlsClient;
use tare_load::{Histogram, Lifetime, LoadPlan, LoadResult, Tally};
use tare_model::load::{HTTP_1, HTTP_2};
use tare_model::net::Protocol;
use tare_report::clients_summary::ClientsSummary;
use tare_report::load::guards;
use tare_report::load::{
    Bar, Bytes, Client, Connections, ErrorCount, Interval, Latency, LoadAsked, LoadReport,
    Requests, SCHEMA, Series, Stage,
};

/// Parts of the request that the plan does not hold.
pub struct Request<'a> {
    pub url: &'a str,
    pub method: &'a str,
}

/// Results of a load, made here or elsewhere.
pub struct LoadOutcome<'a> {
    pub total: &'a Tally,
    pub reactor: &'a str,
    pub reactor_note: Option<String>,
    pub workers: u32,
    /// CPU time of all workers in the window.
    pub cpu: ClientCpu,
    /// Share of a CPU that the busiest worker used.
    pub busiest: f64,
    pub clients: Option<ClientsSummary>,
}

pub struct ClientCpu {
    pub total_ns: u64,
    /// User and system time, if known.
    pub split: Option<(u64, u64)>,
}

impl<'a> LoadOutcome<'a> {
    pub fn local(result: &'a LoadResult) -> Self {
        Self {
            total: &result.total,
            reactor: result.opened.how,
            reactor_note: result.opened.note.clone(),
            workers: result.workers.len() as u32,
            cpu: ClientCpu {
                total_ns: result.cpu.total().as_ns(),
                split: Some((result.cpu.user.as_ns(), result.cpu.system.as_ns())),
            },
            busiest: result.busiest_worker(),
            clients: None,
        }
    }
}

pub fn describe(
    request: &Request<'_>,
    plan: &LoadPlan,
    found: LoadOutcome<'_>,
    intervals: Vec<Interval>,
    interrupted: bool,
) -> LoadReport {
    let total = found.total;
    let open_loop = plan.rate.is_some();
    let cpu_ns = found.cpu.total_ns;
    let mut report = LoadReport {
        schema: SCHEMA.into(),
        tare_version: env!("CARGO_PKG_VERSION").into(),
        asked: asked(request, plan, &found),
        stages: stages(plan, &intervals),
        interrupted,
        elapsed_ns: total.elapsed().as_ns(),
        throughput_per_s: total.good_per_s(),
        requests: requests(total),
        status: total.counts.status.iter().map(|(s, n)| (s.to_string(), *n)).collect(),
        errors: errors(total),
        bytes: Bytes {
            body: total.counts.body_bytes,
            received: total.counts.received_bytes,
            sent: total.counts.sent_bytes,
        },
        connections: Connections {
            opened: total.counts.opened,
            not_opened: total.counts.not_opened,
            closed_by_server: total.counts.closed_by_server,
            closed_by_client: total.counts.closed_by_client,
            handshakes_full: total.counts.handshakes_full,
            handshakes_resumed: total.counts.handshakes_resumed,
        },
        latency: latency(total, open_loop),
        client: Client {
            cpu_user_ns: found.cpu.split.map(|(user, _)| user),
            cpu_system_ns: found.cpu.split.map(|(_, system)| system),
            cpu_ns_per_request: (!open_loop && total.counts.completed > 0)
                .then(|| cpu_ns as f64 / total.counts.completed as f64),
            busiest_worker_share: found.busiest,
        },
        clients: found.clients,
        intervals,
        guards: Vec::new(),
    };
    report.guards = guards::load_doubts(&report);
    report
}

fn asked(request: &Request<'_>, plan: &LoadPlan, found: &LoadOutcome<'_>) -> LoadAsked {
    let seconds = found.total.elapsed().as_secs_f64();
    // With --requests the schedule ends with the last request, so no rate can be missed.
    let due = plan.rate.as_ref().filter(|_| plan.stretch.requests.is_none());
    let batched = plan.rate.is_none() && found.reactor == ReactorKind::IoUring.name();
    let batched = batched && plan.engine.wait.batch_max > 1;
    LoadAsked {
        url: request.url.to_owned(),
        address: plan.engine.endpoint.to_string(),
        method: request.method.to_owned(),
        pacing: if plan.rate.is_some() { "open" } else { "closed" }.into(),
        rate_per_s: plan.rate.as_ref().map(|rate| rate.peak_per_s()),
        due_requests: due.map(|rate| rate.requests_within(seconds)),
        poisson: plan.poisson,
        protocol: match plan.engine.protocol {
            Protocol::Http2 { .. } => HTTP_2,
            _ => HTTP_1,
        }
        .into(),
        streams: plan.engine.streams(),
        connections: plan.engine.connections,
        max_connections: plan.engine.max_connections,
        new_connections: plan.engine.lifetime == Lifetime::PerRequest,
        timeout_ns: plan.engine.timeout.as_ns(),
        workers: found.workers,
        reactor: found.reactor.into(),
        reactor_note: found.reactor_note.clone(),
        // Several clients may share CPUs, so they sleep.
        polls: plan.engine.wait.polls && found.clients.as_ref().is_none_or(|c| c.each.len() == 1),
        reap_linger_ns: batched.then(|| plan.engine.wait.linger.as_ns()),
        tls: plan.engine.tls.is_some(),
        tls_resume: plan.engine.tls.as_ref().is_some_and(TlsClient::resumes),
        seed: plan.seed,
    }
}

fn stages(plan: &LoadPlan, intervals: &[Interval]) -> Vec<Stage> {
    let all = plan.rate.as_ref().map_or(&[][..], |rate| rate.stages());
    let mut start_ns = 0;
    let measured = all.iter().map(|stage| {
        let end_ns = start_ns + DurationNs::from_secs_f64(stage.duration_s).as_ns();
        let (from_per_s, to_per_s) = (stage.from_per_s, stage.to_per_s);
        let asked = Stage { start_ns, end_ns, from_per_s, to_per_s, good_per_s: None };
        start_ns = end_ns;
        asked.measured(intervals)
    });
    measured.collect()
}

fn requests(total: &Tally) -> Requests {
    Requests {
        started: total.counts.started,
        completed: total.counts.completed,
        good: total.counts.good,
        failed: total.counts.failed,
        retried: total.counts.refused,
        held: total.counts.held,
        waited: total.counts.waited,
        unfinished: total.counts.unfinished(),
        unfinished_drained: total.counts.drained,
        unfinished_cut: total.counts.cut,
        unfinished_unsent: total.counts.unsent,
        unfinished_oldest_ns: total.latency.unfinished_age.max().as_ns(),
    }
}

fn errors(total: &Tally) -> BTreeMap<String, ErrorCount> {
    total
        .failures
        .seen()
        .map(|(kind, count, first)| {
            (kind.name().to_owned(), ErrorCount { count, first: first.to_owned() })
        })
        .collect()
}

fn latency(total: &Tally, open_loop: bool) -> Latency {
    let latency = &total.latency;
    let headline = if open_loop { "from_due" } else { "from_sent" };
    Latency {
        headline: headline.into(),
        from_sent: series(&latency.from_sent),
        from_due: series(&latency.from_due),
        send_lag: series(&latency.send_lag),
        connect: series(&latency.connect),
        tls: series(&latency.tls),
        first_byte: series(&latency.first_byte),
        unexpected_status: series(&latency.unexpected),
        failed_after: series(&latency.failed_after),
        bars: bars(latency.headline()),
    }
}

fn series(histogram: &Histogram) -> Option<Series> {
    if histogram.count() == 0 {
        return None;
    }
    let quantile = |q| histogram.supports_quantile(q).then(|| histogram.quantile(q).as_ns());
    Some(Series {
        count: histogram.count(),
        ns_min: histogram.min().as_ns(),
        ns_mean: histogram.mean().as_ns(),
        ns_stdev: histogram.stdev().as_ns(),
        ns_max: histogram.max().as_ns(),
        ns_p50: quantile(0.5),
        ns_p75: quantile(0.75),
        ns_p90: quantile(0.9),
        ns_p95: quantile(0.95),
        ns_p99: quantile(0.99),
        ns_p99_9: quantile(0.999),
        ns_p99_99: quantile(0.9999),
    })
}

/// Maximum number of rows of the chart, without the row for the tail.
const BARS_MAX: usize = 12;

/// Returns the rows of a latency chart: fine where 99 % of values lie, one row for all below, one
/// for the tail above.
fn bars(histogram: &Histogram) -> Vec<Bar> {
    if histogram.count() == 0 {
        return Vec::new();
    }
    let edges = edges(histogram.quantile(0.005).as_ns(), histogram.quantile(0.995).as_ns());
    let mut bars: Vec<Bar> = edges.into_iter().map(|ns_up_to| Bar { ns_up_to, count: 0 }).collect();
    let highest = histogram.max().as_ns();
    if bars.last().is_none_or(|bar| bar.ns_up_to < highest) {
        bars.push(Bar { ns_up_to: highest, count: 0 });
    }
    let mut at = 0;
    for (value, n) in histogram.recorded() {
        while at + 1 < bars.len() && value.as_ns() > bars[at].ns_up_to {
            at += 1;
        }
        bars[at].count += n;
    }
    bars
}

/// Returns round numbers from `low` to just beyond `high`: evenly spaced if the two are close, else
/// spaced by ratio.
fn edges(low: u64, high: u64) -> Vec<u64> {
    let decades = || (0..12).map(|power| 10u64.pow(power));
    if high < low.saturating_mul(4) {
        let steps = decades().flat_map(|decade| [1, 2, 5].map(|step| step * decade));
        let fits = |step: &u64| ((high / step - low / step) as usize) < BARS_MAX;
        let step = steps.into_iter().find(fits).unwrap_or(1);
        return (low / step..=high / step).map(|n| (n + 1) * step).collect();
    }
    let all: [&[u64]; 5] = [
        &[10, 12, 15, 20, 25, 30, 40, 50, 60, 80],
        &[10, 15, 20, 30, 50, 70],
        &[10, 20, 50],
        &[10, 30],
        &[10],
    ];
    let over = |steps: &[u64]| -> Vec<u64> {
        let edges = decades().flat_map(|decade| steps.iter().map(move |step| step * decade / 10));
        let mut beyond = false;
        edges
            .filter(|edge| *edge >= low.max(1))
            .take_while(|edge| !std::mem::replace(&mut beyond, *edge >= high))
            .collect()
    };
    all.iter()
        .map(|steps| over(steps))
        .find(|edges| edges.len() <= BARS_MAX)
        .unwrap_or_else(|| over(&[10]))
}

/// Collects ticks into intervals of the length the user asked for.
pub struct TimeSeries {
    length: DurationNs,
    origin: Option<tare_io::Instant>,
    current: Tally,
    /// The last completed interval, for the histogram log.
    last: Tally,
    pub intervals: Vec<Interval>,
}

impl TimeSeries {
    pub fn new(length: DurationNs) -> Self {
        Self {
            length,
            origin: None,
            current: Tally::default(),
            last: Tally::default(),
            intervals: Vec::new(),
        }
    }

    /// Adds a tick; returns the interval that it completes, if any.
    pub fn add(&mut self, tick: &Tally) -> Option<(&Interval, &Tally)> {
        self.origin.get_or_insert(tick.start);
        self.current.merge(tick);
        // The engine ends ticks a little early or late, so an interval may end up to 5 % early.
        let slack = DurationNs::from_ns(self.length.as_ns() / 20);
        if self.current.elapsed() + slack < self.length {
            return None;
        }
        self.flush()
    }

    /// Ends the current interval unless it is shorter than [`MIN_INTERVAL`].
    pub fn flush(&mut self) -> Option<(&Interval, &Tally)> {
        let tally = std::mem::take(&mut self.current);
        if tally.elapsed() < MIN_INTERVAL {
            return None;
        }
        let origin = self.origin?;
        let headline = tally.latency.headline();
        let quantile = |q| headline.supports_quantile(q).then(|| headline.quantile(q).as_ns());
        self.intervals.push(Interval {
            start_ns: tally.start.since(origin).as_ns(),
            end_ns: tally.end.since(origin).as_ns(),
            good_per_s: tally.good_per_s(),
            ns_p50: quantile(0.5),
            ns_p99: quantile(0.99),
            failed: tally.counts.failed,
            unexpected_status: tally.counts.completed - tally.counts.good,
        });
        self.last = tally;
        Some((self.intervals.last()?, &self.last))
    }
}

/// Shortest last interval that is kept; a shorter one has no meaningful rate.
const MIN_INTERVAL: DurationNs = DurationNs::from_ms(10);

#[cfg(test)]
mod tests {
    use super::*;
    use tare_model::samples::Counts;

    #[test]
    fn bars_hold_every_value_and_fit() {
        let mut histogram = Histogram::default();
        let mut n = 0;
        for us in (1..100_000).step_by(7) {
            histogram.record(DurationNs::from_us(us));
            n += 1;
        }
        let bars = bars(&histogram);
        assert!(bars.len() <= BARS_MAX + 1 && bars.len() > 5, "{}", bars.len());
        assert_eq!(bars.iter().map(|bar| bar.count).sum::<u64>(), n);
        assert!(bars.windows(2).all(|pair| pair[0].ns_up_to < pair[1].ns_up_to));
        assert_eq!(series(&Histogram::default()), None);
    }

    #[test]
    fn edges_are_round_and_cover() {
        assert_eq!(
            edges(47_100, 56_000),
            [48_000, 49_000, 50_000, 51_000, 52_000, 53_000, 54_000, 55_000, 56_000, 57_000]
        );
        assert_eq!(
            edges(14_000, 400_000),
            [15_000, 20_000, 30_000, 50_000, 70_000, 100_000, 150_000, 200_000, 300_000, 500_000]
        );
        assert_eq!(edges(0, 0), [1]);
        for (low, high) in [(1, 60_000_000_000), (999, 1_000), (5, 5), (7, 27), (7, 28)] {
            let edges = edges(low, high);
            assert!(
                edges.len() <= BARS_MAX && *edges.last().unwrap() >= high,
                "{low} {high}: {edges:?}"
            );
            assert!(edges.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }

    #[test]
    fn ticks_become_intervals_of_the_asked_length() {
        let tick = |at_ms: u64, good: u64| {
            let start = tare_io::Instant::ZERO + DurationNs::from_ms(at_ms);
            let counts = Counts { started: good, completed: good, good, ..Counts::default() };
            Tally { start, end: start + DurationNs::from_ms(250), counts, ..Tally::default() }
        };
        let mut series = TimeSeries::new(DurationNs::from_secs(1));
        for at in 0..6 {
            series.add(&tick(5000 + at * 250, 10));
        }
        series.flush();
        let got: Vec<_> =
            series.intervals.iter().map(|i| (i.start_ns, i.end_ns, i.good_per_s)).collect();
        assert_eq!(got, [(0, 1_000_000_000, 40.0), (1_000_000_000, 1_500_000_000, 40.0)]);
    }
}
