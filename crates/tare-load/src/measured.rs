//! From what the load's workers report to a slice as it is kept.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tare_io::{DurationNs, Endpoint, Instant};
use tare_model::net::Protocol;
use tare_model::samples::{Counts, NUMBER_MAX, Series, Together};
use tare_model::{Distribution, plain};

use crate::histogram::Histogram;
use crate::load_plan::LoadPlan;
use crate::slice_report::{Recorded, SliceReport};
use crate::tally::{Connections, Tally, Unfinished};

/// What all workers together saw in one slice.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    pub counts: Counts,
    pub latencies: Vec<(Series, Distribution)>,
    /// Nanoseconds since the window opened, and what had been answered by then, where the stretch
    /// was in intervals; not from another place.
    pub marks: Vec<(u64, u64)>,
}

/// The same as a message: each series' name, its buckets, and its exact sum in nanoseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredMessage {
    counts: Counts,
    latencies: Vec<SeriesMessage>,
    /// When it began, by the clock of who carried it out.
    #[serde(default)]
    pub began_ns: u64,
}

/// Name, buckets, sum.
type SeriesMessage = (String, Vec<(u64, u64)>, String);

impl Measured {
    pub fn of(plan: &LoadPlan, reports: &[SliceReport]) -> Self {
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
        Self { counts: counts(plan, &total, reports), latencies, marks: marks(reports) }
    }

    /// Good replies a second, and the mean latency from sending.
    pub fn rate_and_mean(&self) -> (f64, DurationNs) {
        let counts = &self.counts;
        let per_s = counts.good as f64 / (counts.window_ns.max(1) as f64 / 1e9);
        let of = |wanted| self.latencies.iter().find(|(series, _)| *series == wanted);
        let sent = of(Series::FromSent).or_else(|| of(Series::Headline));
        let mean = sent.and_then(|(_, distribution)| distribution.mean_ns()).unwrap_or_default();
        (per_s, DurationNs::from_ns(mean as u64))
    }

    /// What clients saw who made one load together.
    pub fn of_clients(parts: Vec<Self>) -> Option<Self> {
        let good = |part: &Self| part.counts.good;
        let least = parts.iter().map(good).min()?;
        let most = parts.iter().map(good).max()?;
        let clients = u32::try_from(parts.len()).ok()?;
        let mut parts = parts.into_iter();
        let mut all = parts.next()?;
        for part in parts {
            all.counts.add_beside(&part.counts);
            for (series, distribution) in part.latencies {
                match all.latencies.iter_mut().find(|(own, _)| *own == series) {
                    Some((_, own)) => own.merge(&distribution),
                    None => all.latencies.push((series, distribution)),
                }
            }
        }
        all.latencies.sort_by_key(|(series, _)| *series);
        all.counts.together = Some(Together { clients, least, most, ..Together::default() });
        Some(all)
    }

    /// As one stretch of load from `start`.
    pub fn tally(&self, start: Instant) -> Tally {
        let counts = &self.counts;
        let mut tally = Tally {
            start,
            end: start + DurationNs::from_ns(counts.window_ns),
            started: counts.started,
            completed: counts.completed,
            good: counts.good,
            failed: counts.failed,
            held: counts.held,
            waited: counts.waited,
            unfinished: Unfinished {
                drained: counts.drained,
                cut: counts.cut,
                unsent: counts.unsent,
            },
            body_bytes: counts.body_bytes,
            received_bytes: counts.received_bytes,
            sent_bytes: counts.sent_bytes,
            connections: Connections {
                opened: counts.opened,
                not_opened: counts.not_opened,
                closed_by_server: counts.closed_by_server,
                closed_by_client: counts.closed_by_client,
                handshakes_full: counts.handshakes_full,
                handshakes_resumed: counts.handshakes_resumed,
            },
            ..Tally::default()
        };
        counts.status.iter().for_each(|(status, n)| tally.status.add(*status, *n));
        counts.errors.iter().for_each(|(kind, n, first)| tally.failures.add_named(kind, *n, first));
        // Only an open loop has latencies of two kinds.
        let open_loop = counts.due.is_some();
        for (series, distribution) in &self.latencies {
            let latency = &mut tally.latency;
            let histogram = match series {
                Series::Headline if open_loop => &mut latency.from_due,
                Series::Headline | Series::FromSent => &mut latency.from_sent,
                Series::Connect => &mut latency.connect,
                Series::Handshake => &mut latency.tls,
                Series::FirstByte => &mut latency.first_byte,
                Series::SendLag => &mut latency.send_lag,
            };
            *histogram = Histogram::of(distribution);
        }
        tally
    }

    pub fn message(&self) -> MeasuredMessage {
        let latencies = self.latencies.iter().map(|(series, distribution)| {
            let sum = distribution.sum_ns().to_string();
            (series.name().to_owned(), distribution.counts().to_vec(), sum)
        });
        let latencies = latencies.collect();
        MeasuredMessage { counts: self.counts.clone(), latencies, began_ns: 0 }
    }
}

