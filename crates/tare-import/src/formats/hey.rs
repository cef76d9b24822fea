//! hey's summary. It prints percentages with two percent signs.

use tare_model::Metric;

use super::{TextFormat, needed};
use crate::block::Block;
use crate::numbers::{duration_ns, plain, rate, whole};
use crate::sample::{Draft, Tool};
use crate::trouble::Trouble;

pub const FORMAT: TextFormat = TextFormat {
    begins: |lines| {
        let next = lines.get(1).map_or("", |line| line.trim());
        lines[0].trim() == "Summary:" && next.starts_with("Total:")
    },
    length,
    is_inside: |_, _| false,
    read: |block| read(block).map(|draft| vec![draft]),
};

/// Counts lines to the end of the lists of status codes and errors.
pub(super) fn length(lines: &[&str]) -> usize {
    let is_list =
        |line: &str| line.ends_with(" code distribution:") || line == "Error distribution:";
    // A cut output ends where prose follows.
    let is_own = |line: &&&str| {
        let text = line.trim();
        let is_line = text.ends_with(':') || text.contains("% in ") || text.contains("secs");
        text.is_empty() || line.starts_with([' ', '\t', '[', '.']) || is_line
    };
    let lines = &lines[..lines.iter().take_while(is_own).count().max(1)];
    let Some(at) = lines.iter().rposition(|line| is_list(line.trim())) else {
        return lines.iter().rposition(|line| !line.trim().is_empty()).map_or(1, |at| at + 1);
    };
    at + 1 + lines[at + 1..].iter().take_while(|line| line.trim().starts_with('[')).count()
}

fn read(block: &Block<'_>) -> Result<Draft, Trouble> {
    let mut draft = Draft::new(Tool::Hey);
    let first_word = |text: &str| plain(text.split_whitespace().next()?);
    let label = ("hey", "Requests/sec:");
    let per_s = |text: &str| rate(text.split_whitespace().next()?);
    let per_s = needed(block.after(label.1), block.first, label, per_s)?;
    draft.put(Metric::Throughput, per_s);
    let number = |label: &str| block.after(label).and_then(|(_, text)| first_word(text));
    draft.seen.seconds = number("Total:");
    draft.seen.latency_max_ns = number("Slowest:").map(|s| s * 1e9);
    draft.seen.bytes = number("Total data:");
    draft.seen.bytes_are_bodies = true;
    draft.seen.step_ns = Some(1e5);
    number("Average:").into_iter().for_each(|s| draft.put(Metric::LatencyMean, s * 1e9));
    lists(block, &mut draft);
    Ok(draft)
}

/// Reads the lists of percentiles, statuses and errors that hey and oha print.
pub(super) fn lists(block: &Block<'_>, draft: &mut Draft) {
    let (mut replies, mut bad) = (0u64, 0u64);
    let (mut in_codes, mut in_errors) = (false, false);
    for (_, line) in block.numbered() {
        let line = line.trim();
        in_codes |= line.ends_with(" code distribution:");
        in_errors |= line == "Error distribution:";
        if let Some((percent, time)) = line.split_once("% in ") {
            let percent = plain(percent.trim_end_matches('%'));
            // The first list covers all replies; oha may add lists of only some replies.
            let goes_on = |percent: f64| draft.percentiles.iter().all(|p| p.percent < percent);
            let percent = percent.filter(|percent| goes_on(*percent));
            if let (Some(percent), Some(ns)) = (percent, duration_ns(time)) {
                draft.put_percentile(percent, ns);
            }
        }
        let Some((key, rest)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) else {
            continue;
        };
        if in_errors {
            draft.put_errors(rest, whole(key).unwrap_or(0));
        } else if let Some(n) = rest.trim().strip_suffix(" responses").and_then(whole) {
            replies = replies.saturating_add(n);
            bad = bad.saturating_add(if key.starts_with(['2', '3']) { 0 } else { n });
        }
    }
    // Without the list of status codes, the numbers of replies and of error statuses are unknown.
    if in_codes {
        (draft.seen.requests, draft.seen.bad_status) = (Some(replies), Some(bad));
    }
}
