//! Exact counts of what the target saw and did, over all its threads.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One thread's counters. Only that thread writes; any thread may read.
#[derive(Debug, Default)]
#[repr(align(128))] // Threads must not share a cache line.
pub struct ThreadStats {
    values: [AtomicU64; Counter::ALL.len()],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    Requests,
    Replies,
    Errors,
    Resets,
    BadRequests,
    Connections,
    ClosedByClient,
    ClosedByTarget,
    HandshakesFull,
    HandshakesResumed,
    HandshakesFailed,
    ReceivedBytes,
    SentBytes,
    StatsRequests,
    /// Streams refused with REFUSED_STREAM.
    Refused,
    /// Streams that the client reset.
    Cancelled,
    /// Total time from reading each request until its reply was due: delays, services, queues.
    WaitedNs,
    /// Total time by which replies went out late.
    LateNs,
}

impl Counter {
    pub const ALL: [(Self, &'static str); 18] = [
        (Self::Requests, "requests"),
        (Self::Replies, "replies"),
        (Self::Errors, "errors"),
        (Self::Resets, "resets"),
        (Self::BadRequests, "bad_requests"),
        (Self::Connections, "connections"),
        (Self::ClosedByClient, "closed_by_client"),
        (Self::ClosedByTarget, "closed_by_target"),
        (Self::HandshakesFull, "handshakes_full"),
        (Self::HandshakesResumed, "handshakes_resumed"),
        (Self::HandshakesFailed, "handshakes_failed"),
        (Self::ReceivedBytes, "received_bytes"),
        (Self::SentBytes, "sent_bytes"),
        (Self::StatsRequests, "stats_requests"),
        (Self::Refused, "refused"),
        (Self::Cancelled, "cancelled"),
        (Self::WaitedNs, "waited_ns"),
        (Self::LateNs, "late_ns"),
    ];
}

/// All threads' counters.
#[derive(Clone, Debug)]
pub struct Stats(Arc<[ThreadStats]>);

impl Stats {
    pub fn new(threads: usize) -> Self {
        Self((0..threads.max(1)).map(|_| ThreadStats::default()).collect())
    }

    pub fn add(&self, thread: usize, counter: Counter, n: u64) {
        // There is one writer, so a load and a store suffice; atomics never tear for readers.
        let value = &self.0[thread].values[counter as usize];
        value.store(value.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    pub fn get(&self, counter: Counter) -> u64 {
        self.0.iter().map(|thread| thread.values[counter as usize].load(Ordering::Relaxed)).sum()
    }

    /// Returns the counters as a JSON object; `/stats` requests are counted apart from the others.
    pub fn json(&self) -> String {
        let mut text = String::from("{");
        for (at, (counter, name)) in Counter::ALL.into_iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let _ = write!(text, "{comma}\"{name}\": {}", self.get(counter));
        }
        text.push_str("}\n");
        text
    }
}