const KIND_CHARS_MAX: usize = 50;
const ERROR_CHARS_MAX: usize = 500;

impl MeasuredMessage {
    /// `None` where it does not hold together: it came from outside.
    pub fn measured(self) -> Option<Measured> {
        let latencies = self.latencies.into_iter().map(|(name, counts, sum)| {
            let series = Series::ALL.into_iter().find(|series| series.name() == name)?;
            let ascending = counts.is_sorted_by(|a, b| a.0 < b.0);
            let total = counts.iter().try_fold(0u64, |sum, (_, n)| sum.checked_add(*n));
            total.filter(|total| ascending && *total <= NUMBER_MAX)?;
            Some((series, Distribution::new(counts, sum.parse().ok()?)))
        });
        let latencies: Vec<(Series, Distribution)> = latencies.collect::<Option<_>>()?;
        let series: BTreeSet<Series> = latencies.iter().map(|(series, _)| *series).collect();
        // What one client cannot know.
        let mut counts = Counts { together: None, ..self.counts };
        for (kind, _, first) in &mut counts.errors {
            *kind = plain::short(kind, KIND_CHARS_MAX);
            *first = plain::short(first, ERROR_CHARS_MAX);
        }
        let holds = counts.are_possible() && series.len() == latencies.len();
        holds.then_some(Measured { counts, latencies, marks: Vec::new() })
    }
}

/// Of all workers together.
fn bodies(reports: &[SliceReport]) -> Vec<(String, u64)> {
    let mut sum = Counts::default();
    for report in reports {
        sum.add(&Counts { bodies: report.bodies.clone(), ..Counts::default() });
    }
    sum.bodies
}

/// Of all workers together: their intervals are the same.
fn marks(reports: &[SliceReport]) -> Vec<(u64, u64)> {
    let n = reports.iter().map(|report| report.marks.len()).min().unwrap_or(0);
    let at = |index: usize| {
        let of_workers = reports.iter().map(|report| report.marks[index]);
        let (times, answered): (Vec<_>, Vec<u64>) = of_workers.unzip();
        (times.iter().map(|time| time.as_ns()).max().unwrap_or(0), answered.iter().sum())
    };
    (0..n).map(at).collect()
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
        held: total.held,
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
        lost: lost(plan, reports),
        calls: match plan.engine.protocol {
            Protocol::Calls { .. } => total.good,
            _ => 0,
        },
        together: None,
        disordered: reports.iter().map(|report| report.disordered).sum(),
        bodies: bodies(reports),
        retransmits: reports.iter().map(|report| report.retransmits).sum(),
        sent_bytes: total.sent_bytes,
        not_opened: total.connections.not_opened,
        closed_by_client: total.connections.closed_by_client,
    }
}

/// Only datagrams are.
fn lost(plan: &LoadPlan, reports: &[SliceReport]) -> u64 {
    let sum = |of: fn(&SliceReport) -> u64| reports.iter().map(of).sum::<u64>();
    match &plan.engine.endpoint {
        // Over whole stretches: a loss is seen when its time is over, in another part of them.
        Endpoint::Udp(_) => sum(|report| report.sent).saturating_sub(sum(|report| report.answered)),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(change: impl Fn(&mut MeasuredMessage)) -> Option<Measured> {
        let counts = Counts { started: 3, completed: 2, good: 2, failed: 1, ..Counts::default() };
        let latencies = vec![("headline".to_owned(), vec![(1, 1), (2, 1)], "3".to_owned())];
        let mut message = MeasuredMessage { counts, latencies, began_ns: 0 };
        change(&mut message);
        message.measured()
    }

    #[test]
    fn what_cannot_be_of_a_slice_is_not_believed() {
        let named = Series::ALL[0].name().to_owned();
        let good = |message: &mut MeasuredMessage| message.latencies[0].0.clone_from(&named);
        assert!(message(good).is_some());
        type Change = fn(&mut MeasuredMessage);
        let changes: [Change; 8] = [
            |message| message.counts.started = 100,
            |message| message.counts.good = 3,
            |message| {
                (message.counts.completed, message.counts.failed) = (u64::MAX, 4);
                message.counts.good = 0;
            },
            |message| message.counts.closed_by_server = u64::MAX,
            |message| message.counts.client_busiest = f64::NAN,
            |message| message.counts.status = vec![(200, 1); 1000],
            |message| message.latencies.push(message.latencies[0].clone()),
            |message| message.latencies[0].1 = vec![(2, 1), (1, 1)],
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let changed = message(|message| {
                good(message);
                change(message);
            });
            assert!(changed.is_none(), "change {at}");
        }
    }
}
