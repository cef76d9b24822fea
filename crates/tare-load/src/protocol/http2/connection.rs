//! One connection: its frames, its streams, and what each side allows the other.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use super::frame::{self, ErrorCode, FrameHeader, HEADER_BYTES, Kind, Setting};
use super::hpack::{self, Decoder};
use super::requests::{BlockOf, Http2Requests};
use crate::codec::{ConnectionFlights, Decoded, FlightId, Room};
use crate::protocol::capture::{Capture, Wanted};
use crate::protocol::reply::{GOOD, Reply, ReplyDefect};

/// Our flow-control windows: about as large as those of browsers and of Go's client.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Longest header block, in one frame or several.
const BLOCK_BYTES_MAX: usize = 64 << 10;
/// Longer blocks are not remembered.
const MEMO_BYTES_MAX: usize = 4096;
const INTERIM_MAX: u8 = 100;
/// The start of the alert with which a TLS server answers a client without TLS.
const TLS_ALERT: &[u8] = &[0x15, 3];

pub struct Connection {
    /// A frame that has not arrived whole.
    partial: Vec<u8>,
    /// A DATA frame that has arrived in part: its header, and the bytes that are missing.
    data: Option<(FrameHeader, u32)>,
    /// A header block that continues in the next frame, and its HEADERS frame.
    block: Vec<u8>,
    block_header: Option<FrameHeader>,
    decoder: Decoder,
    memo: Memo,
    streams: HashMap<u32, Stream, BuildHasherDefault<IdHasher>>,
    next_stream: u32,
    wanted_streams: u32,
    /// Requests that the server will not process, not handed to the engine yet.
    unprocessed: Vec<Decoded>,
    /// Streams with a request body that is not sent yet.
    pouring: VecDeque<u32>,
    peer: Peer,
    table: Table,
    /// What may still be sent on the connection.
    send_window: i64,
    /// Received since the last update of the connection's window.
    received: u32,
    /// The last stream that the server will process, and why it goes away.
    goaway: Option<(u32, ErrorCode)>,
    capture: Option<Capture>,
    /// The stream that is being captured.
    captured: Option<u32>,
    /// The last outcome was the captured reply.
    pub has_capture: bool,
}

/// The server's settings.
#[derive(Clone, Copy, Debug)]
struct Peer {
    /// They have arrived.
    settled: bool,
    streams: u32,
    window: u32,
    payload: u32,
    table_bytes: u32,
}

/// What the server's dynamic table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    Empty,
    Filled,
    /// The server has changed its size: the next block has to begin with an update.
    Resized,
    /// Not used: too small for our fields, or disabled.
    Unused,
}

#[derive(Debug)]
struct Stream {
    flight: FlightId,
    to_head: bool,
    /// 0 until the final head has arrived.
    status: u16,
    interim: u8,
    length: Option<u64>,
    got_bytes: u64,
    /// Received since the last update of the stream's window.
    received: u32,
    send_window: i64,
    /// How much of the request's body has been sent.
    sent_bytes: usize,
    /// Nothing more is sent on it.
    is_sent: bool,
}

/// The head of a reply, as far as it matters here.
#[derive(Clone, Copy, Debug, Default)]
struct ReplyHead {
    status: u16,
    length: Option<u64>,
    /// A field is not what it must be, or there twice.
    is_malformed: bool,
}

/// The last block that left the dynamic table unchanged, and its meaning: servers send the same
/// fields until the date changes.
#[derive(Debug, Default)]
struct Memo {
    block: Vec<u8>,
    version: u64,
    head: ReplyHead,
}

