//! What codecs find in what comes back: whole replies, or what is wrong with one.

use crate::failure::{ONLY_HTTP2, ONLY_TLS};

/// What a finished reply was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    /// The server lets the connection be used again.
    pub keep_alive: bool,
    /// Decoded: without chunk framing.
    pub body_bytes: u64,
    /// How it ended, as the protocol itself says beside the status: in trailers, say. [`GOOD`] where
    /// it has no such word.
    pub code: u32,
}

/// The code of a reply that ended well.
pub const GOOD: u32 = 0;

/// Why a reply cannot be understood, or ended before its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyDefect {
    #[error("reply head is over {limit_bytes} bytes")]
    HeadTooLong { limit_bytes: usize },
    #[error("reply head has over {limit} header lines")]
    TooManyHeaders { limit: usize },
    #[error("reply head is malformed: {what}")]
    BadHead { what: String },
    #[error("{ONLY_HTTP2}")]
    Http2,
    #[error("{ONLY_TLS}")]
    Tls,
    #[error("content-length '{value}' is not a number of bytes")]
    BadContentLength { value: String },
    #[error("reply has two content-lengths, {first} and {second}")]
    TwoContentLengths { first: u64, second: u64 },
    #[error("reply bodies kept for the script are over {limit_bytes} bytes together (--max-body)")]
    BodiesTooLong { limit_bytes: u64 },
    #[error("reply has both content-length and chunked transfer-encoding")]
    LengthAndChunked,
    #[error("chunk size line is malformed at byte {byte:#04x}")]
    BadChunkSize { byte: u8 },
    #[error("chunk size is over {limit_bytes} bytes")]
    ChunkTooLong { limit_bytes: u64 },
    #[error("chunk data is not followed by a line end but by byte {byte:#04x}")]
    BadChunkEnd { byte: u8 },
    #[error("chunk extensions or trailers are over {limit_bytes} bytes")]
    TrailersTooLong { limit_bytes: usize },
    #[error("over {limit} interim (1xx) replies in a row")]
    TooManyInterim { limit: u32 },
    #[error("server switched protocols (101) unasked")]
    SwitchedProtocols,
    #[error("server sent {bytes} bytes that no request asked for")]
    Unasked { bytes: usize },
    #[error("connection closed before the reply began")]
    ClosedBeforeReply,
    #[error("connection closed after {got_bytes} bytes of the reply head")]
    ClosedInHead { got_bytes: usize },
    #[error("connection closed after {got_bytes} of {expected_bytes} body bytes")]
    ClosedInBody { got_bytes: u64, expected_bytes: u64 },
    #[error("connection closed after {got_bytes} body bytes, before the last chunk")]
    ClosedInChunks { got_bytes: u64 },
    #[error("the message does not hold what it should")]
    WrongContent,
    #[error("a datagram of {got_bytes} bytes came where {expected_bytes} should")]
    WrongLength { got_bytes: u64, expected_bytes: u64 },
    #[error("TLS connection closed without close_notify: the body may be cut")]
    NoCloseNotify,
    #[error("the server refused the request {times} times without processing it")]
    RefusedAgain { times: u8 },
}

impl ReplyDefect {
    /// The connection ended too early, as against: it said something wrong.
    pub fn is_early_close(&self) -> bool {
        matches!(
            self,
            Self::ClosedBeforeReply
                | Self::ClosedInHead { .. }
                | Self::ClosedInBody { .. }
                | Self::ClosedInChunks { .. }
                | Self::NoCloseNotify
        )
    }
}
