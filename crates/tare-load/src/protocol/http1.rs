//! Parser of HTTP/1.1 replies: bytes in, whole replies out. No sockets and no clock.

mod chunked;
mod codec;
mod requests;

pub use chunked::ChunkedBody;
pub use codec::Http1;
pub use requests::Http1Requests;

use super::capture::{Capture, Wanted};
use super::reply::{GOOD, Reply, ReplyDefect};

/// Reads the replies of one connection.
#[derive(Debug, Default)]
pub struct ReplyParser {
    state: State,
    /// Start of a head that arrives in several pieces.
    partial_head: Vec<u8>,
    interim: u32,
    reply: Option<Reply>,
    /// `None` unless replies are wanted, by scripts, probes or sampling.
    capture: Option<Capture>,
}

/// The part of a reply that is expected next.
#[derive(Debug, Default)]
enum State {
    #[default]
    Head,
    Body {
        left: u64,
        total: u64,
    },
    Chunks(ChunkedBody),
    Close,
}

/// How the end of a body is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(u64),
    Chunked,
    UntilClose,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    status: u16,
    keep_alive: bool,
    framing: Framing,
}

/// The last head and its meaning. Servers send an identical head until its date changes, and
/// comparing is much cheaper than parsing.
#[derive(Debug, Default)]
pub struct HeadMemo {
    bytes: Vec<u8>,
    head: Option<Head>,
}

pub const HEAD_LIMIT_BYTES: usize = 64 * 1024;
const HEADERS_LIMIT: usize = 128;
/// RFC 9110 sets no limit, but without one a server could delay a reply for ever.
const INTERIM_LIMIT: u32 = 100;
/// Heads above this are not worth the copy.
const MEMO_LIMIT_BYTES: usize = 4096;

impl ReplyParser {
    /// Makes a parser that also captures what is wanted of replies.
    pub fn capturing(wanted: &Wanted) -> Self {
        Self { capture: Capture::for_wanted(wanted), ..Self::default() }
    }

    pub fn capture(&mut self) -> Option<&mut Capture> {
        self.capture.as_mut()
    }

    /// Clears its state for a new connection, and keeps its memory.
    pub fn reset(&mut self) {
        self.state = State::Head;
        self.partial_head.clear();
        self.interim = 0;
        self.reply = None;
        if let Some(capture) = &mut self.capture {
            capture.forget();
        }
    }

    /// Whether no byte has arrived since the last reply ended.
    pub fn is_between_replies(&self) -> bool {
        matches!(self.state, State::Head) && self.partial_head.is_empty() && self.interim == 0
    }

    /// Takes bytes off the front of `input`. `Some` when a reply is complete; the rest of `input`
    /// then belongs to the next. `to_head`: the request's method was HEAD.
    #[inline]
    pub fn advance(
        &mut self,
        input: &mut &[u8],
        to_head: bool,
        memo: &mut HeadMemo,
    ) -> Result<Option<Reply>, ReplyDefect> {
        if let Some(reply) = self.advance_whole(input, to_head, memo) {
            return Ok(Some(reply));
        }
        while !input.is_empty() {
            let done = match &mut self.state {
                State::Head => self.advance_head(input, to_head, memo)?,
                State::Body { left, .. } => {
                    let n = (*left).min(input.len() as u64) as usize;
                    *left -= n as u64;
                    let done = *left == 0;
                    self.take_body(input, n)?;
                    done
                }
                State::Chunks(chunks) => {
                    let (used, data) = chunks.advance(input)?;
                    let done = chunks.is_done();
                    if let (Some(capture), Some(data)) = (&mut self.capture, data.clone()) {
                        capture.add(&input[data])?;
                    }
                    if let (Some(reply), Some(data)) = (&mut self.reply, data) {
                        reply.body_bytes += data.len() as u64;
                    }
                    *input = &input[used..];
                    done
                }
                State::Close => {
                    let n = input.len();
                    self.take_body(input, n)?;
                    false
                }
            };
            if done {
                return Ok(self.finish());
            }
        }
        Ok(None)
    }

