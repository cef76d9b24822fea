//! Results of decoding: whole replies, or what is wrong with one.

use super::http2::frame::ErrorCode;
use crate::failure::{ONLY_HTTP1, ONLY_HTTP2, ONLY_TLS};

/// A whole reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    /// The server lets the connection be used again.
    pub keep_alive: bool,
    /// Bytes of the decoded body, without chunk framing.
    pub body_bytes: u64,
    /// The protocol's own result besides the status, such as one in trailers. [`GOOD`] if the
    /// protocol has none.
    pub code: u32,
}

/// The code of a reply that ended well.
pub const GOOD: u32 = 0;

/// Why a reply is malformed or incomplete.
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
    #[error("{ONLY_HTTP1}")]
    OnlyHttp1,
    #[error("the server violates HTTP/2: {what}")]
    Frame { what: String },
    #[error("the server asks for answers and does not read them")]
    NotRead,
    #[error("the server reset the stream: {code}")]
    StreamReset { code: ErrorCode },
    #[error("the server sent GOAWAY: {code}")]
    GoneAway { code: ErrorCode },
    #[error("connection closed; open streams: {streams}")]
    ClosedInStreams { streams: usize },
    #[error("the body has {got_bytes} bytes, content-length says {expected_bytes}")]
    WrongBody { got_bytes: u64, expected_bytes: u64 },
    #[error("the server refused the request {times} times without processing it")]
    RefusedAgain { times: u8 },
}

impl ReplyDefect {
    /// Whether the connection closed too early (instead of carrying something wrong).
    pub fn is_early_close(&self) -> bool {
        matches!(
            self,
            Self::ClosedBeforeReply
                | Self::ClosedInHead { .. }
                | Self::ClosedInBody { .. }
                | Self::ClosedInChunks { .. }
                | Self::NoCloseNotify
                | Self::GoneAway { .. }
                | Self::ClosedInStreams { .. }
        )
    }
}
