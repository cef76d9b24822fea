//! Results of `tare load`, as data: serialised, they are the JSON; the text is made from them.

pub mod guards;
pub mod text;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use tare_guards::Doubt;
use tare_model::load::HTTP_1;

use crate::clients_summary::ClientsSummary;

pub const SCHEMA: &str = "tare.load/1";

/// One run of load. Durations are in nanoseconds unless the key says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadReport {
    pub schema: String,
    pub tare_version: String,
    pub asked: LoadAsked,
    /// Stages of `--stages`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
    pub interrupted: bool,
    pub elapsed_ns: u64,
    pub throughput_per_s: f64,
    pub requests: Requests,
    /// Replies by status code.
    pub status: BTreeMap<String, u64>,
    /// Failed requests and connections by kind.
    pub errors: BTreeMap<String, ErrorCount>,
    pub bytes: Bytes,
    pub connections: Connections,
    pub latency: Latency,
    pub client: Client,
    /// Set if clients elsewhere made the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<ClientsSummary>,
    pub intervals: Vec<Interval>,
    pub guards: Vec<Doubt>,
}

/// The load as it was resolved; with `seed`, enough to repeat it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadAsked {
    pub url: String,
    pub address: String,
    pub method: String,
    /// "closed" or "open".
    pub pacing: String,
    /// Highest rate in requests per second, open loop only.
    pub rate_per_s: Option<f64>,
    /// Requests due in the measured time, open loop only.
    pub due_requests: Option<f64>,
    pub poisson: bool,
    /// "1.1" or "2": the version of HTTP.
    #[serde(default = "http_1")]
    pub protocol: String,
    /// Requests at a time on each connection, if the server allows as many.
    #[serde(default = "one")]
    pub streams: u32,
    pub connections: u32,
    pub max_connections: u32,
    pub new_connections: bool,
    pub timeout_ns: u64,
    pub workers: u32,
    /// "io_uring" or "epoll".
    pub reactor: String,
    /// Why io_uring was not used.
    pub reactor_note: Option<String>,
    /// Threads poll while they wait, and never sleep under load.
    #[serde(default)]
    pub polls: bool,
    /// Closed loop on io_uring: a reply may wait this long before it is seen.
    pub reap_linger_ns: Option<u64>,
    pub tls: bool,
    pub tls_resume: bool,
    pub seed: u64,
}

fn http_1() -> String {
    HTTP_1.to_owned()
}

fn one() -> u32 {
    1
}

/// A stage of a changing rate: the requested rate, and the measured one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Start of the stage, counted from the start of the measurement.
    pub start_ns: u64,
    /// End of the stage, counted from the start of the measurement.
    pub end_ns: u64,
    pub from_per_s: f64,
    pub to_per_s: f64,
    /// Mean rate of the intervals, weighted by overlap with the stage; null if it was not reached.
    pub good_per_s: Option<f64>,
}

impl Stage {
    /// Adds the measured rate from the time series.
    pub fn measured(self, intervals: &[Interval]) -> Self {
        let overlaps = intervals.iter().map(|interval| {
            let (from, to) =
                (interval.start_ns.max(self.start_ns), interval.end_ns.min(self.end_ns));
            (to.saturating_sub(from) as f64, interval.good_per_s)
        });
        let (good, ns) = overlaps.fold((0.0, 0.0), |(good, ns), (overlap, per_s)| {
            (good + overlap * per_s, ns + overlap)
        });
        Self { good_per_s: (ns > 0.0).then(|| good / ns), ..self }
    }
}

