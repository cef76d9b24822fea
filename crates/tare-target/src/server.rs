//! The target's server: a state machine fed with completions, like the load engine.

use std::collections::{BTreeSet, HashMap, VecDeque};

use tare_io::reactor::Chunk;
use tare_io::{
    Accepted, Close, Completion, DurationNs, Happened, Instant, Outgoing, Reactor, Token, Wait,
};
use tare_load::protocol::http2::frame::{self, ErrorCode};
use tare_load::tls::TlsSession;

use crate::behaviour::{Answer, Behaviour, Brain, Decision};
use crate::http2::{Content, Event, Http2, ReplyHead};
use crate::replies::{ConnectionHeader, ReplyKey, make_reply, stats_reply};
use crate::request::{BadRequest, Request, RequestParser};
use crate::stats::{Counter, Stats};
use crate::tls::TlsServer;

pub struct Server {
    brain: Brain,
    tls: Option<TlsServer>,
    stats: Stats,
    thread: usize,
    clients: Vec<Client>,
    free: Vec<u32>,
    /// When the next piece of a connection is due, and its slot; at most one per connection.
    timers: BTreeSet<(Instant, u32)>,
    replies: HashMap<ReplyKey, &'static [u8]>,
    /// Number of pieces that wait, on all connections together.
    waiting_pieces: usize,
    /// Bytes received of incomplete heads and handshakes, on all connections.
    unfinished_bytes: usize,
    /// The last reply looked up, which is nearly always the next one too.
    last_reply: Option<(ReplyKey, &'static [u8])>,
    /// Polls this long before a reply is due, so that it is sent to the microsecond.
    spin: DurationNs,
}

struct Client {
    token: Token,
    parser: RequestParser,
    http2: Option<Box<Http2>>,
    /// Frames of HTTP/2 to be sent.
    frames: Vec<u8>,
    tls: Option<Box<TlsSession>>,
    handshake_counted: bool,
    outgoing: Vec<u8>,
    sending: bool,
    /// Pieces still to be sent, in order: replies never overtake each other.
    pending: VecDeque<Piece>,
    /// When the first pending piece is due, if a timer waits for it.
    timer: Option<Instant>,
    requests: u64,
    /// Its replies have other bytes than those on other connections.
    is_odd: bool,
    worker: Option<usize>,
    /// Bytes received of an incomplete head or handshake.
    unfinished_bytes: usize,
    /// Nothing more is read; closes when everything is sent.
    closing: bool,
}

/// Bytes of a reply that are due at one time.
#[derive(Clone, Copy, Debug)]
struct Piece {
    at: Instant,
    bytes: PieceBytes,
    then: AfterSend,
    /// Whether this piece ends a reply, for the counters.
    ends_reply: bool,
}

impl Piece {
    /// Splits a long piece into a part and the rest; `None` for a short one.
    fn part(self) -> Option<(Self, Self)> {
        let PieceBytes::Bytes(bytes) = self.bytes else { return None };
        let (part, rest) = bytes.split_at_checked(PART_BYTES).filter(|(_, r)| !r.is_empty())?;
        let part = Self {
            bytes: PieceBytes::Bytes(part),
            then: AfterSend::Stay,
            ends_reply: false,
            ..self
        };
        Some((part, Self { bytes: PieceBytes::Bytes(rest), ..self }))
    }
}

#[derive(Clone, Copy, Debug)]
enum PieceBytes {
    Bytes(&'static [u8]),
    Stats,
    /// A reply on a stream of HTTP/2.
    Stream {
        id: u32,
        reply: StreamReply,
    },
}

#[derive(Clone, Copy, Debug)]
enum StreamReply {
    Status { status: u16, is_head: bool, odd: bool },
    Stats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterSend {
    Stay,
    Close,
    Reset,
}

impl Server {
    pub fn new(
        behaviour: Behaviour,
        tls: Option<TlsServer>,
        stats: Stats,
        thread: usize,
        slots: u32,
        started: Instant,
    ) -> Self {
        let waits = behaviour.delay != crate::behaviour::Delay::Fixed(DurationNs::ZERO)
            || behaviour.service.is_some();
        Self {
            brain: Brain::new(behaviour, thread as u64, started),
            tls,
            stats,
            thread,
            clients: (0..slots).map(|_| Client::new()).collect(),
            free: (0..slots).rev().collect(),
            timers: BTreeSet::new(),
            waiting_pieces: 0,
            unfinished_bytes: 0,
            replies: HashMap::new(),
            last_reply: None,
            spin: if waits { SPIN } else { DurationNs::ZERO },
        }
    }

