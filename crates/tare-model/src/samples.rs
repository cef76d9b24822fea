//! Measurements: slices, launches, rounds. Plain data, kept whole in the store; everything else is
//! computed from it.

use serde::{Deserialize, Serialize};

pub use crate::counts::{ClientPart, ConcurrentClients, Counts};
use crate::distribution::Distribution;
use crate::plain;
use crate::sustained::{Sustained, WarmUp};
use crate::usage::Usage;

/// One launch of every variant, and the cycles of slices run on them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    pub index: u32,
    /// Planned number of slices of each variant.
    pub cycles: u32,
    pub started_unix_ms: u64,
    pub elapsed_ns: u64,
    pub machine: MachineUse,
    pub launches: Vec<Launch>,
    pub slices: Vec<Slice>,
    /// Slices with clients that sleep while they wait, of cycles numbered after the planned ones.
    pub by_sleepers: Vec<Slice>,
}

/// Activity of the whole machine during a round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineUse {
    /// CPUs times elapsed time.
    pub capacity_ns: u64,
    pub busy_ns: u64,
    /// CPU time that the hypervisor gave to others.
    pub steal_ns: u64,
    /// CPU time of tare itself, load workers included.
    pub own_cpu_ns: u64,
    /// Periods in which a CPU quota throttled tare.
    pub throttled_periods: u64,
    pub thermal_throttles: u64,
    pub tcp_segments: u64,
    pub tcp_retransmits: u64,
    pub listen_drops: u64,
    /// Share (0 to 1) of local ports in use at the end; only with new connections.
    pub ports_used: Option<f64>,
}

impl MachineUse {
    /// Adds a later stretch.
    pub fn then(&mut self, more: &Self) {
        self.capacity_ns += more.capacity_ns;
        self.busy_ns += more.busy_ns;
        self.steal_ns += more.steal_ns;
        self.own_cpu_ns += more.own_cpu_ns;
        self.throttled_periods += more.throttled_periods;
        self.thermal_throttles += more.thermal_throttles;
        self.tcp_segments += more.tcp_segments;
        self.tcp_retransmits += more.tcp_retransmits;
        self.listen_drops += more.listen_drops;
        self.ports_used = [self.ports_used, more.ports_used].into_iter().flatten().reduce(f64::max);
    }
}

/// One start of one variant's server (or, where tare does not start it, one set of connections).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    pub variant: u32,
    /// Started afresh; false where the server was already up.
    pub fresh: bool,
    pub started_unix_ms: u64,
    /// Time from the server's start to its first good reply.
    pub ready_ns: u64,
    /// Time from before its place existed to its first good reply; only if it started alone and
    /// afresh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup_ns: Option<u64>,
    /// CPU time of the whole machine during `startup_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup_cpu_ns: Option<u64>,
    /// Requests sent while the server's own counter ran; `requests_served` is its count.
    pub requests_sent: u64,
    /// Requests sent that got no complete reply. The server may or may not have counted them.
    #[serde(default, skip_serializing_if = "is_none_of_them")]
    pub requests_unsure: u64,
    pub requests_served: Option<u64>,
    pub rss_bytes: Option<u64>,
    /// Memory of all hops, kept by earlier versions instead of `parts`.
    #[serde(default, skip_serializing)]
    pub layers_rss_bytes: Option<u64>,
    /// Its hops, the nearest to the client first, and then its server; empty where tare meters
    /// nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<LaunchPart>,
    pub log_lines: u64,
    pub log_bytes: u64,
    /// Connections closed by the server between and within slices.
    pub closed_by_server: u64,
    /// CPU time of its processes, over all its slices.
    pub cpu_ns: u64,
    /// Periods in which a CPU quota throttled its processes.
    pub throttled_periods: u64,
    pub probe: Option<Probe>,
    /// Evidence that each of its layers was in the path, or was not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proofs: Vec<Proof>,
    /// Time of one call of its filter, without the server, in a process of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_ns: Option<f64>,
    /// Whether it ran on an emulated CPU.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub emulated: bool,
    /// How often its place had been started by then; 0 where it has none of its own.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub place_starts: u32,
    #[serde(default)]
    pub load: LaunchLoad,
}

fn is_none_of_them(n: &u64) -> bool {
    *n == 0
}

