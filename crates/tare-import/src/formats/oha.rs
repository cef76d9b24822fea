//! oha's JSON, in seconds. Its success rate counts any reply; requests cut off at the deadline
//! appear only among the errors.

use serde_json::Value;
use tare_model::Metric;

use super::value::{needed, number};
use crate::numbers::plain;
use crate::sample::{Draft, Tool};

pub fn read(value: &Value) -> Result<Vec<Draft>, String> {
    let mut draft = Draft::new(Tool::Oha);
    draft.put(Metric::Throughput, needed("oha", value, &["summary", "requestsPerSec"])?);
    let s = |path: &[&str]| number(value, path).map(|s| s * 1e9);
    s(&["summary", "average"]).into_iter().for_each(|ns| draft.put(Metric::LatencyMean, ns));
    draft.seen.latency_max_ns = s(&["summary", "slowest"]);
    draft.seen.seconds = number(value, &["summary", "total"]);
    draft.seen.bytes = number(value, &["summary", "totalData"]);
    draft.seen.bytes_are_bodies = true;
    let per_s = number(value, &["summary", "sizePerSec"]);
    per_s.into_iter().for_each(|bytes| draft.put(Metric::Bandwidth, bytes));
    let object = |key: &str| value.get(key).and_then(Value::as_object);
    for (key, seconds) in object("latencyPercentiles").into_iter().flatten() {
        let percent = key.strip_prefix('p').and_then(plain);
        if let (Some(percent), Some(seconds)) = (percent, seconds.as_f64()) {
            draft.put_percentile(percent, seconds * 1e9);
        }
    }
    draft.percentiles.sort_by(|a, b| a.percent.total_cmp(&b.percent));
    let (mut replies, mut bad) = (0u64, 0u64);
    for (code, n) in object("statusCodeDistribution").into_iter().flatten() {
        let n = n.as_u64().unwrap_or(0);
        replies = n.saturating_add(replies);
        bad = if code.starts_with(['2', '3']) { bad } else { n.saturating_add(bad) };
    }
    draft.seen.requests = Some(replies);
    draft.seen.bad_status = Some(bad);
    for (kind, n) in object("errorDistribution").into_iter().flatten() {
        draft.put_errors(kind, n.as_u64().unwrap_or(0));
    }
    exclude_deadline_errors(&mut draft);
    Ok(vec![draft])
}

/// Removes requests in flight at the deadline from the errors: they did not fail.
pub(super) fn exclude_deadline_errors(draft: &mut Draft) {
    let cut: Vec<String> =
        draft.seen.errors.keys().filter(|kind| kind.contains("deadline")).cloned().collect();
    let n: u64 = cut.iter().filter_map(|kind| draft.seen.errors.remove(kind)).sum();
    if n > 0 {
        draft.seen.other.insert("cut at the deadline".to_owned(), n as f64);
    }
}