    /// Runs one turn: takes completions and sends what is due. Returns when to call it again.
    pub fn turn<R: Reactor>(&mut self, io: &mut R, happened: &mut Vec<Completion>) -> Wait {
        let now = io.now();
        for completion in happened.drain(..) {
            self.on_completion(io, completion, now);
        }
        while let Some((at, slot)) = self.timers.first().copied()
            && at <= now
        {
            self.timers.pop_first();
            self.clients[slot as usize].timer = None;
            self.send_due(io, slot, now);
        }
        while let Some(until) = self.brain.effort().take_due_chore(io.now()) {
            spin(io, until);
        }
        let until = self.timers.first().map_or(Instant::FAR, |(at, _)| *at);
        let until = until.min(self.brain.effort().next_chore());
        Wait { spin: self.spin, ..Wait::until(until) }
    }

    fn count(&self, counter: Counter, n: u64) {
        self.stats.add(self.thread, counter, n);
    }

    fn on_completion<R: Reactor>(&mut self, io: &mut R, completion: Completion, now: Instant) {
        let token = completion.token;
        let slot = token.slot;
        let current = self.clients.get(slot as usize).is_some_and(|c| c.token == token);
        match completion.happened {
            Happened::Accepted(accepted) => self.on_accepted(io, accepted),
            Happened::Received(chunk) => {
                if current {
                    self.on_received(io, slot, &chunk, now);
                    self.limit_unfinished(io, token, io.chunk(&chunk).len());
                }
                io.release(chunk);
            }
            _ if !current => {}
            Happened::Sent(spent) => {
                let client = &mut self.clients[slot as usize];
                client.sending = false;
                if client.outgoing.is_empty() && spent.capacity() <= SPENT_KEPT_BYTES {
                    client.outgoing = spent;
                }
                match client.pending.front().is_some_and(|piece| piece.at <= now) {
                    true => self.send_due(io, slot, now),
                    false if client.http2.is_some() => self.pour(io, slot),
                    false => self.flush(io, slot),
                }
            }
            Happened::Eof | Happened::Failed(_) => {
                self.count(Counter::ClosedByClient, 1);
                self.drop_client(io, slot, Close::Graceful);
            }
            Happened::Connected => {}
        }
    }

    fn on_accepted<R: Reactor>(&mut self, io: &mut R, accepted: Accepted) {
        // Out of slots: the connection is dropped, and the client sees it closed.
        let Some(slot) = self.free.pop() else { return };
        self.count(Counter::Connections, 1);
        let token = io.adopt(slot, accepted);
        let (is_odd, worker) = (self.brain.is_odd_connection(), self.brain.draw_worker());
        let http2 = self.brain.behaviour().http2.as_ref();
        let http2 = http2.map(|own| Box::new(Http2::new(&own.streams)));
        let client = &mut self.clients[slot as usize];
        client.begin(token);
        client.http2 = http2;
        (client.is_odd, client.worker) = (is_odd, worker);
        if let Some(tls) = &self.tls {
            match tls.session() {
                Ok(session) => client.tls = Some(Box::new(session)),
                Err(_) => self.drop_client(io, slot, Close::Reset),
            }
        }
    }