/// Counts of requests: started = completed + failed + unfinished.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requests {
    pub started: u64,
    pub completed: u64,
    /// Completed with an expected status; only these count as throughput.
    pub good: u64,
    pub failed: u64,
    /// Requests that the server did not process, and that were sent again.
    #[serde(default)]
    pub retried: u64,
    /// Good replies that took a delayed acknowledgement's time (about 40 ms) from start to end.
    #[serde(default)]
    pub held: u64,
    /// Open loop: started requests that had to wait for a free connection.
    pub waited: u64,
    pub unfinished: u64,
    pub unfinished_drained: u64,
    pub unfinished_cut: u64,
    pub unfinished_unsent: u64,
    pub unfinished_oldest_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorCount {
    pub count: u64,
    /// Text of the first error.
    pub first: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bytes {
    /// Bodies, without chunk framing.
    pub body: u64,
    /// Bytes received on the connections, including heads, framing and TLS.
    pub received: u64,
    /// Bytes sent on the connections, including heads, framing and TLS.
    pub sent: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connections {
    pub opened: u64,
    pub not_opened: u64,
    pub closed_by_server: u64,
    pub closed_by_client: u64,
    pub handshakes_full: u64,
    pub handshakes_resumed: u64,
}

/// Series of latencies; those that the mode does not have are null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Series of the main percentiles: "from_sent" or "from_due".
    pub headline: String,
    pub from_sent: Option<Series>,
    pub from_due: Option<Series>,
    pub send_lag: Option<Series>,
    pub connect: Option<Series>,
    pub tls: Option<Series>,
    pub first_byte: Option<Series>,
    pub unexpected_status: Option<Series>,
    pub failed_after: Option<Series>,
    /// Histogram of the headline: values up to each edge and above the previous one.
    pub bars: Vec<Bar>,
}

impl Latency {
    pub fn headline(&self) -> Option<&Series> {
        if self.headline == "from_due" { self.from_due.as_ref() } else { self.from_sent.as_ref() }
    }
}

/// A percentile is null if the sample is too small for it (fewer than ten values beyond it).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    pub count: u64,
    pub ns_min: u64,
    pub ns_mean: u64,
    pub ns_stdev: u64,
    pub ns_max: u64,
    pub ns_p50: Option<u64>,
    pub ns_p75: Option<u64>,
    pub ns_p90: Option<u64>,
    pub ns_p95: Option<u64>,
    pub ns_p99: Option<u64>,
    pub ns_p99_9: Option<u64>,
    pub ns_p99_99: Option<u64>,
}

