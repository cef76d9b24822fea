//! What messages hold: bytes that both sides know, so that each can check what it gets.

use std::sync::OnceLock;

use super::MESSAGE_BYTES_MAX;

/// Content repeats after so many bytes, none of which follow from their neighbours.
const PERIOD: usize = 4096;
const SMALL: usize = 64 * 1024;

/// The content from an offset on. Immortal: the kernel may read it at any time.
pub fn content(offset: u64, length: usize) -> &'static [u8] {
    static SHORT: OnceLock<Vec<u8>> = OnceLock::new();
    static LONG: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = match length <= SMALL {
        true => SHORT.get_or_init(|| made(SMALL + PERIOD)),
        false => LONG.get_or_init(|| made(MESSAGE_BYTES_MAX as usize + PERIOD)),
    };
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

fn made(length: usize) -> Vec<u8> {
    let mut random = tare_io::Random::stream(0, "content of messages", 0);
    let period: Vec<u8> = (0..PERIOD).map(|_| random.next_u64() as u8).collect();
    period.into_iter().cycle().take(length).collect()
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
    }
}
