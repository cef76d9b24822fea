//! ApacheBench's key and value lines.

use tare_model::Metric;

use super::{TextFormat, needed};
use crate::block::Block;
use crate::numbers::{plain, rate, whole};
use crate::sample::{DOUBTS, Draft, NS_PER_REQUEST, Tool};
use crate::trouble::Trouble;

pub const FORMAT: TextFormat = TextFormat {
    begins: |lines| part(lines[0]).is_some(),
    length,
    is_inside: |block, line| {
        let seen = block.iter().filter_map(|own| part(own)).max();
        part(line).zip(seen).is_some_and(|(next, seen)| next > seen)
    },
    read: |block| read(block).map(|draft| vec![draft]),
};

/// Returns a line's position in the fixed order of an output's lines; a truncated output may begin
/// with any of them.
fn part(line: &str) -> Option<usize> {
    const PARTS: [&str; 6] = [
        "This is ApacheBench",
        "Server Software:",
        "Concurrency Level:",
        "Time taken for tests:",
        "Complete requests:",
        "Requests per second:",
    ];
    let line = line.trim_start();
    PARTS.iter().position(|part| line.starts_with(part))
}

/// Counts lines up to the slowest request's, or in a truncated output up to ab's last line.
fn length(lines: &[&str]) -> usize {
    let is_own = |line: &str| {
        let line = line.trim();
        let is_label = line.split_once(':').is_some_and(|(label, rest)| {
            label.starts_with(|c: char| c.is_ascii_uppercase() || c == '(')
                && label.len() < 24
                && rest.starts_with([' ', '\t'])
                && rest.contains(|c: char| c.is_ascii_digit() || c == '/')
        });
        let is_list = line.split_once('%').is_some_and(|(n, _)| whole(n).is_some());
        is_label || is_list
    };
    let end = super::through(lines, |line| line.starts_with("100%"));
    if end < lines.len() || lines.last().is_some_and(|line| line.trim().starts_with("100%")) {
        return end;
    }
    // More than a few other lines in a row are prose.
    const OTHER: usize = 6;
    let mut last = 0;
    for (at, line) in lines.iter().enumerate() {
        if is_own(line) || part(line).is_some() {
            last = at;
        } else if at > last + OTHER {
            break;
        }
    }
    last + 1
}

fn read(block: &Block<'_>) -> Result<Draft, Trouble> {
    let mut draft = Draft::new(Tool::Ab);
    let first_word = |text: &str| plain(text.split_whitespace().next()?);
    let label = ("ab", "Requests per second:");
    let per_s = |text: &str| rate(text.split_whitespace().next()?);
    let per_s = needed(block.after(label.1), block.first, label, per_s)?;
    draft.put(Metric::Throughput, per_s);
    let number = |label: &str| block.after(label).and_then(|(_, text)| first_word(text));
    let integer = |label: &str| number(label).map(|n| n as u64);
    let word = |label: &str| block.after(label).map(|(_, text)| text.trim().to_owned());
    if let (Some(host), Some(port)) = (word("Server Hostname:"), integer("Server Port:")) {
        let scheme = if word("SSL/TLS Protocol:").is_some() { "https" } else { "http" };
        let path = word("Document Path:").unwrap_or_else(|| "/".into());
        draft.asked.url = Some(format!("{scheme}://{host}:{port}{path}"));
    }
    draft.asked.connections = integer("Concurrency Level:");
    draft.seen.seconds = number("Time taken for tests:");
    draft.seen.requests = integer("Complete requests:");
    draft.seen.bytes = number("Total transferred:");
    draft.seen.body_bytes = number("HTML transferred:");
    draft.seen.bad_status = integer("Non-2xx responses:");
    let kept = integer("Keep-Alive requests:");
    draft.asked.keep = Some(kept.is_some());
    draft.seen.opened = match (kept, draft.seen.requests) {
        (Some(kept), Some(requests)) => Some(requests.saturating_sub(kept)),
        (None, requests) => requests,
        _ => None,
    };
    failures(block, &mut draft);
    // "Time per request" is concurrency over throughput; the measured times are in the table.
    let per_request = number("Time per request:").map(|ms| ms * 1e6);
    draft.seen.other.extend(per_request.map(|ns| (NS_PER_REQUEST.to_owned(), ns)));
    let doubts = block.lines.iter().any(|line| line.contains("probably not that reliable"));
    draft.seen.other.extend(doubts.then(|| (DOUBTS.to_owned(), 1.0)));
    let total = block.after("Total: ").map(|(_, row)| row.split_whitespace());
    if let Some(ms) = total.and_then(|mut row| plain(row.nth(1)?)) {
        draft.put(Metric::LatencyMean, ms * 1e6);
        draft.seen.step_ns = Some(1e6);
    }
    for (_, line) in block.numbered() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [percent, ms, ..] = words.as_slice()
            && let Some(percent) = percent.strip_suffix('%').and_then(plain)
            && let Some(ms) = whole(ms)
        {
            match percent {
                100.0 => draft.seen.latency_max_ns = Some(ms as f64 * 1e6),
                percent => draft.put_percentile(percent, ms as f64 * 1e6),
            }
        }
    }
    Ok(draft)
}

/// Reads "Failed requests: 3" and below it "(Connect: 0, Receive: 0, Length: 3, Exceptions: 0)".
fn failures(block: &Block<'_>, draft: &mut Draft) {
    let errors = &mut draft.seen.errors;
    let failed = block.after("Failed requests:").and_then(|(_, text)| whole(text.trim()));
    if let Some((_, kinds)) = block.after("(Connect:") {
        let kinds = format!("Connect:{}", kinds.trim_end_matches(')'));
        for (kind, n) in kinds.split(", ").filter_map(|part| part.split_once(':')) {
            if let Some(n) = whole(n.trim()).filter(|n| *n > 0) {
                errors.insert(kind.trim().to_lowercase(), n);
            }
        }
    } else if let Some(failed) = failed.filter(|n| *n > 0) {
        errors.insert("failed".into(), failed);
    }
}
