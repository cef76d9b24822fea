//! What is counted about a stretch of load. A counter is a line in the list below and a line where
//! it is counted: it is added, checked, stored and sent by what they share.

use serde::{Deserialize, Serialize};

use crate::clients::CLIENTS_MAX;
use crate::samples::NUMBER_MAX;

macro_rules! counts {
    ($($(#[$attribute:meta])* $name:ident,)*) => {
        /// Counters of a slice: of its window, unless they say otherwise.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Counts {
            $($(#[$attribute])* #[serde(default, skip_serializing_if = "is_zero")] pub $name: u64,)*
            /// Requests that the schedule held, open loop only.
            pub due: Option<f64>,
            /// The share of the window that the busiest load worker was on a CPU (over several
            /// slices: the mean).
            pub client_busiest: f64,
            pub status: Vec<(u16, u64)>,
            /// Kind, how often, and the first in words.
            pub errors: Vec<(String, u64, String)>,
            /// SHA-256 of some bodies of replies with the expected status, over the whole stretch,
            /// and how many of those looked at had it.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub bodies: Vec<(String, u64)>,
            /// Where several clients made the load together.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub together: Option<Together>,
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
    /// Requests that were due, carried over from before the window or begun since.
    started,
    /// Whole replies, whatever their status.
    completed,
    /// Replies whose status was an expected one: the only ones that count as throughput.
    good,
    failed,
    /// Refused by the server unprocessed, and to be sent again: no failures.
    refused,
    /// Open loop: of the started, those that had to wait for a connection to be free.
    waited,
    /// Without a reply at the end of the window, but answered while tare waited for them.
    drained,
    /// Given up: they failed after the window, or were still waiting at their time limit.
    cut,
    /// Due before the end of the window but never sent: every connection was busy.
    unsent,
    /// Replies of the whole stretch, ramp and drain included: what the server's CPU time paid for.
    answered,
    body_bytes,
    received_bytes,
    sent_bytes,
    /// Connections that were established, TLS included.
    opened,
    /// Attempts that came to nothing.
    not_opened,
    closed_by_server,
    closed_by_client,
    handshakes_full,
    handshakes_resumed,
    /// CPU time of the load workers.
    client_cpu_ns,
    /// Datagrams that did not come (or come back) in time; of requests, these are among `failed`.
    lost,
    /// Calls into the kernel that were made instead of requests.
    calls,
    /// Datagrams of a stream that came after a later one.
    disordered,
    /// Good replies whose end came a delayed acknowledgement's time after their beginning.
    held,
    /// Segments that a TCP stream sent again.
    retransmits,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// What several clients did that made one load at the same time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Together {
    /// From the start of the first to that of the last: a value for each slice.
    pub skews_ns: Vec<u64>,
    /// How far off the estimate of their clocks can be; over several slices the most.
    pub clock_ns: u64,
    /// Each of them, in the order in which the variant names them.
    pub clients: Vec<ClientPart>,
}

/// One client's part of what several did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientPart {
    pub good: u64,
    /// From the instant that was agreed upon to its start; over several slices the longest.
    pub late_ns: u64,
    /// The share of the window that its busiest worker was on a CPU; over several slices the mean.
    pub busiest: f64,
    /// Requests that it sent, and how long after they were due, summed: of an open loop.
    pub sent: u64,
    pub lag_ns: u64,
}

impl Together {
    /// Adds what came after this.
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

    /// Good replies of the client that got the fewest, and of the one that got the most.
    pub fn spread(&self) -> (u64, u64) {
        let good = || self.clients.iter().map(|client| client.good);
        (good().min().unwrap_or(0), good().max().unwrap_or(0))
    }
}

impl Counts {
    /// Adds what came after this.
    pub fn then(&mut self, other: &Self) {
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

    /// Adds what opening connections was like: connections and what went wrong, and nothing that was
    /// sent for it.
    pub fn add_opening(&mut self, opening: &Self) {
        self.then(&Self {
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

    /// Replies with a status: a handful of statuses at most, and the common one comes first.
    #[inline]
    pub fn add_status(&mut self, status: u16, n: u64) {
        match self.status.iter_mut().find(|(known, _)| *known == status) {
            Some((_, count)) => *count += n,
            None => self.status.push((status, n)),
        }
    }

    /// What all of these counted at the same time: a window is as long as theirs, and in it is what
    /// all of them saw. `None` where there are none.
    pub fn alongside(parts: &[Self]) -> Option<Self> {
        let (first, more) = parts.split_first()?;
        let mut all = first.clone();
        more.iter().for_each(|part| all.then(part));
        all.window_ns /= parts.len() as u64;
        all.client_busiest = parts.iter().map(|part| part.client_busiest).fold(0.0, f64::max);
        Some(all)
    }

    /// Requests that had no reply when the window was over. None of them vanishes.
    pub fn unfinished(&self) -> u64 {
        self.drained + self.cut + self.unsent
    }

    /// Every request that started ended somewhere.
    pub fn close(&self) -> bool {
        let ends = [self.completed, self.failed, self.drained, self.cut, self.unsent];
        ends.into_iter().try_fold(0u64, u64::checked_add) == Some(self.started)
    }

    /// Whether these can be a slice's: they may come from an agent in another's hands.
    pub fn are_possible(&self) -> bool {
        let of_statuses = self.status.iter().map(|(_, n)| *n);
        let of_errors = self.errors.iter().map(|(_, n, _)| *n);
        let of_bodies = self.bodies.iter().map(|(_, n)| *n);
        let mut numbers = self.numbers().chain(of_statuses).chain(of_errors).chain(of_bodies);
        self.close()
            && self.good <= self.completed
            && numbers.all(|number| number <= NUMBER_MAX)
            && self.client_busiest.is_finite()
            && self.status.len() <= STATUSES_MAX
            && self.errors.len() <= ERRORS_MAX
            && self.bodies.len() <= BODIES_MAX
            && self.bodies.iter().all(|(hash, _)| is_sha256(hash))
            && self.together.as_ref().is_none_or(Together::is_possible)
    }
}

/// Three digits.
const STATUSES_MAX: usize = 900;
/// Kinds of failures, of which there are a dozen.
const ERRORS_MAX: usize = 100;
/// Kinds of bodies that are told apart.
const BODIES_MAX: usize = 16;

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
