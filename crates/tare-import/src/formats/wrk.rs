//! Output of wrk and wrk2.

use tare_model::Metric;

use super::{TextFormat, needed, through};
use crate::block::Block;
use crate::numbers::{binary_bytes, binary_step, count, duration_ns, plain, rate, whole};
use crate::sample::{Draft, Tool};
use crate::trouble::Trouble;

pub const FORMAT: TextFormat = TextFormat {
    begins: |lines| match part(lines[0]) {
        // A rate alone may be any tool's; it is wrk's if a transfer rate or another rate follows.
        Some(RATE) => lines.get(1).is_some_and(|line| {
            line.trim().starts_with("Transfer/sec:") || part(line) == Some(RATE)
        }),
        part => part.is_some(),
    },
    length,
    is_inside: |block, line| {
        let is_list = block.iter().all(|own| part(own) == Some(RATE));
        if is_list && part(line) == Some(RATE) {
            return true;
        }
        let seen = block.iter().filter_map(|own| part(own)).max();
        part(line).zip(seen).is_some_and(|(next, seen)| next > seen)
    },
    read: |block| read(block).map(|draft| vec![draft]),
};

const RATE: u8 = 4;

/// Counts lines up to the rate's, or up to the transfer rate's if that follows.
fn length(lines: &[&str]) -> usize {
    // A document with many runs may keep only the lines with the rates.
    let rates = lines.iter().take_while(|line| part(line) == Some(RATE)).count();
    if rates > 1 {
        return rates;
    }
    let rate = through(lines, |line| line.starts_with("Requests/sec:"));
    let next = lines.get(rate).is_some_and(|line| line.trim().starts_with("Transfer/sec:"));
    rate + usize::from(next)
}

/// Returns a line's position in the fixed order of an output's lines; a truncated output may begin
/// with any of them.
fn part(line: &str) -> Option<u8> {
    let line = line.trim();
    if line.starts_with("Running ") && line.contains(" test @ ") {
        return Some(0);
    }
    if line.starts_with("Thread Stats ") && line.ends_with("Stdev") {
        return Some(1);
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["Latency", mean, _, _, share] if share.ends_with('%') && is_time(mean) => Some(2),
        [_, "requests", "in", time, _, "read"] if time.ends_with("s,") => Some(3),
        ["Requests/sec:", per_s] if rate(per_s).is_some() => Some(RATE),
        _ => None,
    }
}

fn is_time(text: &str) -> bool {
    duration_ns(text).is_some() || text.contains("nan")
}

fn read(block: &Block<'_>) -> Result<Draft, Trouble> {
    let is_wrk2 = block.after("Thread calibration:").is_some()
        || block.after("Latency Distribution (HdrHistogram").is_some();
    let tool = if is_wrk2 { Tool::Wrk2 } else { Tool::Wrk };
    let name = tool.name();
    let mut draft = Draft::new(tool);
    let per_s = needed(block.after("Requests/sec:"), block.first, (name, "Requests/sec:"), rate)?;
    draft.put(Metric::Throughput, per_s);
    let words = |line: &&str| line.split_whitespace().nth(1).and_then(rate);
    let rates: Vec<f64> =
        block.lines.iter().filter(|line| part(line) == Some(RATE)).filter_map(words).collect();
    if rates.len() > 1 {
        draft.put(Metric::Throughput, tare_stats::estimate::mean(&rates));
        draft.repeats.insert(Metric::Throughput.key().to_owned(), rates);
        return Ok(draft);
    }
    if let Some(head) = block.lines.first().and_then(|line| line.trim().strip_prefix("Running ")) {
        let (time, url) = head.split_once(" test @ ").unwrap_or((head, ""));
        draft.asked.seconds = duration_ns(time).map(|ns| ns / 1e9);
        draft.asked.url = Some(url.trim().to_owned()).filter(|url| !url.is_empty());
    }
    for (at, line) in block.numbered() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [threads, "threads", "and", connections, "connections"] => {
                draft.asked.threads = whole(threads);
                draft.asked.connections = whole(connections);
            }
            ["Latency", mean, _, max, _] if !line.contains("Distribution") => {
                latency(&mut draft, at, mean, max, name)?;
            }
            [requests, "requests", "in", rest @ ..] => totals(&mut draft, requests, rest),
            ["Socket", "errors:", rest @ ..] => errors(&mut draft, rest),
            ["Non-2xx", "or", "3xx", "responses:", n] => draft.seen.bad_status = whole(n),
            _ => {}
        }
    }
    percentiles(block, &mut draft);
    if let Some((_, text)) = block.after("Transfer/sec:") {
        binary_bytes(text).into_iter().for_each(|per_s| draft.put(Metric::Bandwidth, per_s));
    }
    Ok(draft)
}

