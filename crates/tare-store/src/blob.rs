//! Histograms as bytes: HdrHistogram's V2 format, deflated, which other tools read too.

use std::io::Read;

use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use tare_model::Distribution;
use tare_model::distribution::{HIGHEST_NS, LOWEST_NS, SIGNIFICANT_DIGITS};

/// Packs histograms; reuses its buffers.
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

/// A header: cookie, length of what follows, offset, digits, lowest, highest, ratio.
const HEADER_BYTES: usize = 40;
const DEFLATED_COOKIE: u32 = 0x1c84_9314;
/// Enough for every bucket of such a histogram, with the longest count.
const PAYLOAD_BYTES_MAX: usize = 512 << 10;

pub fn unpack(bytes: &[u8], sum_ns: u128) -> Result<Distribution, String> {
    let plain = inflate(bytes)?;
    let histogram: Histogram<u64> = Deserializer::new()
        .deserialize(&mut &plain[..])
        .map_err(|error| format!("a histogram cannot be read: {error:?}"))?;
    let counts =
        histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()));
    Ok(Distribution::new(counts.collect(), sum_ns))
}

/// Inflates a histogram. The library allocates what the bytes claim, so the claims are checked
/// against the actual length and against tare's own histograms.
fn inflate(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let wrong = |what: &str| format!("a histogram cannot be read: {what}");
    let number = |bytes: &[u8], at: usize| {
        let own = bytes.get(at..at + 4)?;
        Some(u32::from_be_bytes(own.try_into().ok()?))
    };
    let length = number(bytes, 4).ok_or_else(|| wrong("it is cut short"))? as usize;
    if number(bytes, 0) != Some(DEFLATED_COOKIE) || bytes.len() - 8 < length {
        return Err(wrong("it is not in HdrHistogram's V2 form"));
    }
    let mut plain = Vec::new();
    ZlibDecoder::new(&bytes[8..8 + length])
        .take((HEADER_BYTES + PAYLOAD_BYTES_MAX) as u64)
        .read_to_end(&mut plain)
        .map_err(|error| wrong(&error.to_string()))?;
    let payload = number(&plain, 4).ok_or_else(|| wrong("it is cut short"))? as usize;
    let half = |at: usize| number(&plain, at).unwrap_or(u32::MAX);
    let range = (half(16), half(20), u64::from(half(24)) << 32 | u64::from(half(28)));
    let is_ours = half(12) == u32::from(SIGNIFICANT_DIGITS)
        && (range.0, range.1) == (0, LOWEST_NS as u32)
        && range.2 <= HIGHEST_NS;
    match is_ours && plain.len() == HEADER_BYTES + payload {
        true => Ok(plain),
        false => Err(wrong("its range or length is not that of tare's")),
    }
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
        // Every byte is flipped in turn: the result is an error or a value, and never takes much
        // memory.
        let bytes = packer.pack(&distribution).unwrap();
        for at in 0..bytes.len() {
            let mut turned = bytes.clone();
            turned[at] ^= 0xff;
            let _ = unpack(&turned, 42);
        }
        let bomb = |payload: u32, zeros: usize| {
            let mut plain = inflate(&bytes).unwrap();
            plain[4..8].copy_from_slice(&payload.to_be_bytes());
            plain.resize(plain.len() + zeros, 0);
            let mut deflater = flate2::write::ZlibEncoder::new(Vec::new(), Default::default());
            std::io::Write::write_all(&mut deflater, &plain).unwrap();
            let packed = deflater.finish().unwrap();
            let head = [DEFLATED_COOKIE.to_be_bytes(), (packed.len() as u32).to_be_bytes()];
            unpack(&[head.concat(), packed].concat(), 0).unwrap_err()
        };
        for told in [bomb(0x7fff_ff00, 0), bomb(300_000_000, 300_000_000)] {
            assert!(told.contains("its range or length is not that of tare's"), "{told}");
        }
    }
}