/// Number of requests sent to a launch, for comparison with counts made elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    pub requests: u64,
    pub unsure: u64,
}

/// How a count compares with the requests that were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountMatch {
    /// Requests without a reply explain the whole difference.
    Explained,
    /// This many requests remain unexplained, at most 0.1 % of those sent.
    Few(u64),
    Mismatch,
}

impl Sent {
    pub fn compare(self, counted: u64) -> CountMatch {
        match counted.abs_diff(self.requests).saturating_sub(self.unsure) {
            0 => CountMatch::Explained,
            beyond if beyond <= self.requests / FEW_OF => CountMatch::Few(beyond),
            _ => CountMatch::Mismatch,
        }
    }

    pub fn fits(self, counted: u64) -> bool {
        self.compare(counted) != CountMatch::Mismatch
    }
}

impl std::fmt::Display for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.requests.fmt(f)
    }
}

/// Up to one unexplained request in this many is a warning and does not void the launch.
const FEW_OF: u64 = 1000;

impl Launch {
    pub fn sent(&self) -> Sent {
        Sent { requests: self.requests_sent, unsure: self.requests_unsure }
    }

    /// The memory of all its hops; `None` without hops.
    pub fn hops_rss_bytes(&self) -> Option<u64> {
        match self.parts.split_last() {
            Some((_, hops)) if !hops.is_empty() => saturating_sum(hops),
            _ => self.layers_rss_bytes,
        }
    }
}

fn saturating_sum(parts: &[LaunchPart]) -> Option<u64> {
    parts.iter().try_fold(0u64, |sum, part| Some(sum.saturating_add(part.rss_bytes?)))
}

/// Most parts of a launch: a variant has up to eight layers, and a cluster's entry has a few pods.
pub const PARTS_MAX: usize = 64;
const PART_CHARS_MAX: usize = 100;

impl LaunchPart {
    /// Limits names and numbers: somebody else may have written the store.
    #[must_use]
    pub fn bounded(self) -> Self {
        Self {
            name: plain::short(&self.name, PART_CHARS_MAX),
            place: plain::short(&self.place, PART_CHARS_MAX),
            place_starts: self.place_starts,
            rss_bytes: self.rss_bytes.map(|bytes| bytes.min(NUMBER_MAX)),
            throttled_periods: self.throttled_periods.min(NUMBER_MAX),
        }
    }
}

/// One part of a launch: its server, or a hop before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchPart {
    pub name: String,
    pub place: String,
    /// How often a hop's own place had been started by then.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub place_starts: u32,
    /// Resident memory at the end of the launch.
    pub rss_bytes: Option<u64>,
    /// Periods in which a CPU quota throttled it.
    #[serde(default, skip_serializing_if = "is_none_of")]
    pub throttled_periods: u64,
}

/// Load and measurements of a launch outside its slices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LaunchLoad {
    /// How its load was made: the reactor, and what idle threads do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Whether a process other than this one made the load, in the clients' place.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_another: bool,
    /// Load before its first slice.
    pub warmup: WarmUp,
    /// Whether the warm-up reached its limit while costs still changed.
    pub not_warm: bool,
    /// Excess cost of a request after the warm-up over the first launch (as a logarithm), beyond
    /// the excess that all variants share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<f64>,
    /// Usage of its server before any load, if that matters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_rest: Option<AtRest>,
    /// CPU time while others were measured: outside its slices and the rests after them.
    pub idle_cpu_ns: u64,
    /// Length of the time that `idle_cpu_ns` covers; 0 if it was not recorded.
    pub idle_ns: u64,
    /// Number of rests after slices.
    pub rests: u32,
    /// Number of rests that ended before all servers were idle.
    pub rests_cut: u32,
    /// Loads as short as a slice's ramp, which measure what ramps cost.
    pub ramps: Option<Ramps>,
    /// Number of CPUs that the server may use; 0 if unknown.
    pub cpus: u32,
    /// Threads that used at least a third of the busiest thread's CPU time.
    pub busy_threads: u32,
    /// How long ready threads waited for a CPU.
    pub delay_ns: u64,
    pub sustained: Option<Sustained>,
    /// How evenly its connections were served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub favoured: Option<ReplySkew>,
}

