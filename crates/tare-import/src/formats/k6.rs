//! k6's three summaries as JSON; all times in milliseconds.

use std::collections::BTreeMap;

use serde_json::Value;
use tare_stats::Metric;

use super::json::number;
use crate::numbers::plain;
use crate::sample::{Draft, Tool};

/// A metric's values by their names, whatever the shape they came in.
type Values = BTreeMap<String, f64>;

pub fn read(value: &Value) -> Result<Vec<Draft>, String> {
    let metrics = metrics(value);
    let seconds = number(value, &["state", "testRunDurationMs"])
        .map(|ms| ms / 1e3)
        .or_else(|| number(value, &["config", "duration"]));
    draft(&metrics, seconds).map(|draft| vec![draft])
}

/// Flat (`--summary-export`), with `values` (handleSummary), or a list (the new summary).
fn metrics(value: &Value) -> BTreeMap<String, Values> {
    let numbers = |value: &Value| -> Values {
        let object = value.get("values").unwrap_or(value).as_object();
        let pairs = object.into_iter().flatten();
        pairs.filter_map(|(key, value)| Some((key.clone(), value.as_f64()?))).collect()
    };
    if let Some(list) = value.get("results").and_then(|r| r.get("metrics")).and_then(Value::as_array) {
        let named = list.iter().filter_map(|one| {
            Some((one.get("name")?.as_str()?.to_owned(), numbers(one)))
        });
        return named.collect();
    }
    let object = value.get("metrics").and_then(Value::as_object).into_iter().flatten();
    object.map(|(name, one)| (name.clone(), numbers(one))).collect()
}

/// One summary. Thresholds are not read: the exported ones are true where they failed.
pub fn draft(metrics: &BTreeMap<String, Values>, seconds: Option<f64>) -> Result<Draft, String> {
    let of = |name: &str, keys: &[&str]| {
        keys.iter().find_map(|key| metrics.get(name)?.get(*key).copied())
    };
    let mut draft = Draft::new(Tool::K6);
    let count = of("http_reqs", &["count"]);
    let rate = of("http_reqs", &["rate"]);
    let rate = rate.or_else(|| Some(count? / seconds.filter(|s| *s > 0.0)?));
    let Some(rate) = rate else {
        return Err("is k6's summary without 'http_reqs'".into());
    };
    draft.put(Metric::Throughput, rate);
    draft.seen.requests = count.map(|n| n as u64);
    draft.seen.seconds = seconds.or_else(|| Some(count? / rate).filter(|s| s.is_finite()));
    draft.asked.connections = of("vus_max", &["value", "max"]).map(|n| n as u64);
    let duration = |keys: &[&str]| of("http_req_duration", keys).map(|ms| ms * 1e6);
    duration(&["avg"]).into_iter().for_each(|ns| draft.put(Metric::LatencyMean, ns));
    duration(&["med", "p(50)"]).into_iter().for_each(|ns| draft.put_percentile(50.0, ns));
    draft.seen.latency_max_ns = duration(&["max"]);
    for (key, ms) in metrics.get("http_req_duration").into_iter().flatten() {
        let digits = key.strip_prefix('p').map(|p| p.trim_matches(['(', ')']));
        if let Some(percent) = digits.and_then(plain).filter(|percent| *percent != 50.0) {
            draft.put_percentile(percent, ms * 1e6);
        }
    }
    draft.percentiles.sort_by(|a, b| a.percent.total_cmp(&b.percent));
    draft.seen.bytes = of("data_received", &["count"]);
    // "passes" of a rate are what it looks for: here, failures.
    draft.seen.bad_status = of("http_req_failed", &["passes", "matches"]).map(|n| n as u64);
    let dropped = of("dropped_iterations", &["count"]).map(|n| n as u64);
    draft.seen.errors.extend(dropped.map(|n| ("dropped iterations".to_owned(), n)));
    let phases = ["http_req_blocked"].iter().filter_map(|name| of(name, &["avg"]));
    draft.seen.left_out_ns = phases.reduce(f64::max).map(|ms| ms * 1e6);
    Ok(draft)
}
