//! Writes a run in the format of bpftime's nginx benchmark, for scripts that read its result file.
//! A round counts as an iteration. Overheads are ratios of means, as in the original; tare's own
//! formats have intervals.

use serde_json::{Map, Value, json};
use tare_model::Metric;
use tare_stats::RoundDigest;
use tare_stats::estimate::{mean, variance};

use crate::date;
use crate::run::document::RunDocument;
use crate::run::from_rounds::RunFacts;

/// Names of tare's filters, and the different names that bpftime's benchmark gives them.
const NAMES: [(&str, &str); 5] = [
    ("shm", "baseline"),
    ("library", "dynamic_load"),
    ("rlbox-noop", "rlbox"),
    ("ebpf", "bpftime"),
    ("mpk", "erim"),
];

/// One variant's rounds.
struct Iterations {
    name: String,
    rps: Vec<f64>,
    latency_ms: Vec<f64>,
}

pub fn render(document: &RunDocument) -> String {
    let RunDocument { report, facts, digests, .. } = document;
    let started = date::utc_with_seconds(report.run.started_unix_ms);
    let all: Vec<Iterations> =
        (0..facts.plan.variants.len()).map(|at| iterations_of(facts, digests, at)).collect();
    let mut average = Map::new();
    let mut deviation = Map::new();
    let mut iterations = Map::new();
    for one in &all {
        let successful = one.rps.len();
        average.insert(
            one.name.clone(),
            json!({ "rps": mean(&one.rps), "latency_avg": ms(mean(&one.latency_ms)),
                    "iterations": successful }),
        );
        deviation.insert(
            one.name.clone(),
            json!({ "rps": variance(&one.rps).sqrt(),
                    "latency_avg": ms(variance(&one.latency_ms).sqrt()) }),
        );
        iterations.insert(
            one.name.clone(),
            json!({ "requests_per_sec": one.rps, "latency_avg_ms": one.latency_ms,
                    "successful": successful }),
        );
    }
    let text = json!({
        "benchmark_info": {
            "generator": format!("tare {}", report.run.tare_version),
            "timestamp": started,
            "duration": report.run.elapsed_ms / 1000,
            "connections": facts.plan.load.connections,
            "threads": facts.plan.load.workers(),
            "url_path": facts.plan.path(),
            "iterations": report.run.rounds,
        },
        "average_results": average,
        "standard_deviation": deviation,
        "overheads": overheads(&all),
        "iterations": iterations,
    });
    // Plain data: serialising it cannot fail.
    serde_json::to_string_pretty(&text).unwrap_or_default() + "\n"
}

fn iterations_of(facts: &RunFacts, digests: &[RoundDigest], variant: usize) -> Iterations {
    let values = |metric: Metric| -> Vec<f64> {
        digests.iter().filter_map(|digest| digest.variants[variant].value(metric)).collect()
    };
    Iterations {
        name: name(facts, variant),
        rps: values(Metric::Throughput),
        latency_ms: values(Metric::LatencyMean).into_iter().map(|ns| ns / 1e6).collect(),
    }
}

/// Returns bpftime's name for the filter if no other variant has it, else the variant's name.
fn name(facts: &RunFacts, variant: usize) -> String {
    let kind = |at: usize| facts.plan.variants[at].filter_name().unwrap_or("off");
    let own = kind(variant);
    let alone = (0..facts.plan.variants.len()).filter(|at| kind(*at) == own).count() == 1;
    match NAMES.into_iter().find(|(filter, _)| *filter == own) {
        _ if !alone => facts.plan.variants[variant].name.clone(),
        _ if own == "off" => "no_module".to_owned(),
        Some((_, name)) => name.to_owned(),
        None => own.to_owned(),
    }
}

/// Returns the overhead of each variant over every earlier variant.
fn overheads(all: &[Iterations]) -> Value {
    let mut found = Map::new();
    for (at, base) in all.iter().enumerate() {
        for one in &all[at + 1..] {
            let percent = (1.0 - mean(&one.rps) / mean(&base.rps)) * 100.0;
            found.insert(format!("{}_vs_{}", one.name, base.name), json!(format!("{percent:.2}%")));
        }
    }
    Value::Object(found)
}

fn ms(value: f64) -> String {
    format!("{value:.2}ms")
}
