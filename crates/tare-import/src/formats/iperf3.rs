//! iperf3's JSON: the bandwidth of the streams; it has no latency.

use serde_json::Value;
use tare_model::Metric;

use super::value::{number, text};
use crate::sample::{Draft, Tool};

pub fn read(value: &Value) -> Result<Vec<Draft>, String> {
    if let Some(error) = text(value, &["error"]) {
        let error: String = error.chars().take(120).collect();
        return Err(format!("is iperf3's JSON of a run that failed: {error}"));
    }
    let mut draft = Draft::new(Tool::Iperf3);
    // Older versions have one UDP sum for both sides.
    let sums = ["sum_received", "sum_sent", "sum"];
    let found =
        sums.iter().find_map(|sum| Some((*sum, number(value, &["end", sum, "bits_per_second"])?)));
    let Some((sum, bits)) = found else {
        return Err(
            "is iperf3's JSON without a number at 'end.sum_received.bits_per_second'".into()
        );
    };
    draft.put(Metric::Bandwidth, bits / 8.0);
    draft.seen.seconds = number(value, &["end", sum, "seconds"]);
    draft.seen.bytes = number(value, &["end", sum, "bytes"]);
    draft.seen.requests = number(value, &["end", sum, "packets"]).map(|n| n as u64);
    let lost = number(value, &["end", sum, "lost_packets"]).map(|n| n as u64);
    draft.seen.errors.extend(lost.filter(|n| *n > 0).map(|n| ("lost datagrams".to_owned(), n)));
    let again = number(value, &["end", "sum_sent", "retransmits"]);
    draft.seen.other.extend(again.map(|n| ("retransmits".to_owned(), n)));
    let start = |key: &str| number(value, &["start", "test_start", key]);
    draft.asked.connections = start("num_streams").map(|n| n as u64);
    draft.asked.seconds = start("duration");
    let to = (
        text(value, &["start", "connecting_to", "host"]),
        number(value, &["start", "connecting_to", "port"]),
    );
    let protocol =
        text(value, &["start", "test_start", "protocol"]).unwrap_or_else(|| "TCP".into());
    if let (Some(host), Some(port)) = to {
        draft.asked.url = Some(format!("{}://{host}:{port}", protocol.to_lowercase()));
    }
    let reverse = if start("reverse") == Some(1.0) { ", reverse" } else { "" };
    let block = start("blksize").map_or(String::new(), |bytes| format!(", {bytes} B"));
    draft.own_case = Some(format!("{protocol} stream{block}{reverse}"));
    Ok(vec![draft])
}
