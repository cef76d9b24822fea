//! fortio's printed output: a head, several histograms, status codes. Times are in seconds.

use tare_model::Metric;

use super::fortio::codes;
use super::{TextFormat, needed, through};
use crate::block::Block;
use crate::numbers::{plain, rate, seconds, whole};
use crate::sample::{Draft, Tool};
use crate::trouble::Trouble;

pub const FORMAT: TextFormat = TextFormat {
    begins: |lines| lines.first().is_some_and(|line| part(line).is_some()),
    length,
    is_inside: |block, line| match part(line) {
        // Parts come in this order: an earlier one belongs to another output.
        Some(TARGET) => true,
        Some(part) => block.iter().filter_map(|own| self::part(own)).all(|own| own < part),
        // Its histograms have lines that look like headings.
        None => ["# range, ", "# target ", "# Socket "].iter().any(|mark| line.starts_with(mark)),
    },
    read: |block| read(block).map(|draft| vec![draft]),
};

const TARGET: usize = 3;

/// Returns which part of an output begins with this line; people may cut off earlier parts.
fn part(line: &str) -> Option<usize> {
    let line = line.trim();
    let parts = [
        line.starts_with("Fortio ") && line.contains(" running at "),
        line.starts_with("Starting at ") && line.contains(" thread(s) "),
        line.starts_with("Ended after ") && line.contains(" calls. qps="),
        is_connecting(line) || (line.starts_with("# target ") && line.contains("% ")),
        line.starts_with("All done ") && line.ends_with(" qps"),
    ];
    parts.iter().position(|is| *is)
}

/// Counts lines to the last one, including the same run as JSON (`-json -`) if that follows.
fn length(lines: &[&str]) -> usize {
    let done = through(lines, |line| line.starts_with("All done "));
    match lines.get(done) {
        Some(line) if line.trim() == "{" => done + through(&lines[done..], |line| line == "}"),
        _ => done,
    }
}

fn read(block: &Block<'_>) -> Result<Draft, Trouble> {
    let mut draft = Draft::new(Tool::Fortio);
    head(block, &mut draft);
    // "Ended after 1.000940005s : 500 calls. qps=499.53"
    let label = ("fortio", "Ended after");
    let per_s = |text: &str| rate(text.rsplit_once("qps=")?.1.trim());
    let ended = block.after(label.1);
    let done = block.after("All done ").and_then(|(_, text)| done(text));
    match (ended, done) {
        (None, Some((calls, mean_ms, per_s))) => {
            draft.seen.requests = Some(calls);
            draft.put(Metric::LatencyMean, mean_ms * 1e6);
            draft.put(Metric::Throughput, per_s);
        }
        _ => draft.put(Metric::Throughput, needed(ended, block.first, label, per_s)?),
    }
    let mut words = ended.map_or("", |(_, text)| text).split_whitespace();
    draft.seen.seconds = words.next().and_then(seconds);
    draft.seen.requests = words.nth(1).and_then(whole).or(draft.seen.requests);
    let time = block.after("Aggregated Function Time :").map(|(_, text)| text);
    let mean = time.and_then(|text| after(text, "avg"));
    mean.into_iter().for_each(|s| draft.put(Metric::LatencyMean, s * 1e9));
    draft.seen.latency_max_ns = time.and_then(|text| after(text, "max")).map(|s| s * 1e9);
    percentiles(block, &mut draft);
    let sizes = block.after("Response Body/Total Sizes :");
    draft.seen.bytes = sizes.and_then(|(_, text)| after(text, "sum")).filter(|n| *n >= 0.0);
    let sockets = block.after("Sockets used:").and_then(|(_, text)| text.split(' ').nth(1));
    draft.seen.opened = sockets.and_then(whole);
    // "(for perfect keepalive, would be 1000)".
    let perfect = block.after("Sockets used:").and_then(|(_, text)| text.split("would be ").nth(1));
    let perfect = perfect.and_then(|text| whole(text.trim_end().trim_end_matches(')')));
    draft.asked.connections = draft.asked.connections.or(perfect);
    let found = block.lines.iter().filter_map(|line| status(line)).collect::<Vec<_>>();
    if !found.is_empty() {
        codes(found.into_iter(), &mut draft);
    }
    Ok(draft)
}

