//! Histograms as bytes: HdrHistogram's V2 format, deflated, which other tools read too.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use tare_stats::Distribution;

/// The range and precision of the load engine's histograms, so that nothing is lost.
const LOWEST_NS: u64 = 1;
const HIGHEST_NS: u64 = 60_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// Packs histograms; keeps its buffers.
pub struct Packer {
    histogram: Histogram<u64>,
    serializer: V2DeflateSerializer,
}

impl Packer {
    pub fn new() -> Result<Self, String> {
        let histogram = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS)
            .map_err(|error| error.to_string())?;
        Ok(Self { histogram, serializer: V2DeflateSerializer::new() })
    }

    pub fn pack(&mut self, distribution: &Distribution) -> Result<Vec<u8>, String> {
        self.histogram.reset();
        for (value, n) in distribution.counts() {
            self.histogram.saturating_record_n(*value, *n);
        }
        let mut bytes = Vec::new();
        self.serializer
            .serialize(&self.histogram, &mut bytes)
            .map_err(|error| format!("{error:?}"))?;
        Ok(bytes)
    }
}

pub fn unpack(bytes: &[u8], sum_ns: u128) -> Result<Distribution, String> {
    let histogram: Histogram<u64> = Deserializer::new()
        .deserialize(&mut &bytes[..])
        .map_err(|error| format!("a histogram cannot be read: {error:?}"))?;
    let counts =
        histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()));
    Ok(Distribution::new(counts.collect(), sum_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_engine_recorded_comes_back_to_the_count() {
        let mut engine: Histogram<u64> =
            Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS).unwrap();
        for value in [1, 999, 123_456, 123_456, 87_654_321, 60_000_000_000] {
            engine.record(value).unwrap();
        }
        let counts = engine.iter_recorded().map(|s| (s.value_iterated_to(), s.count_at_value()));
        let distribution = Distribution::new(counts.collect(), 42);
        let mut packer = Packer::new().unwrap();
        for _twice in 0..2 {
            let bytes = packer.pack(&distribution).unwrap();
            assert!(bytes.len() < 200, "{} bytes", bytes.len());
            assert_eq!(unpack(&bytes, 42).unwrap(), distribution);
        }
        assert!(unpack(b"nonsense", 0).is_err());
    }
}
