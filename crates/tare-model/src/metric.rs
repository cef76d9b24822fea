//! The metrics that are compared. One table row has everything about a metric.

use serde::{Deserialize, Serialize};

use crate::counters::Counter;
use crate::distribution::Distribution;
use crate::samples::{Counts, Launch, Series};
use crate::usage::Usage;

/// How a metric's value for a round is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Basis {
    /// A ratio within each cycle, then a trimmed mean over cycles: robust against pauses.
    Cycle,
    /// A quantile of the round's merged histograms.
    Quantile(Series, f64),
    /// A ratio of the round's totals.
    Total,
}

/// Unit of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Per second.
    Rate,
    BytesPerSecond,
    Bytes,
    /// Nanoseconds, printed as a duration.
    Time,
    /// Nanoseconds with a decimal, for single calls.
    ShortTime,
    /// A small number for each request.
    Number,
}

/// How a difference is worded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phrase {
    /// "is slower by 3 % than": a rate; more is better.
    Slower,
    /// "carries 3 % less than": a rate; more is better.
    Carries,
    /// "is 3 % slower in p99 latency than".
    SlowerIn,
    /// "costs 3 % more memory than": the variant uses more, and may be as fast.
    Costs,
}

/// Counts and usage of a slice, or of a round.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    pub counts: &'a Counts,
    /// Usage of the variant's parts, without ramps if their cost is known.
    pub used: Option<Usage>,
    /// Number of replies that `used` covers.
    pub paid: u64,
    pub latencies: &'a [(Series, Distribution)],
    pub launch: Option<&'a Launch>,
}

/// Everything about a metric.
pub struct Row {
    /// Name in JSON.
    pub key: &'static str,
    /// Name on the command line and in tables.
    pub word: &'static str,
    /// Column heading.
    pub title: &'static str,
    /// Name in sentences.
    pub noun: &'static str,
    pub unit: Unit,
    pub basis: Basis,
    pub phrase: Phrase,
    /// Computes the value; not used for quantiles, which [`Basis`] defines.
    number: fn(&Observed<'_>) -> Option<f64>,
}

/// Generates the enum of metrics from a list of rows. Add a new metric at the end.
macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident {
        key: $key:literal, word: $word:literal, title: $title:literal, noun: $noun:literal,
        unit: $unit:ident, basis: $basis:expr, phrase: $phrase:ident, number: $number:expr $(,)?
    })*) => {
        /// A number that a slice or a round gives for each variant.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Metric { $($(#[$doc])* $name,)* }

        impl Metric {
            pub const ALL: [Self; [$($key),*].len()] = [$(Self::$name),*];
        }

        static ROWS: [Row; Metric::ALL.len()] = [$(Row {
            key: $key,
            word: $word,
            title: $title,
            noun: $noun,
            unit: Unit::$unit,
            basis: $basis,
            phrase: Phrase::$phrase,
            number: $number,
        },)*];
    };
}

