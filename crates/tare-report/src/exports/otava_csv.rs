//! Writes one row per run, with its time, and one column per variant and metric, for Apache Otava,
//! which finds changes in such series. Its configuration must list the columns.

use std::collections::BTreeSet;

use tare_model::Metric;

use super::Part;
use super::csv::quote;
use crate::date;
use crate::run::table::columns;

pub fn render(parts: &[Part<'_>]) -> String {
    // In the order of variants and metrics; runs of one experiment have the same.
    let mut known: Vec<(String, Metric)> = Vec::new();
    let mut seen = BTreeSet::new();
    for part in parts {
        let report = &part.document.report;
        for variant in &report.variants {
            for metric in columns(report) {
                let column = (column(part, &variant.name, metric), variant.name.clone(), metric);
                if seen.insert(column.0.clone()) {
                    known.push((column.0, metric));
                }
            }
        }
    }
    let head = known.iter().map(|(name, _)| format!(",{}", quote(name)));
    let mut text = format!("time,run,commit,version{}\n", head.collect::<String>());
    for part in parts {
        let run = &part.document.report.run;
        let time = date::rfc3339(run.started_unix_ms);
        let commit = part.document.report.machine["commit"].as_str().unwrap_or_default();
        let (commit, version) = (quote(commit), quote(&run.tare_version));
        text.push_str(&format!("{time},{},{commit},{version}", run.id));
        for (name, metric) in &known {
            let variants = part.document.report.variants.iter();
            let mut own = variants.filter(|variant| column(part, &variant.name, *metric) == *name);
            let value = own.next().and_then(|variant| variant.metric(*metric));
            let value = value.map_or(String::new(), |value| value.point.to_string());
            text.push_str(&format!(",{value}"));
        }
        text.push('\n');
    }
    text
}

/// Otava's metrics have names without spaces.
fn column(part: &Part<'_>, variant: &str, metric: Metric) -> String {
    let values = part.values.iter().map(|(key, value)| format!(".{key}={value}"));
    let name = format!("{variant}{}.{}", values.collect::<String>(), metric.key());
    name.chars().map(|c| if c.is_whitespace() || c == ',' { '_' } else { c }).collect()
}