/// Reads the latency line; `-nan` means that there were no requests.
fn latency(draft: &mut Draft, at: usize, mean: &str, max: &str, name: &str) -> Result<(), Trouble> {
    let read = |text: &str| match text.contains("nan") {
        true => Ok(None),
        false => duration_ns(text).map(Some).ok_or_else(|| {
            let text: String = text.chars().take(40).collect();
            Trouble::at(at, format!("'{text}' is no time for {name}'s 'Latency'"))
        }),
    };
    read(mean)?.into_iter().for_each(|ns| draft.put(Metric::LatencyMean, ns));
    draft.seen.latency_max_ns = read(max)?;
    Ok(())
}

/// Reads "4879138 requests in 30.10s, 49.63GB read".
fn totals(draft: &mut Draft, requests: &str, rest: &[&str]) {
    draft.seen.requests = whole(requests).or_else(|| count(requests).map(|n| n as u64));
    let mut rest = rest.iter();
    let time = rest.next().and_then(|word| duration_ns(word.trim_end_matches(',')));
    draft.seen.seconds = time.map(|ns| ns / 1e9);
    if let Some(word) = rest.next() {
        draft.seen.bytes = binary_bytes(word);
        draft.seen.bytes_step = binary_step(word);
    }
}

/// Reads "connect 0, read 12, write 0, timeout 377".
fn errors(draft: &mut Draft, words: &[&str]) {
    for pair in words.chunks(2) {
        if let [kind, n] = pair
            && let Some(n) = whole(n.trim_end_matches(',')).filter(|n| *n > 0)
        {
            draft.seen.errors.insert((*kind).to_owned(), n);
        }
    }
}

/// Reads "     99%  427.00us", "99.900%    1.02s"; the second block of `-U` is another series.
fn percentiles(block: &Block<'_>, draft: &mut Draft) {
    let lines = block.lines.iter().map(|line| line.trim());
    let lines = lines.skip_while(|line| !line.starts_with("Latency Distribution"));
    for line in lines.skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [percent, time] = words.as_slice() else { break };
        let percent = percent.strip_suffix('%').and_then(plain);
        let (Some(percent), Some(ns)) = (percent, duration_ns(time)) else { break };
        draft.put_percentile(percent, ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
Running 30s test @ http://10.0.0.2:8080/
  12 threads and 400 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.02s   870.00us   2.00m    98.87%
    Req/Sec   121.22k    48.82k  229.83k    72.73%
  Latency Distribution
     50%   31.00us
     99%    1.50ms
  4879138 requests in 30.10s, 49.63GB read
  Socket errors: connect 0, read 12, write 0, timeout 377
  Non-2xx or 3xx responses: 5
Requests/sec: 162588.64
Transfer/sec:      1.65GB";

    fn lines(text: &str) -> Vec<&str> {
        text.lines().collect()
    }

    #[test]
    fn every_line_is_read() {
        let lines = lines(OUTPUT);
        assert!((FORMAT.begins)(&lines));
        assert_eq!((FORMAT.length)(&lines), lines.len());
        let draft = read(&Block { first: 7, lines: &lines }).unwrap();
        assert_eq!(draft.asked.url.as_deref(), Some("http://10.0.0.2:8080/"));
        assert_eq!((draft.asked.threads, draft.asked.connections), (Some(12), Some(400)));
        assert_eq!(draft.values["latency_ns_mean"], 1.02e9);
        assert_eq!(draft.values["latency_ns_p99"], 1.5e6);
        assert_eq!(draft.values["throughput_per_s"], 162_588.64);
        assert_eq!(draft.seen.requests, Some(4_879_138));
        assert_eq!(draft.seen.bytes, Some(49.63 * 1024f64.powi(3)));
        assert_eq!(draft.seen.bytes_step, Some(1024f64.powi(3) * 0.01));
        assert_eq!(draft.seen.latency_max_ns, Some(120e9));
        let errors: Vec<_> = draft.seen.errors.iter().collect();
        assert_eq!(errors, [(&"read".to_owned(), &12), (&"timeout".to_owned(), &377)]);
        assert_eq!(draft.seen.bad_status, Some(5));
    }

    #[test]
    fn what_is_cut_off_or_broken_is_told_with_its_line() {
        let cut = lines(&OUTPUT[..300]);
        assert_eq!(
            read(&Block { first: 7, lines: &cut }).unwrap_err(),
            Trouble::at(7, "a wrk output begins here and ends without its 'Requests/sec:'")
        );
        let broken = OUTPUT.replace("1.02s", "1.02x");
        assert_eq!(
            read(&Block { first: 7, lines: &lines(&broken) }).unwrap_err(),
            Trouble::at(10, "'1.02x' is no time for wrk's 'Latency'")
        );
    }

    #[test]
    fn no_request_at_all_is_an_answer() {
        let none =
            OUTPUT.replace("1.02s   870.00us   2.00m    98.87%", "0.00us  0.00us 0.00us -nan%");
        let draft = read(&Block { first: 1, lines: &lines(&none) }).unwrap();
        assert_eq!(draft.values["latency_ns_mean"], 0.0);
    }
}
