//! HTTP/2 as a server: frames become requests, and replies become frames.

use std::collections::{HashMap, VecDeque};

use tare_load::protocol::http2::frame::{
    self, ErrorCode, FrameHeader, HEADER_BYTES, Kind, Setting,
};
use tare_load::protocol::http2::hpack::{self, Decoder, Form};

use crate::request::{BadRequest, Request};

/// One connection.
#[derive(Debug, Default)]
pub struct Http2 {
    /// The client's first bytes have arrived.
    begun: bool,
    /// A frame that has not arrived whole.
    partial: Vec<u8>,
    decoder: Decoder,
    /// A header block that continues in the next frame.
    block: Option<(FrameHeader, Vec<u8>)>,
    streams: HashMap<u32, Stream>,
    /// Bodies of replies that are not sent yet.
    bodies: VecDeque<Body>,
    last_stream: u32,
    /// The highest stream whose request is complete.
    pub last_asked: u32,
    /// Limits of concurrent streams, used in turn, and the index of the one in force.
    limits: Vec<u32>,
    limit: usize,
    requests: u64,
    peer: Peer,
    send_window: i64,
    received: u32,
    /// Our fields are in the client's dynamic table.
    filled: bool,
    /// The client has changed the size of its table: the next block begins with an update.
    resized: bool,
    /// A GOAWAY has been sent: new streams are ignored.
    pub draining: bool,
}

#[derive(Debug)]
struct Peer {
    window: u32,
    payload: u32,
    has_table: bool,
}

impl Default for Peer {
    fn default() -> Self {
        Self { window: frame::WINDOW_BYTES, payload: frame::PAYLOAD_BYTES, has_table: true }
    }
}

/// A stream whose reply has not been sent completely.
#[derive(Debug)]
struct Stream {
    /// Set until its body has arrived.
    request: Option<Request>,
    send_window: i64,
}

#[derive(Debug)]
struct Body {
    stream: u32,
    left: Content,
}

/// The content of a body: repeated bytes, or text.
#[derive(Clone, Debug)]
pub enum Content {
    Repeated(u8, usize),
    Text(Vec<u8>),
}

impl Content {
    pub fn len(&self) -> usize {
        match self {
            Self::Repeated(_, bytes) => *bytes,
            Self::Text(text) => text.len(),
        }
    }

    /// Moves its first bytes to `out`.
    fn take(&mut self, bytes: usize, out: &mut Vec<u8>) {
        match self {
            Self::Repeated(byte, left) => {
                out.resize(out.len() + bytes, *byte);
                *left -= bytes;
            }
            Self::Text(text) => out.extend(text.drain(..bytes)),
        }
    }
}

/// What a frame did to a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Asked(Request),
    /// Over the limit of streams, and refused with REFUSED_STREAM.
    Refused,
    Cancelled,
}

/// Flow-control windows for the client.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
const BLOCK_BYTES_MAX: usize = 64 << 10;
/// The limit of streams where none is given: as many as `tare load` may ask for.
const STREAMS_MAX: u32 = 10_000;
/// The limit of streams changes after this many requests.
const REQUESTS_A_LIMIT: u64 = 100;

impl Http2 {
    /// `limits`: the most streams at a time, in turn; if empty, [`STREAMS_MAX`].
    pub fn new(limits: &[u32]) -> Self {
        let send_window = i64::from(frame::WINDOW_BYTES);
        Self { limits: limits.to_vec(), send_window, ..Self::default() }
    }

    pub fn held_bytes(&self) -> usize {
        self.partial.len() + self.block.as_ref().map_or(0, |(_, block)| block.len())
    }

    /// Nothing is left to be sent.
    pub fn is_done(&self) -> bool {
        self.streams.is_empty() && self.bodies.is_empty()
    }

