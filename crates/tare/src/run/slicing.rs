//! From what the load's workers report to a slice as it is kept.

use tare_load::session::{Recorded, SliceReport};
use tare_load::{LoadPlan, Tally};
use tare_stats::Distribution;
use tare_stats::samples::{Counts, Series, ServerUse, Slice};

/// Which slice it is.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub variant: usize,
    pub cycle: u32,
    pub position: u32,
}

pub fn slice_of(
    place: Place,
    plan: &LoadPlan,
    reports: &[SliceReport],
    server: Option<ServerUse>,
) -> Slice {
    let mut total = Tally::default();
    for report in reports {
        total.merge(&report.tally);
    }
    let merged = |series: Series, of: fn(&SliceReport) -> &Recorded| {
        let mut merged = Distribution::default();
        for recorded in reports.iter().map(of) {
            merged.merge(&Distribution::new(recorded.counts.clone(), recorded.sum_ns));
        }
        (series, merged)
    };
    let open_loop = plan.rate.is_some();
    let mut latencies = vec![
        merged(Series::Headline, if open_loop { |r| &r.from_due } else { |r| &r.from_sent }),
        merged(Series::Connect, |report| &report.connect),
        merged(Series::Handshake, |report| &report.tls),
        merged(Series::FirstByte, |report| &report.first_byte),
    ];
    if open_loop {
        latencies.push(merged(Series::FromSent, |report| &report.from_sent));
        latencies.push(merged(Series::SendLag, |report| &report.send_lag));
    }
    latencies.retain(|(_, distribution)| distribution.count() > 0);
    latencies.sort_by_key(|(series, _)| *series);
    Slice {
        variant: place.variant as u32,
        cycle: place.cycle,
        position: place.position,
        counts: counts(plan, &total, reports),
        server,
        latencies,
    }
}

fn counts(plan: &LoadPlan, total: &Tally, reports: &[SliceReport]) -> Counts {
    let seconds = total.elapsed().as_secs_f64();
    let busy = |report: &SliceReport| {
        report.cpu.total().as_ns() as f64 / report.elapsed.as_ns().max(1) as f64
    };
    Counts {
        window_ns: total.elapsed().as_ns(),
        due: plan.rate.as_ref().map(|rate| rate.requests_within(seconds)),
        started: total.started,
        completed: total.completed,
        good: total.good,
        failed: total.failed,
        waited: total.waited,
        drained: total.unfinished.drained,
        cut: total.unfinished.cut,
        unsent: total.unfinished.unsent,
        answered: reports.iter().map(|report| report.answered).sum(),
        body_bytes: total.body_bytes,
        received_bytes: total.received_bytes,
        opened: total.connections.opened,
        closed_by_server: reports.iter().map(|report| report.closed_by_server).sum(),
        handshakes_full: total.connections.handshakes_full,
        handshakes_resumed: total.connections.handshakes_resumed,
        client_cpu_ns: reports.iter().map(|report| report.cpu.total().as_ns()).sum(),
        client_busiest: reports.iter().map(busy).fold(0.0, f64::max),
        status: total.status.sorted(),
        errors: total
            .failures
            .seen()
            .map(|(kind, n, first)| (kind.name().to_owned(), n, first.to_owned()))
            .collect(),
    }
}