    fn on_received<R: Reactor>(&mut self, io: &mut R, slot: u32, chunk: &Chunk, now: Instant) {
        self.count(Counter::ReceivedBytes, io.chunk(chunk).len() as u64);
        if self.clients[slot as usize].closing {
            return;
        }
        if self.clients[slot as usize].tls.is_some() {
            return self.take_ciphertext(io, slot, chunk, now);
        }
        let mut at = 0;
        loop {
            let input = &io.chunk(chunk)[at..];
            let mut rest = input;
            let parsed = self.clients[slot as usize].advance(&mut rest);
            at += input.len() - rest.len();
            let more = !rest.is_empty();
            match parsed {
                Ok(None) => return self.pour(io, slot),
                Ok(Some(event)) => self.on_event(io, slot, event, now),
                Err(BadRequest) => return self.refuse(io, slot, now),
            }
            let client = &self.clients[slot as usize];
            if client.closing || client.token == Token::NONE {
                return;
            }
            if !more {
                return self.pour(io, slot);
            }
        }
    }

    fn on_event<R: Reactor>(&mut self, io: &mut R, slot: u32, event: Event, now: Instant) {
        match event {
            Event::Asked(request) => self.on_request(io, slot, request, now),
            Event::Refused => self.count(Counter::Refused, 1),
            Event::Cancelled => self.count(Counter::Cancelled, 1),
        }
    }

    /// Sends waiting frames, and as much of the bodies as flow control allows.
    fn pour<R: Reactor>(&mut self, io: &mut R, slot: u32) {
        let client = &mut self.clients[slot as usize];
        let Some(http2) = &mut client.http2 else { return };
        let room = OUTGOING_ENOUGH_BYTES.saturating_sub(client.outgoing.len());
        http2.pour(room, &mut client.frames);
        if client.outgoing.len() > OUTGOING_MAX_BYTES {
            // The client asks and does not read.
            self.count(Counter::BadRequests, 1);
            return self.drop_client(io, slot, Close::Reset);
        }
        if http2.draining && http2.is_done() && client.pending.is_empty() {
            client.closing = true;
        }
        client.put_frames();
        self.flush(io, slot);
    }

    /// Drops a client if incomplete heads and handshakes take too much memory.
    fn limit_unfinished<R: Reactor>(&mut self, io: &mut R, token: Token, received: usize) {
        let client = &mut self.clients[token.slot as usize];
        if client.token != token {
            return;
        }
        let held = match &client.tls {
            Some(tls) if tls.is_handshaking() => client.unfinished_bytes + received,
            _ => client.held_bytes(),
        };
        self.unfinished_bytes = self.unfinished_bytes - client.unfinished_bytes + held;
        client.unfinished_bytes = held;
        if held > 0 && self.unfinished_bytes > UNFINISHED_MAX_BYTES {
            self.count(Counter::BadRequests, 1);
            self.drop_client(io, token.slot, Close::Reset);
        }
    }

    fn take_ciphertext<R: Reactor>(&mut self, io: &mut R, slot: u32, chunk: &Chunk, now: Instant) {
        let mut at = 0;
        while at < io.chunk(chunk).len() {
            let Some(mut tls) = self.clients[slot as usize].tls.take() else { return };
            let input = &io.chunk(chunk)[at..];
            let mut rest = input;
            let taken = tls.take_ciphertext(&mut rest);
            at += input.len() - rest.len();
            let client = &mut self.clients[slot as usize];
            let _ = tls.take_outgoing(&mut client.outgoing);
            if taken.is_ok() && !tls.is_handshaking() && !client.handshake_counted {
                client.handshake_counted = true;
                let resumed = tls.was_resumed();
                self.count(
                    if resumed { Counter::HandshakesResumed } else { Counter::HandshakesFull },
                    1,
                );
            }
            let events = taken.and_then(|()| self.take_decrypted(slot, &mut tls));
            self.clients[slot as usize].tls = Some(tls);
            match events {
                Ok(events) => {
                    for event in events {
                        self.on_event(io, slot, event, now);
                    }
                    self.pour(io, slot);
                }
                Err(_) => {
                    if !self.clients[slot as usize].handshake_counted {
                        self.count(Counter::HandshakesFailed, 1);
                    }
                    self.clients[slot as usize].closing = true;
                    return self.flush(io, slot);
                }
            }
            self.flush(io, slot);
        }
    }

