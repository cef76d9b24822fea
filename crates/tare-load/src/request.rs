//! An HTTP/1.1 request as bytes, from its parts.

use crate::source::FixedRequest;

/// The parts of a request that a user can set.
#[derive(Clone, Debug, Default)]
pub struct RequestParts {
    pub method: String,
    /// Path and query, as sent.
    pub target: String,
    /// The Host header, unless one of `headers` is.
    pub host: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Ask the server to close after the reply.
    pub close: bool,
}

/// A part that cannot stand in a request: it would end its line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("method '{}' has a character that is not allowed in a method", .0.escape_debug())]
    Method(String),
    #[error("path '{}' has a space or control character; percent-encode it", .0.escape_debug())]
    Target(String),
    #[error("header '{}' is not of the form 'Name: value'", .0.escape_debug())]
    Header(String),
}

impl RequestParts {
    pub fn build(&self) -> Result<FixedRequest, RequestError> {
        Ok(FixedRequest::new(self.bytes()?))
    }

    pub fn bytes(&self) -> Result<Vec<u8>, RequestError> {
        if self.method.is_empty() || !self.method.bytes().all(is_token) {
            return Err(RequestError::Method(self.method.clone()));
        }
        if !self.target.bytes().all(|b| b > b' ' && b != 0x7f) {
            return Err(RequestError::Target(self.target.clone()));
        }
        let has = |name: &str| self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        if !has("host") {
            head.push_str(&format!("Host: {}\r\n", self.host));
        }
        if !has("user-agent") {
            head.push_str(concat!("User-Agent: tare/", env!("CARGO_PKG_VERSION"), "\r\n"));
        }
        if !has("accept") {
            head.push_str("Accept: */*\r\n");
        }
        if self.close && !has("connection") {
            head.push_str("Connection: close\r\n");
        }
        let wants_length = !self.body.is_empty() || matches!(self.method.as_str(), "POST" | "PUT");
        if wants_length && !has("content-length") && !has("transfer-encoding") {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        for (name, value) in &self.headers {
            let good = !name.is_empty()
                && name.bytes().all(is_token)
                && !value.bytes().any(|b| matches!(b, b'\r' | b'\n' | 0));
            if !good {
                return Err(RequestError::Header(format!("{name}: {value}")));
            }
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        Ok(bytes)
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

/// RFC 9110's characters of methods and header names.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> RequestParts {
        RequestParts {
            method: "GET".into(),
            target: "/a?b=c".into(),
            host: "h:80".into(),
            ..Default::default()
        }
    }

    fn text(parts: &RequestParts) -> String {
        String::from_utf8(parts.bytes().unwrap()).unwrap()
    }

    #[test]
    fn defaults_are_added_unless_given() {
        let plain = text(&parts());
        assert!(plain.starts_with("GET /a?b=c HTTP/1.1\r\nHost: h:80\r\nUser-Agent: tare/"));
        assert!(plain.ends_with("\r\n\r\n") && !plain.contains("Content-Length"));
        let own = text(&RequestParts {
            headers: vec![("host".into(), "other".into()), ("Connection".into(), "x".into())],
            close: true,
            ..parts()
        });
        assert!(own.contains("host: other\r\n") && !own.contains("Host: h"), "{own}");
        assert!(!own.contains("close"), "{own}");
    }

    #[test]
    fn bodies_have_a_length() {
        let post = RequestParts { method: "POST".into(), body: b"xyz".to_vec(), ..parts() };
        assert!(text(&post).ends_with("Content-Length: 3\r\n\r\nxyz"));
        let empty = RequestParts { method: "PUT".into(), ..parts() };
        assert!(text(&empty).contains("Content-Length: 0\r\n"));
    }

    #[test]
    fn nothing_can_break_out_of_its_line() {
        let header = |name: &str, value: &str| RequestParts {
            headers: vec![(name.into(), value.into())],
            ..parts()
        };
        assert!(matches!(header("X", "a\r\nEvil: b").bytes(), Err(RequestError::Header(_))));
        assert!(matches!(header("X Y", "a").bytes(), Err(RequestError::Header(_))));
        let target = RequestParts { target: "/a b".into(), ..parts() };
        assert_eq!(target.bytes(), Err(RequestError::Target("/a b".into())));
        let method = RequestParts { method: "GE T".into(), ..parts() };
        assert_eq!(method.bytes(), Err(RequestError::Method("GE T".into())));
        assert!(parse_header("no colon").is_err());
        assert!(parse_header("A: b\r\nC: d").is_err() && parse_header("A: b\n").is_err());
        assert_eq!(parse_header("A: b:c"), Ok(("A".into(), "b:c".into())));
    }
}
