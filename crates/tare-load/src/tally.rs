//! Counts and latencies of a stretch of load. Tallies are merged by adding histograms, never
//! percentiles.

use tare_io::{DurationNs, Instant};
use tare_model::samples::Counts;

use crate::failure::{FailureKind, RequestFailure};
use crate::histogram::Histogram;

/// Everything measured over `[start, end)` by one worker, or by several once merged.
///
/// Counters balance: every request that started has ended (see [`Tally::assert_closed`]).
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub start: Instant,
    pub end: Instant,
    /// Errors and the window's length are filled in only when the tally is passed on.
    pub counts: Counts,
    pub failures: Failures,
    pub latency: Latencies,
}

/// Failures by kind, and the text of the first of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    counts: [u64; FailureKind::ALL.len()],
    first: [Option<String>; FailureKind::ALL.len()],
}

/// Timing models, each from event to event; all but the last three contain good replies only.
/// A histogram that the mode does not use stays empty.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// From the request handed to the kernel to the last byte of its reply. With a new connection
    /// for each request, from the start of connecting: the total.
    pub from_sent: Histogram,
    /// Open loop: from the moment the request was due to the last byte of its reply.
    pub from_due: Histogram,
    /// Open loop: from due to handed to the kernel (or to the start of connecting).
    pub send_lag: Histogram,
    /// New connections: from the start of connecting to connected.
    pub connect: Histogram,
    /// New connections: from connected to the end of the TLS handshake.
    pub tls: Histogram,
    /// New connections: from the request handed to the kernel to the first byte of its reply.
    pub first_byte: Histogram,
    /// Like the headline, for replies with an unexpected status.
    pub unexpected: Histogram,
    /// From due to the failure.
    pub failed_after: Histogram,
    /// From due to the late reply, or to when the request was given up.
    pub unfinished_age: Histogram,
}

/// Which series a mode fills at every request, so that their memory is allocated beforehand.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    pub open_loop: bool,
    pub new_connections: bool,
    pub tls: bool,
}

impl Tally {
    pub fn for_series(series: Series) -> Self {
        let mut tally = Self::default();
        tally.counts.status.reserve(16);
        let latency = &mut tally.latency;
        latency.from_sent = Histogram::preallocated();
        if series.open_loop {
            latency.from_due = Histogram::preallocated();
            latency.send_lag = Histogram::preallocated();
        }
        if series.new_connections {
            latency.connect = Histogram::preallocated();
            latency.first_byte = Histogram::preallocated();
            if series.tls {
                latency.tls = Histogram::preallocated();
            }
        }
        tally
    }

    /// Resets the tally, but keeps its memory.
    pub fn reset(&mut self, start: Instant) {
        let mut counts =
            Counts { status: std::mem::take(&mut self.counts.status), ..Counts::default() };
        counts.status.clear();
        let mut latency = std::mem::take(&mut self.latency);
        for histogram in latency.all_mut() {
            histogram.clear();
        }
        *self = Self { start, end: start, counts, latency, ..Self::default() };
    }

    pub fn merge(&mut self, other: &Self) {
        // A tally that never began has no start and end.
        if other.end > Instant::ZERO {
            let untouched = self.end == Instant::ZERO;
            self.start = if untouched { other.start } else { self.start.min(other.start) };
            self.end = self.end.max(other.end);
        }
        self.counts.accumulate(&other.counts);
        self.failures.merge(&other.failures);
        for (mine, theirs) in self.latency.all_mut().into_iter().zip(other.latency.all()) {
            mine.merge(theirs);
        }
    }

    /// Asserts that every request that started has ended; if not, it is a bug in tare.
    pub fn assert_closed(&self) {
        assert!(self.counts.are_balanced(), "requests started against ended: {:?}", self.counts);
    }

    pub fn elapsed(&self) -> DurationNs {
        self.end.since(self.start)
    }

    /// Good replies per second: the throughput.
    pub fn good_per_s(&self) -> f64 {
        let seconds = self.elapsed().as_secs_f64();
        if seconds > 0.0 { self.counts.good as f64 / seconds } else { 0.0 }
    }
}

impl Failures {
    pub fn add(&mut self, failure: &RequestFailure, n: u64) {
        let at = failure.kind() as usize;
        self.counts[at] += n;
        if self.first[at].is_none() {
            self.first[at] = Some(failure.to_string());
        }
    }

    /// Adds `n` failures by the name of their kind, as another process reported them.
    pub fn add_named(&mut self, kind: &str, n: u64, first: &str) {
        let known = FailureKind::ALL.into_iter().find(|known| known.name() == kind);
        let at = known.unwrap_or(FailureKind::Other) as usize;
        self.counts[at] += n;
        self.first[at].get_or_insert_with(|| first.to_owned());
    }

    pub fn count(&self, kind: FailureKind) -> u64 {
        self.counts[kind as usize]
    }

    /// Kinds that occurred, with their counts and the text of the first failure of each.
    pub fn seen(&self) -> impl Iterator<Item = (FailureKind, u64, &str)> {
        FailureKind::ALL.into_iter().filter(|kind| self.count(*kind) > 0).map(|kind| {
            (kind, self.count(kind), self.first[kind as usize].as_deref().unwrap_or_default())
        })
    }

    /// Like [`Failures::seen`], with the names of the kinds.
    pub fn named(&self) -> Vec<(String, u64, String)> {
        self.seen().map(|(kind, n, first)| (kind.name().to_owned(), n, first.to_owned())).collect()
    }

    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
        for (mine, theirs) in self.first.iter_mut().zip(&other.first) {
            if mine.is_none() {
                mine.clone_from(theirs);
            }
        }
    }
}

impl Latencies {
    /// The mode's main latency: from due in open loop, from sent in closed loop.
    pub fn headline(&self) -> &Histogram {
        if self.from_due.count() > 0 { &self.from_due } else { &self.from_sent }
    }

    fn all_mut(&mut self) -> [&mut Histogram; 9] {
        let Self {
            from_sent,
            from_due,
            send_lag,
            connect,
            tls,
            first_byte,
            unexpected,
            failed_after,
            unfinished_age,
        } = self;
        [
            from_sent,
            from_due,
            send_lag,
            connect,
            tls,
            first_byte,
            unexpected,
            failed_after,
            unfinished_age,
        ]
    }

    fn all(&self) -> [&Histogram; 9] {
        [
            &self.from_sent,
            &self.from_due,
            &self.send_lag,
            &self.connect,
            &self.tls,
            &self.first_byte,
            &self.unexpected,
            &self.failed_after,
            &self.unfinished_age,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(start_s: u64, good: u64) -> Tally {
        let start = Instant::ZERO + DurationNs::from_secs(start_s);
        let counts = Counts { started: good, completed: good, good, ..Counts::default() };
        Tally { start, end: start + DurationNs::from_secs(1), counts, ..Tally::default() }
    }

    #[test]
    fn an_interval_in_which_nothing_happened_still_took_its_time() {
        let mut total = Tally::default();
        for tally in [stretch(5, 0), stretch(6, 0), stretch(7, 300)] {
            total.merge(&tally);
        }
        assert_eq!(total.elapsed(), DurationNs::from_secs(3));
        assert_eq!(total.good_per_s(), 100.0);
    }

    #[test]
    #[should_panic(expected = "requests started against ended")]
    fn counters_that_do_not_close_are_a_bug() {
        let counts = Counts { started: 2, completed: 1, ..Counts::default() };
        Tally { counts, ..Tally::default() }.assert_closed();
    }
}
