//! Writes values in Bencher's metric format: a benchmark for each variant, with the bounds of its
//! intervals.

use serde_json::{Map, Value, json};

use super::Part;

pub fn render(parts: &[Part<'_>]) -> String {
    let mut benchmarks = Map::new();
    for part in parts {
        for variant in &part.document.report.variants {
            let measures = variant.metrics.iter().map(|(key, value)| {
                let bounds = json!({
                    "value": value.point,
                    "lower_value": value.lower,
                    "upper_value": value.upper,
                });
                // Bencher's names of measures have hyphens.
                (key.replace('_', "-"), bounds)
            });
            let measures: Map<String, Value> = measures.collect();
            if !measures.is_empty() {
                benchmarks.insert(part.name_of(&variant.name), measures.into());
            }
        }
    }
    // Plain data: serialising it cannot fail.
    serde_json::to_string_pretty(&benchmarks).unwrap_or_default() + "\n"
}
