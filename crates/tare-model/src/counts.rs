//! Counters of a stretch of load. A new one needs a line in the list below and a line where it is
//! counted; adding, checking, storing and sending are generic.

use serde::{Deserialize, Serialize};

use crate::clients::CLIENTS_MAX;
use crate::samples::NUMBER_MAX;

macro_rules! counts {
    ($($(#[$attribute:meta])* $name:ident,)*) => {
        /// Counters of a slice. They cover its window unless stated otherwise.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Counts {
            $($(#[$attribute])* #[serde(default, skip_serializing_if = "is_zero")] pub $name: u64,)*
            /// Requests in the schedule; open loop only.
            pub due: Option<f64>,
            /// Share of the window that the busiest load worker spent on a CPU; over several
            /// slices, the mean.
            pub client_busiest: f64,
            pub status: Vec<(u16, u64)>,
            /// Name, count and first text of each kind of failure.
            pub errors: Vec<(String, u64, String)>,
            /// SHA-256 of sampled bodies with an expected status, over the whole stretch, and how
            /// many samples had it.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub bodies: Vec<(String, u64)>,
            /// Set when several clients made the load together.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub together: Option<ConcurrentClients>,
        }

        impl Counts {
            fn numbers(&self) -> impl Iterator<Item = u64> {
                [$(self.$name),*].into_iter()
            }

            fn numbers_mut(&mut self) -> impl Iterator<Item = &mut u64> {
                [$(&mut self.$name),*].into_iter()
            }
        }
    };
}

counts! {
    window_ns,
    /// Requests due in the window, or carried over from before it.
    started,
    /// Whole replies, whatever their status.
    completed,
    /// Replies with an expected status; only these count as throughput.
    good,
    failed,
    /// Requests that the server refused unprocessed and that were sent again; not failures.
    refused,
    /// Open loop: started requests that had to wait for a free connection.
    waited,
    /// Requests answered after the window, while tare waited for them.
    drained,
    /// Requests given up: failed after the window, or still unanswered at the time limit.
    cut,
    /// Requests due before the end of the window but never sent: every connection was busy.
    unsent,
    /// Replies over the whole stretch, ramp and drain included; the server's CPU time covers these.
    answered,
    body_bytes,
    received_bytes,
    sent_bytes,
    /// Connections that were established, TLS included.
    opened,
    /// Failed attempts to open a connection.
    not_opened,
    closed_by_server,
    closed_by_client,
    handshakes_full,
    handshakes_resumed,
    /// CPU time of the load workers.
    client_cpu_ns,
    /// Time in which load workers were ready to run but waited for a CPU.
    client_waited_ns,
    /// Datagrams that did not arrive, or come back, in time; lost requests are also in `failed`.
    lost,
    /// System calls made instead of requests.
    calls,
    /// Datagrams of a stream that came after a later one.
    disordered,
    /// Good replies that ended about 40 ms (TCP's delay of acknowledgements) after they began.
    held,
    /// Segments that a TCP stream sent again.
    retransmits,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Synchronisation and results of several clients that made one load together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConcurrentClients {
    /// Time from the first client's start to the last one's, for each slice.
    pub skews_ns: Vec<u64>,
    /// Largest possible error of the clock estimates; over several slices, the maximum.
    pub clock_ns: u64,
    /// One entry per client, in the variant's order.
    pub clients: Vec<ClientPart>,
}

/// One client's part of the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientPart {
    pub good: u64,
    /// Delay of its start after the agreed instant; over several slices, the longest.
    pub late_ns: u64,
    /// Share of the window that its busiest worker spent on a CPU; over several slices, the mean.
    pub busiest: f64,
    /// Open loop: requests that the client sent.
    pub sent: u64,
    /// Open loop: sum of these requests' send lags.
    pub lag_ns: u64,
}

impl ConcurrentClients {
    /// Adds a later stretch of load.
    fn then(&mut self, other: &Self) {
        let (mine, theirs) = (self.skews_ns.len() as f64, other.skews_ns.len() as f64);
        self.skews_ns.extend(&other.skews_ns);
        self.clock_ns = self.clock_ns.max(other.clock_ns);
        self.clients.resize(self.clients.len().max(other.clients.len()), ClientPart::default());
        for (own, other) in self.clients.iter_mut().zip(&other.clients) {
            own.good += other.good;
            own.late_ns = own.late_ns.max(other.late_ns);
            let busy = own.busiest * mine + other.busiest * theirs;
            own.busiest = busy / (mine + theirs).max(1.0);
            own.sent += other.sent;
            own.lag_ns += other.lag_ns;
        }
    }

    fn is_possible(&self) -> bool {
        let of_clients = |client: &ClientPart| {
            let numbers = [client.good, client.late_ns, client.sent, client.lag_ns];
            numbers.into_iter().all(|number| number <= NUMBER_MAX) && client.busiest.is_finite()
        };
        self.clients.len() <= CLIENTS_MAX
            && self.clients.iter().all(of_clients)
            && self.skews_ns.len() <= 1
            && self.skews_ns.iter().chain([&self.clock_ns]).all(|ns| *ns <= NUMBER_MAX)
    }

    /// The start skew that 99 of 100 slices do not exceed.
    pub fn skew_p99_ns(&self) -> u64 {
        let mut skews = self.skews_ns.clone();
        skews.sort_unstable();
        let rank = (skews.len() * 99).div_ceil(100);
        skews.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    }

    /// Fewest and most good replies of any client.
    pub fn spread(&self) -> (u64, u64) {
        let good = || self.clients.iter().map(|client| client.good);
        (good().min().unwrap_or(0), good().max().unwrap_or(0))
    }
}

impl Counts {
    /// Adds a later stretch of load.
    pub fn accumulate(&mut self, other: &Self) {
        let (mine, theirs) = (self.window_ns as f64, other.window_ns as f64);
        let busy = self.client_busiest * mine + other.client_busiest * theirs;
        self.client_busiest = busy / (mine + theirs).max(1.0);
        self.numbers_mut().zip(other.numbers()).for_each(|(own, other)| *own += other);
        self.due = match (self.due, other.due) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        other.status.iter().for_each(|(status, n)| self.add_status(*status, *n));
        self.status.sort_unstable();
        for (kind, n, first) in &other.errors {
            match self.errors.iter_mut().find(|(known, ..)| known == kind) {
                Some((_, count, _)) => *count += n,
                None => self.errors.push((kind.clone(), *n, first.clone())),
            }
        }
        self.errors.sort();
        for (hash, n) in &other.bodies {
            let known = self.bodies.iter().position(|(known, _)| known == hash);
            match known {
                Some(at) => self.bodies[at].1 += n,
                None if self.bodies.len() < BODIES_MAX => self.bodies.push((hash.clone(), *n)),
                None => {}
            }
        }
        match (&mut self.together, &other.together) {
            (Some(own), Some(other)) => own.then(other),
            (own, other) => *own = own.take().or_else(|| other.clone()),
        }
    }

    /// Adds the connections, handshakes and errors of opening connections, but none of the traffic.
    pub fn add_opening(&mut self, opening: &Self) {
        self.accumulate(&Self {
            opened: opening.opened,
            not_opened: opening.not_opened,
            closed_by_server: opening.closed_by_server,
            closed_by_client: opening.closed_by_client,
            handshakes_full: opening.handshakes_full,
            handshakes_resumed: opening.handshakes_resumed,
            errors: opening.errors.clone(),
            ..Self::default()
        });
    }

    /// Adds `n` replies with this status. A linear search is fast: there are few statuses, and the
    /// most common one usually comes first.
    #[inline]
    pub fn add_status(&mut self, status: u16, n: u64) {
        match self.status.iter_mut().find(|(known, _)| *known == status) {
            Some((_, count)) => *count += n,
            None => self.status.push((status, n)),
        }
    }

    /// Merges counts of loads that ran at the same time. The result has the mean of the windows,
    /// the maximum of the busiest workers, and sums of everything else. `None` without parts.
    pub fn merge_concurrent(parts: &[Self]) -> Option<Self> {
        let (first, more) = parts.split_first()?;
        let mut all = first.clone();
        more.iter().for_each(|part| all.accumulate(part));
        all.window_ns /= parts.len() as u64;
        all.client_busiest = parts.iter().map(|part| part.client_busiest).fold(0.0, f64::max);
        Some(all)
    }

    /// Requests without a reply at the end of the window.
    pub fn unfinished(&self) -> u64 {
        self.drained + self.cut + self.unsent
    }

    /// Whether every started request is accounted for.
    pub fn are_balanced(&self) -> bool {
        let ends = [self.completed, self.failed, self.drained, self.cut, self.unsent];
        ends.into_iter().try_fold(0u64, u64::checked_add) == Some(self.started)
    }

    /// Whether the counts are possible: an agent that somebody else controls may have sent them.
    pub fn are_possible(&self) -> bool {
        let of_statuses = self.status.iter().map(|(_, n)| *n);
        let of_errors = self.errors.iter().map(|(_, n, _)| *n);
        let of_bodies = self.bodies.iter().map(|(_, n)| *n);
        let mut numbers = self.numbers().chain(of_statuses).chain(of_errors).chain(of_bodies);
        self.are_balanced()
            && self.good <= self.completed
            && numbers.all(|number| number <= NUMBER_MAX)
            && self.client_busiest.is_finite()
            && self.status.len() <= STATUSES_MAX
            && self.errors.len() <= ERRORS_MAX
            && self.bodies.len() <= BODIES_MAX
            && self.bodies.iter().all(|(hash, _)| is_sha256(hash))
            && self.together.as_ref().is_none_or(ConcurrentClients::is_possible)
    }
}

/// Most distinct statuses: they have three digits.
const STATUSES_MAX: usize = 900;
/// Most kinds of failures; there are about a dozen.
const ERRORS_MAX: usize = 100;
/// Most distinct bodies that are recorded.
const BODIES_MAX: usize = 16;

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