metrics! {
    /// Good replies per second, in the windows.
    Throughput {
        key: "throughput_per_s", word: "throughput", title: "requests/s", noun: "throughput",
        unit: Rate, basis: Basis::Cycle, phrase: Slower,
        number: |o| Some(o.counts.good as f64 / o.seconds()),
    }
    /// Bytes of bodies or messages per second, in the windows.
    Bandwidth {
        key: "bandwidth_bytes_per_s", word: "bandwidth", title: "bandwidth", noun: "bandwidth",
        unit: BytesPerSecond, basis: Basis::Cycle, phrase: Carries,
        number: |o| Some(o.counts.body_bytes as f64 / o.seconds()),
    }
    LatencyMean {
        key: "latency_ns_mean", word: "mean", title: "mean", noun: "mean latency",
        unit: Time, basis: Basis::Total, phrase: SlowerIn,
        number: |o| o.latency(Series::Headline)?.mean_ns(),
    }
    LatencyP50 {
        key: "latency_ns_p50", word: "p50", title: "p50", noun: "p50 latency",
        unit: Time, basis: Basis::Quantile(Series::Headline, 0.5), phrase: SlowerIn,
        number: |_| None,
    }
    LatencyP90 {
        key: "latency_ns_p90", word: "p90", title: "p90", noun: "p90 latency",
        unit: Time, basis: Basis::Quantile(Series::Headline, 0.9), phrase: SlowerIn,
        number: |_| None,
    }
    LatencyP99 {
        key: "latency_ns_p99", word: "p99", title: "p99", noun: "p99 latency",
        unit: Time, basis: Basis::Quantile(Series::Headline, 0.99), phrase: SlowerIn,
        number: |_| None,
    }
    LatencyP999 {
        key: "latency_ns_p99_9", word: "p99.9", title: "p99.9", noun: "p99.9 latency",
        unit: Time, basis: Basis::Quantile(Series::Headline, 0.999), phrase: SlowerIn,
        number: |_| None,
    }
    /// New connections: from the start of connecting to connected, median.
    ConnectP50 {
        key: "connect_ns_p50", word: "connect", title: "connect", noun: "connecting (p50)",
        unit: Time, basis: Basis::Quantile(Series::Connect, 0.5), phrase: SlowerIn,
        number: |_| None,
    }
    /// New connections over TLS: the handshake, median.
    HandshakeP50 {
        key: "handshake_ns_p50", word: "handshake", title: "handshake",
        noun: "the TLS handshake (p50)",
        unit: Time, basis: Basis::Quantile(Series::Handshake, 0.5), phrase: SlowerIn,
        number: |_| None,
    }
    /// CPU time of the server's processes per request answered; both include ramp and drain.
    ServerCpu {
        key: "server_cpu_ns_per_request", word: "cpu", title: "CPU/request",
        noun: "server CPU per request",
        unit: Time, basis: Basis::Cycle, phrase: Costs,
        number: |o| o.per_request(o.used.as_ref()?.all[Counter::Cpu]?),
    }
    ServerCpuUser {
        key: "server_cpu_user_ns_per_request", word: "cpu-user", title: "user CPU",
        noun: "user CPU per request",
        unit: Time, basis: Basis::Total, phrase: Costs,
        number: |o| o.per_request(o.used.as_ref()?.all[Counter::User]?),
    }
    ServerCpuSystem {
        key: "server_cpu_system_ns_per_request", word: "cpu-system", title: "system CPU",
        noun: "system CPU per request",
        unit: Time, basis: Basis::Total, phrase: Costs,
        number: |o| o.per_request(o.used.as_ref()?.all[Counter::System]?),
    }
    /// Times that the server's threads were put on a CPU, per request answered.
    ServerSwitches {
        key: "server_switches_per_request", word: "switches", title: "switches",
        noun: "context switches per request",
        unit: Number, basis: Basis::Total, phrase: Costs,
        number: |o| o.per_request(o.used.as_ref()?.all[Counter::Switches]?),
    }
    /// Resident memory of the server's processes at the end of a launch.
    ServerRss {
        key: "server_rss_bytes", word: "rss", title: "memory", noun: "memory",
        unit: Bytes, basis: Basis::Total, phrase: Costs,
        number: |o| Some(o.launch?.rss_bytes? as f64),
    }
    /// One call of the filter, in a process of its own.
    FilterCall {
        key: "filter_call_ns", word: "call", title: "call", noun: "one call of the filter",
        unit: ShortTime, basis: Basis::Total, phrase: SlowerIn,
        number: |o| o.launch?.call_ns,
    }
    /// One system call, made where the endpoint runs.
    SystemCall {
        key: "system_call_ns", word: "system-call", title: "a call", noun: "one call",
        unit: ShortTime, basis: Basis::Cycle, phrase: SlowerIn,
        number: |o| Some(o.counts.window_ns as f64 / o.counts.calls as f64),
    }
    /// Packets that the server's place received and sent, per request answered. Data that the
    /// kernel passes on in one piece (segmentation offload) counts once.
    Packets {
        key: "packets_per_request", word: "packets", title: "packets", noun: "packets per request",
        unit: Number, basis: Basis::Total, phrase: Costs,
        number: |o| o.per_request(o.used.as_ref()?.all[Counter::Packets]?),
    }
    /// CPU time of its layers' processes (proxies, sidecars, gateways) per request answered.
    LayersCpu {
        key: "layers_cpu_ns_per_request", word: "layers-cpu", title: "layers' CPU",
        noun: "its layers' CPU per request",
        unit: Time, basis: Basis::Total, phrase: Costs,
        number: |o| o.per_request(o.used.as_ref()?.all_hops()?[Counter::Cpu]?),
    }
    LayersRss {
        key: "layers_rss_bytes", word: "layers-rss", title: "layers' memory",
        noun: "its layers' memory",
        unit: Bytes, basis: Basis::Total, phrase: Costs,
        number: |o| Some(o.launch?.hops_rss_bytes()? as f64),
    }
    /// CPU time per second while others are measured: the cost of running idle.
    IdleCpu {
        key: "idle_cpu_ns_per_s", word: "idle-cpu", title: "idle CPU/s",
        noun: "CPU per second without load",
        unit: Time, basis: Basis::Total, phrase: Costs,
        number: |o| o.idle_cpu_per_s(),
    }
    /// Time from before its place exists to the first good reply; measured only if asked for.
    Startup {
        key: "startup_ns", word: "startup", title: "startup", noun: "time to the first good reply",
        unit: Time, basis: Basis::Total, phrase: Costs,
        number: |o| Some(o.launch?.startup_ns? as f64),
    }
    /// CPU time of the whole machine during startup, including engines and runtimes.
    StartupCpu {
        key: "startup_cpu_ns", word: "startup-cpu", title: "CPU to start",
        noun: "CPU time to the first good reply",
        unit: Time, basis: Basis::Total, phrase: Costs,
        number: |o| Some(o.launch?.startup_cpu_ns? as f64),
    }
    /// Mean requests in flight; only at fixed rates, where it depends on the server. A server that
    /// lets requests queue works in batches and looks cheaper.
    InFlight {
        key: "in_flight", word: "in-flight", title: "in flight", noun: "requests in flight",
        unit: Number, basis: Basis::Total, phrase: Costs,
        number: |o| o.in_flight(),
    }
    /// Page faults of the server's processes without a disk read, per request answered.
    MinorFaults {
        key: "minor_faults_per_request", word: "faults", title: "faults",
        noun: "page faults per request",
        unit: Number, basis: Basis::Total, phrase: Costs,
        number: |o| o.per_request(o.used.as_ref()?.all[Counter::MinorFaults]?),
    }
    /// The kernel's work for packets and interrupts that CPU per request leaves out.
    SoftirqCpu {
        key: "softirq_ns_per_request", word: "softirq", title: "softirq CPU",
        noun: "CPU per request in the kernel's interrupts",
        unit: Time, basis: Basis::Total, phrase: Costs,
        number: |o| o.per_request(o.used.as_ref()?.all[Counter::Softirq]?),
    }
}

