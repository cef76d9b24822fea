//! k6's three summaries as JSON; all times in milliseconds.

use std::collections::BTreeMap;

use serde_json::Value;
use tare_model::Metric;

use super::value::number;
use crate::numbers::plain;
use crate::sample::{CHECKS_FAILED, Draft, Tool};

/// Values by metric and by name, from any of k6's formats.
#[derive(Default)]
pub struct Metrics(BTreeMap<String, BTreeMap<String, f64>>);

impl Metrics {
    pub fn put(&mut self, metric: &str, key: &str, value: f64) {
        self.0.entry(metric.to_owned()).or_default().insert(key.to_owned(), value);
    }

    /// Returns the value of the first of these keys that the metric has.
    pub fn get(&self, metric: &str, keys: &[&str]) -> Option<f64> {
        let values = self.0.get(metric)?;
        keys.iter().find_map(|key| values.get(*key).copied())
    }

    fn values(&self, metric: &str) -> impl Iterator<Item = (&str, f64)> {
        let values = self.0.get(metric).into_iter().flatten();
        values.map(|(key, value)| (key.as_str(), *value))
    }

    fn put_all(&mut self, metric: &str, value: &Value) {
        let object = value.get("values").unwrap_or(value).as_object();
        for (key, value) in object.into_iter().flatten() {
            if let Some(value) = value.as_f64() {
                self.put(metric, key, value);
            }
        }
    }
}

pub fn read(value: &Value) -> Result<Vec<Draft>, String> {
    let seconds = number(value, &["state", "testRunDurationMs"])
        .map(|ms| ms / 1e3)
        .or_else(|| number(value, &["config", "duration"]));
    draft(&metrics(value), seconds).map(|draft| vec![draft])
}

/// Reads metrics that are flat (`--summary-export`), have `values` (handleSummary), or are listed
/// (new summary).
fn metrics(value: &Value) -> Metrics {
    let mut metrics = Metrics::default();
    let list = value.get("results").and_then(|results| results.get("metrics"));
    for one in list.and_then(Value::as_array).into_iter().flatten() {
        if let Some(name) = one.get("name").and_then(Value::as_str) {
            metrics.put_all(name, one);
        }
    }
    let object = value.get("metrics").and_then(Value::as_object).into_iter().flatten();
    object.for_each(|(name, one)| metrics.put_all(name, one));
    metrics
}

/// Makes a draft of one summary. Thresholds are not read: exported ones are true if they failed.
pub fn draft(metrics: &Metrics, seconds: Option<f64>) -> Result<Draft, String> {
    let of = |name: &str, keys: &[&str]| metrics.get(name, keys);
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
    // VUs that k6 added during the run were not requested.
    let vus = of("vus_max", &["value", "max"]);
    let vus = vus.filter(|most| of("vus_max", &["min"]).is_none_or(|least| least >= *most));
    draft.asked.connections = vus.map(|n| n as u64);
    let duration = |keys: &[&str]| of("http_req_duration", keys).map(|ms| ms * 1e6);
    duration(&["avg"]).into_iter().for_each(|ns| draft.put(Metric::LatencyMean, ns));
    duration(&["med", "p(50)"]).into_iter().for_each(|ns| draft.put_percentile(50.0, ns));
    draft.seen.latency_max_ns = duration(&["max"]);
    for (key, ms) in metrics.values("http_req_duration") {
        let digits = key.strip_prefix('p').map(|p| p.trim_matches(['(', ')']));
        if let Some(percent) = digits.and_then(plain).filter(|percent| *percent != 50.0) {
            draft.put_percentile(percent, ms * 1e6);
        }
    }
    draft.percentiles.sort_by(|a, b| a.percent.total_cmp(&b.percent));
    draft.seen.bytes = of("data_received", &["count"]);
    // The "passes" of http_req_failed are the requests that did fail.
    draft.seen.bad_status = of("http_req_failed", &["passes", "matches"]).map(|n| n as u64);
    let failed = of("checks", &["fails"]);
    draft.seen.other.extend(failed.map(|n| (CHECKS_FAILED.to_owned(), n)));
    let dropped = of("dropped_iterations", &["count"]).map(|n| n as u64);
    draft.seen.errors.extend(dropped.map(|n| ("dropped iterations".to_owned(), n)));
    let iterations = of("iterations", &["count"]);
    draft.seen.other.extend(iterations.map(|n| ("iterations".to_owned(), n)));
    draft.seen.left_out_ns = of("http_req_blocked", &["avg"]).map(|ms| ms * 1e6);
    Ok(draft)
}
