//! The bytes of the target's replies.

use crate::behaviour::{Behaviour, Defect};
use crate::stats::Stats;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplyKey {
    Status { status: u16, connection: ConnectionHeader, head_only: bool, odd: bool },
    Defect(u8),
    BadRequest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionHeader {
    Nothing,
    KeepAlive,
    Close,
}

impl ConnectionHeader {
    fn line(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::KeepAlive => "Connection: keep-alive\r\n",
            Self::Close => "Connection: close\r\n",
        }
    }
}

pub fn make_reply(key: ReplyKey, behaviour: &Behaviour) -> Vec<u8> {
    let (status, connection, head_only, odd) = match key {
        ReplyKey::Status { status, connection, head_only, odd } => {
            (status, connection, head_only, odd)
        }
        ReplyKey::Defect(at) => return Defect::ALL[at as usize].1.bytes().0,
        ReplyKey::BadRequest => (400, ConnectionHeader::Close, false, false),
    };
    let bodiless = matches!(status, 204 | 304);
    let body = vec![if odd { b'y' } else { b'x' }; if bodiless { 0 } else { behaviour.body_bytes }];
    let mut reply = format!("HTTP/1.1 {status} {}\r\nServer: tare-target\r\n", reason(status));
    reply.push_str("Content-Type: text/plain\r\n");
    reply.push_str(connection.line());
    if bodiless {
        reply.push_str("\r\n");
        return reply.into_bytes();
    }
    if behaviour.chunked {
        reply.push_str("Transfer-Encoding: chunked\r\n\r\n");
    } else {
        reply.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    }
    let mut reply = reply.into_bytes();
    if head_only {
        return reply;
    }
    if !behaviour.chunked {
        reply.extend_from_slice(&body);
        return reply;
    }
    // Up to three chunks, to test clients with more than one.
    for chunk in body.chunks(body.len().div_ceil(3).max(1)) {
        reply.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        reply.extend_from_slice(chunk);
        reply.extend_from_slice(b"\r\n");
    }
    reply.extend_from_slice(b"0\r\n\r\n");
    reply
}

pub fn stats_reply(stats: &Stats, close: bool) -> Vec<u8> {
    let json = stats.json();
    let connection = if close { "Connection: close\r\n" } else { "" };
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{connection}\
         Content-Length: {}\r\n\r\n{json}",
        json.len()
    )
    .into_bytes()
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        301 => "Moved Permanently",
        304 => "Not Modified",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Status",
    }
}
