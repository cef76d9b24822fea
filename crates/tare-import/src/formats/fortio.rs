//! fortio's JSON: times in seconds, but the run's length in nanoseconds.

use serde_json::Value;
use tare_model::Metric;

use super::value::{needed, number, text};
use crate::numbers::{plain, seconds};
use crate::sample::{Draft, Tool};

pub fn read(value: &Value) -> Result<Vec<Draft>, String> {
    let mut draft = Draft::new(Tool::Fortio);
    draft.put(Metric::Throughput, needed("fortio", value, &["ActualQPS"])?);
    let mean = needed("fortio", value, &["DurationHistogram", "Avg"])?;
    draft.put(Metric::LatencyMean, mean * 1e9);
    draft.own_name = text(value, &["Labels"]).filter(|labels| !labels.trim().is_empty());
    let asked = &mut draft.asked;
    asked.url = text(value, &["URL"]).or_else(|| text(value, &["Destination"]));
    // A "thread" of fortio is a connection.
    asked.connections = number(value, &["NumThreads"]).map(|n| n as u64);
    asked.rate_per_s =
        text(value, &["RequestedQPS"]).and_then(|qps| plain(&qps)).filter(|rate| *rate > 0.0);
    asked.seconds = text(value, &["RequestedDuration"]).and_then(|time| seconds(&time));
    asked.keep = value.get("DisableKeepAlive").and_then(Value::as_bool).map(|off| !off);
    let seen = &mut draft.seen;
    seen.seconds = number(value, &["ActualDuration"]).map(|ns| ns / 1e9);
    seen.requests = number(value, &["DurationHistogram", "Count"]).map(|n| n as u64);
    seen.bytes = number(value, &["Sizes", "Sum"]);
    seen.opened = number(value, &["SocketCount"]).map(|n| n as u64);
    seen.latency_max_ns = number(value, &["DurationHistogram", "Max"]).map(|s| s * 1e9);
    if let Some(found) = value.get("RetCodes").and_then(Value::as_object) {
        let found = found.iter().map(|(code, n)| (code.as_str(), n.as_u64().unwrap_or(0)));
        codes(found, &mut draft);
    }
    let histogram = value.get("DurationHistogram");
    let list = |key: &str| {
        histogram.and_then(|h| h.get(key)).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    for one in list("Percentiles") {
        if let (Some(percent), Some(s)) = (number(&one, &["Percentile"]), number(&one, &["Value"]))
        {
            draft.put_percentile(percent, s * 1e9);
        }
    }
    let bucket =
        |bucket: &Value| Some((number(bucket, &["Start"])? * 1e9, number(bucket, &["End"])? * 1e9));
    draft.put_buckets(&list("Data").iter().filter_map(bucket).collect::<Vec<_>>());
    Ok(vec![draft])
}

/// Counts failures: 4xx and 5xx except 418, which fortio takes for success; TCP and UDP say "OK".
pub(super) fn codes<'a>(codes: impl Iterator<Item = (&'a str, u64)>, draft: &mut Draft) {
    let mut bad = 0u64;
    for (code, n) in codes {
        match code {
            "OK" | "SERVING" | "418" => {}
            code if code.starts_with('2') || code.starts_with('3') => {}
            // fortio gives this code to any socket error.
            "-1" => draft.put_errors("socket", n),
            code if code.parse::<u16>().is_ok() => bad = bad.saturating_add(n),
            other => draft.put_errors(other, n),
        }
    }
    // fortio counts all calls, but `requests` counts only answered ones.
    let unanswered = draft.seen.errors.values().fold(0, |sum: u64, n| sum.saturating_add(*n));
    draft.seen.requests = draft.seen.requests.map(|calls| calls.saturating_sub(unanswered));
    draft.seen.bad_status = Some(bad);
}