impl Series {
    /// Returns the percentiles that are known, with their names.
    pub fn percentiles(&self) -> Vec<(&'static str, u64)> {
        [
            ("p50", self.ns_p50),
            ("p75", self.ns_p75),
            ("p90", self.ns_p90),
            ("p95", self.ns_p95),
            ("p99", self.ns_p99),
            ("p99.9", self.ns_p99_9),
            ("p99.99", self.ns_p99_99),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bar {
    pub ns_up_to: u64,
    pub count: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// User time; null if clients elsewhere report only the sum with system time.
    pub cpu_user_ns: Option<u64>,
    /// System time; null if clients elsewhere report only the sum with user time.
    pub cpu_system_ns: Option<u64>,
    /// CPU time per completed request; null if it includes polling for due times.
    pub cpu_ns_per_request: Option<f64>,
    /// CPU over wall time of the busiest worker.
    pub busiest_worker_share: f64,
}

/// An interval of the time series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    pub start_ns: u64,
    pub end_ns: u64,
    pub good_per_s: f64,
    pub ns_p50: Option<u64>,
    pub ns_p99: Option<u64>,
    pub failed: u64,
    pub unexpected_status: u64,
}

impl LoadReport {
    pub fn json(&self) -> String {
        // Plain data with string keys: serialising it cannot fail.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Returns the time series as CSV.
    pub fn csv(&self) -> String {
        let mut text = String::from(
            "start_s,end_s,good_per_s,latency_us_p50,latency_us_p99,failed,unexpected_status\n",
        );
        let us = |ns: Option<u64>| ns.map_or(String::new(), |ns| format!("{:.1}", ns as f64 / 1e3));
        for interval in &self.intervals {
            text.push_str(&format!(
                "{:.3},{:.3},{:.1},{},{},{},{}\n",
                interval.start_ns as f64 / 1e9,
                interval.end_ns as f64 / 1e9,
                interval.good_per_s,
                us(interval.ns_p50),
                us(interval.ns_p99),
                interval.failed,
                interval.unexpected_status,
            ));
        }
        text
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn series(count: u64, ns_p50: u64) -> Series {
        Series {
            count,
            ns_min: ns_p50 / 2,
            ns_mean: ns_p50 + 1_000,
            ns_stdev: 10_000,
            ns_max: ns_p50 * 20,
            ns_p50: Some(ns_p50),
            ns_p75: Some(ns_p50 * 2),
            ns_p90: Some(ns_p50 * 3),
            ns_p95: Some(ns_p50 * 4),
            ns_p99: Some(ns_p50 * 5),
            ns_p99_9: Some(ns_p50 * 9),
            ns_p99_99: None,
        }
    }

    pub fn report() -> LoadReport {
        let interval = |second: u64| Interval {
            start_ns: second * 1_000_000_000,
            end_ns: (second + 1) * 1_000_000_000,
            good_per_s: 10_000.0,
            ns_p50: Some(144_000),
            ns_p99: if second == 0 { Some(720_500) } else { None },
            failed: second,
            unexpected_status: 0,
        };
        LoadReport {
            schema: SCHEMA.into(),
            tare_version: "0.1.0".into(),
            asked: LoadAsked {
                url: "http://localhost:8080/".into(),
                address: "127.0.0.1:8080".into(),
                method: "GET".into(),
                pacing: "closed".into(),
                rate_per_s: None,
                due_requests: None,
                poisson: false,
                protocol: "1.1".into(),
                streams: 1,
                connections: 20,
                max_connections: 20,
                new_connections: false,
                timeout_ns: 10_000_000_000,
                workers: 1,
                reactor: "io_uring".into(),
                reactor_note: None,
                polls: false,
                reap_linger_ns: Some(50_000),
                tls: false,
                tls_resume: false,
                seed: 42,
            },
            stages: Vec::new(),
            interrupted: false,
            elapsed_ns: 2_000_000_000,
            throughput_per_s: 10_000.0,
            requests: Requests {
                started: 20_021,
                completed: 20_000,
                good: 20_000,
                failed: 1,
                retried: 0,
                held: 0,
                waited: 0,
                unfinished: 20,
                unfinished_drained: 20,
                unfinished_cut: 0,
                unfinished_unsent: 0,
                unfinished_oldest_ns: 1_300_000,
            },
            status: BTreeMap::from([("200".into(), 20_000)]),
            errors: BTreeMap::from([(
                "reset".into(),
                ErrorCount { count: 1, first: "connection reset by peer".into() },
            )]),
            bytes: Bytes { body: 12_240_000, received: 17_000_000, sent: 1_600_000 },
            connections: Connections {
                opened: 21,
                not_opened: 0,
                closed_by_server: 1,
                closed_by_client: 0,
                handshakes_full: 0,
                handshakes_resumed: 0,
            },
            latency: Latency {
                headline: "from_sent".into(),
                from_sent: Some(series(20_000, 144_000)),
                from_due: None,
                send_lag: None,
                connect: None,
                tls: None,
                first_byte: None,
                unexpected_status: None,
                failed_after: Some(Series {
                    ns_p50: None,
                    ns_p75: None,
                    ns_p90: None,
                    ns_p95: None,
                    ns_p99: None,
                    ns_p99_9: None,
                    ..series(1, 90_000)
                }),
                bars: vec![
                    Bar { ns_up_to: 100_000, count: 4_000 },
                    Bar { ns_up_to: 200_000, count: 12_000 },
                    Bar { ns_up_to: 500_000, count: 3_990 },
                    Bar { ns_up_to: 1_000_000, count: 10 },
                ],
            },
            client: Client {
                cpu_user_ns: Some(10_000_000),
                cpu_system_ns: Some(100_000_000),
                cpu_ns_per_request: Some(5_500.0),
                busiest_worker_share: 0.055,
            },
            clients: None,
            intervals: vec![interval(0), interval(1)],
            guards: Vec::new(),
        }
    }

    #[test]
    fn json_reads_back_and_refuses_unknown_fields() {
        let json = report().json();
        assert_eq!(serde_json::from_str::<LoadReport>(&json).unwrap(), report());
        let more = json.replacen("\"elapsed_ns\"", "\"surprise\": 1, \"elapsed_ns\"", 1);
        let error = serde_json::from_str::<LoadReport>(&more).unwrap_err().to_string();
        assert!(error.contains("unknown field `surprise`"), "{error}");
    }

    #[test]
    fn csv_is_the_time_series() {
        assert_eq!(
            report().csv(),
            "start_s,end_s,good_per_s,latency_us_p50,latency_us_p99,failed,unexpected_status\n\
             0.000,1.000,10000.0,144.0,720.5,0,0\n\
             1.000,2.000,10000.0,144.0,,1,0\n"
        );
    }
}
