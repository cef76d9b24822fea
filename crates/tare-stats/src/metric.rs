//! What is compared.

use serde::{Deserialize, Serialize};

use crate::samples::Series;

/// A number that a slice or a round gives for each variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Metric {
    /// Good replies a second, in the windows.
    Throughput,
    /// Bytes of bodies or messages a second, in the windows.
    Bandwidth,
    LatencyMean,
    LatencyP50,
    LatencyP90,
    LatencyP99,
    LatencyP999,
    /// New connections: from the start of connecting to connected, median.
    ConnectP50,
    /// New connections over TLS: the handshake, median.
    HandshakeP50,
    /// CPU time of the server's processes over requests answered, ramp and drain in both.
    ServerCpu,
    ServerCpuUser,
    ServerCpuSystem,
    /// Times that the server's threads were put on a CPU, over requests answered.
    ServerSwitches,
    /// Resident memory of the server's processes at the end of a launch.
    ServerRss,
    /// One call of the filter, in a process of its own.
    FilterCall,
    /// One call into the kernel, where the endpoint makes them.
    SystemCall,
}

/// How a metric's number for a round is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Basis {
    /// A ratio within each cycle, then a trimmed mean over cycles: robust against pauses.
    Cycle,
    /// A quantile of the round's merged histograms.
    Quantile(Series, f64),
    /// A ratio of the round's totals.
    Total,
}

impl Metric {
    pub const ALL: [Self; 16] = [
        Self::Throughput,
        Self::Bandwidth,
        Self::LatencyMean,
        Self::LatencyP50,
        Self::LatencyP90,
        Self::LatencyP99,
        Self::LatencyP999,
        Self::ConnectP50,
        Self::HandshakeP50,
        Self::ServerCpu,
        Self::ServerCpuUser,
        Self::ServerCpuSystem,
        Self::ServerSwitches,
        Self::ServerRss,
        Self::FilterCall,
        Self::SystemCall,
    ];

    /// The key in JSON.
    pub fn key(self) -> &'static str {
        match self {
            Self::Throughput => "throughput_per_s",
            Self::Bandwidth => "bandwidth_bytes_per_s",
            Self::LatencyMean => "latency_ns_mean",
            Self::LatencyP50 => "latency_ns_p50",
            Self::LatencyP90 => "latency_ns_p90",
            Self::LatencyP99 => "latency_ns_p99",
            Self::LatencyP999 => "latency_ns_p99_9",
            Self::ConnectP50 => "connect_ns_p50",
            Self::HandshakeP50 => "handshake_ns_p50",
            Self::ServerCpu => "server_cpu_ns_per_request",
            Self::ServerCpuUser => "server_cpu_user_ns_per_request",
            Self::ServerCpuSystem => "server_cpu_system_ns_per_request",
            Self::ServerSwitches => "server_switches_per_request",
            Self::ServerRss => "server_rss_bytes",
            Self::FilterCall => "filter_call_ns",
            Self::SystemCall => "system_call_ns",
        }
    }

    /// The word on the command line and in tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Bandwidth => "bandwidth",
            Self::LatencyMean => "mean",
            Self::LatencyP50 => "p50",
            Self::LatencyP90 => "p90",
            Self::LatencyP99 => "p99",
            Self::LatencyP999 => "p99.9",
            Self::ConnectP50 => "connect",
            Self::HandshakeP50 => "handshake",
            Self::ServerCpu => "cpu",
            Self::ServerCpuUser => "cpu-user",
            Self::ServerCpuSystem => "cpu-system",
            Self::ServerSwitches => "switches",
            Self::ServerRss => "rss",
            Self::FilterCall => "call",
            Self::SystemCall => "system-call",
        }
    }

    /// By its word or its key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|m| m.word() == text || m.key() == text);
        found.ok_or_else(|| {
            let words: Vec<_> = Self::ALL.iter().map(|metric| metric.word()).collect();
            format!("'{text}' is not a metric; choose among {}", words.join(", "))
        })
    }

    pub fn basis(self) -> Basis {
        match self {
            Self::Throughput | Self::Bandwidth | Self::ServerCpu | Self::SystemCall => Basis::Cycle,
            Self::LatencyP50 => Basis::Quantile(Series::Headline, 0.5),
            Self::LatencyP90 => Basis::Quantile(Series::Headline, 0.9),
            Self::LatencyP99 => Basis::Quantile(Series::Headline, 0.99),
            Self::LatencyP999 => Basis::Quantile(Series::Headline, 0.999),
            Self::ConnectP50 => Basis::Quantile(Series::Connect, 0.5),
            Self::HandshakeP50 => Basis::Quantile(Series::Handshake, 0.5),
            _ => Basis::Total,
        }
    }

    /// A larger value is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Self::Throughput | Self::Bandwidth)
    }

    /// Percent by which a variant is worse than its baseline, from the ratio of the two. For
    /// throughput the share that is lost, for all others what is added.
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
