//! Writes values for github-action-benchmark, which takes metrics where more is better in one file
//! (`customBiggerIsBetter`) and the others in another (`customSmallerIsBetter`).

use serde_json::{Value, json};
use tare_model::Metric;
use tare_model::metric::Unit;

use super::Part;
use crate::format::counted;
use crate::run::table::columns;

pub fn render(parts: &[Part<'_>], more_is_better: bool) -> String {
    let mut values: Vec<Value> = Vec::new();
    for part in parts {
        let report = &part.document.report;
        let metrics = columns(report);
        for variant in &report.variants {
            let own = metrics.iter().filter(|metric| metric.more_is_better() == more_is_better);
            values.extend(own.filter_map(|metric| {
                let value = variant.metric(*metric)?;
                let rounds = counted(value.n.into(), "round", "rounds");
                let (lower, upper) = (value.lower, value.upper);
                Some(json!({
                    "name": format!("{}, {}", part.name_of(&variant.name), metric.row().noun),
                    "unit": unit(*metric),
                    "value": value.point,
                    "range": format!("± {}", (upper - lower) / 2.0),
                    "extra": format!("interval {lower} to {upper}, {rounds}"),
                }))
            }));
        }
    }
    // Plain data: serialising it cannot fail.
    serde_json::to_string_pretty(&values).unwrap_or_default() + "\n"
}

fn unit(metric: Metric) -> &'static str {
    match metric.row().unit {
        Unit::Rate => "1/s",
        Unit::BytesPerSecond => "B/s",
        Unit::Bytes => "B",
        Unit::Time | Unit::ShortTime => "ns",
        Unit::Number => "per request",
    }
}