impl Observed<'_> {
    fn seconds(&self) -> f64 {
        self.counts.window_ns as f64 / 1e9
    }

    fn per_request(&self, n: u64) -> Option<f64> {
        Some(n as f64 / self.paid as f64)
    }

    fn idle_cpu_per_s(&self) -> Option<f64> {
        let load = &self.launch?.load;
        (load.idle_ns > 0).then(|| load.idle_cpu_ns as f64 * 1e9 / load.idle_ns as f64)
    }

    /// Mean number of requests in flight, by Little's law.
    fn in_flight(&self) -> Option<f64> {
        self.counts.due?;
        let sum_ns = self.latency(Series::FromSent)?.sum_ns();
        Some(sum_ns as f64 / self.counts.window_ns as f64)
    }

    fn latency(&self, series: Series) -> Option<&Distribution> {
        self.latencies.iter().find(|(kind, _)| *kind == series).map(|(_, found)| found)
    }
}

impl Metric {
    pub fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    pub fn key(self) -> &'static str {
        self.row().key
    }

    /// Key in JSON for a single part, without the prefix `server_`, because a hop is not a server.
    pub fn key_of_part(self) -> &'static str {
        self.key().strip_prefix("server_").unwrap_or(self.key())
    }

    pub fn word(self) -> &'static str {
        self.row().word
    }

    pub fn basis(self) -> Basis {
        self.row().basis
    }

    /// Reads a metric from its word or its key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|m| m.word() == text || m.key() == text);
        found.ok_or_else(|| {
            let words: Vec<_> = Self::ALL.iter().map(|metric| metric.word()).collect();
            format!("'{text}' is not a metric; choose among {}", words.join(", "))
        })
    }

    /// Whether it is what a request uses, which hardly depends on the rate of requests.
    pub fn is_use(self) -> bool {
        self.row().phrase == Phrase::Costs
    }

    /// Whether a larger value is better.
    pub fn more_is_better(self) -> bool {
        matches!(self.row().phrase, Phrase::Slower | Phrase::Carries)
    }

    /// The metric's value; `None` if it was not measured, or is zero and so has no ratio.
    pub fn number(self, observed: &Observed<'_>) -> Option<f64> {
        let number = match self.basis() {
            Basis::Quantile(series, quantile) => {
                observed.latency(series)?.quantile(quantile)? as f64
            }
            Basis::Cycle | Basis::Total => (self.row().number)(observed)?,
        };
        (number.is_finite() && number > 0.0).then_some(number)
    }

    /// Percent by which a variant is worse than its baseline, from the ratio of the two: the share
    /// lost of throughput and bandwidth, the increase of all other metrics.
    pub fn overhead_percent(self, ratio: f64) -> f64 {
        if self.more_is_better() { (1.0 - ratio) * 100.0 } else { (ratio - 1.0) * 100.0 }
    }
}

impl Serialize for Metric {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.key())
    }
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_found_by_word_and_key_and_by_nothing_else() {
        for metric in Metric::ALL {
            assert_eq!(Metric::parse(metric.word()), Ok(metric));
            assert_eq!(Metric::parse(metric.key()), Ok(metric));
        }
        let error = Metric::parse("p98").unwrap_err();
        assert!(error.starts_with("'p98' is not a metric; choose among throughput, "), "{error}");
    }

    #[test]
    fn overhead_is_positive_when_worse() {
        assert_eq!(Metric::Throughput.overhead_percent(0.75), 25.0);
        assert_eq!(Metric::LatencyP99.overhead_percent(1.25), 25.0);
        assert_eq!(Metric::ServerCpu.overhead_percent(0.5), -50.0);
    }
}
