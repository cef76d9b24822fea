//! Converts the reports of the load's workers to a slice as it is stored.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tare_io::{DurationNs, Endpoint, Instant};
use tare_model::net::Protocol;
use tare_model::samples::{ClientPart, ConcurrentClients, Counts, NUMBER_MAX, Series};
use tare_model::{Distribution, Invalid, plain};

use crate::histogram::Histogram;
use crate::load_plan::LoadPlan;
use crate::session::{SliceResult, WorkerReport};
use crate::tally::Tally;

/// Measurements of all workers together in one slice. They may come from an untrusted agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedMeasured")]
pub struct Measured {
    /// When load began, by the clock of the machine that made it.
    pub began: Instant,
    pub counts: Counts,
    pub latencies: Vec<(Series, Distribution)>,
    /// At the end of each interval of the stretch: nanoseconds since the window opened, and replies
    /// completed by then.
    pub marks: Vec<(u64, u64)>,
}

/// A [`Measured`] that has not been checked yet.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UncheckedMeasured {
    began: Instant,
    counts: Counts,
    latencies: Vec<(Series, Distribution)>,
    marks: Vec<(u64, u64)>,
}

impl TryFrom<UncheckedMeasured> for Measured {
    type Error = Invalid;

    fn try_from(told: UncheckedMeasured) -> Result<Self, Invalid> {
        let UncheckedMeasured { began, mut counts, latencies, marks } = told;
        let series: BTreeSet<Series> = latencies.iter().map(|(series, _)| *series).collect();
        let ascends = |a: &(u64, u64), b: &(u64, u64)| a.0 <= b.0 && a.1 <= b.1;
        let marks_hold = marks.is_sorted_by(ascends)
            && marks.last().is_none_or(|(ns, n)| (*ns).max(*n) <= NUMBER_MAX);
        if !counts.are_possible() || series.len() != latencies.len() || !marks_hold {
            return Err("a slice's counters contradict each other".into());
        }
        for (kind, _, first) in &mut counts.errors {
            *kind = plain::short(kind, KIND_CHARS_MAX);
            *first = plain::short(first, ERROR_CHARS_MAX);
        }
        // A single client has no data about others.
        counts.together = None;
        Ok(Self { began, counts, latencies, marks })
    }
}

const KIND_CHARS_MAX: usize = 50;
const ERROR_CHARS_MAX: usize = 500;

impl Measured {
    /// Merges what all workers measured in a slice.
    pub fn from_slice(plan: &LoadPlan, sliced: &SliceResult<'_>) -> Self {
        let workers = &sliced.workers;
        let mut measured = Self::from_tally(plan, sliced.total);
        measured.began = workers.iter().map(|worker| worker.began).max().unwrap_or_default();
        let marks: Vec<&[(u64, u64)]> = workers.iter().map(|w| w.marks.as_slice()).collect();
        measured.marks = marks_alongside(&marks);
        let counts = &mut measured.counts;
        let sum = |of: fn(&WorkerReport) -> u64| workers.iter().map(of).sum::<u64>();
        // Losses are counted over whole stretches: a loss is noticed only after its timeout, often
        // outside the window.
        if let Endpoint::Udp(_) = plan.engine.endpoint {
            counts.lost = sum(|worker| worker.sent).saturating_sub(counts.answered);
        }
        counts.closed_by_server = sum(|worker| worker.closed_by_server);
        counts.client_cpu_ns = sum(|worker| worker.cpu.total().as_ns());
        counts.client_waited_ns = sum(|worker| worker.waited.as_ns());
        counts.client_busiest = workers.iter().map(WorkerReport::busy_share).fold(0.0, f64::max);
        measured
    }

    /// Converts the tally of a stretch, or of a part of one.
    pub fn from_tally(plan: &LoadPlan, tally: &Tally) -> Self {
        let open_loop = plan.rate.is_some();
        let latency = &tally.latency;
        let mut latencies = vec![
            (Series::Headline, if open_loop { &latency.from_due } else { &latency.from_sent }),
            (Series::Connect, &latency.connect),
            (Series::Handshake, &latency.tls),
            (Series::FirstByte, &latency.first_byte),
        ];
        if open_loop {
            latencies.push((Series::FromSent, &latency.from_sent));
            latencies.push((Series::SendLag, &latency.send_lag));
        }
        latencies.retain(|(_, histogram)| histogram.count() > 0);
        latencies.sort_by_key(|(series, _)| *series);
        let mut counts = tally.counts.clone();
        counts.window_ns = tally.elapsed().as_ns();
        counts.status.sort_unstable();
        let seconds = tally.elapsed().as_secs_f64();
        counts.due = plan.rate.as_ref().map(|rate| rate.requests_within(seconds));
        counts.errors = tally.failures.named();
        if let Protocol::Calls { .. } = plan.engine.protocol {
            counts.calls = counts.good;
        }
        Self {
            began: tally.start,
            counts,
            latencies: latencies
                .into_iter()
                .map(|(series, h)| (series, h.distribution()))
                .collect(),
            marks: Vec::new(),
        }
    }

    /// Good replies per second, and the mean latency from sending.
    pub fn rate_and_mean(&self) -> (f64, DurationNs) {
        let counts = &self.counts;
        let per_s = counts.good as f64 / (counts.window_ns.max(1) as f64 / 1e9);
        let of = |wanted| self.latencies.iter().find(|(series, _)| *series == wanted);
        let sent = of(Series::FromSent).or_else(|| of(Series::Headline));
        let mean = sent.and_then(|(_, distribution)| distribution.mean_ns()).unwrap_or_default();
        (per_s, DurationNs::from_ns(mean as u64))
    }

