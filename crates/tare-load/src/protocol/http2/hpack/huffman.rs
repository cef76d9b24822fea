//! The Huffman code of HPACK (RFC 7541, appendix B).
//!
//! The code is canonical: codes of one length are consecutive numbers in the order of their
//! symbols. The lengths therefore define all of it.

use std::sync::LazyLock;

/// The length of each byte's code, in bits.
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, // 0x00
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, // 0x10
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, // 0x20
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, // 0x30
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, // 0x40
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, // 0x50
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, // 0x60
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, // 0x70
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, // 0x80
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, // 0x90
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, // 0xa0
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, // 0xb0
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, // 0xc0
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, // 0xd0
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, // 0xe0
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, // 0xf0
];

const LONGEST: usize = 30;
/// Codes up to this length are decoded by one lookup: they are those of all common characters.
const QUICK: usize = 8;

struct Code {
    /// Each byte's code.
    codes: [u32; 256],
    /// Indexed by length: the first code, and the index of its symbol in `symbols`.
    first: [u32; LONGEST + 1],
    begins: [u16; LONGEST + 1],
    /// All bytes in the order of their codes.
    symbols: [u8; 256],
    /// Indexed by the next eight bits: the decoded byte and the length of its code, or length 0 if
    /// the code is longer than eight bits.
    quick: [(u8, u8); 1 << QUICK],
}

static CODE: LazyLock<Code> = LazyLock::new(|| {
    let mut made = Code {
        codes: [0; 256],
        first: [0; LONGEST + 1],
        begins: [0; LONGEST + 1],
        symbols: [0; 256],
        quick: [(0, 0); 1 << QUICK],
    };
    let (mut code, mut n) = (0u32, 0usize);
    for length in 1..=LONGEST {
        code <<= 1;
        made.first[length] = code;
        made.begins[length] = n as u16;
        for (byte, _) in LENGTHS.iter().enumerate().filter(|(_, own)| usize::from(**own) == length)
        {
            made.codes[byte] = code;
            made.symbols[n] = byte as u8;
            if length <= QUICK {
                let from = (code as usize) << (QUICK - length);
                made.quick[from..from + (1 << (QUICK - length))].fill((byte as u8, length as u8));
            }
            code += 1;
            n += 1;
        }
    }
    made
});

/// Returns how many bytes a text takes when encoded.
pub fn encoded_bytes(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|byte| usize::from(LENGTHS[usize::from(*byte)])).sum();
    bits.div_ceil(8)
}

pub fn encode(text: &[u8], out: &mut Vec<u8>) {
    let code = &*CODE;
    let (mut bits, mut n) = (0u64, 0u32);
    for byte in text {
        let length = u32::from(LENGTHS[usize::from(*byte)]);
        bits = bits << length | u64::from(code.codes[usize::from(*byte)]);
        n += length;
        while n >= 8 {
            n -= 8;
            out.push((bits >> n) as u8);
        }
    }
    if n > 0 {
        // The last byte is padded with ones, the start of EOS.
        out.push((bits << (8 - n)) as u8 | 0xff >> n);
    }
}

/// Appends the text to `out`; `None` if the code is invalid.
pub fn decode(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let code = &*CODE;
    let (mut bits, mut n) = (0u64, 0usize);
    let mut rest = bytes.iter();
    loop {
        while n <= 56
            && let Some(byte) = rest.next()
        {
            bits = bits << 8 | u64::from(*byte);
            n += 8;
        }
        if n == 0 {
            return Some(());
        }
        // The next bits, with ones behind the last.
        let next = |length: usize| match n >= length {
            true => (bits >> (n - length)) as u32 & ((1u64 << length) - 1) as u32,
            false => {
                ((bits << (length - n) | ((1 << (length - n)) - 1)) & ((1 << length) - 1)) as u32
            }
        };
        let (byte, length) = match code.quick[next(QUICK) as usize] {
            (byte, length @ 1..) => (byte, usize::from(length)),
            _ => {
                let long = (QUICK + 1..=LONGEST).find_map(|length| {
                    let at = next(length).checked_sub(code.first[length])? as usize;
                    let here = code.begins.get(length + 1).map_or(256, |end| usize::from(*end));
                    let at = usize::from(code.begins[length]) + at;
                    (at < here).then(|| (code.symbols[at], length))
                });
                match long {
                    Some(found) => found,
                    // Only ones are left: padding, or EOS, which is invalid in a string.
                    None => return (n < 8 && next(LONGEST) == (1 << LONGEST) - 1).then_some(()),
                }
            }
        };
        if length > n {
            // Padding is at most seven ones.
            return (n < 8 && bits & ((1 << n) - 1) == (1 << n) - 1).then_some(());
        }
        n -= length;
        out.push(byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(bytes, &mut out).map(|()| out)
    }

    #[test]
    fn every_text_is_decoded_as_it_was_encoded() {
        let mut random = tare_io::Random::stream(0, "huffman", 0);
        for length in 0..2000 {
            let text: Vec<u8> = (0..length % 70).map(|_| random.next_u64() as u8).collect();
            let mut bytes = Vec::new();
            encode(&text, &mut bytes);
            assert_eq!(bytes.len(), encoded_bytes(&text));
            assert_eq!(decoded(&bytes).as_deref(), Some(&text[..]));
        }
    }

    #[test]
    fn codes_are_those_of_the_standard() {
        // RFC 7541, appendix B and C.4.
        for (byte, code) in
            [(b'0', 0x0), (b'a', 0x3), (b'!', 0x3f8), (0, 0x1ff8), (255, 0x3ff_ffee)]
        {
            assert_eq!(CODE.codes[usize::from(byte)], code, "{byte}");
        }
        assert_eq!(CODE.codes[22], 0x3fff_fffe, "the last before the end");
        let host = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(decoded(&host).as_deref(), Some(&b"www.example.com"[..]));
    }

    #[test]
    fn other_bytes_are_refused() {
        assert_eq!(decoded(&[0xff]), None, "eight bits of padding");
        assert_eq!(decoded(&[0x1f, 0xff]), None, "an a, and more than seven bits of padding");
        assert_eq!(decoded(&[0x00, 0xff, 0xff, 0xff, 0xff]), None, "EOS in a string");
        assert_eq!(decoded(&[0x18]), None, "an a, and padding of zeros");
        assert_eq!(decoded(&[0x1f]).as_deref(), Some(&b"a"[..]));
    }
}
