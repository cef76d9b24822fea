//! The text that wrk and wrk2 print, from tare's numbers.

use std::fmt::Write;

use tare_load::{FailureKind, Histogram, Tally};

use crate::statistics::Statistic;
use crate::units::{binary, field, metric, time_s, time_us};

/// The tool to imitate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    Wrk,
    Wrk2,
}

pub struct Report<'a> {
    pub flavour: Flavour,
    pub total: &'a Tally,
    pub latency: &'a Statistic,
    pub requests: &'a Statistic,
    /// `--latency`: also print the distribution.
    pub distribution: bool,
    /// wrk2's `-U`: also print the series from sent.
    pub uncorrected: bool,
}

pub fn opening(url: &str, seconds: f64, threads: u32, connections: u32) -> String {
    let time = time_s(seconds);
    format!("Running {time} test @ {url}\n  {threads} threads and {connections} connections\n")
}

pub fn results(shown: &Report<'_>) -> String {
    let total = shown.total;
    let mut text = String::from("  Thread Stats   Avg      Stdev     Max   +/- Stdev\n");
    statistic(&mut text, "Latency", shown.latency, time_us);
    statistic(&mut text, "Req/Sec", shown.requests, metric);
    if shown.distribution {
        match shown.flavour {
            Flavour::Wrk => short_distribution(&mut text, shown.latency),
            Flavour::Wrk2 => {
                let title = "Latency Distribution (HdrHistogram - Recorded Latency)";
                spectrum(&mut text, title, total.latency.headline());
                if shown.uncorrected {
                    let title = "Latency Distribution (HdrHistogram - Uncorrected Latency \
                                 (measured without taking delayed starts into account))";
                    spectrum(&mut text, title, &total.latency.from_sent);
                }
            }
        }
    }
    let seconds = total.elapsed().as_secs_f64().max(1e-9);
    let (requests, bytes) = (total.counts.completed, total.counts.received_bytes as f64);
    let time = time_us(seconds * 1e6);
    let _ = writeln!(text, "  {requests} requests in {time}, {}B read", binary(bytes));
    errors(&mut text, total);
    let _ = writeln!(text, "Requests/sec: {:>9.2}", requests as f64 / seconds);
    let _ = writeln!(text, "Transfer/sec: {:>10}B", binary(bytes / seconds));
    text
}

/// Failures, in wrk's four kinds.
pub struct SocketErrors {
    pub connect: u64,
    pub read: u64,
    pub write: u64,
    pub timeout: u64,
}

pub fn socket_errors(total: &Tally) -> SocketErrors {
    let count = |kinds: &[FailureKind]| kinds.iter().map(|k| total.failures.count(*k)).sum();
    use FailureKind as Kind;
    SocketErrors {
        connect: count(&[Kind::Refused, Kind::NoLocalPort, Kind::NoFile, Kind::Tls, Kind::Other]),
        read: count(&[Kind::Reset, Kind::ClosedEarly, Kind::Malformed]),
        // A failed write is counted as the reset that caused it.
        write: 0,
        timeout: count(&[Kind::TimedOut]),
    }
}

/// Counts the replies that wrk calls errors.
pub fn status_errors(total: &Tally) -> u64 {
    total.counts.status.iter().filter(|(status, _)| *status > 399).map(|(_, n)| n).sum()
}

fn errors(text: &mut String, total: &Tally) {
    let SocketErrors { connect, read, write, timeout } = socket_errors(total);
    if connect + read + write + timeout > 0 {
        let _ = writeln!(
            text,
            "  Socket errors: connect {connect}, read {read}, write {write}, timeout {timeout}"
        );
    }
    let status = status_errors(total);
    if status > 0 {
        let _ = writeln!(text, "  Non-2xx or 3xx responses: {status}");
    }
}

fn statistic(text: &mut String, name: &str, of: &Statistic, unit: fn(f64) -> String) {
    let _ = writeln!(
        text,
        "    {name:<10}{}{}{}{:>8.2}%",
        field(&unit(of.mean), 8),
        field(&unit(of.stdev), 10),
        field(&unit(of.max), 9),
        of.within_one_stdev()
    );
}

fn short_distribution(text: &mut String, latency: &Statistic) {
    text.push_str("  Latency Distribution\n");
    for percent in [50.0, 75.0, 90.0, 99.0] {
        let value = field(&time_us(latency.percentile(percent)), 10);
        let _ = writeln!(text, "{percent:>7.0}%{value}");
    }
}

/// Steps for each halving of the distance to 100 %, as in HdrHistogram's own printout.
const TICKS_PER_HALF: u32 = 5;