/// A multiplication is enough for stream identifiers.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, id: u32) {
        self.0 = (self.0 ^ u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Connection {
    pub fn new(wanted: &Wanted) -> Self {
        Self {
            partial: Vec::new(),
            data: None,
            block: Vec::new(),
            block_header: None,
            decoder: Decoder::default(),
            memo: Memo::default(),
            streams: HashMap::default(),
            next_stream: 1,
            wanted_streams: 1,
            unprocessed: Vec::new(),
            pouring: VecDeque::new(),
            peer: Peer {
                settled: false,
                streams: u32::MAX,
                window: frame::WINDOW_BYTES,
                payload: frame::PAYLOAD_BYTES,
                table_bytes: hpack::TABLE_BYTES as u32,
            },
            table: Table::Unused,
            send_window: i64::from(frame::WINDOW_BYTES),
            received: 0,
            goaway: None,
            capture: Capture::for_wanted(wanted),
            captured: None,
            has_capture: false,
        }
    }

    /// Begins a connection: preface, SETTINGS and WINDOW_UPDATE.
    pub fn begin(
        &mut self,
        wanted: &Wanted,
        requests: &Http2Requests,
        streams: u32,
        out: &mut Vec<u8>,
    ) {
        let kept = std::mem::take(&mut self.streams);
        let table = if requests.uses_table { Table::Empty } else { Table::Unused };
        *self = Self { streams: kept, table, ..Self::new(wanted) };
        self.streams.clear();
        self.wanted_streams = streams;
        out.extend_from_slice(frame::PREFACE);
        let settings =
            [(Setting::ENABLE_PUSH, 0), (Setting::INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES)];
        frame::put_settings(&settings, out);
        frame::put_window_update(0, CONNECTION_WINDOW_BYTES - frame::WINDOW_BYTES, out);
    }

    /// Before the server's settings have arrived, one request is sent, as other clients do.
    #[inline]
    pub fn room(&self, streams: u32) -> Room {
        match self.goaway {
            Some(_) => Room::Draining,
            // Some identifiers are left unused, so that none is too many.
            None if self.next_stream > frame::STREAM_ID_MAX - 2 * streams => Room::Draining,
            None if self.peer.settled => Room::Ready(streams.min(self.peer.streams)),
            None => Room::Ready(1),
        }
    }

    /// Sends a request, and returns its stream.
    pub fn send(
        &mut self,
        requests: &Http2Requests,
        at: u32,
        flight: FlightId,
        out: &mut Vec<u8>,
    ) -> u32 {
        let id = self.next_stream;
        self.next_stream += 2;
        let start = out.len();
        out.resize(start + HEADER_BYTES, 0);
        let block = self.next_block(requests, out);
        out.extend_from_slice(requests.block(at, block));
        let has_body = !requests.body.is_empty();
        self.finish_block(id, start, if has_body { 0 } else { frame::END_STREAM }, out);
        let stream = Stream {
            flight,
            to_head: requests.to_head,
            status: 0,
            interim: 0,
            length: None,
            got_bytes: 0,
            received: 0,
            send_window: i64::from(self.peer.window),
            sent_bytes: 0,
            is_sent: !has_body,
        };
        self.streams.insert(id, stream);
        if has_body {
            self.pouring.push_back(id);
        }
        id
    }

    /// Chooses the form of the next block, and writes the updates of the table's size before it.
    fn next_block(&mut self, requests: &Http2Requests, out: &mut Vec<u8>) -> BlockOf {
        if self.table == Table::Resized {
            // Empties the table first, so that what it holds is known.
            hpack::put_table_bytes(0, out);
            let allowed = self.peer.table_bytes as usize;
            let fits = requests.uses_table && allowed >= requests.table_bytes;
            if fits {
                hpack::put_table_bytes(allowed, out);
            }
            self.table = if fits { Table::Empty } else { Table::Unused };
        }
        match self.table {
            Table::Empty => {
                self.table = Table::Filled;
                BlockOf::First
            }
            Table::Filled => BlockOf::Later,
            Table::Resized | Table::Unused => BlockOf::Plain,
        }
    }

    /// Writes the heads of the frames that a block takes; there is room for the first.
    fn finish_block(&self, id: u32, start: usize, flags: u8, out: &mut Vec<u8>) {
        let most = self.peer.payload as usize;
        let block_bytes = out.len() - start - HEADER_BYTES;
        let first = |bytes: usize, flags| {
            FrameHeader { bytes: bytes as u32, kind: Kind::Headers, flags, stream: id }.bytes()
        };
        let place = start..start + HEADER_BYTES;
        if block_bytes <= most {
            let header = first(block_bytes, flags | frame::END_HEADERS);
            return out[place].copy_from_slice(&header);
        }
        out[place].copy_from_slice(&first(most, flags));
        let rest = out.split_off(start + HEADER_BYTES + most);
        let pieces = rest.chunks(most);
        let last = pieces.len() - 1;
        for (nth, piece) in pieces.enumerate() {
            let flags = if nth == last { frame::END_HEADERS } else { 0 };
            frame::put(Kind::Continuation, flags, id, piece, out);
        }
    }

    /// Writes about `room` bytes of bodies, each stream in its turn, as far as the server allows.
    pub fn pour(&mut self, body: &[u8], room: usize, out: &mut Vec<u8>) {
        let end = out.len() + room;
        for _ in 0..self.pouring.len() {
            let Some(id) = self.pouring.pop_front() else { return };
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            while !stream.is_sent {
                let window = self.send_window.min(stream.send_window).max(0) as usize;
                let most =
                    window.min(self.peer.payload as usize).min(end.saturating_sub(out.len()));
                let left = &body[stream.sent_bytes..];
                let piece = &left[..left.len().min(most)];
                if piece.is_empty() {
                    break;
                }
                stream.is_sent = piece.len() == left.len();
                stream.sent_bytes += piece.len();
                stream.send_window -= piece.len() as i64;
                self.send_window -= piece.len() as i64;
                let flags = if stream.is_sent { frame::END_STREAM } else { 0 };
                frame::put(Kind::Data, flags, id, piece, out);
            }
            if !stream.is_sent {
                self.pouring.push_back(id);
            }
            if out.len() >= end {
                return;
            }
        }
    }

    pub fn has_more(&self) -> bool {
        !self.unprocessed.is_empty()
    }

    pub fn capture(&mut self) -> Option<&mut Capture> {
        self.capture.as_mut().filter(|_| self.has_capture)
    }

    /// Cancels a request; the connection stays open.
    pub fn cancel(&mut self, id: u32, out: &mut Vec<u8>) {
        if self.forget(id).is_some() {
            frame::put_reset(id, ErrorCode::CANCEL, out);
        }
    }

    fn forget(&mut self, id: u32) -> Option<Stream> {
        if self.captured == Some(id) {
            self.captured = None;
        }
        self.streams.remove(&id)
    }

    /// The likely reason for a close before all replies were whole.
    pub fn closed(&self) -> ReplyDefect {
        match self.goaway {
            _ if self.partial.starts_with(TLS_ALERT) => ReplyDefect::Tls,
            Some((_, code)) if code != ErrorCode::NO_ERROR => ReplyDefect::GoneAway { code },
            _ if self.streams.values().all(|stream| stream.status == 0) => {
                ReplyDefect::ClosedBeforeReply
            }
            _ => ReplyDefect::ClosedInStreams { streams: self.streams.len() },
        }
    }

    /// Takes bytes off the front of `input`, up to the next outcome.
    pub fn advance(
        &mut self,
        input: &mut &[u8],
        flights: &mut ConnectionFlights<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Decoded>, ReplyDefect> {
        self.has_capture = false;
        if let Some(outcome) = self.unprocessed.pop() {
            return Ok(Some(outcome));
        }
        while !input.is_empty() {
            let outcome = self.step(input, flights, out).map_err(|Broken { code, defect }| {
                frame::put_goaway(0, code, out);
                defect
            })?;
            if outcome.is_some() {
                return Ok(outcome);
            }
        }
        Ok(None)
    }

    /// Takes one frame, or a piece of one.
    fn step(
        &mut self,
        input: &mut &[u8],
        flights: &mut ConnectionFlights<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Decoded>, Broken> {
        if let Some((header, left)) = self.data {
            let n = (left as usize).min(input.len());
            let (piece, behind) = input.split_at(n);
            *input = behind;
            let left = left - n as u32;
            self.data = (left > 0).then_some((header, left));
            self.take_data(header.stream, piece)?;
            return if left == 0 { self.end_data(header, out) } else { Ok(None) };
        }
        if !self.partial.is_empty() {
            return self.step_partial(input, flights, out);
        }
        if let Some(bytes) = input.first_chunk() {
            let header = FrameHeader::read(bytes);
            self.check_header(header, bytes)?;
            if header.kind == Kind::Data && !header.has(frame::PADDED) {
                *input = &input[HEADER_BYTES..];
                self.begin_data(header, out)?;
                return match header.bytes {
                    0 => self.end_data(header, out),
                    left => {
                        self.data = Some((header, left));
                        Ok(None)
                    }
                };
            }
            if let Some(payload) = input[HEADER_BYTES..].get(..header.bytes as usize) {
                *input = &input[HEADER_BYTES + payload.len()..];
                return self.on_frame(header, payload, flights, out);
            }
        }
        self.partial.extend_from_slice(input);
        *input = &[];
        Ok(None)
    }

    /// Goes on with a frame that has arrived in part: first its head, then its payload.
    fn step_partial(
        &mut self,
        input: &mut &[u8],
        flights: &mut ConnectionFlights<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Decoded>, Broken> {
        let mut fill = |partial: &mut Vec<u8>, wanted: usize| {
            let n = wanted.saturating_sub(partial.len()).min(input.len());
            partial.extend_from_slice(&input[..n]);
            *input = &input[n..];
        };
        fill(&mut self.partial, HEADER_BYTES);
        let Some(bytes) = self.partial.first_chunk() else { return Ok(None) };
        let header = FrameHeader::read(bytes);
        self.check_header(header, bytes)?;
        if header.kind == Kind::Data && !header.has(frame::PADDED) {
            self.partial.clear();
            self.begin_data(header, out)?;
            if header.bytes == 0 {
                return self.end_data(header, out);
            }
            self.data = Some((header, header.bytes));
            return Ok(None);
        }
        let whole = HEADER_BYTES + header.bytes as usize;
        fill(&mut self.partial, whole);
        if self.partial.len() < whole {
            return Ok(None);
        }
        let partial = std::mem::take(&mut self.partial);
        let outcome = self.on_frame(header, &partial[HEADER_BYTES..], flights, out);
        self.partial = partial;
        self.partial.clear();
        outcome
    }

    /// Checks what can be known of a frame before its payload has arrived.
    fn check_header(&self, header: FrameHeader, bytes: &[u8; HEADER_BYTES]) -> Result<(), Broken> {
        if !self.peer.settled && header.kind != Kind::Settings {
            return Err(Broken::protocol(match bytes {
                [b'H', b'T', b'T', b'P', b'/', ..] => ReplyDefect::OnlyHttp1,
                _ => ReplyDefect::Frame {
                    what: format!("the first frame is {}, not SETTINGS", header.kind),
                },
            }));
        }
        if header.bytes > frame::PAYLOAD_BYTES {
            let what = format!("a frame of {} bytes, over {}", header.bytes, frame::PAYLOAD_BYTES);
            return Err(Broken::frame(ErrorCode::FRAME_SIZE, what));
        }
        if let Some(open) = self.block_header
            && (header.kind != Kind::Continuation || header.stream != open.stream)
        {
            let what =
                format!("a {} frame in a header block, instead of its CONTINUATION", header.kind);
            return Err(Broken::frame(ErrorCode::PROTOCOL, what));
        }
        let of_stream = match header.kind {
            Kind::Data | Kind::Headers | Kind::RstStream | Kind::Continuation => true,
            Kind::Settings | Kind::Ping | Kind::GoAway => false,
            Kind::PushPromise => {
                return Err(Broken::frame(
                    ErrorCode::PROTOCOL,
                    "PUSH_PROMISE, though push is disabled",
                ));
            }
            Kind::WindowUpdate => header.stream != 0,
            Kind::Priority | Kind::Unknown(_) => return Ok(()),
        };
        let was_opened = header.stream % 2 == 1 && header.stream < self.next_stream;
        if of_stream != (header.stream != 0) || (of_stream && !was_opened) {
            let state = if was_opened || header.stream == 0 { "" } else { "idle " };
            let what = format!("a {} frame on {state}stream {}", header.kind, header.stream);
            return Err(Broken::frame(ErrorCode::PROTOCOL, what));
        }
        Ok(())
    }

    fn on_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        flights: &mut ConnectionFlights<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Decoded>, Broken> {
        let sized = |allowed: bool| match allowed {
            true => Ok(()),
            false => {
                let what = format!("a {} frame of {} bytes", header.kind, header.bytes);
                Err(Broken::frame(ErrorCode::FRAME_SIZE, what))
            }
        };
        let content = || {
            let what = "padding that is longer than the payload";
            frame::content(header, payload).ok_or_else(|| Broken::frame(ErrorCode::PROTOCOL, what))
        };
        match header.kind {
            Kind::Data => {
                let content = content()?;
                self.begin_data(header, out)?;
                self.take_data(header.stream, content)?;
                return self.end_data(header, out);
            }
            Kind::Headers if header.has(frame::END_HEADERS) => {
                return self.on_block(header, content()?, flights, out);
            }
            Kind::Headers => {
                self.block.clear();
                self.block.extend_from_slice(content()?);
                self.block_header = Some(header);
            }
            Kind::Continuation => {
                let Some(first) = self.block_header else {
                    let what = "CONTINUATION without HEADERS";
                    return Err(Broken::frame(ErrorCode::PROTOCOL, what));
                };
                self.block.extend_from_slice(payload);
                if self.block.len() > BLOCK_BYTES_MAX {
                    let defect = ReplyDefect::HeadTooLong { limit_bytes: BLOCK_BYTES_MAX };
                    return Err(Broken { code: ErrorCode::ENHANCE_YOUR_CALM, defect });
                }
                if header.has(frame::END_HEADERS) {
                    self.block_header = None;
                    let block = std::mem::take(&mut self.block);
                    let outcome = self.on_block(first, &block, flights, out);
                    self.block = block;
                    return outcome;
                }
            }
            Kind::RstStream => {
                sized(header.bytes == 4)?;
                return Ok(self.on_reset(header.stream, ErrorCode(frame::number(payload))));
            }
            Kind::Settings if header.has(frame::ACK) => sized(header.bytes == 0)?,
            Kind::Settings => {
                sized(header.bytes.is_multiple_of(6))?;
                self.on_settings(payload)?;
                frame::put(Kind::Settings, frame::ACK, 0, &[], out);
            }
            Kind::Ping => {
                sized(header.bytes == 8)?;
                if !header.has(frame::ACK) {
                    frame::put(Kind::Ping, frame::ACK, 0, payload, out);
                }
            }
            Kind::GoAway => {
                sized(header.bytes >= 8)?;
                let last = frame::number(payload) & frame::STREAM_ID_MAX;
                self.on_goaway(last, ErrorCode(frame::number(&payload[4..])));
                return Ok(self.unprocessed.pop());
            }
            Kind::WindowUpdate => {
                sized(header.bytes == 4)?;
                return self.on_window_update(header.stream, frame::number(payload), out);
            }
            Kind::Priority | Kind::PushPromise | Kind::Unknown(_) => {}
        }
        Ok(None)
    }

    fn on_settings(&mut self, payload: &[u8]) -> Result<(), Broken> {
        let is_first = !std::mem::replace(&mut self.peer.settled, true);
        let mut window = self.peer.window;
        for (setting, value) in frame::settings(payload) {
            match setting {
                Setting::HEADER_TABLE_SIZE => {
                    // The table never grows beyond its first size, though it may be allowed to.
                    let allowed = value.min(hpack::TABLE_BYTES as u32);
                    if allowed != self.peer.table_bytes {
                        self.peer.table_bytes = allowed;
                        self.table = Table::Resized;
                    }
                }
                Setting::MAX_CONCURRENT_STREAMS => self.peer.streams = value,
                Setting::INITIAL_WINDOW_SIZE => {
                    if i64::from(value) > frame::WINDOW_BYTES_MAX {
                        return Err(Broken::window());
                    }
                    window = value;
                }
                Setting::MAX_FRAME_SIZE => {
                    if !(frame::PAYLOAD_BYTES..=frame::PAYLOAD_BYTES_MAX).contains(&value) {
                        let what = format!("SETTINGS_MAX_FRAME_SIZE of {value}");
                        return Err(Broken::frame(ErrorCode::PROTOCOL, what));
                    }
                    self.peer.payload = value;
                }
                _ => {}
            }
        }
        // Applied once, however often the frame changes it.
        let more = i64::from(window) - i64::from(self.peer.window);
        self.peer.window = window;
        for stream in self.streams.values_mut().filter(|_| more != 0) {
            stream.send_window += more;
            if stream.send_window > frame::WINDOW_BYTES_MAX {
                return Err(Broken::window());
            }
        }
        if is_first {
            self.streams.reserve(self.wanted_streams.min(self.peer.streams) as usize);
        }
        Ok(())
    }

    fn on_window_update(
        &mut self,
        id: u32,
        payload: u32,
        out: &mut Vec<u8>,
    ) -> Result<Option<Decoded>, Broken> {
        let more = i64::from(payload & frame::STREAM_ID_MAX);
        if id == 0 {
            self.send_window += more;
            return Broken::of_update(more, self.send_window).map_or(Ok(None), Err);
        }
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(None) };
        stream.send_window += more;
        let broken = Broken::of_update(more, stream.send_window);
        Ok(broken.and_then(|broken| self.lose(id, broken, out)))
    }

    fn on_reset(&mut self, id: u32, code: ErrorCode) -> Option<Decoded> {
        let stream = self.forget(id)?;
        Some(match code {
            ErrorCode::REFUSED_STREAM => Decoded::Refused(stream.flight),
            _ => Decoded::Lost(stream.flight, ReplyDefect::StreamReset { code }),
        })
    }

    /// The server takes no more requests. It may lower the last stream later, but not raise it.
    fn on_goaway(&mut self, last: u32, code: ErrorCode) {
        self.goaway = Some((last, code));
        let above: Vec<u32> = self.streams.keys().copied().filter(|id| *id > last).collect();
        for stream in above {
            let flight = self.forget(stream).map(|stream| stream.flight);
            // A server that complains would complain about the same requests again.
            self.unprocessed.extend(flight.map(|flight| match code {
                ErrorCode::NO_ERROR => Decoded::Refused(flight),
                code => Decoded::Lost(flight, ReplyDefect::GoneAway { code }),
            }));
        }
    }

    /// Gives up a stream on which the server has broken the protocol; the connection goes on.
    fn lose(&mut self, id: u32, why: Broken, out: &mut Vec<u8>) -> Option<Decoded> {
        let stream = self.forget(id)?;
        frame::put_reset(id, why.code, out);
        Some(Decoded::Lost(stream.flight, why.defect))
    }

    /// A whole header block: the head of a reply, an interim one, or trailers.
    fn on_block(
        &mut self,
        header: FrameHeader,
        block: &[u8],
        flights: &mut ConnectionFlights<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Decoded>, Broken> {
        let id = header.stream;
        let known = self.streams.get(&id).map(|stream| (stream.status, stream.flight));
        let is_trailers = known.is_some_and(|(status, _)| status != 0);
        let captures = known.is_some() && self.captures(id, is_trailers, block.len());
        let reply = self.read_block(block, captures)?;
        let Some((_, flight)) = known else {
            // The stream has ended here; its block had to be read for the table's sake.
            return Ok(None);
        };
        flights.record_first_byte(flight);
        let ends = header.has(frame::END_STREAM);
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(None) };
        let wrong = match (is_trailers, reply.status) {
            _ if reply.is_malformed => Some("a :status or content-length that is malformed"),
            (true, 0) if ends => return self.end_stream(id, out),
            (true, _) => Some("trailers without END_STREAM"),
            (false, 0) => Some("a reply without :status"),
            (false, 101) => Some("status 101, which HTTP/2 does not have"),
            (false, ..200) if ends => Some("an interim (1xx) reply with END_STREAM"),
            (false, ..200) => {
                stream.interim += 1;
                (stream.interim > INTERIM_MAX).then_some("over 100 interim (1xx) replies in a row")
            }
            (false, status) => {
                stream.status = status;
                let has_body = !stream.to_head && status != 204 && status != 304;
                stream.length = reply.length.filter(|_| has_body);
                if ends {
                    return self.end_stream(id, out);
                }
                None
            }
        };
        Ok(wrong.and_then(|what| self.lose(id, Broken::frame(ErrorCode::PROTOCOL, what), out)))
    }

    /// Whether the fields of this block are captured. At most one reply at a time is.
    fn captures(&mut self, id: u32, is_trailers: bool, block_bytes: usize) -> bool {
        let Some(capture) = &mut self.capture else { return false };
        let is_captured = self.captured == Some(id);
        let is_busy = self.captured.is_some();
        // A reply that an interim one announced is being captured already.
        let goes_on = is_trailers || is_captured && !capture.wants_headers();
        if goes_on || is_busy && !is_captured {
            return is_captured && capture.wants_headers();
        }
        if capture.skips() {
            return false;
        }
        capture.begin(block_bytes);
        self.captured = Some(id);
        capture.wants_headers()
    }

    fn read_block(&mut self, block: &[u8], captures: bool) -> Result<ReplyHead, Broken> {
        let version = self.decoder.version();
        if !captures && self.memo.version == version && self.memo.block == block {
            return Ok(self.memo.head);
        }
        let mut head = ReplyHead::default();
        let capture = &mut self.capture;
        let read = self.decoder.decode(block, |name, value| {
            match name {
                b":status" => {
                    let status = number(value).filter(|_| value.len() == 3);
                    head.is_malformed |= status.is_none() || head.status != 0;
                    head.status = status.unwrap_or(0) as u16;
                }
                b"content-length" => {
                    let length = number(value);
                    head.is_malformed |= length.is_none() || head.length.is_some();
                    head.length = length;
                }
                _ => {}
            }
            if captures
                && !name.starts_with(b":")
                && let (Some(capture), Ok(name)) = (capture.as_mut(), std::str::from_utf8(name))
            {
                capture.add_header(name, value);
            }
        });
        if let Err(defect) = read {
            return Err(Broken::frame(ErrorCode::COMPRESSION, defect.to_string()));
        }
        if self.decoder.version() == version && block.len() <= MEMO_BYTES_MAX {
            self.memo.block.clear();
            self.memo.block.extend_from_slice(block);
            self.memo = Memo { block: std::mem::take(&mut self.memo.block), version, head };
        }
        Ok(head)
    }

    /// Counts a DATA frame against the connection's window; pads count too.
    fn begin_data(&mut self, header: FrameHeader, out: &mut Vec<u8>) -> Result<(), Broken> {
        self.received += header.bytes;
        if self.received > CONNECTION_WINDOW_BYTES {
            return Err(Broken::data());
        }
        if self.received >= CONNECTION_WINDOW_BYTES / 2 {
            frame::put_window_update(0, self.received, out);
            self.received = 0;
        }
        let Some(stream) = self.streams.get_mut(&header.stream) else { return Ok(()) };
        stream.received += header.bytes;
        if stream.received > STREAM_WINDOW_BYTES {
            return Err(Broken::data());
        }
        if stream.received >= STREAM_WINDOW_BYTES / 2 && !header.has(frame::END_STREAM) {
            frame::put_window_update(header.stream, stream.received, out);
            stream.received = 0;
        }
        Ok(())
    }

    fn take_data(&mut self, id: u32, piece: &[u8]) -> Result<(), Broken> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        if stream.status == 0 {
            return Err(Broken::frame(ErrorCode::PROTOCOL, "DATA before HEADERS"));
        }
        stream.got_bytes += piece.len() as u64;
        if self.captured == Some(id)
            && let Some(capture) = &mut self.capture
        {
            capture.add(piece).map_err(Broken::protocol)?;
        }
        Ok(())
    }

    fn end_data(
        &mut self,
        header: FrameHeader,
        out: &mut Vec<u8>,
    ) -> Result<Option<Decoded>, Broken> {
        let is_open = self.streams.contains_key(&header.stream);
        if is_open && header.has(frame::END_STREAM) {
            self.end_stream(header.stream, out)
        } else {
            Ok(None)
        }
    }

    /// The server has sent all of its reply.
    fn end_stream(&mut self, id: u32, out: &mut Vec<u8>) -> Result<Option<Decoded>, Broken> {
        let was_captured = self.captured == Some(id);
        let Some(stream) = self.forget(id) else { return Ok(None) };
        if stream.status == 0 {
            return Err(Broken::frame(ErrorCode::PROTOCOL, "a stream that ends without a reply"));
        }
        if !stream.is_sent {
            // The reply came before the request's body was sent: the rest is not wanted.
            frame::put_reset(id, ErrorCode::CANCEL, out);
        }
        let got_bytes = stream.got_bytes;
        if let Some(expected_bytes) = stream.length.filter(|length| *length != got_bytes) {
            let defect = ReplyDefect::WrongBody { got_bytes, expected_bytes };
            return Ok(Some(Decoded::Lost(stream.flight, defect)));
        }
        self.has_capture = was_captured;
        let reply =
            Reply { status: stream.status, keep_alive: true, body_bytes: got_bytes, code: GOOD };
        Ok(Some(Decoded::Replied(stream.flight, reply)))
    }
}

/// How the server has broken the protocol, and the code to say so.
#[derive(Debug)]
struct Broken {
    code: ErrorCode,
    defect: ReplyDefect,
}

impl Broken {
    fn protocol(defect: ReplyDefect) -> Self {
        Self { code: ErrorCode::PROTOCOL, defect }
    }

    fn frame(code: ErrorCode, what: impl Into<String>) -> Self {
        Self { code, defect: ReplyDefect::Frame { what: what.into() } }
    }

    fn window() -> Self {
        Self::frame(ErrorCode::FLOW_CONTROL, "a flow-control window beyond its limit")
    }

    fn data() -> Self {
        Self::frame(ErrorCode::FLOW_CONTROL, "DATA beyond the flow-control window")
    }

    fn of_update(more: i64, window: i64) -> Option<Self> {
        match window <= frame::WINDOW_BYTES_MAX {
            _ if more == 0 => {
                Some(Self::frame(ErrorCode::PROTOCOL, "WINDOW_UPDATE with an increment of 0"))
            }
            true => None,
            false => Some(Self::window()),
        }
    }
}

fn number(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(value).ok()?.parse().ok()).flatten()
}
