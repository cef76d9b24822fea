//! oha's printed summary: like hey's, with a unit for each time.

use tare_model::Metric;

use super::oha::exclude_deadline_errors;
use super::{TextFormat, hey, needed};
use crate::block::Block;
use crate::numbers::{binary_bytes, binary_step, duration_ns, rate};
use crate::sample::{Draft, Tool};
use crate::trouble::Trouble;

pub const FORMAT: TextFormat = TextFormat {
    begins: |lines| {
        let next = lines.get(1).map_or("", |line| line.trim());
        lines[0].trim() == "Summary:" && next.starts_with("Success rate:")
    },
    length: hey::length,
    is_inside: |_, _| false,
    read: |block| read(block).map(|draft| vec![draft]),
};

fn read(block: &Block<'_>) -> Result<Draft, Trouble> {
    let mut draft = Draft::new(Tool::Oha);
    let label = ("oha", "Requests/sec:");
    let per_s = needed(block.after(label.1), block.first, label, rate)?;
    draft.put(Metric::Throughput, per_s);
    let word = |label: &str| block.after(label).map(|(_, text)| text.trim());
    let time = |label: &str| word(label).and_then(duration_ns);
    time("Average:").into_iter().for_each(|ns| draft.put(Metric::LatencyMean, ns));
    draft.seen.seconds = time("Total:").map(|ns| ns / 1e9);
    draft.seen.latency_max_ns = time("Slowest:");
    // oha prints four decimals in any unit.
    let unit = word("Average:").and_then(|text| text.split_whitespace().nth(1));
    draft.seen.step_ns = unit.and_then(|unit| duration_ns(&format!("0.0001 {unit}")));
    draft.seen.bytes = word("Total data:").and_then(binary_bytes);
    draft.seen.bytes_step = word("Total data:").and_then(binary_step);
    draft.seen.bytes_are_bodies = true;
    let per_s = word("Size/sec:").and_then(binary_bytes);
    per_s.into_iter().for_each(|bytes| draft.put(Metric::Bandwidth, bytes));
    hey::lists(block, &mut draft);
    exclude_deadline_errors(&mut draft);
    Ok(draft)
}