    fn take_decrypted(&mut self, slot: u32, tls: &mut TlsSession) -> Result<Vec<Event>, String> {
        let mut events = Vec::new();
        loop {
            let input = tls.plaintext();
            if input.is_empty() {
                return Ok(events);
            }
            let mut rest = input;
            let parsed = self.clients[slot as usize].advance(&mut rest);
            let used = input.len() - rest.len();
            tls.consume_plaintext(used);
            events.extend(parsed.map_err(|BadRequest| "not HTTP".to_owned())?);
        }
    }

    fn on_request<R: Reactor>(&mut self, io: &mut R, slot: u32, request: Request, now: Instant) {
        let client = &self.clients[slot as usize];
        if client.closing || client.token == Token::NONE {
            return; // Pipelined behind a request that ended the connection.
        }
        if client.pending.len() >= PENDING_MAX || self.waiting_pieces >= WAITING_MAX {
            // A client that sends requests and never reads the replies must not fill the memory.
            self.count(Counter::BadRequests, 1);
            return self.drop_client(io, slot, Close::Reset);
        }
        if request.wants_stats {
            self.count(Counter::StatsRequests, 1);
            let then = if request.keep_alive { AfterSend::Stay } else { AfterSend::Close };
            let bytes = match request.stream {
                0 => PieceBytes::Stats,
                id => PieceBytes::Stream { id, reply: StreamReply::Stats },
            };
            let piece = Piece { at: now, bytes, then, ends_reply: false };
            self.queue(slot, piece);
            return self.send_due(io, slot, now);
        }
        if request.stream > 0 && self.brain.refuses() {
            self.count(Counter::Refused, 1);
            let client = &mut self.clients[slot as usize];
            if let Some(http2) = &mut client.http2 {
                http2.refuse(request.stream, &mut client.frames);
            }
            return;
        }
        self.count(Counter::Requests, 1);
        let decision = self.brain.decide(now, self.clients[slot as usize].worker);
        if self.brain.is_to_die() {
            die();
        }
        self.count(Counter::WaitedNs, decision.at.since(now).as_ns());
        let client = &mut self.clients[slot as usize];
        client.requests += 1;
        let last = self.brain.behaviour().close_after.is_some_and(|n| client.requests >= n);
        let close = last || !request.keep_alive;
        let (first, is_odd) = (client.requests == 1, client.is_odd);
        let began = io.now();
        let cost = self.brain.effort().request_cost(began, first);
        if cost > DurationNs::ZERO {
            spin(io, began + cost);
        }
        let odd = self.brain.is_odd_reply() || is_odd;
        if request.stream > 0 {
            let client = &mut self.clients[slot as usize];
            if let Some(http2) = client.http2.as_mut().filter(|_| close) {
                http2.go_away(&mut client.frames);
            }
            return self.answer_stream(io, slot, request, decision, odd, now);
        }
        let (key, then) = match decision.answer {
            Answer::Status(status) => {
                let connection = match (close, request.asked_to_keep) {
                    (true, _) => ConnectionHeader::Close,
                    (false, true) => ConnectionHeader::KeepAlive,
                    (false, false) => ConnectionHeader::Nothing,
                };
                let head_only = request.is_head;
                let key = ReplyKey::Status { status, connection, head_only, odd };
                (Some(key), if close { AfterSend::Close } else { AfterSend::Stay })
            }
            Answer::Defect(defect) => {
                let then = if defect.bytes().1 { AfterSend::Close } else { AfterSend::Stay };
                (Some(ReplyKey::Defect(defect as u8)), then)
            }
            Answer::Reset => (None, AfterSend::Reset),
        };
        let bytes = key.map_or(&b""[..], |key| self.reply(key));
        match decision.answer {
            Answer::Status(status) if status >= 400 => self.count(Counter::Errors, 1),
            Answer::Reset => self.count(Counter::Resets, 1),
            _ => {}
        }
        self.plan_pieces(slot, decision.at, bytes, then);
        self.send_due(io, slot, now);
    }