/// Reads "Fortio 1.63.5 running at 500 queries per second, 2->2 procs, for 1s: http://host/" and
/// "Starting at 500 qps with 4 thread(s) [gomax 2] for 1s : 125 calls each (total 500)".
fn head(block: &Block<'_>, draft: &mut Draft) {
    if let Some((_, text)) =
        block.after("Fortio ").filter(|(_, text)| text.contains(" running at "))
    {
        let asked = text.split_once(" procs, ").and_then(|(_, rest)| rest.split_once(": "));
        if let Some((load, url)) = asked {
            draft.asked.url = Some(url.trim().chars().take(300).collect());
            // The load is "for 1s", "for 500 calls" or "until interrupted".
            let load = load.strip_prefix("for ").unwrap_or(load);
            draft.asked.requests = load.strip_suffix(" calls").and_then(whole);
            draft.asked.seconds = seconds(load);
        }
    }
    if let Some((_, text)) = block.after("Starting at ") {
        let mut words = text.split_whitespace();
        draft.asked.rate_per_s = words.next().and_then(rate).filter(|rate| *rate > 0.0);
        // A "thread" of fortio is a connection.
        draft.asked.connections = words.nth(2).and_then(whole);
    }
}

/// Reads "59857 calls (plus 16 warmup) 1.928 ms avg, 997.6 qps".
fn done(text: &str) -> Option<(u64, f64, f64)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "ms")?;
    let qps = words.iter().position(|word| *word == "qps")?;
    let before = |at: usize| plain(words.get(at.checked_sub(1)?)?);
    Some((whole(words.first()?)?, before(at)?, before(qps)?))
}

/// Returns the number after a word: "count 500 avg 8.87e-05 +/- 0.00035 min …".
fn after(text: &str, word: &str) -> Option<f64> {
    text.split_whitespace().skip_while(|own| *own != word).nth(1).and_then(plain)
}

/// Whether the histogram of connection times begins here.
fn is_connecting(line: &str) -> bool {
    line.starts_with("Connection time") && line.contains(" : count ")
}

/// Reads the percentiles of the replies' histogram; those of errors and of connecting follow it.
/// If its head was cut off, reads from the first line, unless that belongs to another histogram.
fn percentiles(block: &Block<'_>, draft: &mut Draft) {
    let is_replies = |line: &str| line.starts_with("Aggregated Function Time :");
    let has_head = block.lines.iter().any(|line| is_replies(line.trim_start()));
    let mut is_inside = !has_head;
    let mut buckets = Vec::new();
    for line in block.lines.iter().map(|line| line.trim()) {
        // "[0]   1 socket used"; "[...]" marks an omission.
        let is_socket =
            line.strip_prefix('[').is_some_and(|l| l.starts_with(|c: char| c.is_ascii_digit()));
        if is_socket || line.starts_with(char::is_alphabetic) {
            if is_inside && (has_head || !draft.percentiles.is_empty()) {
                break;
            }
            is_inside = is_replies(line) || (is_inside && !is_connecting(line));
        } else if !is_inside {
        } else if let Some((percent, s)) =
            line.strip_prefix("# target ").and_then(|l| l.split_once("% "))
        {
            if let (Some(percent), Some(s)) = (plain(percent), plain(s.trim())) {
                draft.put_percentile(percent, s * 1e9);
            }
        } else {
            buckets.extend(bucket(line));
        }
    }
    draft.put_buckets(&buckets);
}

/// Reads "> 0.003 <= 0.004 , 0.0035 , 97.50, 1"; older: ">= 0.003 < 0.004 ,". The first mark is
/// also a quote mark, and may have been stripped.
fn bucket(line: &str) -> Option<(f64, f64)> {
    let (start, rest) = line.trim_start_matches(['>', '=', ' ']).split_once(" <")?;
    let end = rest.trim_start_matches(['=', ' ']).split(' ').next()?;
    Some((plain(start)? * 1e9, plain(end)? * 1e9))
}

/// Reads "Code 200 : 34 (85.0 %)", "Health SERVING : 40", "tcp short read : 20 (100.0 %)".
fn status(line: &str) -> Option<(&str, u64)> {
    let (status, rest) = line.trim().rsplit_once(" : ")?;
    let kinds = ["Code ", "Health ", "Ping ", "tcp ", "udp "];
    let code = kinds.iter().find_map(|kind| status.strip_prefix(kind))?;
    Some((code.trim(), whole(rest.split(' ').next()?)?))
}