    fn as_part(&self) -> ClientPart {
        let lag = self.latencies.iter().find(|(series, _)| *series == Series::SendLag);
        let (sent, lag_ns) = lag.map_or((0, 0), |(_, lag)| (lag.count(), lag.sum_ns()));
        ClientPart {
            good: self.counts.good,
            late_ns: 0,
            busiest: self.counts.client_busiest,
            sent,
            lag_ns: u64::try_from(lag_ns).unwrap_or(u64::MAX).min(NUMBER_MAX),
        }
    }

    /// Merges the results of clients that made one load together; `None` if there are no clients.
    pub fn alongside(parts: Vec<Self>) -> Option<Self> {
        let counts: Vec<Counts> = parts.iter().map(|part| part.counts.clone()).collect();
        let mut all = Counts::merge_concurrent(&counts)?;
        let clients = parts.iter().map(Self::as_part).collect();
        all.together = Some(ConcurrentClients { clients, ..ConcurrentClients::default() });
        let marks: Vec<&[(u64, u64)]> = parts.iter().map(|part| part.marks.as_slice()).collect();
        let marks = marks_alongside(&marks);
        let began = parts.iter().map(|part| part.began).max()?;
        let mut latencies: Vec<(Series, Distribution)> = Vec::new();
        for (series, distribution) in parts.into_iter().flat_map(|part| part.latencies) {
            match latencies.iter_mut().find(|(own, _)| *own == series) {
                Some((_, own)) => own.merge(&distribution),
                None => latencies.push((series, distribution)),
            }
        }
        latencies.sort_by_key(|(series, _)| *series);
        Some(Self { began, counts: all, latencies, marks })
    }

    /// Converts the measurements to the tally of one stretch of load that began at `start`.
    pub fn tally(&self, start: Instant) -> Tally {
        let counts = &self.counts;
        let end = start + DurationNs::from_ns(counts.window_ns);
        let mut tally = Tally { start, end, counts: counts.clone(), ..Tally::default() };
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
            *histogram = Histogram::from_distribution(distribution);
        }
        tally
    }
}

/// Adds up, for the end of each interval, the replies so far; the intervals are the same in all
/// lists.
fn marks_alongside(all: &[&[(u64, u64)]]) -> Vec<(u64, u64)> {
    let n = all.iter().map(|marks| marks.len()).min().unwrap_or(0);
    let at = |index: usize| {
        let marks = all.iter().map(|marks| marks[index]);
        marks.fold((0, 0), |(ns, sum), (own_ns, own)| (ns.max(own_ns), sum + own))
    };
    (0..n).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measured {
        let latency = Distribution::new(vec![(1, 1), (2, 1)], 3);
        Measured {
            began: Instant::from_ns(7),
            counts: Counts {
                started: 3,
                completed: 2,
                good: 2,
                failed: 1,
                closed_by_server: 4,
                ..Counts::default()
            },
            latencies: vec![(Series::Headline, latency)],
            marks: vec![(10, 1), (20, 2)],
        }
    }

    #[test]
    fn a_slice_crosses_to_another_place_and_back_as_it_is() {
        let text = serde_json::to_string(&measured()).unwrap();
        assert_eq!(serde_json::from_str::<Measured>(&text).unwrap(), measured());
    }

    #[test]
    fn what_cannot_be_of_a_slice_is_not_believed() {
        let text = serde_json::to_string(&measured()).unwrap();
        let believed = |text: &str| serde_json::from_str::<Measured>(text).is_ok();
        for (from, to) in [
            (r#""started":3"#, r#""started":100"#),
            (r#""good":2"#, r#""good":3"#),
            (r#""completed":2"#, r#""completed":18446744073709551615"#),
            (r#""closed_by_server":4"#, r#""closed_by_server":18446744073709551615"#),
            (r#""client_busiest":0.0"#, r#""client_busiest":null"#),
            ("[[1,1],[2,1]]", "[[2,1],[1,1]]"),
            ("[[1,1],[2,1]]", "[[1,18446744073709551615],[2,1]]"),
            ("[[10,1],[20,2]]", "[[20,1],[10,2]]"),
            ("[[10,1],[20,2]]", "[[10,2],[20,1]]"),
            ("[[10,1],[20,2]]", "[[10,1],[20,18446744073709551615]]"),
        ] {
            assert!(text.contains(from), "{from} in {text}");
            assert!(!believed(&text.replace(from, to)), "{to}");
        }
        let mut twice = measured();
        twice.latencies.push(twice.latencies[0].clone());
        assert!(!believed(&serde_json::to_string(&twice).unwrap()));
        let mut statuses = measured();
        statuses.counts.status = vec![(200, 1); 1000];
        assert!(!believed(&serde_json::to_string(&statuses).unwrap()));
    }

    #[test]
    fn clients_at_the_same_time_are_as_fast_as_their_sum() {
        let mut other = measured();
        other.counts.window_ns = 1_000;
        let one = other.clone();
        other.latencies[0].1 = Distribution::new(vec![(2, 3)], 6);
        let all = Measured::alongside(vec![one.clone(), other]).unwrap();
        assert_eq!((all.counts.window_ns, all.counts.good), (1_000, 4));
        assert_eq!(all.rate_and_mean().0, 2.0 * one.rate_and_mean().0);
        assert_eq!(all.latencies[0].1, Distribution::new(vec![(1, 1), (2, 4)], 9));
        assert_eq!(all.marks, [(10, 2), (20, 4)]);
        assert_eq!(Measured::alongside(Vec::new()), None);
    }
}