    /// The common case: a whole reply of known length, with the same head as the last one.
    #[inline]
    fn advance_whole(
        &mut self,
        input: &mut &[u8],
        to_head: bool,
        memo: &HeadMemo,
    ) -> Option<Reply> {
        let Some(Head { status: status @ 200.., keep_alive, framing: Framing::Length(body_bytes) }) =
            memo.head
        else {
            return None;
        };
        let has_body = !to_head && status != 204 && status != 304;
        if !has_body || !self.is_between_replies() {
            return None;
        }
        let whole = memo.bytes.len().checked_add(usize::try_from(body_bytes).ok()?)?;
        if input.len() < whole || !memo.matches(input) {
            return None;
        }
        if let Some(capture) = &mut self.capture
            && !capture.skips()
        {
            return None;
        }
        *input = &input[whole..];
        Some(Reply { status, keep_alive, body_bytes, code: GOOD })
    }

    /// Called when the server closes its side. `Some` if that ends the reply; `clean` is false if
    /// TLS was cut off without close_notify.
    pub fn on_close(&mut self, clean: bool) -> Result<Option<Reply>, ReplyDefect> {
        let got_bytes = self.reply.map_or(0, |reply| reply.body_bytes);
        match &self.state {
            State::Head if self.partial_head.is_empty() => Err(ReplyDefect::ClosedBeforeReply),
            State::Head => Err(ReplyDefect::ClosedInHead { got_bytes: self.partial_head.len() }),
            State::Body { total, .. } => {
                Err(ReplyDefect::ClosedInBody { got_bytes, expected_bytes: *total })
            }
            State::Chunks(_) => Err(ReplyDefect::ClosedInChunks { got_bytes }),
            State::Close if clean => Ok(self.finish()),
            State::Close => Err(ReplyDefect::NoCloseNotify),
        }
    }

    fn finish(&mut self) -> Option<Reply> {
        self.state = State::Head;
        self.interim = 0;
        self.reply.take()
    }

    fn take_body(&mut self, input: &mut &[u8], n: usize) -> Result<(), ReplyDefect> {
        if let Some(capture) = &mut self.capture {
            capture.add(&input[..n])?;
        }
        if let Some(reply) = &mut self.reply {
            reply.body_bytes += n as u64;
        }
        *input = &input[n..];
        Ok(())
    }

    /// Returns true if the reply ends with its head, because it has no body.
    fn advance_head(
        &mut self,
        input: &mut &[u8],
        to_head: bool,
        memo: &mut HeadMemo,
    ) -> Result<bool, ReplyDefect> {
        let head = if self.partial_head.is_empty() && memo.matches(input) {
            let used = memo.bytes.len();
            self.capture_head(&input[..used]);
            *input = &input[used..];
            memo.head
        } else if self.partial_head.is_empty() {
            // The common case: the whole head is here, and is parsed in place.
            match parse_head(input)? {
                Some((head, used)) => {
                    memo.remember(&input[..used], head);
                    self.capture_head(&input[..used]);
                    *input = &input[used..];
                    Some(head)
                }
                None => {
                    self.partial_head.extend_from_slice(input);
                    *input = &[];
                    None
                }
            }
        } else {
            self.advance_partial_head(input)?
        };
        match head {
            Some(head) => self.begin_body(head, to_head),
            None => Ok(false),
        }
    }

