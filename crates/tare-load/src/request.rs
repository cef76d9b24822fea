//! The parts of requests that a user can set. A codec encodes them once.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tare_io::Random;

use crate::source::Listed;

/// HTTP requests that differ only in their paths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestParts {
    pub method: String,
    /// Host and port of the server, as clients name it. In HTTP/1.1 it is the Host header, unless
    /// `headers` has one.
    pub authority: String,
    /// Paths and queries, as sent: one request each, at least one.
    pub paths: Vec<String>,
    pub headers: Vec<(String, String)>,
    #[serde(with = "bytes_or_text")]
    pub body: Vec<u8>,
    /// Asks the server to close after the reply.
    pub close: bool,
}

/// The requests of a load.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requests {
    Parts(Arc<RequestParts>),
    /// Requests that the protocol itself defines: messages, a stream or calls.
    OfProtocol,
    /// Whole HTTP/1.1 requests that a script wrote; each element holds `requests` of them. Empty if
    /// the script writes new ones each time.
    #[serde(skip)]
    Written {
        each: Vec<Vec<u8>>,
        requests: u32,
    },
}

/// Which of several paths comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Workers start at different paths, spread evenly from this index on.
    InTurn {
        from: usize,
    },
    AtRandom,
}

impl Requests {
    /// How many different requests there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Parts(parts) => parts.paths.len(),
            Self::Written { each, .. } => each.len(),
            Self::OfProtocol => 1,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The method of all requests; empty if unknown.
    pub fn method(&self) -> &str {
        match self {
            Self::Parts(parts) => &parts.method,
            _ => "",
        }
    }

    /// Makes the source of requests for the `nth` of `all` workers.
    pub(crate) fn listed(&self, order: Order, seed: u64, nth: u32, all: u32) -> Listed {
        let n = self.len().max(1);
        match order {
            Order::InTurn { from } => {
                Listed::in_turn(n, (from + n * nth as usize / all as usize) % n)
            }
            Order::AtRandom => {
                Listed::at_random(n, Random::stream(seed, "requests", u64::from(nth)))
            }
        }
    }
}

/// Why a part of a request is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("method '{}' has a character that is not allowed in a method", .0.escape_debug())]
    Method(String),
    #[error("path '{}' has a space or control character; percent-encode it", .0.escape_debug())]
    Path(String),
    #[error("'{}' is not the name of a server", .0.escape_debug())]
    Authority(String),
    #[error("there is no path to request")]
    NoPath,
    #[error("header '{}' is not of the form 'Name: value'", .0.escape_debug())]
    Header(String),
    #[error("header '{0}' is not allowed in HTTP/2 (RFC 9113, 8.2.2); remove it, or use HTTP/1.1")]
    NotInHttp2(String),
    #[error("the protocol has no requests of this kind")]
    Kind,
}

impl RequestParts {
    pub fn has_header(&self, name: &str) -> bool {
        self.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name))
    }

    /// The length that is added to the headers, unless they have one.
    pub fn content_length(&self) -> Option<usize> {
        let has_length = self.has_header("content-length") || self.has_header("transfer-encoding");
        let wants_length = !self.body.is_empty() || matches!(self.method.as_str(), "POST" | "PUT");
        (wants_length && !has_length).then_some(self.body.len())
    }

    pub fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Checks that no part can end a line and begin another header or request.
    pub fn check(&self) -> Result<(), RequestError> {
        if self.method.is_empty() || !self.method.bytes().all(is_token) {
            return Err(RequestError::Method(self.method.clone()));
        }
        if self.authority.bytes().any(|b| b <= b' ' || b == 0x7f) {
            return Err(RequestError::Authority(self.authority.clone()));
        }
        if self.paths.is_empty() {
            return Err(RequestError::NoPath);
        }
        let is_path = |path: &&String| !path.bytes().all(|b| b > b' ' && b != 0x7f);
        if let Some(path) = self.paths.iter().find(is_path) {
            return Err(RequestError::Path(path.clone()));
        }
        let is_bad = |(name, value): &&(String, String)| {
            name.is_empty()
                || !name.bytes().all(is_token)
                || value.bytes().any(|b| matches!(b, b'\r' | b'\n' | 0))
        };
        match self.headers.iter().find(is_bad) {
            Some((name, value)) => Err(RequestError::Header(format!("{name}: {value}"))),
            None => Ok(()),
        }
    }
}

/// Splits `Name: value`. A line end in it would begin another header, or another request.
pub fn parse_header(text: &str) -> Result<(String, String), RequestError> {
    if text.chars().any(|c| c.is_control() && c != '\t') {
        return Err(RequestError::Header(text.to_owned()));
    }
    let (name, value) =
        text.split_once(':').ok_or_else(|| RequestError::Header(text.to_owned()))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Whether RFC 9110 allows this character in methods and header names.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A body in JSON: a string, or base64 if it is not UTF-8.
mod bytes_or_text {
    use super::*;

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Body {
        Text(String),
        Bytes { base64: String },
    }

    pub fn serialize<S: serde::Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        let body = match std::str::from_utf8(bytes) {
            Ok(text) => Body::Text(text.to_owned()),
            Err(_) => Body::Bytes { base64: STANDARD.encode(bytes) },
        };
        body.serialize(to)
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        match Body::deserialize(from)? {
            Body::Text(text) => Ok(text.into_bytes()),
            Body::Bytes { base64 } => STANDARD.decode(base64).map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cross_to_another_place_as_they_are() {
        for body in [&b"text"[..], b"\xff\0"] {
            let parts = RequestParts {
                method: "PUT".into(),
                paths: vec!["/a".into(), "/b?c".into()],
                headers: vec![("A".into(), "b".into())],
                body: body.to_vec(),
                ..RequestParts::default()
            };
            let text = serde_json::to_string(&parts).unwrap();
            assert_eq!(serde_json::from_str::<RequestParts>(&text).unwrap(), parts);
        }
    }

    #[test]
    fn nothing_can_break_out_of_its_line() {
        let good = RequestParts {
            method: "GET".into(),
            paths: vec!["/a?b=c".into()],
            ..RequestParts::default()
        };
        assert_eq!(good.check(), Ok(()));
        let header = |name: &str, value: &str| RequestParts {
            headers: vec![(name.into(), value.into())],
            ..good.clone()
        };
        assert!(matches!(header("X", "a\r\nEvil: b").check(), Err(RequestError::Header(_))));
        assert!(matches!(header("X Y", "a").check(), Err(RequestError::Header(_))));
        let path = RequestParts { paths: vec!["/".into(), "/a b".into()], ..good.clone() };
        assert_eq!(path.check(), Err(RequestError::Path("/a b".into())));
        let method = RequestParts { method: "GE T".into(), ..good };
        assert_eq!(method.check(), Err(RequestError::Method("GE T".into())));
        assert!(parse_header("no colon").is_err());
        assert!(parse_header("A: b\r\nC: d").is_err() && parse_header("A: b\n").is_err());
        assert_eq!(parse_header("A: b:c"), Ok(("A".into(), "b:c".into())));
    }
}
