//! netperf's classic tables: a line that names the test, heads, and a row of sizes, time and rate.

use tare_model::Metric;

use super::TextFormat;
use crate::block::Block;
use crate::numbers::plain;
use crate::sample::{Draft, Tool};
use crate::trouble::Trouble;

/// Most lines from the test's name to its row of numbers.
const LONGEST: usize = 12;

pub const FORMAT: TextFormat = TextFormat {
    begins: |lines| test(lines[0]).is_some(),
    length: |lines| {
        let row = lines.iter().take(LONGEST).skip(1).position(|line| row(line).is_some());
        // The other side's sizes may have a row of their own.
        let end = row.map_or(1, |at| at + 2);
        let is_sizes = |line: &&str| {
            let mut words = line.split_whitespace();
            words.clone().count() == 2 && words.all(|word| plain(word).is_some())
        };
        end + usize::from(lines.get(end).is_some_and(is_sizes))
    },
    is_inside: |_, _| false,
    read: |block| read(block).map(|draft| vec![draft]),
};

/// Returns the test and its remote host in "MIGRATED TCP REQUEST/RESPONSE TEST from 0.0.0.0
/// (0.0.0.0) port 0 AF_INET to h () port 0".
fn test(line: &str) -> Option<(String, &str)> {
    let line = line.trim();
    let line = line.strip_prefix("MIGRATED ").unwrap_or(line);
    let (name, rest) = line.split_once(" TEST from ")?;
    let to = rest.split_once(" to ").and_then(|(_, to)| to.split(' ').next()).unwrap_or("");
    let name = name.to_uppercase();
    let is_test = name.starts_with("TCP ") || name.starts_with("UDP ");
    is_test.then_some((name, to))
}

/// Reads a row of four numbers or more.
fn row(line: &str) -> Option<Vec<f64>> {
    let numbers: Option<Vec<f64>> = line.split_whitespace().map(plain).collect();
    numbers.filter(|numbers| numbers.len() >= 4)
}

fn read(block: &Block<'_>) -> Result<Draft, Trouble> {
    let mut draft = Draft::new(Tool::Netperf);
    let Some((name, to)) = block.lines.first().and_then(|line| test(line)) else {
        return Err(Trouble::at(block.first, "netperf's test has no name"));
    };
    let Some(row) = block.lines.iter().skip(1).find_map(|line| row(line)) else {
        let why = format!("netperf's {name} begins here and has no row of numbers");
        return Err(Trouble::at(block.first, why));
    };
    let has = |head: &str| block.lines.iter().any(|line| line.contains(head));
    // The columns are sizes, seconds and the rate; with CPU usage or other units, they differ.
    let (seconds, metric, value) = match row.as_slice() {
        [_, _, _, _, seconds, rate] if name.ends_with("/RESPONSE") && has("per sec") => {
            (*seconds, Metric::Throughput, *rate)
        }
        [_, _, _, seconds, rate] if name.starts_with("TCP ") && has("10^6bits/s") => {
            (*seconds, Metric::Bandwidth, rate * 1e6 / 8.0)
        }
        _ => {
            let why = format!("netperf's {name} has columns that are not known here");
            return Err(Trouble::at(block.first, why));
        }
    };
    draft.seen.seconds = Some(seconds);
    draft.put(metric, value);
    let case = name.to_lowercase().replace("request/response", "rr").replace("connect/rr", "crr");
    draft.own_case = Some(case.replace([' ', '/'], "_"));
    draft.asked.url = Some(to.to_owned()).filter(|to| !to.is_empty());
    Ok(draft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_and_streams() {
        let rr = [
            "MIGRATED TCP REQUEST/RESPONSE TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to 10.1.0.2 () port 0 AF_INET : first burst 0",
            "Local /Remote",
            "bytes  Bytes  bytes    bytes   secs.    per sec   ",
            "",
            "16384  131072 1        1       30.00    21437.52   ",
            "16384  131072",
        ];
        assert!((FORMAT.begins)(&rr) && (FORMAT.length)(&rr) == 6);
        let draft = read(&Block { first: 1, lines: &rr[..5] }).unwrap();
        assert_eq!(draft.values["throughput_per_s"], 21_437.52);
        assert_eq!(draft.own_case.as_deref(), Some("tcp_rr"));
        assert_eq!(draft.asked.url.as_deref(), Some("10.1.0.2"));
        let head =
            ["TCP STREAM TEST from 0.0.0.0 to h", "bytes  bytes   bytes    secs.    10^6bits/sec"];
        let stream = [head[0], head[1], " 87380  16384  16384    10.00     9413.15   "];
        let draft = read(&Block { first: 1, lines: &stream }).unwrap();
        assert_eq!(draft.values["bandwidth_bytes_per_s"], 9413.15e6 / 8.0);
        let cpu = [head[0], head[1], " 87380 16384 16384 10.00 38910.63 23.33 23.33 0.4 0.4"];
        assert!(read(&Block { first: 1, lines: &cpu }).is_err());
    }
}