    fn advance_partial_head(&mut self, input: &mut &[u8]) -> Result<Option<Head>, ReplyDefect> {
        // Never copy more than a head can hold, so that a large body behind it is not copied.
        let before = self.partial_head.len();
        let room = (HEAD_LIMIT_BYTES + 1 - before).min(input.len());
        // Only looks for the end, so that a head that arrives byte by byte is parsed once.
        let end = find_head_end(&self.partial_head, &input[..room]);
        self.partial_head.extend_from_slice(&input[..end.unwrap_or(room)]);
        *input = &input[end.unwrap_or(room)..];
        if end.is_none() && self.partial_head.len() <= HEAD_LIMIT_BYTES {
            return check_not_other_protocol(&self.partial_head).map(|()| None);
        }
        let partial = std::mem::take(&mut self.partial_head);
        let parsed = parse_head(&partial)?;
        self.capture_head(&partial);
        self.partial_head = partial;
        self.partial_head.clear();
        self.partial_head.shrink_to(MEMO_LIMIT_BYTES);
        match parsed {
            Some((head, _)) => Ok(Some(head)),
            None => Err(ReplyDefect::HeadTooLong { limit_bytes: HEAD_LIMIT_BYTES }),
        }
    }

    fn begin_body(&mut self, head: Head, to_head: bool) -> Result<bool, ReplyDefect> {
        if head.status == 101 {
            return Err(ReplyDefect::SwitchedProtocols);
        }
        if head.status < 200 {
            self.interim += 1;
            if self.interim > INTERIM_LIMIT {
                return Err(ReplyDefect::TooManyInterim { limit: INTERIM_LIMIT });
            }
            return Ok(false);
        }
        let bodiless = to_head || head.status == 204 || head.status == 304;
        let framing = if bodiless { Framing::Length(0) } else { head.framing };
        self.reply = Some(Reply {
            status: head.status,
            keep_alive: head.keep_alive && framing != Framing::UntilClose,
            body_bytes: 0,
            code: GOOD,
        });
        self.state = match framing {
            Framing::Length(0) => return Ok(true),
            Framing::Length(total) => State::Body { left: total, total },
            Framing::Chunked => State::Chunks(ChunkedBody::default()),
            Framing::UntilClose => State::Close,
        };
        Ok(false)
    }

    fn capture_head(&mut self, bytes: &[u8]) {
        let Some(capture) = &mut self.capture else { return };
        capture.begin(bytes.len());
        if capture.wants_headers() {
            let mut headers = [httparse::EMPTY_HEADER; HEADERS_LIMIT];
            let mut head = httparse::Response::new(&mut headers);
            // The head has been parsed successfully before.
            let _ = head.parse(bytes);
            for header in head.headers.iter() {
                capture.add_header(header.name, header.value);
            }
        }
    }
}

impl HeadMemo {
    fn matches(&self, input: &[u8]) -> bool {
        // A remembered head ends with its empty line, so a reply that starts with it has this head.
        !self.bytes.is_empty() && input.starts_with(&self.bytes)
    }

    fn remember(&mut self, bytes: &[u8], head: Head) {
        if bytes.len() <= MEMO_LIMIT_BYTES {
            self.bytes.clear();
            self.bytes.extend_from_slice(bytes);
            self.head = Some(head);
        }
    }
}

/// Returns where in `more` a head that began with `before` ends: just behind its empty line.
fn find_head_end(before: &[u8], more: &[u8]) -> Option<usize> {
    let at = |i: usize| match i.checked_sub(before.len()) {
        Some(i) => more[i],
        None => before[i],
    };
    let total = before.len() + more.len();
    // An empty line is "\n\n" or "\n\r\n" (httparse takes bare line feeds too).
    let from = before.len().max(1);
    (from..total).find_map(|i| {
        let empty = at(i) == b'\n'
            && (at(i - 1) == b'\n' || (at(i - 1) == b'\r' && i >= 2 && at(i - 2) == b'\n'));
        empty.then(|| i + 1 - before.len())
    })
}

