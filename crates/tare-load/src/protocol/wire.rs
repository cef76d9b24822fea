//! The endpoint's protocol, little-endian. A greeting states what a connection is for.

use tare_io::DurationNs;
use tare_io::calls::{Call, CallCount};

/// Must change whenever the protocol does.
const MAGIC: [u8; 8] = *b"tarenet2";
pub const GREETING_BYTES: usize = 32;
pub const COUNT_BYTES: usize = 40;
pub const ORDER_BYTES: usize = 16;
pub const CALLED_BYTES: usize = 24;
/// Bit in the first byte of a datagram. Replies always have it and requests never do, and only
/// requests are answered, so that two endpoints cannot be made to answer each other.
pub const REPLY: u8 = 0x80;
pub const TAG_BYTES: usize = 8;

/// Returns the tag with which a datagram of this number begins, if it is long enough.
pub fn tag(number: u64) -> [u8; TAG_BYTES] {
    let mut tag = [0; TAG_BYTES];
    tag[0] = number as u8 & !REPLY;
    tag[1..].copy_from_slice(&(number >> 7).to_le_bytes()[..TAG_BYTES - 1]);
    tag
}

/// Returns the number in a request's tag.
pub fn number_of(tag: &[u8; TAG_BYTES]) -> u64 {
    let mut above = [0; 8];
    above[..TAG_BYTES - 1].copy_from_slice(&tag[1..]);
    u64::from_le_bytes(above) << 7 | u64::from(tag[0] & !REPLY)
}

/// Offset of the endpoint's cookie in a greeting datagram. The first greeting has none; the reply
/// has one, which the client must send back. A client with a spoofed address never sees it.
const COOKIE_AT: usize = 20;

pub fn cookie_of(greeting: &[u8; GREETING_BYTES]) -> u32 {
    number32(greeting, COOKIE_AT)
}

pub fn with_cookie(greeting: &[u8; GREETING_BYTES], cookie: u32) -> [u8; GREETING_BYTES] {
    let mut greeting = *greeting;
    greeting[COOKIE_AT..COOKIE_AT + 4].copy_from_slice(&cookie.to_le_bytes());
    greeting
}

/// Asks for a count, on a connection for counts.
pub const ASK: u8 = b'?';
/// Makes the endpoint start sending, on a connection for a reverse stream.
pub const GO: u8 = b'g';
/// Makes the endpoint stop sending, on a connection for a reverse stream.
pub const STOP: u8 = b's';
/// Answer: the request has been carried out.
pub const DONE: u8 = b'd';

/// The first bytes of a connection, or the datagram that begins a UDP stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    pub purpose: Purpose,
    /// Id under which streams are counted, chosen by the client.
    pub session: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Requests and replies; with `close`, the endpoint closes after the first.
    Messages { request_bytes: u32, reply_bytes: u32, close: bool },
    /// The client sends a stream.
    Receive { message_bytes: u32 },
    /// The endpoint sends a stream.
    Send { message_bytes: u32, nodelay: bool },
    /// The client asks for counts of a session.
    Count,
    /// The client orders calls into the kernel.
    Calls,
    /// The client asks the endpoint to serve on another port too. Answered by [`DONE`] if it is
    /// carried out.
    Listen { port: u16 },
    /// The client asks the endpoint to quit; `session` is the endpoint's token. Answered by
    /// [`DONE`] if it is carried out.
    Quit,
}

impl Greeting {
    pub fn bytes(&self) -> [u8; GREETING_BYTES] {
        let (code, flag, one, two) = match self.purpose {
            Purpose::Messages { request_bytes, reply_bytes, close } => {
                (1, u8::from(close), request_bytes, reply_bytes)
            }
            Purpose::Receive { message_bytes } => (2, 0, message_bytes, 0),
            Purpose::Send { message_bytes, nodelay } => (3, u8::from(nodelay), message_bytes, 0),
            Purpose::Count => (4, 0, 0, 0),
            Purpose::Calls => (5, 0, 0, 0),
            Purpose::Listen { port } => (6, 0, u32::from(port), 0),
            Purpose::Quit => (7, 0, 0, 0),
        };
        let mut bytes = [0; GREETING_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = code;
        bytes[9] = flag;
        bytes[12..16].copy_from_slice(&one.to_le_bytes());
        bytes[16..20].copy_from_slice(&two.to_le_bytes());
        bytes[24..].copy_from_slice(&self.session.to_le_bytes());
        bytes
    }

    /// `None` if it is not a greeting of this version.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; GREETING_BYTES] = bytes.try_into().ok()?;
        if bytes[..8] != MAGIC {
            return None;
        }
        let sensible = |n: u32| (1..=tare_model::net::MESSAGE_BYTES_MAX).contains(&n).then_some(n);
        let (one, two) = (number32(bytes, 12), number32(bytes, 16));
        let purpose = match bytes[8] {
            1 => Purpose::Messages {
                request_bytes: sensible(one)?,
                reply_bytes: sensible(two)?,
                close: bytes[9] & 1 == 1,
            },
            2 => Purpose::Receive { message_bytes: sensible(one)? },
            3 => Purpose::Send { message_bytes: sensible(one)?, nodelay: bytes[9] & 1 == 1 },
            4 => Purpose::Count,
            5 => Purpose::Calls,
            6 => Purpose::Listen { port: u16::try_from(one).ok().filter(|port| *port > 0)? },
            7 => Purpose::Quit,
            _ => return None,
        };
        Some(Self { purpose, session: number64(bytes, 24) })
    }
}

