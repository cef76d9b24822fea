//! Content of messages: bytes that both sides know, so that each can check what it receives.

use std::sync::OnceLock;

use tare_model::net::MESSAGE_BYTES_MAX;

/// Length of the pseudorandom bytes that content repeats.
const PERIOD: usize = 4096;
const SMALL: usize = 64 * 1024;
const PAGE: usize = 4096;
const LINE: usize = 64;

/// The content from an offset on. Never freed: the kernel may read it at any time.
pub fn content(offset: u64, length: usize) -> &'static [u8] {
    static SHORT: OnceLock<Vec<u8>> = OnceLock::new();
    static LONG: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = match length <= SMALL {
        true => SHORT.get_or_init(|| made(SMALL + PERIOD)),
        false => LONG.get_or_init(|| made(MESSAGE_BYTES_MAX as usize + PERIOD)),
    };
    let bytes = &bytes[start(bytes)..];
    let at = (offset % PERIOD as u64) as usize;
    &bytes[at..at + length]
}

/// Whether these bytes are the content from an offset on.
pub fn is_content(offset: u64, bytes: &[u8]) -> bool {
    let mut at = offset;
    bytes.chunks(SMALL).all(|piece| {
        let same = piece == content(at, piece.len());
        at += piece.len() as u64;
        same
    })
}

/// Compares received bytes in less time than receiving them takes: short pieces whole, long ones at
/// both ends, and one in `WHOLE_EVERY` of the long ones whole.
#[derive(Debug, Default)]
pub struct Checker {
    long_pieces: u64,
}

const SHORT_PIECE: usize = 4096;
const END: usize = 256;
const WHOLE_EVERY: u64 = 64;

impl Checker {
    pub fn is_content(&mut self, offset: u64, bytes: &[u8]) -> bool {
        if bytes.len() <= SHORT_PIECE {
            return is_content(offset, bytes);
        }
        self.long_pieces += 1;
        if self.long_pieces % WHOLE_EVERY == 1 {
            return is_content(offset, bytes);
        }
        let last = bytes.len() - END;
        is_content(offset, &bytes[..END]) && is_content(offset + last as u64, &bytes[last..])
    }
}

fn made(length: usize) -> Vec<u8> {
    let mut random = tare_io::Random::stream(0, "content of messages", 0);
    let period: Vec<u8> = (0..PERIOD).map(|_| random.next_u64() as u8).collect();
    let mut bytes = vec![0; length + PAGE + LINE];
    let start = start(&bytes);
    for (at, byte) in bytes[start..].iter_mut().enumerate() {
        *byte = period[at % PERIOD];
    }
    bytes
}

/// Returns an offset one cache line into a page. The kernel copies into whole pages, and copying
/// between equal offsets in pages takes up to a third longer (measured: bench/results).
fn start(bytes: &[u8]) -> usize {
    bytes.as_ptr().align_offset(PAGE) + LINE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_the_same_from_any_piece_and_any_other_byte_is_seen() {
        let whole = content(0, 200_000).to_vec();
        for (at, length) in [(0, 1), (4095, 2), (70_000, 65_536), (3, 130_000)] {
            assert_eq!(content(at, length), &whole[at as usize..at as usize + length]);
            assert!(is_content(at, &whole[at as usize..at as usize + length]));
            assert!(!is_content(at + 1, &whole[at as usize..at as usize + length]));
        }
        let mut spoiled = whole.clone();
        spoiled[150_000] ^= 1;
        assert!(is_content(0, &whole) && !is_content(0, &spoiled));
        let mut checker = Checker::default();
        let seen = (0..2 * WHOLE_EVERY).filter(|_| !checker.is_content(0, &spoiled)).count();
        assert_eq!(seen, 2, "its middle is looked at now and then");
        assert!(!checker.is_content(1, &whole), "its ends are always");
    }
}
