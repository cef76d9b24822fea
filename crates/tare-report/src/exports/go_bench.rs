//! Writes a line for each round and variant in the format of Go's benchmarks, so that benchstat sees
//! as many samples as there are independent ones.

use super::Part;
use crate::run::table::columns;

pub fn render(parts: &[Part<'_>]) -> String {
    let mut text = String::from("goos: linux\n");
    let mut units: Vec<&str> = Vec::new();
    let mut lines = String::new();
    for part in parts {
        let (report, digests) = (&part.document.report, &part.document.digests);
        let metrics = columns(report);
        for metric in &metrics {
            if !units.contains(&metric.key()) {
                units.push(metric.key());
                let better = if metric.more_is_better() { "higher" } else { "lower" };
                text.push_str(&format!("Unit {} better={better}\n", metric.key()));
            }
        }
        let values = part.values.iter();
        let values: String =
            values.map(|(key, value)| format!("/{}={}", word(key), word(value))).collect();
        for (at, variant) in report.variants.iter().enumerate() {
            let name =
                format!("Benchmark{}/variant={}{values}", camel(&part.name()), word(&variant.name));
            for digest in digests {
                let round = &digest.variants[at];
                let own = metrics.iter().filter_map(|metric| Some((metric, round.value(*metric)?)));
                let own: Vec<String> =
                    own.map(|(metric, value)| format!("\t{value} {}", metric.key())).collect();
                if !own.is_empty() {
                    let requests = round.counts.good.max(1);
                    lines.push_str(&format!("{name}\t{requests}{}\n", own.concat()));
                }
            }
        }
    }
    text + &lines
}

/// Spaces and slashes would end a name or a part of it.
fn word(text: &str) -> String {
    let is_end = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '=');
    let kept: String = text.chars().map(|c| if is_end(c) { '_' } else { c }).collect();
    if kept.is_empty() { "_".into() } else { kept }
}

/// Go's names of benchmarks begin with an upper-case letter: `WhatDoesAnAccessLogCost`.
fn camel(text: &str) -> String {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let all: String = words.map(crate::run::words::capital).collect();
    if all.starts_with(|c: char| c.is_uppercase()) { all } else { format!("Tare{all}") }
}
