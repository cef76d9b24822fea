//! qperf: one block per test, one line per number. Its latency is the mean of half a round trip.

use tare_model::Metric;
use tare_stats::estimate::mean;

use super::TextFormat;
use crate::block::Block;
use crate::numbers::{duration_ns, qperf_rate, whole};
use crate::sample::{Draft, Tool};
use crate::trouble::Trouble;

const KINDS: [&str; 9] = ["tcp", "udp", "sctp", "sdp", "rds", "rc", "uc", "ud", "xrc"];

pub const FORMAT: TextFormat = TextFormat {
    begins: |lines| {
        let is_test = test(lines[0]).is_some();
        is_test && lines.get(1).is_some_and(|line| line.contains(" = "))
    },
    length: |lines| 1 + lines[1..].iter().take_while(|line| line.contains(" = ")).count(),
    is_inside: |_, _| false,
    read: |block| read(block).map(|draft| vec![draft]),
};

/// Returns the test in a line such as "tcp_lat:".
fn test(line: &str) -> Option<&str> {
    let name = line.trim().strip_suffix(':')?;
    let (kind, rest) = name.split_once('_')?;
    let is_word = !rest.is_empty() && rest.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    (KINDS.contains(&kind) && is_word).then_some(name)
}

fn read(block: &Block<'_>) -> Result<Draft, Trouble> {
    let mut draft = Draft::new(Tool::Qperf);
    let name = block.lines.first().and_then(|line| test(line)).unwrap_or_default();
    let mut case = vec![name.to_owned()];
    let mut any = false;
    for (at, line) in block.numbered().skip(1) {
        let Some((key, value)) = line.split_once(" = ") else { continue };
        let (key, value) = (key.trim(), value.trim());
        let metric = match key {
            "latency" => Metric::LatencyMean,
            "bw" | "recv_bw" => Metric::Bandwidth,
            "msg_size" => {
                case.push(size(value));
                continue;
            }
            "time" => {
                draft.asked.seconds = duration_ns(value).map(|ns| ns / 1e9);
                continue;
            }
            _ => continue,
        };
        let number = match metric {
            Metric::Bandwidth => qperf_rate(value),
            _ => duration_ns(value),
        };
        let Some(number) = number else {
            let value: String = value.chars().take(40).collect();
            return Err(Trouble::at(at, format!("'{value}' is not a number for qperf's '{key}'")));
        };
        // Several values in one output are repetitions.
        draft.repeats.entry(metric.key().to_owned()).or_default().push(number);
        any = true;
    }
    if !any {
        let why = format!("qperf's {name} begins here and has neither 'latency' nor 'bw'");
        return Err(Trouble::at(block.first, why));
    }
    for metric in [Metric::LatencyMean, Metric::Bandwidth] {
        let values = draft.repeats.get(metric.key()).cloned().unwrap_or_default();
        if !values.is_empty() {
            draft.put(metric, mean(&values));
        }
    }
    draft.repeats.retain(|_, values| values.len() > 1);
    draft.own_case = Some(case.join(", "));
    Ok(draft)
}

/// Shortens "4 KiB (4,096)" to "4 KiB" and "1 bytes" to "1 B".
fn size(value: &str) -> String {
    let exact = value.split_once('(').and_then(|(_, rest)| whole(rest.trim_end_matches(')')));
    let short = value.split(" (").next().unwrap_or(value).trim();
    match (exact, short.strip_suffix(" bytes")) {
        (None, Some(bytes)) => format!("{bytes} B"),
        _ => short.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_a_test() {
        let lines =
            ["tcp_lat:", "    latency   =  14.2 us", "    msg_size  =     4 KiB (4,096)", ""];
        assert!((FORMAT.begins)(&lines));
        assert_eq!((FORMAT.length)(&lines), 3);
        let draft = read(&Block { first: 1, lines: &lines[..3] }).unwrap();
        assert_eq!(draft.values["latency_ns_mean"], 14_200.0);
        assert_eq!(draft.own_case.as_deref(), Some("tcp_lat, 4 KiB"));
        let bw = ["tcp_bw:", "    bw        =  1.36 MB/sec", "    msg_size  =     1 bytes"];
        let draft = read(&Block { first: 1, lines: &bw }).unwrap();
        assert_eq!(draft.values["bandwidth_bytes_per_s"], 1.36e6);
        assert_eq!(draft.own_case.as_deref(), Some("tcp_bw, 1 B"));
        let five = ["tcp_bw:", "    bw  =  423 MB/sec", "    bw  =  406 MB/sec"];
        let draft = read(&Block { first: 1, lines: &five }).unwrap();
        assert_eq!(draft.repeats["bandwidth_bytes_per_s"], [423e6, 406e6]);
        assert_eq!(draft.values["bandwidth_bytes_per_s"], 414.5e6);
        let broken = ["tcp_bw:", "    bw        =  fast"];
        let trouble = read(&Block { first: 5, lines: &broken }).unwrap_err();
        assert_eq!(trouble, Trouble::at(6, "'fast' is not a number for qperf's 'bw'"));
    }
}