/// CPU time of a server without any load, and over how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AtRest {
    pub cpu_ns: u64,
    pub ns: u64,
}

/// The quarter of a launch's connections that got the most replies; `of_connections` and
/// `of_replies` count all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplySkew {
    pub connections: u32,
    pub replies: u64,
    pub of_connections: u32,
    pub of_replies: u64,
}

impl ReplySkew {
    /// Takes the number of replies on each connection; `None` if there are too few connections.
    pub fn from_replies(replies: &[u64]) -> Option<Self> {
        const CONNECTIONS_MIN: usize = 4;
        let most = replies.len().div_ceil(4);
        if replies.len() < CONNECTIONS_MIN {
            return None;
        }
        let mut sorted = replies.to_vec();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let sum = |part: &[u64]| part.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
        Some(Self {
            connections: most as u32,
            replies: sum(&sorted[..most]).min(NUMBER_MAX),
            of_connections: replies.len() as u32,
            of_replies: sum(&sorted).min(NUMBER_MAX),
        })
    }

    pub fn share(self) -> f64 {
        self.replies as f64 / self.of_replies.max(1) as f64
    }
}

/// Total cost of this many ramps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ramps {
    pub ramps: u32,
    pub answered: u64,
    pub server: Usage,
}

impl Ramps {
    /// Subtracts one ramp from what a slice used and answered: the first requests after a rest find
    /// cold caches and slowed clocks. Nothing is subtracted if the ramp is most of the slice.
    pub fn taken_from(&self, used: &Usage, answered: u64) -> (Usage, u64) {
        let share = |n: u64| n / u64::from(self.ramps.max(1));
        let cpu_ns = share(self.server.cpu_ns());
        if share(self.answered) * 2 > answered || cpu_ns * 2 > used.cpu_ns() {
            return (used.clone(), answered);
        }
        (used.since(&self.server.map(share)), answered - share(self.answered))
    }
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

fn is_none_of(n: &u64) -> bool {
    *n == 0
}

/// Evidence about a layer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    pub layer: String,
    pub held: bool,
    /// Description of the observation.
    pub text: String,
}

/// A variant's reply to the request that all variants get.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    pub status: u16,
    pub body_bytes: u64,
    pub body_sha256: String,
    /// Whether two requests got the same body.
    pub body_stable: bool,
    /// Names of the reply's headers, in lower case and sorted.
    pub header_names: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_encoding: Option<String>,
    /// How the body begins, as text; kept until it has been compared with the baseline's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body_start: String,
    /// First difference between the body and the baseline's, if both have the same length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_difference: Option<String>,
    /// Whether two requests went over one connection.
    pub connection_kept: bool,
    /// TCP segments of a reply that would fit into one; `None` for longer replies, for TLS, and
    /// where the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_segments: Option<u64>,
    /// Version and cipher suite: "TLSv1.3 TLS13_AES_256_GCM_SHA384".
    pub tls: Option<String>,
}

/// A stretch of load on one variant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slice {
    pub variant: u32,
    pub cycle: u32,
    /// Its position in the cycle's random order.
    pub position: u32,
    pub counts: Counts,
    /// Usage of its parts over the whole stretch, ramp and drain included.
    pub used: Option<Usage>,
    pub latencies: Vec<(Series, Distribution)>,
}

/// Kinds of latency; timing models in docs/terms.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Series {
    /// From due in open loop, from sent (or from the start of connecting) in closed loop.
    Headline,
    /// Open loop: from sent.
    FromSent,
    SendLag,
    Connect,
    Handshake,
    FirstByte,
}

impl Series {
    pub const ALL: [Self; 6] = [
        Self::Headline,
        Self::FromSent,
        Self::SendLag,
        Self::Connect,
        Self::Handshake,
        Self::FirstByte,
    ];

    /// Its name in the store.
    pub fn name(self) -> &'static str {
        match self {
            Self::Headline => "headline",
            Self::FromSent => "from_sent",
            Self::SendLag => "send_lag",
            Self::Connect => "connect",
            Self::Handshake => "handshake",
            Self::FirstByte => "first_byte",
        }
    }
}

impl Slice {
    pub fn latency(&self, series: Series) -> Option<&Distribution> {
        self.latencies.iter().find(|(kind, _)| *kind == series).map(|(_, found)| found)
    }