/// `None` while the head is incomplete.
fn parse_head(input: &[u8]) -> Result<Option<(Head, usize)>, ReplyDefect> {
    // httparse would skip a leading line end; where the head ends would then depend on how the
    // bytes arrive.
    if let Some(b'\r' | b'\n') = input.first() {
        return Err(ReplyDefect::BadHead { what: "it starts with an empty line".into() });
    }
    check_not_other_protocol(input)?;
    // Waits for the rest of what may be an HTTP/2 frame head or a TLS alert. HTTP/1.1 never begins
    // with these bytes.
    let may_become = [(0, FRAME_HEAD_BYTES), (TLS_ALERT, TLS_ALERT_BYTES)];
    if may_become.iter().any(|(at, bytes)| input.first() == Some(at) && input.len() < *bytes) {
        return Ok(None);
    }
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_LIMIT];
    let mut response = httparse::Response::new(&mut headers);
    let used = match response.parse(input) {
        Ok(httparse::Status::Complete(used)) if used <= HEAD_LIMIT_BYTES => used,
        Ok(httparse::Status::Partial) if input.len() <= HEAD_LIMIT_BYTES => return Ok(None),
        Ok(_) => return Err(ReplyDefect::HeadTooLong { limit_bytes: HEAD_LIMIT_BYTES }),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(ReplyDefect::TooManyHeaders { limit: HEADERS_LIMIT });
        }
        Err(error) => return Err(ReplyDefect::BadHead { what: error.to_string() }),
    };
    let mut keep_alive = response.version == Some(1);
    let mut length = None;
    let mut encoded = None;
    for header in response.headers.iter() {
        let name = header.name;
        if name.eq_ignore_ascii_case("content-length") {
            let value = content_length(header.value)?;
            // A second length is an error even if equal: a proxy may have read only one of them.
            if let Some(first) = length.replace(value) {
                return Err(ReplyDefect::TwoContentLengths { first, second: value });
            }
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            // Chunked must come last; any other coding runs to the end of the connection.
            let last = header.value.rsplit(|b| *b == b',').next().unwrap_or_default();
            encoded = Some(last.trim_ascii().eq_ignore_ascii_case(b"chunked"));
        } else if name.eq_ignore_ascii_case("connection") {
            for option in header.value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
                if option.eq_ignore_ascii_case(b"close") {
                    keep_alive = false;
                } else if option.eq_ignore_ascii_case(b"keep-alive") {
                    keep_alive = true;
                }
            }
        }
    }
    let framing = match (length, encoded) {
        (Some(_), Some(_)) => return Err(ReplyDefect::LengthAndChunked),
        (Some(length), None) => Framing::Length(length),
        (None, Some(true)) => Framing::Chunked,
        (None, _) => Framing::UntilClose,
    };
    let status = response.code.unwrap_or(0);
    if status < 100 {
        return Err(ReplyDefect::BadHead { what: format!("status {status:03}") });
    }
    Ok(Some((Head { status, keep_alive, framing }, used)))
}

/// Recognises the first frame of an HTTP/2 server (SETTINGS or GOAWAY on stream 0), or a TLS
/// server's alert.
fn check_not_other_protocol(input: &[u8]) -> Result<(), ReplyDefect> {
    if let Some([0, _, _, 4 | 7, _, 0, 0, 0, 0]) = input.first_chunk::<FRAME_HEAD_BYTES>() {
        return Err(ReplyDefect::Http2);
    }
    if let Some([TLS_ALERT, 3, _, 0, 2, _, _]) = input.first_chunk::<TLS_ALERT_BYTES>() {
        return Err(ReplyDefect::Tls);
    }
    Ok(())
}

const FRAME_HEAD_BYTES: usize = 9;
const TLS_ALERT: u8 = 21;
const TLS_ALERT_BYTES: usize = 7;

fn content_length(value: &[u8]) -> Result<u64, ReplyDefect> {
    let digits = value.trim_ascii();
    let bad = || ReplyDefect::BadContentLength {
        value: String::from_utf8_lossy(&digits[..digits.len().min(40)]).into_owned(),
    };
    // `u64::from_str` would take a leading "+".
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(bad());
    }
    std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).ok_or_else(bad)
}

#[cfg(test)]
mod tests;