    /// Takes bytes off the front of `input`, up to the next event.
    pub fn advance(
        &mut self,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, BadRequest> {
        if !self.begun && !self.take_preface(input, out)? {
            return Ok(None);
        }
        while !input.is_empty() {
            let held = std::mem::take(&mut self.partial);
            let event = match held.is_empty() {
                true => match whole_frame(input)? {
                    Some((header, payload, rest)) => {
                        *input = rest;
                        self.on_frame(header, payload, out)?
                    }
                    None => {
                        self.partial = std::mem::take(input).to_vec();
                        None
                    }
                },
                false => self.take_held(held, input, out)?,
            };
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    fn take_preface(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<bool, BadRequest> {
        let n = (frame::PREFACE.len() - self.partial.len()).min(input.len());
        self.partial.extend_from_slice(&input[..n]);
        *input = &input[n..];
        if !frame::PREFACE.starts_with(&self.partial) {
            return Err(BadRequest);
        }
        self.begun = self.partial.len() == frame::PREFACE.len();
        if self.begun {
            self.partial.clear();
            let mut settings = vec![(Setting::INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES)];
            let most = self.limits.first().copied().unwrap_or(STREAMS_MAX);
            settings.push((Setting::MAX_CONCURRENT_STREAMS, most));
            frame::put_settings(&settings, out);
            frame::put_window_update(0, CONNECTION_WINDOW_BYTES - frame::WINDOW_BYTES, out);
        }
        Ok(self.begun)
    }

    /// Goes on with a frame that arrived in part.
    fn take_held(
        &mut self,
        mut held: Vec<u8>,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, BadRequest> {
        let mut fill = |held: &mut Vec<u8>, wanted: usize| {
            let n = wanted.saturating_sub(held.len()).min(input.len());
            held.extend_from_slice(&input[..n]);
            *input = &input[n..];
        };
        fill(&mut held, HEADER_BYTES);
        if let Some(bytes) = held.first_chunk() {
            let whole = HEADER_BYTES + FrameHeader::read(bytes).bytes as usize;
            fill(&mut held, whole.min(HEADER_BYTES + frame::PAYLOAD_BYTES as usize));
        }
        match whole_frame(&held)? {
            Some((header, payload, _)) => self.on_frame(header, payload, out),
            None => {
                self.partial = held;
                Ok(None)
            }
        }
    }

    fn on_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, BadRequest> {
        if self.block.is_some() && header.kind != Kind::Continuation {
            return Err(BadRequest);
        }
        let content = || frame::content(header, payload).ok_or(BadRequest);
        match header.kind {
            Kind::Headers if header.has(frame::END_HEADERS) => {
                return self.on_block(header, content()?, out);
            }
            Kind::Headers => self.block = Some((header, content()?.to_vec())),
            Kind::Continuation => {
                let (first, mut block) = self.block.take().ok_or(BadRequest)?;
                block.extend_from_slice(payload);
                if first.stream != header.stream || block.len() > BLOCK_BYTES_MAX {
                    return Err(BadRequest);
                }
                if header.has(frame::END_HEADERS) {
                    return self.on_block(first, &block, out);
                }
                self.block = Some((first, block));
            }
            Kind::Data => {
                content()?;
                return Ok(self.on_data(header, out));
            }
            Kind::Settings if !header.has(frame::ACK) => {
                self.on_settings(payload);
                frame::put(Kind::Settings, frame::ACK, 0, &[], out);
            }
            Kind::Ping if !header.has(frame::ACK) => {
                frame::put(Kind::Ping, frame::ACK, 0, payload, out);
            }
            Kind::RstStream => {
                self.bodies.retain(|body| body.stream != header.stream);
                return Ok(self.streams.remove(&header.stream).map(|_| Event::Cancelled));
            }
            Kind::WindowUpdate => {
                let more = i64::from(frame::number(payload) & frame::STREAM_ID_MAX);
                match self.streams.get_mut(&header.stream) {
                    Some(stream) => stream.send_window += more,
                    None if header.stream == 0 => self.send_window += more,
                    None => {}
                }
            }
            Kind::PushPromise => return Err(BadRequest),
            _ => {}
        }
        Ok(None)
    }

    fn on_settings(&mut self, payload: &[u8]) {
        for (setting, value) in frame::settings(payload) {
            match setting {
                Setting::INITIAL_WINDOW_SIZE => {
                    let more = i64::from(value) - i64::from(self.peer.window);
                    self.peer.window = value;
                    self.streams.values_mut().for_each(|stream| stream.send_window += more);
                }
                Setting::MAX_FRAME_SIZE => self.peer.payload = value.max(frame::PAYLOAD_BYTES),
                Setting::HEADER_TABLE_SIZE => {
                    self.peer.has_table = value as usize >= hpack::TABLE_BYTES;
                    (self.filled, self.resized) = (false, true);
                }
                _ => {}
            }
        }
    }

    fn on_block(
        &mut self,
        header: FrameHeader,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, BadRequest> {
        let mut request = Request { stream: header.stream, keep_alive: true, ..Request::default() };
        let (mut has_method, mut has_path) = (false, false);
        let read = self.decoder.decode(block, |name, value| match name {
            b":method" => {
                has_method = true;
                request.is_head = value == b"HEAD";
            }
            b":path" => {
                has_path = true;
                request.wants_stats = value == b"/stats";
            }
            _ => {}
        });
        read.map_err(|_| BadRequest)?;
        let id = header.stream;
        if self.streams.contains_key(&id) {
            // Trailers.
            return Ok(if header.has(frame::END_STREAM) {
                self.end_request(id, out)
            } else {
                None
            });
        }
        if id.is_multiple_of(2) {
            return Err(BadRequest);
        }
        if id <= self.last_stream {
            // Trailers of a stream that has ended here.
            return Ok(None);
        }
        if !has_method || !has_path {
            return Err(BadRequest);
        }
        self.last_stream = id;
        if self.draining {
            return Ok(None);
        }
        let most = self.limits.get(self.limit).copied().unwrap_or(STREAMS_MAX);
        if self.streams.len() >= most as usize {
            frame::put_reset(id, ErrorCode::REFUSED_STREAM, out);
            return Ok(Some(Event::Refused));
        }
        let send_window = i64::from(self.peer.window);
        self.streams.insert(id, Stream { request: Some(request), send_window });
        Ok(if header.has(frame::END_STREAM) { self.end_request(id, out) } else { None })
    }

    fn on_data(&mut self, header: FrameHeader, out: &mut Vec<u8>) -> Option<Event> {
        self.received += header.bytes;
        if self.received >= CONNECTION_WINDOW_BYTES / 2 {
            frame::put_window_update(0, self.received, out);
            self.received = 0;
        }
        if header.has(frame::END_STREAM) {
            return self.end_request(header.stream, out);
        }
        if header.bytes > 0 && self.streams.contains_key(&header.stream) {
            frame::put_window_update(header.stream, header.bytes, out);
        }
        None
    }

    fn end_request(&mut self, id: u32, out: &mut Vec<u8>) -> Option<Event> {
        let request = self.streams.get_mut(&id)?.request.take()?;
        self.requests += 1;
        self.last_asked = self.last_asked.max(id);
        if self.limits.len() > 1 && self.requests.is_multiple_of(REQUESTS_A_LIMIT) {
            self.limit = (self.limit + 1) % self.limits.len();
            let limit = (Setting::MAX_CONCURRENT_STREAMS, self.limits[self.limit]);
            frame::put_settings(&[limit], out);
        }
        Some(Event::Asked(request))
    }

    /// Sends GOAWAY with the last stream whose request is complete. Earlier streams whose bodies are
    /// still arriving are answered too.
    pub fn go_away(&mut self, out: &mut Vec<u8>) {
        if self.draining {
            return;
        }
        self.draining = true;
        let last = self.last_asked;
        self.streams.retain(|id, _| *id <= last);
        frame::put_goaway(last, ErrorCode::NO_ERROR, out);
    }

    /// Refuses a request with REFUSED_STREAM.
    pub fn refuse(&mut self, id: u32, out: &mut Vec<u8>) {
        self.streams.remove(&id);
        frame::put_reset(id, ErrorCode::REFUSED_STREAM, out);
    }

    /// Sends the head of a reply and queues its body. Returns whether the client still waits for it.
    pub fn reply(
        &mut self,
        id: u32,
        head: ReplyHead,
        body: Option<Content>,
        out: &mut Vec<u8>,
    ) -> bool {
        if !self.streams.contains_key(&id) {
            return false;
        }
        let start = out.len();
        out.resize(start + HEADER_BYTES, 0);
        self.put_fields(head, out);
        let bytes = (out.len() - start - HEADER_BYTES) as u32;
        let body = body.filter(|content| content.len() > 0);
        let ends = if body.is_none() { frame::END_STREAM } else { 0 };
        let flags = frame::END_HEADERS | ends;
        let frame_head = FrameHeader { bytes, kind: Kind::Headers, flags, stream: id };
        out[start..start + HEADER_BYTES].copy_from_slice(&frame_head.bytes());
        match body {
            Some(left) => self.bodies.push_back(Body { stream: id, left }),
            None => {
                self.streams.remove(&id);
            }
        }
        true
    }

    fn put_fields(&mut self, head: ReplyHead, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.resized) {
            hpack::put_table_bytes(0, out);
            if self.peer.has_table {
                hpack::put_table_bytes(hpack::TABLE_BYTES, out);
            }
        }
        hpack::put_field(":status", &head.status.to_string(), Form::Literal, out);
        let length = head.length.map(|bytes| bytes.to_string());
        let fields = [
            Some(("server", "tare-target")),
            Some(("content-type", "text/plain")),
            length.as_deref().map(|bytes| ("content-length", bytes)),
        ];
        // The table is filled by the first reply that has all fields, and by no other.
        let is_usual = head.is_usual && self.peer.has_table;
        let was_filled = self.filled;
        self.filled |= is_usual;
        let fields: Vec<(&str, &str)> = fields.into_iter().flatten().collect();
        for (at, (name, value)) in fields.iter().enumerate() {
            let form = match (is_usual, was_filled) {
                (true, true) => Form::Indexed(hpack::NEWEST + fields.len() - 1 - at),
                (true, false) => Form::LiteralIndexed,
                (false, _) => Form::Literal,
            };
            hpack::put_field(name, value, form, out);
        }
    }

    /// Sends about `room` bytes of bodies, a frame of each in turn, as far as the client allows.
    pub fn pour(&mut self, room: usize, out: &mut Vec<u8>) {
        let end = out.len() + room;
        let mut stuck = 0;
        while stuck < self.bodies.len() && out.len() < end {
            let Some(mut body) = self.bodies.pop_front() else { return };
            let Some(stream) = self.streams.get_mut(&body.stream) else { continue };
            let window = self.send_window.min(stream.send_window).max(0) as usize;
            let bytes = window.min(body.left.len()).min(self.peer.payload as usize);
            if bytes == 0 {
                stuck += 1;
                self.bodies.push_back(body);
                continue;
            }
            stuck = 0;
            let is_last = bytes == body.left.len();
            let flags = if is_last { frame::END_STREAM } else { 0 };
            let header =
                FrameHeader { bytes: bytes as u32, kind: Kind::Data, flags, stream: body.stream };
            header.write(out);
            body.left.take(bytes, out);
            self.send_window -= bytes as i64;
            stream.send_window -= bytes as i64;
            if is_last {
                self.streams.remove(&body.stream);
            } else {
                self.bodies.push_back(body);
            }
        }
    }
}

/// The head of a reply.
#[derive(Clone, Copy, Debug)]
pub struct ReplyHead {
    pub status: u16,
    pub length: Option<usize>,
    /// It has the usual fields, which are kept in the dynamic table.
    pub is_usual: bool,
}

/// A frame's head and payload, and what follows it.
type WholeFrame<'a> = (FrameHeader, &'a [u8], &'a [u8]);

/// The first frame of `bytes`, and what follows it; `None` if it is not whole.
fn whole_frame(bytes: &[u8]) -> Result<Option<WholeFrame<'_>>, BadRequest> {
    let Some(header) = bytes.first_chunk().map(FrameHeader::read) else { return Ok(None) };
    if header.bytes > frame::PAYLOAD_BYTES {
        return Err(BadRequest);
    }
    let behind = &bytes[HEADER_BYTES..];
    let split = behind.split_at_checked(header.bytes as usize);
    Ok(split.map(|(payload, rest)| (header, payload, rest)))
}