    /// Queues the reply on a stream.
    fn answer_stream<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        request: Request,
        decision: Decision,
        odd: bool,
        now: Instant,
    ) {
        let (status, then) = match decision.answer {
            Answer::Status(status) => (status, AfterSend::Stay),
            Answer::Defect(_) | Answer::Reset => (0, AfterSend::Reset),
        };
        match decision.answer {
            Answer::Status(400..) => self.count(Counter::Errors, 1),
            Answer::Reset => self.count(Counter::Resets, 1),
            _ => {}
        }
        let reply = StreamReply::Status { status, is_head: request.is_head, odd };
        let bytes = PieceBytes::Stream { id: request.stream, reply };
        let ends_reply = then != AfterSend::Reset;
        self.queue(slot, Piece { at: decision.at, bytes, then, ends_reply });
        self.send_due(io, slot, now);
    }

    /// Queues a reply, in several pieces if the head is to be slow.
    fn plan_pieces(&mut self, slot: u32, at: Instant, bytes: &'static [u8], then: AfterSend) {
        let slow = self.brain.behaviour().slow_head;
        let mut at = at;
        let mut rest = bytes;
        if let Some(gap) = slow {
            let head = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or(bytes.len());
            for piece in bytes[..head].chunks(head.div_ceil(HEAD_PIECES).max(1)) {
                let bytes = PieceBytes::Bytes(piece);
                self.queue(slot, Piece { at, bytes, then: AfterSend::Stay, ends_reply: false });
                at = at + gap;
            }
            rest = &bytes[head..];
        }
        let bytes = PieceBytes::Bytes(rest);
        self.queue(slot, Piece { at, bytes, then, ends_reply: then != AfterSend::Reset });
    }

    /// Replies on streams may overtake each other; those of HTTP/1.1 may not.
    fn queue(&mut self, slot: u32, piece: Piece) {
        self.waiting_pieces += 1;
        let client = &mut self.clients[slot as usize];
        let at = match client.http2 {
            Some(_) => client.pending.partition_point(|before| before.at <= piece.at),
            None => client.pending.len(),
        };
        client.pending.insert(at, piece);
    }

    /// Sends the pieces that are due on a connection.
    fn send_due<R: Reactor>(&mut self, io: &mut R, slot: u32, now: Instant) {
        loop {
            let client = &mut self.clients[slot as usize];
            let Some(piece) = client.pending.front().copied() else { break };
            if piece.at > now {
                if client.timer != Some(piece.at) {
                    if let Some(later) = client.timer.replace(piece.at) {
                        self.timers.remove(&(later, slot));
                    }
                    self.timers.insert((piece.at, slot));
                }
                break;
            }
            if client.outgoing.len() >= OUTGOING_ENOUGH_BYTES {
                // The rest follows when these bytes have been sent.
                break;
            }
            let piece = match piece.part() {
                Some((part, rest)) => {
                    client.pending[0] = rest;
                    part
                }
                None => {
                    client.pending.pop_front();
                    self.waiting_pieces -= 1;
                    piece
                }
            };
            if piece.ends_reply {
                self.stats.add(self.thread, Counter::Replies, 1);
                self.stats.add(self.thread, Counter::LateNs, now.since(piece.at).as_ns());
            }
            if piece.then == AfterSend::Reset {
                return self.drop_client(io, slot, Close::Reset);
            }
            if piece.then == AfterSend::Close {
                // Requests after the last reply are not answered.
                client.closing = true;
                self.waiting_pieces -= client.pending.len();
                client.pending.clear();
            }
            let stats;
            let bytes = match piece.bytes {
                PieceBytes::Bytes(bytes) => bytes,
                PieceBytes::Stream { id, reply } => {
                    client.reply_on(id, reply, self.brain.behaviour(), &self.stats);
                    continue;
                }
                PieceBytes::Stats => {
                    stats = stats_reply(&self.stats, client.closing);
                    &stats[..]
                }
            };
            match &mut client.tls {
                Some(tls) => {
                    if tls.encrypt(bytes, &mut client.outgoing).is_err() {
                        client.closing = true;
                    }
                }
                None => client.outgoing.extend_from_slice(bytes),
            }
        }
        match self.clients[slot as usize].http2 {
            Some(_) => self.pour(io, slot),
            None => self.flush(io, slot),
        }
    }

