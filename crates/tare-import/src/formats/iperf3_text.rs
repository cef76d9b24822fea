//! iperf3's printed output: intervals, and at the end the sums of sender and receiver.

use tare_model::Metric;

use super::TextFormat;
use crate::block::Block;
use crate::numbers::plain;
use crate::sample::{Draft, SENT, Tool};
use crate::trouble::Trouble;

pub const FORMAT: TextFormat = TextFormat {
    begins: |lines| part(lines[0]).is_some(),
    length: |lines| {
        let last = lines.iter().rposition(|line| sum(line).is_some());
        lines
            .iter()
            .position(|line| line.trim() == "iperf Done.")
            .or(last)
            .map_or(lines.len(), |at| at + 1)
    },
    is_inside: |block, line| {
        let has_sum = block.iter().any(|own| sum(own).is_some());
        part(line) == Some(1) && !has_sum
    },
    read: |block| read(block).map(|draft| vec![draft]),
};

/// Returns 0 for the head of an output, 1 for that of its table, where truncated outputs begin.
fn part(line: &str) -> Option<u8> {
    let line = line.trim();
    if line.starts_with("Connecting to host ") && line.contains(", port ") {
        return Some(0);
    }
    let is_table = line.starts_with("[ ID]")
        && line.contains("Interval")
        && (line.contains("rate") || line.contains("Bandwidth"));
    is_table.then_some(1)
}

/// Reads "[  5]   0.00-10.04  sec  27.3 GBytes  23.4 Gbits/sec   receiver": bytes per second,
/// seconds, and the side.
fn sum(line: &str) -> Option<(f64, f64, &str)> {
    let (_, rest) = line.trim().strip_prefix('[')?.split_once(']')?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let whose = *words.last().filter(|word| matches!(**word, "sender" | "receiver"))?;
    let [interval, "sec", _, _, rate, unit, ..] = words.as_slice() else { return None };
    let seconds = plain(interval.split_once('-')?.1)?;
    let factor = match unit.strip_suffix("bits/sec")? {
        "" => 1.0,
        "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return None,
    };
    Some((plain(rate)? * factor / 8.0, seconds, whose))
}

fn read(block: &Block<'_>) -> Result<Draft, Trouble> {
    let mut draft = Draft::new(Tool::Iperf3);
    let all: Vec<(bool, f64, f64, &str)> = block
        .lines
        .iter()
        .filter_map(|line| Some((line.contains("[SUM]"), sum(line)?)))
        .map(|(is_sum, (rate, seconds, whose))| (is_sum, rate, seconds, whose))
        .collect();
    // The receiver's rate counts; with parallel streams, their sum.
    let has_sum = all.iter().any(|(is_sum, ..)| *is_sum);
    let of = |wanted: &str| {
        all.iter().find(|(is_sum, .., whose)| *is_sum == has_sum && *whose == wanted)
    };
    let Some((_, rate, seconds, _)) = of("receiver").or(of("sender")) else {
        let why = "an iperf3 output begins here and ends without the sum of its receiver";
        return Err(Trouble::at(block.first, why));
    };
    draft.put(Metric::Bandwidth, *rate);
    let sent = of("sender").map(|(_, rate, ..)| *rate);
    draft.seen.other.extend(sent.map(|rate| (SENT.to_owned(), rate)));
    draft.seen.seconds = Some(*seconds);
    let host = block.after("Connecting to host ").and_then(|(_, text)| text.split(',').next());
    draft.asked.url = host.map(|host| host.trim().to_owned());
    Ok(draft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receivers_sum_counts() {
        let lines = [
            "Connecting to host 10.77.0.1, port 5201",
            "[  5]   0.00-1.00   sec  2.72 GBytes  23.4 Gbits/sec  112   1.94 MBytes",
            "[  5]   0.00-10.00  sec  27.4 GBytes  23.5 Gbits/sec  411             sender",
            "[  5]   0.00-10.04  sec  27.3 GBytes  23.4 Gbits/sec                  receiver",
            "",
            "iperf Done.",
            "x",
        ];
        assert!((FORMAT.begins)(&lines) && (FORMAT.length)(&lines) == 6);
        let draft = read(&Block { first: 1, lines: &lines[..6] }).unwrap();
        assert_eq!(draft.values["bandwidth_bytes_per_s"], 23.4e9 / 8.0);
        assert!(read(&Block { first: 1, lines: &lines[..2] }).is_err());
    }
}