fn spectrum(text: &mut String, title: &str, histogram: &Histogram) {
    let _ = writeln!(text, "  {title}");
    for percent in [50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 99.999, 100.0] {
        let us = histogram.quantile(percent / 100.0).as_ns() as f64 / 1e3;
        let _ = writeln!(text, "{percent:>7.3}%{}", field(&time_us(us), 10));
    }
    text.push_str("\n  Detailed Percentile spectrum:\n");
    let _ = writeln!(
        text,
        "{:>12} {:>14} {:>10} {:>14}\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    let ms = |ns: u64| ns as f64 / 1e6;
    let (mut buckets, mut sub_buckets) = (0, 0);
    if let Some(hdr) = histogram.hdr() {
        let mut seen = 0;
        for step in hdr.iter_quantiles(TICKS_PER_HALF) {
            seen += step.count_since_last_iteration();
            let quantile = step.quantile_iterated_to();
            let value = ms(step.value_iterated_to().min(histogram.max().as_ns()));
            let inverse = 1.0 / (1.0 - quantile);
            let _ = writeln!(text, "{value:>12.3} {quantile:>14.6} {seen:>10} {inverse:>14.2}");
        }
        buckets = u32::from(hdr.buckets());
        sub_buckets = 2048;
    }
    let (mean, stdev) = (ms(histogram.mean().as_ns()), ms(histogram.stdev().as_ns()));
    let (max, count) = (ms(histogram.max().as_ns()), histogram.count());
    let _ = writeln!(text, "#[Mean    = {mean:>12.3}, StdDeviation   = {stdev:>12.3}]");
    let _ = writeln!(text, "#[Max     = {max:>12.3}, Total count    = {count:>12}]");
    let _ = writeln!(text, "#[Buckets = {buckets:>12}, SubBuckets     = {sub_buckets:>12}]");
    text.push_str("----------------------------------------------------------\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_io::{DurationNs, Instant};
    use tare_load::RequestFailure;

    fn tally() -> Tally {
        let end = Instant::ZERO + DurationNs::from_secs(2);
        let mut total = Tally { end, ..Tally::default() };
        let counts = &mut total.counts;
        (counts.started, counts.completed, counts.good, counts.failed) = (2005, 2000, 2000, 5);
        counts.received_bytes = 1_700_000;
        for us in 0..1000 {
            total.latency.from_sent.record_n(DurationNs::from_us(200 + us), 2);
        }
        total.counts.add_status(200, 1990);
        total.counts.add_status(404, 10);
        total.failures.add(&RequestFailure::TimedOut, 5);
        total
    }

    #[test]
    fn wrks_shape() {
        let total = tally();
        let latency = Statistic::of_latency(total.latency.headline());
        let requests = Statistic::of_samples(&[480.0, 500.0, 520.0]);
        let shown = Report {
            flavour: Flavour::Wrk,
            total: &total,
            latency: &latency,
            requests: &requests,
            distribution: true,
            uncorrected: false,
        };
        let text = opening("http://h:80/", 2.0, 2, 50) + &results(&shown);
        let expected = "\
Running 2s test @ http://h:80/
  2 threads and 50 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   699.50us  288.86us   1.20ms   57.80%
    Req/Sec   500.00     20.00   520.00    100.00%
  Latency Distribution
     50%  699.39us
     75%    0.95ms
     90%    1.10ms
     99%    1.19ms
  2000 requests in 2.00s, 1.62MB read
  Socket errors: connect 0, read 0, write 0, timeout 5
  Non-2xx or 3xx responses: 10
Requests/sec:   1000.00
Transfer/sec:    830.08KB
";
        assert_eq!(text, expected);
    }

    #[test]
    fn wrk2s_spectrum() {
        let total = tally();
        let latency = Statistic::of_latency(total.latency.headline());
        let requests = Statistic::default();
        let shown = Report {
            flavour: Flavour::Wrk2,
            total: &total,
            latency: &latency,
            requests: &requests,
            distribution: true,
            uncorrected: true,
        };
        let text = results(&shown);
        for line in [
            "  Latency Distribution (HdrHistogram - Recorded Latency)",
            " 50.000%  699.39us",
            "100.000%    1.20ms",
            "  Detailed Percentile spectrum:",
            "       Value     Percentile TotalCount 1/(1-Percentile)",
            "       0.200       0.000000          2           1.00",
            "       1.199       1.000000       2000            inf",
            "#[Max     =        1.199, Total count    =         2000]",
        ] {
            assert!(text.lines().any(|l| l == line), "{line:?}\nis not in\n{text}");
        }
        assert_eq!(text.matches("Detailed Percentile spectrum").count(), 2);
    }
}