    fn flush<R: Reactor>(&mut self, io: &mut R, slot: u32) {
        let client = &mut self.clients[slot as usize];
        if client.sending || client.token == Token::NONE {
            return;
        }
        if !client.outgoing.is_empty() {
            let bytes = std::mem::take(&mut client.outgoing);
            client.sending = true;
            self.stats.add(self.thread, Counter::SentBytes, bytes.len() as u64);
            io.send(client.token, Outgoing::Owned(bytes));
        } else if client.closing && client.pending.is_empty() {
            if let Some(tls) = &mut client.tls
                && !tls.goodbye_sent()
            {
                tls.send_close_notify(&mut client.outgoing);
                return self.flush(io, slot);
            }
            self.count(Counter::ClosedByTarget, 1);
            self.drop_client(io, slot, Close::Graceful);
        }
    }

    fn refuse<R: Reactor>(&mut self, io: &mut R, slot: u32, now: Instant) {
        self.count(Counter::BadRequests, 1);
        let client = &mut self.clients[slot as usize];
        if client.http2.is_some() {
            let last = client.http2.as_ref().map_or(0, |http2| http2.last_asked);
            frame::put_goaway(last, ErrorCode::PROTOCOL, &mut client.frames);
            client.put_frames();
            client.closing = true;
            return self.flush(io, slot);
        }
        let bytes = PieceBytes::Bytes(self.reply(ReplyKey::BadRequest));
        let piece = Piece { at: now, bytes, then: AfterSend::Close, ends_reply: false };
        self.queue(slot, piece);
        self.send_due(io, slot, now);
    }

    fn drop_client<R: Reactor>(&mut self, io: &mut R, slot: u32, how: Close) {
        let client = &mut self.clients[slot as usize];
        io.close(client.token, how);
        self.waiting_pieces -= client.pending.len();
        self.unfinished_bytes -= client.unfinished_bytes;
        if let Some(at) = client.timer.take() {
            self.timers.remove(&(at, slot));
        }
        client.begin(Token::NONE);
        self.free.push(slot);
    }