    pub fn throughput_per_s(&self) -> f64 {
        self.counts.good as f64 / (self.counts.window_ns.max(1) as f64 / 1e9)
    }
}

/// The largest exact integer in a double; sums over a run's slices then cannot overflow.
pub const NUMBER_MAX: u64 = 1 << 53;
const HEADER_NAMES_MAX: usize = 128;
const WORD_CHARS_MAX: usize = 300;

/// Longest start of a body that a probe keeps.
pub const BODY_START_MAX: usize = 4096;
/// Longest text about the first difference between two bodies.
const DIFFERENCE_CHARS_MAX: usize = 200;

impl Probe {
    /// Records where the body first differs from the baseline's, if both have the same length.
    pub fn compare_body(&mut self, base: &Self) {
        let only_bytes = self.body_bytes == base.body_bytes && self.body_sha256 != base.body_sha256;
        let is_known = !self.body_start.is_empty() && !base.body_start.is_empty();
        if only_bytes && is_known && self.body_stable && base.body_stable {
            self.first_difference = Some(first_difference(&self.body_start, &base.body_start));
        }
    }

    /// Limits all text: an agent that somebody else controls may have sent it.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.header_names.truncate(HEADER_NAMES_MAX);
        self.header_names.iter_mut().for_each(|name| *name = plain::short(name, WORD_CHARS_MAX));
        self.body_sha256 = plain::short(&self.body_sha256, WORD_CHARS_MAX);
        self.content_encoding =
            self.content_encoding.map(|value| plain::short(&value, WORD_CHARS_MAX));
        self.first_difference =
            self.first_difference.map(|text| plain::short(&text, DIFFERENCE_CHARS_MAX));
        self.body_start = self.body_start.chars().take(BODY_START_MAX).collect();
        self.tls = self.tls.map(|tls| plain::short(&tls, WORD_CHARS_MAX));
        self
    }
}

/// Describes the first difference: `byte 17: "…id":18…" against "…id":17…"`.
fn first_difference(mine: &str, base: &str) -> String {
    let pairs = mine.char_indices().zip(base.chars());
    let Some(((at, _), _)) = pairs.into_iter().find(|((_, a), b)| a != b) else {
        return "their beginnings look the same".into();
    };
    let around = |text: &str| {
        let before: Vec<char> = text[..at].chars().rev().take(AROUND).collect();
        let after = text[at..].chars().take(AROUND);
        before.into_iter().rev().chain(after).collect::<String>()
    };
    format!("byte {at}: {:?} against {:?}", around(mine), around(base))
}

/// Characters shown before and after the first difference.
const AROUND: usize = 10;
#[cfg(test)]
mod difference_tests {
    use super::*;

    #[test]
    fn what_closed_connections_explain_is_no_mismatch() {
        let sent = Sent { requests: 23_441, unsure: 1 };
        assert_eq!(sent.compare(23_441), CountMatch::Explained);
        assert_eq!(sent.compare(23_440), CountMatch::Explained, "its connection was closed");
        assert_eq!(sent.compare(23_439), CountMatch::Few(1));
        assert_eq!(sent.compare(23_465), CountMatch::Few(23), "another asked it now and then");
        assert_eq!(sent.compare(23_466), CountMatch::Mismatch);
        assert_eq!(Sent { requests: 50, unsure: 0 }.compare(49), CountMatch::Mismatch);
    }

    #[test]
    fn the_first_difference_is_shown_with_what_is_around_it() {
        let probe = |body: &str, hash: &str| Probe {
            body_start: body.into(),
            body_sha256: hash.into(),
            body_stable: true,
            ..Probe::default()
        };
        let told = |mine: &str, base: &str| {
            let mut mine = probe(mine, "a");
            mine.compare_body(&probe(base, "b"));
            mine.first_difference
        };
        let seen = told(r#"{"time":"é","id":18,"x":1}"#, r#"{"time":"é","id":17,"x":1}"#);
        let expected = r#"byte 19: "\"é\",\"id\":18,\"x\":1}" against "\"é\",\"id\":17,\"x\":1}""#;
        assert_eq!(seen.as_deref(), Some(expected));
        assert_eq!(told("same", "same").as_deref(), Some("their beginnings look the same"));
        assert_eq!(told("", "x"), None, "it is not known");
    }
}
