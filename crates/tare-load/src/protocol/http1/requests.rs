//! Encodes requests as HTTP/1.1.

use std::ops::Range;
use std::sync::Arc;

use crate::request::{RequestError, RequestParts, Requests};

/// All requests of a load in one buffer, written once and used by every connection.
#[derive(Clone, Debug)]
pub struct Http1Requests {
    pub bytes: Arc<[u8]>,
    places: Arc<[Place]>,
    /// Requests per entry of the list.
    pub together: u32,
}

/// The end of a request, where the next begins.
#[derive(Clone, Copy, Debug)]
struct Place {
    end: usize,
    /// Its method is HEAD.
    to_head: bool,
}

impl Http1Requests {
    pub fn new(requests: &Requests) -> Result<Self, RequestError> {
        match requests {
            Requests::Parts(parts) => Self::from_parts(parts),
            Requests::Written { each, requests } => {
                let mut end = 0;
                let places = each.iter().map(|bytes| {
                    end += bytes.len();
                    Place { end, to_head: bytes.starts_with(b"HEAD ") }
                });
                let places = places.collect();
                Ok(Self { bytes: each.concat().into(), places, together: *requests })
            }
            Requests::OfProtocol => Err(RequestError::Kind),
        }
    }

    fn from_parts(parts: &RequestParts) -> Result<Self, RequestError> {
        parts.check()?;
        let rest = head_after_path(parts);
        let (mut bytes, mut places) = (Vec::new(), Vec::with_capacity(parts.paths.len()));
        for path in &parts.paths {
            bytes.extend_from_slice(parts.method.as_bytes());
            bytes.push(b' ');
            bytes.extend_from_slice(path.as_bytes());
            bytes.extend_from_slice(&rest);
            bytes.extend_from_slice(&parts.body);
            places.push(Place { end: bytes.len(), to_head: parts.is_head() });
        }
        Ok(Self { bytes: bytes.into(), places: places.into(), together: 1 })
    }

    /// Returns where request number `at` is in `bytes`, and whether its method is HEAD.
    #[inline]
    pub fn at(&self, at: u32) -> (Range<usize>, bool) {
        let at = at as usize;
        let start = if at == 0 { 0 } else { self.places[at - 1].end };
        let Place { end, to_head } = self.places[at];
        (start..end, to_head)
    }
}

/// Writes the head from the version to its end, which is the same for every path.
fn head_after_path(parts: &RequestParts) -> Vec<u8> {
    let mut head = " HTTP/1.1\r\n".to_owned();
    if !parts.has_header("host") {
        head.push_str(&format!("Host: {}\r\n", parts.authority));
    }
    if !parts.has_header("user-agent") {
        head.push_str(concat!("User-Agent: tare/", env!("CARGO_PKG_VERSION"), "\r\n"));
    }
    if !parts.has_header("accept") {
        head.push_str("Accept: */*\r\n");
    }
    if parts.close && !parts.has_header("connection") {
        head.push_str("Connection: close\r\n");
    }
    if let Some(bytes) = parts.content_length() {
        head.push_str(&format!("Content-Length: {bytes}\r\n"));
    }
    for (name, value) in &parts.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    head.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> RequestParts {
        RequestParts {
            method: "GET".into(),
            authority: "h:80".into(),
            paths: vec!["/a?b=c".into()],
            ..RequestParts::default()
        }
    }

    fn text(parts: RequestParts) -> String {
        let requests = Http1Requests::new(&Requests::Parts(parts.into())).unwrap();
        String::from_utf8(requests.bytes.to_vec()).unwrap()
    }

    #[test]
    fn defaults_are_added_unless_given() {
        let plain = text(parts());
        assert!(plain.starts_with("GET /a?b=c HTTP/1.1\r\nHost: h:80\r\nUser-Agent: tare/"));
        assert!(plain.ends_with("\r\n\r\n") && !plain.contains("Content-Length"));
        let own = text(RequestParts {
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
        assert!(text(post).ends_with("Content-Length: 3\r\n\r\nxyz"));
        let empty = RequestParts { method: "PUT".into(), ..parts() };
        assert!(text(empty).contains("Content-Length: 0\r\n"));
    }

    #[test]
    fn each_path_has_its_place() {
        let paths = ["/one", "/two", "/three"].map(str::to_owned).to_vec();
        let parts = RequestParts { method: "HEAD".into(), paths: paths.clone(), ..parts() };
        let requests = Http1Requests::new(&Requests::Parts(parts.into())).unwrap();
        for (at, path) in paths.iter().enumerate() {
            let (range, to_head) = requests.at(at as u32);
            let bytes = &requests.bytes[range];
            assert!(to_head);
            assert!(bytes.starts_with(format!("HEAD {path} HTTP/1.1\r\n").as_bytes()));
            assert!(bytes.ends_with(b"\r\n\r\n"));
        }
    }
}