    /// Returns the bytes of a reply, made once for each of the few kinds and never freed.
    fn reply(&mut self, key: ReplyKey) -> &'static [u8] {
        if let Some((last, bytes)) = self.last_reply
            && last == key
        {
            return bytes;
        }
        let behaviour = self.brain.behaviour();
        let make = || -> &'static [u8] { make_reply(key, behaviour).leak() };
        let bytes = *self.replies.entry(key).or_insert_with(make);
        self.last_reply = Some((key, bytes));
        bytes
    }
}

/// Burns CPU time.
fn spin<R: Reactor>(io: &R, until: Instant) {
    while io.now() < until {
        std::hint::spin_loop();
    }
}

/// The target polls this long before a reply is due: on a virtual machine, waking up takes hundreds
/// of µs in the tail, and this would be added to the delay, which must be known exactly.
const SPIN: DurationNs = DurationNs::from_ms(1);
const HEAD_PIECES: usize = 4;
/// Most pieces waiting on one connection.
const PENDING_MAX: usize = 4096;
/// Most bytes of incomplete heads and handshakes on all connections of a thread.
const UNFINISHED_MAX_BYTES: usize = 32 << 20;
/// Most pieces waiting on all connections of a thread.
const WAITING_MAX: usize = 1 << 20;
/// Due pieces are copied into one buffer up to about this size. The rest stay in the queue, where
/// each takes little memory.
const OUTGOING_ENOUGH_BYTES: usize = 8 << 10;
/// Most bytes that wait for a client of HTTP/2.
const OUTGOING_MAX_BYTES: usize = 8 << 20;
/// Long replies are sent in parts of this size.
const PART_BYTES: usize = 32 << 10;
/// Capacity, in pieces, of the queue that a slot keeps for its next connection.
const PENDING_KEPT: usize = 64;
const SPENT_KEPT_BYTES: usize = 64 << 10;

impl Client {
    fn new() -> Self {
        Self {
            token: Token::NONE,
            parser: RequestParser::default(),
            http2: None,
            frames: Vec::new(),
            tls: None,
            handshake_counted: false,
            outgoing: Vec::new(),
            sending: false,
            pending: VecDeque::new(),
            timer: None,
            requests: 0,
            is_odd: false,
            worker: None,
            unfinished_bytes: 0,
            closing: false,
        }
    }

    fn held_bytes(&self) -> usize {
        self.http2.as_ref().map_or(self.parser.held_bytes(), |http2| http2.held_bytes())
    }

    /// Takes bytes off the front of `input`, up to the next event.
    fn advance(&mut self, input: &mut &[u8]) -> Result<Option<Event>, BadRequest> {
        match &mut self.http2 {
            Some(http2) => http2.advance(input, &mut self.frames),
            None => Ok(self.parser.advance(input)?.map(Event::Asked)),
        }
    }

    /// Sends the head of a reply on a stream; its body is poured.
    fn reply_on(&mut self, id: u32, reply: StreamReply, behaviour: &Behaviour, stats: &Stats) {
        let (status, body, is_usual) = match reply {
            StreamReply::Stats => (200, Some(Content::Text(stats.json().into_bytes())), false),
            StreamReply::Status { status, .. } if matches!(status, 204 | 304) => {
                (status, None, false)
            }
            StreamReply::Status { status, odd, .. } => {
                let byte = if odd { b'y' } else { b'x' };
                (status, Some(Content::Repeated(byte, behaviour.body_bytes)), true)
            }
        };
        let length = body.as_ref().map(Content::len).filter(|_| !behaviour.chunked || !is_usual);
        let is_head = matches!(reply, StreamReply::Status { is_head: true, .. });
        if let Some(http2) = &mut self.http2 {
            let head = ReplyHead { status, length, is_usual };
            http2.reply(id, head, body.filter(|_| !is_head), &mut self.frames);
        }
        self.put_frames();
    }

    fn put_frames(&mut self) {
        match &mut self.tls {
            Some(tls) => self.closing |= tls.encrypt(&self.frames, &mut self.outgoing).is_err(),
            None => self.outgoing.extend_from_slice(&self.frames),
        }
        self.frames.clear();
    }

    /// Resets the slot for another connection, keeping a little memory.
    fn begin(&mut self, token: Token) {
        self.token = token;
        self.parser.reset();
        self.http2 = None;
        self.frames.clear();
        self.tls = None;
        self.handshake_counted = false;
        self.outgoing.clear();
        self.outgoing.shrink_to(SPENT_KEPT_BYTES);
        self.sending = false;
        self.pending.clear();
        self.pending.shrink_to(PENDING_KEPT);
        self.requests = 0;
        self.is_odd = false;
        self.unfinished_bytes = 0;
        self.closing = false;
    }
}

/// Exits as a server with a bug would, with a message and a status of its own.
fn die() -> ! {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "target: died as --die-after asked");
    std::process::exit(DIED)
}

const DIED: i32 = 9;
