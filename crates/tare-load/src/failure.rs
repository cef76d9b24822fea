//! How a request fails: a kind to count, and a sentence for people.

use tare_io::system::errno_text;

use crate::protocol::reply::ReplyDefect;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum FailureKind {
    /// Nobody listens there.
    Refused,
    /// The connection, or the request's stream, was reset.
    Reset,
    /// The connection ended before the reply did.
    ClosedEarly,
    /// No complete reply within the time limit.
    TimedOut,
    /// The handshake failed, or the TLS stream is broken.
    Tls,
    /// The reply breaks the protocol.
    Malformed,
    /// This machine has no free local port for another connection.
    NoLocalPort,
    /// This process may not open more files.
    NoFile,
    /// Anything else, with its errno.
    Other,
}

impl FailureKind {
    pub const ALL: [Self; 9] = [
        Self::Refused,
        Self::Reset,
        Self::ClosedEarly,
        Self::TimedOut,
        Self::Tls,
        Self::Malformed,
        Self::NoLocalPort,
        Self::NoFile,
        Self::Other,
    ];

    /// The key in JSON, also used in output for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::ClosedEarly => "closed_early",
            Self::TimedOut => "timed_out",
            Self::Tls => "tls",
            Self::Malformed => "malformed",
            Self::NoLocalPort => "no_local_port",
            Self::NoFile => "no_file",
            Self::Other => "other",
        }
    }
}

/// One failure, as it happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestFailure {
    #[error("{}", errno_sentence(*.0))]
    Errno(i32),
    #[error("{0}")]
    Reply(#[from] ReplyDefect),
    #[error("no complete reply within the time limit")]
    TimedOut,
    #[error("{}", tls_sentence(.0))]
    Tls(String),
}

impl RequestFailure {
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Errno(libc::ECONNREFUSED | libc::ENOENT) => FailureKind::Refused,
            Self::Errno(libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED) => FailureKind::Reset,
            Self::Errno(libc::EADDRNOTAVAIL | libc::EADDRINUSE) => FailureKind::NoLocalPort,
            Self::Errno(libc::EMFILE | libc::ENFILE) => FailureKind::NoFile,
            Self::Errno(libc::ETIMEDOUT) | Self::TimedOut => FailureKind::TimedOut,
            Self::Errno(_) => FailureKind::Other,
            Self::Reply(defect) if defect.is_early_close() => FailureKind::ClosedEarly,
            // The server gave this request up; both sides keep to the protocol.
            Self::Reply(ReplyDefect::StreamReset { .. }) => FailureKind::Reset,
            Self::Reply(ReplyDefect::RefusedAgain { .. }) => FailureKind::Other,
            Self::Reply(_) => FailureKind::Malformed,
            Self::Tls(_) => FailureKind::Tls,
        }
    }
}

// Texts of protocol mismatches, which show in the TLS handshake or in the first bytes received.
pub const ONLY_HTTP2: &str =
    "the server speaks only HTTP/2: use --http2 (in an experiment: http = \"2\")";
pub const ONLY_HTTP1: &str = "the server does not speak HTTP/2 on this port: leave out --http2 (in an experiment: http = \"2\")";
pub const ONLY_TLS: &str = "the server speaks TLS: its URL begins with https://";
pub const NO_TLS: &str = "the server does not speak TLS: its URL begins with http://";

/// Whether a failure's sentence names a protocol that one side does not speak, so that retrying is
/// pointless.
pub fn is_wrong_protocol(sentence: &str) -> bool {
    [ONLY_HTTP2, ONLY_HTTP1, ONLY_TLS, NO_TLS].iter().any(|known| sentence.contains(known))
}

fn tls_sentence(text: &str) -> String {
    match text {
        text if text.contains("NoApplicationProtocol") => ONLY_HTTP2.into(),
        // The bytes received are no TLS record.
        text if text.contains("InvalidContentType") => NO_TLS.into(),
        text => format!("TLS: {text}"),
    }
}

fn errno_sentence(errno: i32) -> String {
    let text = errno_text(errno);
    match errno {
        libc::EADDRNOTAVAIL | libc::EADDRINUSE => format!(
            "{text}: the local ports for this destination are used up (closed connections hold \
             theirs for a minute); widen net.ipv4.ip_local_port_range, add source addresses with \
             --bind, or lower the rate of new connections"
        ),
        libc::EMFILE | libc::ENFILE => format!("{text}: raise the open-file limit (ulimit -n)"),
        libc::ECONNREFUSED | libc::ECONNRESET | libc::EPIPE => text,
        _ => format!("{text} (errno {errno})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_a_kind_and_a_sentence() {
        for (failure, kind, text) in [
            (RequestFailure::Errno(libc::ECONNREFUSED), FailureKind::Refused, "connection refused"),
            (
                RequestFailure::Errno(libc::ECONNRESET),
                FailureKind::Reset,
                "connection reset by peer",
            ),
            (
                RequestFailure::Errno(libc::EHOSTUNREACH),
                FailureKind::Other,
                "no route to host (errno 113)",
            ),
            (
                RequestFailure::TimedOut,
                FailureKind::TimedOut,
                "no complete reply within the time limit",
            ),
            (
                RequestFailure::Reply(ReplyDefect::ClosedBeforeReply),
                FailureKind::ClosedEarly,
                "connection closed before the reply began",
            ),
            (
                RequestFailure::Reply(ReplyDefect::BadChunkSize { byte: 7 }),
                FailureKind::Malformed,
                "chunk size line is malformed at byte 0x07",
            ),
        ] {
            assert_eq!((failure.kind(), failure.to_string().as_str()), (kind, text));
        }
        let ports = RequestFailure::Errno(libc::EADDRNOTAVAIL);
        assert_eq!(ports.kind(), FailureKind::NoLocalPort);
        assert!(ports.to_string().contains("widen net.ipv4.ip_local_port_range"), "{ports}");
    }
}
