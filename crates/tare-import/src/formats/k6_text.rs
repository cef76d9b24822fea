//! k6's summary, printed at the end of a run: one metric per line, its name followed by dots.

use super::TextFormat;
use super::k6::{Metrics, draft};
use crate::block::Block;
use crate::numbers::{duration_ns, plain, rate, whole};
use crate::sample::Draft;
use crate::trouble::Trouble;

pub const FORMAT: TextFormat = TextFormat {
    begins: |lines| metric(lines[0]).is_some(),
    length: |lines| lines.iter().rposition(|line| metric(line).is_some()).map_or(1, |at| at + 1),
    is_inside: |block, line| {
        metric(line).is_some_and(|(name, _)| {
            !block.iter().filter_map(|own| metric(own)).any(|(own, _)| own == name)
        })
    },
    read: |block| read(block).map(|draft| vec![draft]),
};

const NAMES: [&str; 8] =
    ["http_req", "data_", "iteration", "vus", "checks", "group_duration", "dropped", "browser_"];

/// Splits "http_req_duration..............: avg=94.66µs" into the name and its values.
fn metric(line: &str) -> Option<(&str, &str)> {
    let line = line.trim().trim_start_matches(['✓', '✗', ' ']);
    let (name, said) = line.split_once(':')?;
    let (name, dots) = name.split_at(name.find('.')?);
    let is_name = NAMES.iter().any(|known| name.starts_with(known)) && !name.contains(' ');
    (is_name && dots.chars().all(|c| c == '.')).then_some((name, said.trim()))
}

fn read(block: &Block<'_>) -> Result<Draft, Trouble> {
    let mut metrics = Metrics::default();
    for (at, line) in block.numbered() {
        let Some((name, said)) = metric(line) else { continue };
        for word in said.split_whitespace() {
            let Some((key, value)) = word.split_once('=') else { continue };
            if let Some(ns) = duration_ns(value) {
                metrics.put(name, key, ns / 1e6);
            }
        }
        let words: Vec<&str> = said.split_whitespace().collect();
        match (name, words.as_slice()) {
            ("http_reqs", [count, per_s, ..]) => {
                let broken = || Trouble::at(at, "'http_reqs' of k6 is no count and rate");
                let per_s = per_s.strip_suffix("/s").and_then(rate).ok_or_else(broken)?;
                metrics.put(name, "count", whole(count).ok_or_else(broken)? as f64);
                metrics.put(name, "rate", per_s);
            }
            // New versions print "0.00%  0 out of 44677", older ones "0.00% ✓ 0 ✗ 44677".
            ("http_req_failed", [_, bad, "out", "of", ..] | [_, "✓", bad, ..]) => {
                whole(bad).into_iter().for_each(|n| metrics.put(name, "passes", n as f64));
            }
            ("data_received", [number, unit, ..]) => {
                let bytes = plain(number).zip(factor(unit)).map(|(n, factor)| n * factor);
                bytes.into_iter().for_each(|bytes| metrics.put(name, "count", bytes));
            }
            ("vus_max", [n, rest @ ..]) => {
                let least = rest.iter().find_map(|word| whole(word.strip_prefix("min=")?));
                whole(n).into_iter().for_each(|n| metrics.put(name, "value", n as f64));
                least.into_iter().for_each(|n| metrics.put(name, "min", n as f64));
            }
            // Old: "✓ 39895 ✗ 1312"; new: "checks_failed.....: 3.18%  1312 out of 41207".
            ("checks", [.., "✓", _, "✗", bad]) | ("checks_failed", [_, bad, "out", ..]) => {
                whole(bad).into_iter().for_each(|n| metrics.put("checks", "fails", n as f64));
            }
            ("dropped_iterations" | "iterations", [n, ..]) => {
                whole(n).into_iter().for_each(|n| metrics.put(name, "count", n as f64));
            }
            _ => {}
        }
    }
    draft(&metrics, None).map_err(|why| Trouble::at(block.first, why))
}

/// Returns the bytes in a unit; k6's prefixes are decimal.
fn factor(unit: &str) -> Option<f64> {
    Some(match unit {
        "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        _ => return None,
    })
}
