//! The result file of bpftime's nginx benchmark: every iteration's numbers, keyed by variant.

use serde_json::Value;
use tare_model::Metric;

use super::value::{number, text};
use crate::claim::StatedChange;
use crate::numbers::{duration_ns, percent};
use crate::sample::{Draft, Tool};
use crate::table::{Kind, KindOfUnit, meaning};

pub fn read(value: &Value) -> Result<Vec<Draft>, String> {
    let Some(averages) = value.get("average_results").and_then(Value::as_object) else {
        return Err("is bpftime's JSON without an object at 'average_results'".into());
    };
    // Averages of one variant alone, which is named elsewhere.
    if averages.values().all(|value| !value.is_object()) {
        return one(value);
    }
    let info = |key: &str| number(value, &["benchmark_info", key]);
    let mut drafts = Vec::new();
    // Keys are sorted, not in the file's order; the variant without a module comes first.
    let mut names: Vec<&String> = averages.keys().collect();
    names.sort_by_key(|name| *name != "no_module");
    for name in names {
        let mut draft = Draft::new(Tool::BpftimeBenchmark);
        draft.own_name = Some(name.clone());
        draft.asked.threads = info("threads").map(|n| n as u64);
        draft.asked.connections = info("connections").map(|n| n as u64);
        draft.asked.seconds = info("duration");
        draft.asked.url = text(value, &["benchmark_info", "url_path"]);
        // Requests in flight are not checked for tare: its own guard did that, and requests cross
        // the edges of its short slices.
        let generator = text(value, &["benchmark_info", "generator"]).unwrap_or_default();
        draft.asked.at_once = (!generator.starts_with("tare ")).then_some(1);
        let list = |key: &str| -> Vec<f64> {
            let list = value.get("iterations").and_then(|all| all.get(name));
            let list = list.and_then(|own| own.get(key)).and_then(Value::as_array);
            let numbers = list.into_iter().flatten().filter_map(Value::as_f64);
            numbers.filter(|n| n.is_finite() && *n > 0.0).collect()
        };
        let rps = list("requests_per_sec");
        let latency: Vec<f64> = list("latency_avg_ms").into_iter().map(|ms| ms * 1e6).collect();
        let kept = |sums: &str| {
            let own = value.get(sums).and_then(|sums| sums.get(name)).unwrap_or(&Value::Null);
            let of = |metric: Metric| (metric, kept(own, metric));
            [of(Metric::Throughput), of(Metric::LatencyMean)]
        };
        let n = number(value, &["average_results", name, "iterations"]).or(info("iterations"));
        let n = n.filter(|n| (1.0..1e6).contains(n)).map(|n| n as u32);
        let averages = kept("average_results").into_iter().zip(kept("standard_deviation"));
        for (((metric, average), (_, spread)), values) in averages.zip([rps, latency]) {
            let mean = (!values.is_empty()).then(|| tare_stats::estimate::mean(&values));
            mean.or(average).into_iter().for_each(|value| draft.put(metric, value));
            if values.len() > 1 {
                draft.repeats.insert(metric.key().to_owned(), values);
            } else if let Some((mean, spread)) = average.zip(spread) {
                draft.put_moments(metric, mean, spread, n);
            }
        }
        draft.against = overheads(value, name);
        if !draft.values.is_empty() {
            drafts.push(draft);
        }
    }
    if drafts.is_empty() {
        return Err("is bpftime's JSON without a result of any variant".into());
    }
    Ok(drafts)
}

/// Reads the averages of one variant, a summary written by a user's script.
fn one(value: &Value) -> Result<Vec<Draft>, String> {
    let mut draft = Draft::new(Tool::Summary);
    let n = number(value, &["iterations"]).filter(|n| (1.0..1e6).contains(n)).map(|n| n as u32);
    for metric in [Metric::Throughput, Metric::LatencyMean] {
        let of = |sums: &str| value.get(sums).and_then(|own| kept(own, metric));
        let Some(mean) = of("average_results") else { continue };
        draft.put(metric, mean);
        of("standard_deviation").into_iter().for_each(|sd| draft.put_moments(metric, mean, sd, n));
    }
    if draft.values.is_empty() {
        return Err("is JSON of averages without a rate or a latency".into());
    }
    Ok(vec![draft])
}

/// Reads "rps": 4008.0, "latency_avg": "18.11ms" or "latency_avg_ms": 18.11; a number without a
/// unit is not a latency.
fn kept(own: &Value, metric: Metric) -> Option<f64> {
    own.as_object()?.iter().find_map(|(key, told)| {
        let said = meaning(&key.replace('_', " "));
        if said.quantity != Some(Kind::Of(metric)) {
            return None;
        }
        match (metric, told.as_f64(), told.as_str()) {
            (_, None, Some(text)) => duration_ns(text),
            (Metric::Throughput, Some(n), _) => Some(n),
            (_, Some(n), _) => match said.unit {
                Some(KindOfUnit::Time(ns)) => Some(n * ns),
                _ => None,
            },
            _ => None,
        }
    })
}

/// Reads overheads such as "wasm_vs_no_module": "11.66%".
fn overheads(value: &Value, name: &str) -> Vec<StatedChange> {
    let all = value.get("overheads").and_then(Value::as_object);
    let of = |(key, told): (&String, &Value)| {
        let other = key.strip_prefix(name)?.strip_prefix("_vs_")?.to_owned();
        let told = told.as_str()?;
        let (percent, step) = percent(told)?;
        Some(StatedChange { line: 0, text: format!("{key}: {told}"), other, percent, step })
    };
    all.into_iter().flatten().filter_map(of).collect()
}
