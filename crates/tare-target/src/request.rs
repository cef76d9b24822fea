//! HTTP/1.1 requests: just enough to answer them and to find where the next begins.

use tare_load::protocol::http1::ChunkedBody;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Its stream; 0 in HTTP/1.1.
    pub stream: u32,
    pub is_head: bool,
    pub wants_stats: bool,
    pub keep_alive: bool,
    /// The client sent `Connection: keep-alive`, as HTTP/1.0 must, and expects it in the reply.
    pub asked_to_keep: bool,
}

#[derive(Debug, Default)]
pub struct RequestParser {
    state: State,
    partial_head: Vec<u8>,
    request: Option<Request>,
    /// The last whole head; the same bytes need not be parsed again.
    memo: Vec<u8>,
    memo_request: Option<(Request, Body)>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Head,
    Length(u64),
    Chunks(ChunkedBody),
}

#[derive(Clone, Copy, Debug)]
enum Body {
    Length(u64),
    Chunked,
}

/// The request is not valid HTTP: the reply is 400, and the connection is closed.
#[derive(Debug, PartialEq, Eq)]
pub struct BadRequest;

const HEAD_LIMIT_BYTES: usize = 64 * 1024;
/// Most memory that a connection keeps between requests.
const KEPT_BYTES: usize = 4096;

impl RequestParser {
    /// Returns the number of bytes held of an incomplete head.
    pub fn held_bytes(&self) -> usize {
        self.partial_head.len()
    }

    pub fn reset(&mut self) {
        self.state = State::Head;
        self.partial_head.clear();
        self.partial_head.shrink_to(KEPT_BYTES);
        self.request = None;
    }

    /// Takes bytes off the front of `input`; returns a request once its head and body are complete.
    pub fn advance(&mut self, input: &mut &[u8]) -> Result<Option<Request>, BadRequest> {
        while !input.is_empty() {
            let done = match &mut self.state {
                State::Head => self.advance_head(input)?,
                State::Length(left) => {
                    let n = (*left).min(input.len() as u64);
                    *left -= n;
                    *input = &input[n as usize..];
                    *left == 0
                }
                State::Chunks(chunks) => {
                    let (used, _) = chunks.advance(input).map_err(|_| BadRequest)?;
                    *input = &input[used..];
                    chunks.is_done()
                }
            };
            if done {
                self.state = State::Head;
                return Ok(self.request.take());
            }
        }
        Ok(None)
    }

    fn advance_head(&mut self, input: &mut &[u8]) -> Result<bool, BadRequest> {
        let partial = !self.partial_head.is_empty();
        let (request, body) = if !partial
            && !self.memo.is_empty()
            && input.starts_with(&self.memo)
            && let Some(known) = self.memo_request
        {
            *input = &input[self.memo.len()..];
            known
        } else {
            let before = self.partial_head.len();
            if partial {
                self.partial_head.extend_from_slice(input);
            }
            let head = if partial { &self.partial_head } else { *input };
            match parse_head(head)? {
                Some((request, body, used)) => {
                    if used <= KEPT_BYTES {
                        self.memo.clear();
                        self.memo.extend_from_slice(&head[..used]);
                        self.memo_request = Some((request, body));
                    }
                    *input = &input[used - before..];
                    self.partial_head.clear();
                    (request, body)
                }
                None if head.len() > HEAD_LIMIT_BYTES => return Err(BadRequest),
                None => {
                    if !partial {
                        self.partial_head.extend_from_slice(input);
                    }
                    *input = &[];
                    return Ok(false);
                }
            }
        };
        self.request = Some(request);
        self.state = match body {
            Body::Length(0) => return Ok(true),
            Body::Length(left) => State::Length(left),
            Body::Chunked => State::Chunks(ChunkedBody::default()),
        };
        Ok(false)
    }
}

fn parse_head(input: &[u8]) -> Result<Option<(Request, Body, usize)>, BadRequest> {
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let mut request = httparse::Request::new(&mut headers);
    let used = match request.parse(input) {
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(BadRequest),
    };
    let mut keep_alive = request.version == Some(1);
    let mut asked_to_keep = false;
    let mut body = None;
    for header in request.headers.iter() {
        let value = header.value.trim_ascii();
        if header.name.eq_ignore_ascii_case("content-length") {
            let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let text = std::str::from_utf8(value).ok().filter(|_| digits).ok_or(BadRequest)?;
            let length = Body::Length(text.parse().map_err(|_| BadRequest)?);
            // A second length is refused: a proxy in between may use the other one.
            if body.replace(length).is_some() {
                return Err(BadRequest);
            }
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            // HTTP/1.0 has no chunks: a proxy in between may take the body for another request.
            let only_chunked = value.eq_ignore_ascii_case(b"chunked") && request.version == Some(1);
            if body.replace(Body::Chunked).is_some() || !only_chunked {
                return Err(BadRequest);
            }
        } else if header.name.eq_ignore_ascii_case("connection") {
            for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                if option.eq_ignore_ascii_case(b"close") {
                    keep_alive = false;
                } else if option.eq_ignore_ascii_case(b"keep-alive") {
                    keep_alive = true;
                    asked_to_keep = true;
                }
            }
        }
    }
    let request = Request {
        stream: 0,
        is_head: request.method == Some("HEAD"),
        wants_stats: request.path == Some("/stats"),
        keep_alive,
        asked_to_keep,
    };
    Ok(Some((request, body.unwrap_or(Body::Length(0)), used)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_found_however_they_are_cut() {
        let text = b"GET / HTTP/1.1\r\nHost: x\r\n\r\nPOST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\n\
            abcHEAD /stats HTTP/1.1\r\nConnection: close\r\n\r\nPUT / HTTP/1.1\r\n\
            Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n";
        let request = |is_head, wants_stats, keep_alive| {
            let asked_to_keep = false;
            Request { is_head, wants_stats, keep_alive, asked_to_keep, ..Request::default() }
        };
        let expected = [
            request(false, false, true),
            request(false, false, true),
            request(true, true, false),
            request(false, false, false),
            request(false, false, true),
        ];
        for piece in 1..=text.len() {
            let mut parser = RequestParser::default();
            let mut found = Vec::new();
            for piece in text.chunks(piece) {
                let mut input = piece;
                while !input.is_empty() {
                    found.extend(parser.advance(&mut input).unwrap());
                }
            }
            assert_eq!(found, expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "\u{1}\u{2}",
            "GET / HTTP/9.9\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            let mut input = text.as_bytes();
            assert_eq!(RequestParser::default().advance(&mut input), Err(BadRequest), "{text}");
        }
    }
}
