//! Service Mesh Performance: what was asked and what came of it, with the names of its protocol
//! buffers as JSON. It knows no intervals and no errors; `labels` carry what would be lost.
//! Latencies are in milliseconds, as their name says.

use serde_json::{Map, Value, json};
use tare_model::Metric;
use tare_model::plan::PlanParts;
use tare_model::samples::Series;

use super::Part;
use crate::date;
use crate::run::Variant;

const SMP_VERSION: &str = "v0.0.1";

/// A test knows one load: of a sweep it is a list of tests.
pub fn render(parts: &[Part<'_>]) -> String {
    let mut tests: Vec<Value> = parts.iter().map(test).collect();
    let whole = match tests.len() {
        1 => tests.remove(0),
        _ => Value::Array(tests),
    };
    // Plain data: nothing in it can fail to be written.
    serde_json::to_string_pretty(&whole).unwrap_or_default() + "\n"
}

fn test(part: &Part<'_>) -> Value {
    let run = &part.document.report.run;
    let id = format!("tare-run-{}", run.id);
    let seconds = run.elapsed_ms as f64 / 1e3;
    let variants = part.document.report.variants.iter().enumerate();
    let results: Vec<Value> = variants.map(|(at, v)| result(part, at, v, &id)).collect();
    json!({
        "performance_test_config": {
            "smp_version": SMP_VERSION,
            "id": id,
            "name": run.name,
            "labels": { "tare_version": run.tare_version, "seed": run.seed.to_string() },
            "clients": [client(&part.document.facts.plan)],
            "duration": format!("{seconds:.0}s"),
        },
        "performance_test_results": results,
    })
}

fn client(plan: &PlanParts) -> Value {
    let load = &plan.load;
    json!({
        "internal": false,
        "load_generator": "tare",
        "protocol": "http",
        "connections": load.connections,
        // Zero is "as fast as they come".
        "rps": load.rate().map_or(0, |rate| rate.round() as u64),
        "endpoint_url": [plan.path()],
    })
}

fn result(part: &Part<'_>, at: usize, variant: &Variant, id: &str) -> Value {
    let document = part.document;
    let run = &document.report.run;
    let point = |metric| variant.metric(metric).map(|estimate| estimate.point);
    let all = document.latency(at, Series::Headline);
    let bounds = all.as_ref().and_then(|all| {
        let (least, _) = all.counts().first()?;
        Some((*least as f64 / 1e6, all.max_ns() as f64 / 1e6))
    });
    let mut latencies = Map::new();
    let mut put = |key: &str, ms: Option<f64>| {
        latencies.extend(ms.map(|ms| (key.to_owned(), json!(ms))));
    };
    let ms = |metric| point(metric).map(|ns| ns / 1e6);
    put("min", bounds.map(|(least, _)| least));
    put("average", ms(Metric::LatencyMean));
    put("p50", ms(Metric::LatencyP50));
    put("p90", ms(Metric::LatencyP90));
    put("p99", ms(Metric::LatencyP99));
    put("max", bounds.map(|(_, most)| most));
    json!({
        "smp_version": SMP_VERSION,
        "id": format!("{id}-{at}"),
        "labels": labels(part, variant),
        "start_time": date::rfc3339(run.started_unix_ms),
        "end_time": date::rfc3339(run.started_unix_ms + run.elapsed_ms),
        "latencies_ms": latencies,
        "actual_QPS": point(Metric::Throughput).unwrap_or(0.0),
        "testId": id,
    })
}

/// What the specification has no place for.
fn labels(part: &Part<'_>, variant: &Variant) -> Value {
    let mut labels = Map::new();
    let mut put = |key: String, text: String| drop(labels.insert(key, Value::String(text)));
    part.values.iter().for_each(|(key, value)| put(key.clone(), value.clone()));
    put("variant".into(), variant.name.clone());
    put("baseline".into(), variant.baseline.to_string());
    put("place".into(), variant.place.clone());
    let errors: u64 = variant.errors.values().sum();
    put("errors".into(), errors.to_string());
    for comparison in part.document.report.asked_of(&variant.name) {
        let key = comparison.metric.word();
        let bounds = comparison.overhead_percent;
        put(
            format!("overhead_percent_{key}"),
            format!("{:.3} [{:.3}, {:.3}]", bounds.point, bounds.lower, bounds.upper),
        );
        put(format!("verdict_{key}"), comparison.verdict.word().into());
    }
    Value::Object(labels)
}