/// Counters of a session, and the time on the endpoint's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Bytes received or, in a reverse stream, sent.
    pub bytes: u64,
    pub messages: u64,
    /// Pieces with wrong content.
    pub wrong: u64,
    /// Datagrams that arrived after one with a higher number.
    pub disordered: u64,
    pub now_ns: u64,
}

impl Count {
    pub fn bytes(&self) -> [u8; COUNT_BYTES] {
        let numbers = [self.bytes, self.messages, self.wrong, self.disordered, self.now_ns];
        let mut bytes = [0; COUNT_BYTES];
        for (place, number) in bytes.chunks_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub fn parse(bytes: &[u8; COUNT_BYTES]) -> Self {
        Self {
            bytes: number64(bytes, 0),
            messages: number64(bytes, 8),
            wrong: number64(bytes, 16),
            disordered: number64(bytes, 24),
            now_ns: number64(bytes, 32),
        }
    }
}

/// Asks for a call to be repeated for this long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallOrder {
    pub call: Call,
    pub length: DurationNs,
}

impl CallOrder {
    pub fn bytes(&self) -> [u8; ORDER_BYTES] {
        let mut bytes = [0; ORDER_BYTES];
        bytes[0] = self.call as u8;
        bytes[8..].copy_from_slice(&self.length.as_ns().to_le_bytes());
        bytes
    }

    /// `None` for an unknown call, or for longer than [`ORDER_MAX`].
    pub fn parse(bytes: &[u8; ORDER_BYTES]) -> Option<Self> {
        let call = *Call::ALL.get(usize::from(bytes[0]))?;
        let length = DurationNs::from_ns(number64(bytes, 8));
        (length <= ORDER_MAX).then_some(Self { call, length })
    }
}

pub const ORDER_MAX: DurationNs = DurationNs::from_secs(60);

/// Encodes the result of an order: its counts, or the errno of the call.
pub fn encode_call_result(result: &std::io::Result<CallCount>) -> [u8; CALLED_BYTES] {
    let (calls, elapsed, errno) = match result {
        Ok(counted) => (counted.calls, counted.elapsed.as_ns(), 0),
        Err(error) => (0, 0, error.raw_os_error().unwrap_or(libc::ENOSYS)),
    };
    let mut bytes = [0; CALLED_BYTES];
    bytes[..8].copy_from_slice(&calls.to_le_bytes());
    bytes[8..16].copy_from_slice(&elapsed.to_le_bytes());
    bytes[16..20].copy_from_slice(&errno.to_le_bytes());
    bytes
}

/// Decodes what [`encode_call_result`] encodes.
pub fn parse_called(bytes: &[u8; CALLED_BYTES]) -> Result<CallCount, i32> {
    match number32(bytes, 16) as i32 {
        0 => Ok(CallCount {
            calls: number64(bytes, 0),
            elapsed: DurationNs::from_ns(number64(bytes, 8)),
        }),
        errno => Err(errno),
    }
}

fn number32(bytes: &[u8], at: usize) -> u32 {
    let mut own = [0; 4];
    own.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(own)
}

fn number64(bytes: &[u8], at: usize) -> u64 {
    let mut own = [0; 8];
    own.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else_is() {
        let purposes = [
            Purpose::Messages { request_bytes: 1, reply_bytes: 4 << 20, close: true },
            Purpose::Receive { message_bytes: 64 },
            Purpose::Send { message_bytes: 4096, nodelay: true },
            Purpose::Count,
            Purpose::Calls,
            Purpose::Listen { port: 4001 },
            Purpose::Quit,
        ];
        for purpose in purposes {
            let greeting = Greeting { purpose, session: u64::MAX - 1 };
            assert_eq!(Greeting::parse(&greeting.bytes()), Some(greeting));
            assert_eq!(Greeting::parse(&greeting.bytes()[..31]), None);
        }
        assert_eq!(Greeting::parse(b"GET / HTTP/1.1\r\nHost: localhost\r"), None);
        let none = Greeting { purpose: Purpose::Receive { message_bytes: 0 }, session: 0 };
        assert_eq!(Greeting::parse(&none.bytes()), None);
        let count = Count { bytes: 1, messages: 2, wrong: 3, disordered: 4, now_ns: 5 };
        assert_eq!(Count::parse(&count.bytes()), count);
        for call in Call::ALL {
            let order = CallOrder { call, length: DurationNs::from_ms(2) };
            assert_eq!(CallOrder::parse(&order.bytes()), Some(order));
        }
        let long = CallOrder { call: Call::Mix, length: DurationNs::from_secs(61) };
        assert_eq!(CallOrder::parse(&long.bytes()), None);
        let counted = CallCount { calls: 7, elapsed: DurationNs::from_ns(9) };
        assert_eq!(parse_called(&encode_call_result(&Ok(counted))), Ok(counted));
        for number in [0, 1, 127, 128, 1 << 40, (1 << 63) - 1] {
            assert_eq!(number_of(&tag(number)), number);
            assert_eq!(tag(number)[0] & REPLY, 0);
        }
        let greeting = Greeting { purpose: Purpose::Receive { message_bytes: 7 }, session: 9 };
        let with = with_cookie(&greeting.bytes(), 0x0102_0304);
        assert_eq!((Greeting::parse(&with), cookie_of(&with)), (Some(greeting), 0x0102_0304));
        let refused = std::io::Error::from_raw_os_error(libc::EPERM);
        assert_eq!(parse_called(&encode_call_result(&Err(refused))), Err(libc::EPERM));
    }
}
