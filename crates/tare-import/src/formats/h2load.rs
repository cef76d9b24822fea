//! h2load's text: the table with and without percentiles.

use tare_model::Metric;

use super::{TextFormat, needed, through};
use crate::block::Block;
use crate::numbers::{binary_bytes, duration_ns, rate, whole};
use crate::sample::{Draft, Tool};
use crate::trouble::Trouble;

pub const FORMAT: TextFormat = TextFormat {
    begins: |lines| lines[0].trim() == "starting benchmark..." || is_result(lines[0]),
    length,
    is_inside: |block, line| is_result(line) && !block.iter().any(|own| is_result(own)),
    read: |block| read(block).map(|draft| vec![draft]),
};

/// Counts lines up to the one with the clients' rates; if it is missing, up to the blank line after
/// the result.
fn length(lines: &[&str]) -> usize {
    let first = lines.iter().position(|line| is_result(line)).unwrap_or(0);
    let blank = lines[first..].iter().position(|line| line.trim().is_empty());
    let end = blank.map_or(lines.len(), |at| first + at);
    through(&lines[..end], |line| line.starts_with("req/s "))
}

fn is_result(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("finished in ") && line.contains(" req/s")
}

fn read(block: &Block<'_>) -> Result<Draft, Trouble> {
    let mut draft = Draft::new(Tool::H2load);
    let finished = block.after("finished in ");
    let per_s = |text: &str| {
        let word = text.split(", ").find_map(|part| part.trim().strip_suffix(" req/s"));
        rate(word?)
    };
    let label = ("h2load", "finished in … req/s");
    draft.put(Metric::Throughput, needed(finished, block.first, label, per_s)?);
    if let Some((_, text)) = finished {
        let mut parts = text.split(", ");
        draft.seen.seconds = parts.next().and_then(duration_ns).map(|ns| ns / 1e9);
        if let Some(bytes) = parts.nth(1).and_then(binary_bytes) {
            draft.put(Metric::Bandwidth, bytes);
        }
    }
    let (mut threads, mut clients) = (0, 0u64);
    // Only the command shows how many requests a connection has in flight (-m).
    draft.asked.at_once = None;
    for (_, line) in block.numbered() {
        let line = line.trim();
        if line.starts_with("spawning thread") {
            let found = line.split(": ").nth(1).and_then(|rest| whole(rest.split(' ').next()?));
            threads += 1;
            clients = found.unwrap_or(0).saturating_add(clients);
        } else if let Some(rest) = line.strip_prefix("requests: ") {
            draft.asked.requests = named(rest, "total");
            draft.seen.requests = named(rest, "done");
            for kind in ["failed", "errored", "timeout"] {
                // "failed" includes "errored".
                let n = named(rest, kind).filter(|n| *n > 0 && kind != "errored");
                draft.seen.errors.extend(n.map(|n| (kind.to_owned(), n)));
            }
        } else if let Some(rest) = line.strip_prefix("status codes: ") {
            let bad = named(rest, "4xx").zip(named(rest, "5xx")).map(|(a, b)| a.saturating_add(b));
            draft.seen.bad_status = bad;
        } else if let Some(rest) = line.strip_prefix("traffic: ") {
            draft.seen.bytes = traffic(rest, " total");
            draft.seen.body_bytes = rest.split(", ").find_map(|part| traffic(part, " data"));
        }
    }
    if threads > 0 {
        draft.asked.threads = Some(threads);
        draft.asked.connections = Some(clients);
    }
    table(block, &mut draft);
    Ok(draft)
}

/// Returns a count by its name: "2000 total, 1990 done".
fn named(text: &str, name: &str) -> Option<u64> {
    let part = text.split(", ").find_map(|part| part.trim().strip_suffix(name));
    whole(part?.trim())
}

/// Returns the exact bytes in "1.33MB (1398000) total, …".
fn traffic(text: &str, name: &str) -> Option<f64> {
    let (own, _) = text.split_once(name)?;
    let (_, rest) = own.split_once('(')?;
    whole(rest.trim_end_matches(')')).map(|n| n as f64)
}

fn table(block: &Block<'_>, draft: &mut Draft) {
    let header =
        block.numbered().map(|(_, line)| line.trim()).find(|line| line.starts_with("min "));
    let columns: Vec<&str> = header.unwrap_or_default().split_whitespace().collect();
    let row = block.after("time for request:").or(block.after("request "));
    let Some((_, row)) = row else { return };
    let row = row.trim_start_matches([' ', ':']);
    for (column, value) in columns.iter().zip(row.split_whitespace()) {
        let Some(ns) = duration_ns(value) else { continue };
        match *column {
            "max" => draft.seen.latency_max_ns = Some(ns),
            "mean" => {
                draft.put(Metric::LatencyMean, ns);
                // h2load prints whole microseconds, but longer units with two decimals.
                draft.seen.step_ns = value.ends_with("us").then_some(1e3);
            }
            "median" => draft.put_percentile(50.0, ns),
            "p95" => draft.put_percentile(95.0, ns),
            "p99" => draft.put_percentile(99.0, ns),
            _ => {}
        }
    }
}
