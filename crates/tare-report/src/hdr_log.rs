//! The HdrHistogram interval log: one line per interval, readable by every HdrHistogram tool.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

/// One line of the log.
pub struct LoggedInterval<'a> {
    pub start_s: f64,
    pub length_s: f64,
    pub histogram: &'a Histogram<u64>,
}

/// Returns the head of a log. Values are nanoseconds; the format wants maxima in milliseconds.
pub fn head(tare_version: &str, started_unix_ms: u64) -> String {
    let seconds = started_unix_ms as f64 / 1000.0;
    format!(
        "#[Logged with tare {tare_version}]\n\
         #[Histogram log format version 1.3]\n\
         #[StartTime: {seconds:.3} (seconds since epoch)]\n\
         #[BaseTime: {seconds:.3} (seconds since epoch)]\n\
         \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n"
    )
}

pub fn line(interval: &LoggedInterval<'_>) -> String {
    let mut bytes = Vec::new();
    // Fails only if writing fails, and writing to a Vec cannot.
    let written = V2DeflateSerializer::new().serialize(interval.histogram, &mut bytes);
    assert!(written.is_ok(), "a histogram into memory: {written:?}");
    format!(
        "{:.3},{:.3},{:.3},{}\n",
        interval.start_s,
        interval.length_s,
        interval.histogram.max() as f64 / 1e6,
        STANDARD.encode(bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::Deserializer;

    #[test]
    fn a_logged_histogram_reads_back() {
        let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).unwrap();
        for value in [1_000, 2_000, 5_000_000] {
            histogram.record(value).unwrap();
        }
        let text = line(&LoggedInterval { start_s: 1.0, length_s: 0.5, histogram: &histogram });
        let fields: Vec<_> = text.trim_end().split(',').collect();
        assert_eq!(fields[..3], ["1.000", "0.500", "5.001"]);
        let bytes = STANDARD.decode(fields[3]).unwrap();
        let back: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
        assert_eq!(back, histogram);
        assert!(head("0.1.0", 1_500).contains("#[StartTime: 1.500 (seconds since epoch)]\n"));
    }
}
