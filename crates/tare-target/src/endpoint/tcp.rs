//! Connections of an endpoint: a state machine fed with completions, like the load engine.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tare_io::reactor::{Chunk, FIXED_SEND_MAX_BYTES};
use tare_io::{
    Accepted, Close, Completion, DurationNs, Happened, Instant, Outgoing, Reactor, Token, Wait,
};
use tare_load::net::content::{content, is_content};
use tare_load::net::wire::{
    ASK, GO, GREETING_BYTES, Greeting, ORDER_BYTES, Order, Purpose, STOP, called,
};

use super::sessions::{Session, Sessions};

pub struct Answerer {
    clients: Vec<Client>,
    free: Vec<u32>,
    /// Replies that wait: when, on which connection.
    timers: BinaryHeap<Reverse<(Instant, u32, u32)>>,
    delay: DurationNs,
    calls: bool,
    sessions: Arc<Sessions>,
}

struct Client {
    token: Token,
    state: State,
    /// What was not whole yet: of a greeting, of an order.
    partial: Vec<u8>,
    /// What waits for the send in the kernel to end.
    outgoing: Vec<u8>,
    sending: bool,
    /// Closes when everything is sent.
    closing: bool,
}

enum State {
    Greeting,
    Messages {
        request_bytes: u32,
        reply_bytes: u32,
        close: bool,
        /// Of the request under way.
        got: u32,
        /// Replies that are due and not yet handed over.
        owed: u32,
    },
    Receiving {
        session: Arc<Session>,
        got: u64,
    },
    Sending {
        session: Arc<Session>,
        message_bytes: u32,
        sent: u64,
        on: bool,
    },
    Counting {
        session: Arc<Session>,
    },
    Calls,
}

/// Why a connection is not served any further: it is reset.
struct Refused;

const SPIN: DurationNs = DurationNs::from_ms(1);

impl Answerer {
    pub fn new(slots: u32, delay: DurationNs, calls: bool, sessions: Arc<Sessions>) -> Self {
        Self {
            clients: (0..slots).map(|_| Client::new()).collect(),
            free: (0..slots).rev().collect(),
            timers: BinaryHeap::new(),
            delay,
            calls,
            sessions,
        }
    }

    /// One turn: takes in what happened, says what is due; when to be called again.
    pub fn turn<R: Reactor>(&mut self, io: &mut R, happened: &mut Vec<Completion>) -> Wait {
        for completion in happened.drain(..) {
            self.on_completion(io, completion);
        }
        let now = io.now();
        while let Some(Reverse((at, slot, generation))) = self.timers.peek().copied()
            && at <= now
        {
            self.timers.pop();
            if self.clients[slot as usize].token == (Token { slot, generation }) {
                self.reply(io, slot);
            }
        }
        let until = self.timers.peek().map_or(Instant::FAR, |Reverse((at, _, _))| *at);
        Wait { spin: SPIN, ..Wait::until(until) }
    }

    fn on_completion<R: Reactor>(&mut self, io: &mut R, completion: Completion) {
        let token = completion.token;
        let current = self.clients.get(token.slot as usize).is_some_and(|c| c.token == token);
        match completion.happened {
            Happened::Accepted(accepted) => self.accept(io, accepted),
            Happened::Received(chunk) => {
                let taken = match current {
                    true => self.take(io, token.slot, &chunk),
                    false => Ok(()),
                };
                io.release(chunk);
                if taken.is_err() {
                    self.release(io, token.slot, Close::Reset);
                }
            }
            _ if !current => {}
            Happened::Sent(spent) => {
                let client = &mut self.clients[token.slot as usize];
                client.sending = false;
                if client.outgoing.is_empty() && spent.capacity() > 0 {
                    client.outgoing = spent;
                }
                self.go_on(io, token.slot);
            }
            Happened::Eof => self.release(io, token.slot, Close::Graceful),
            Happened::Failed(_) => self.release(io, token.slot, Close::Reset),
            Happened::Connected => {}
        }
    }

    fn accept<R: Reactor>(&mut self, io: &mut R, accepted: Accepted) {
        // Without a seat it is closed at once, which its client sees.
        let Some(slot) = self.free.pop() else { return };
        let token = io.adopt(slot, accepted);
        self.clients[slot as usize] = Client { token, ..Client::new() };
    }

    fn release<R: Reactor>(&mut self, io: &mut R, slot: u32, how: Close) {
        let client = &mut self.clients[slot as usize];
        io.close(client.token, how);
        *client = Client::new();
        self.free.push(slot);
    }

    fn take<R: Reactor>(&mut self, io: &mut R, slot: u32, chunk: &Chunk) -> Result<(), Refused> {
        let mut at = 0;
        loop {
            let bytes = &io.chunk(chunk)[at..];
            if bytes.is_empty() {
                return Ok(());
            }
            let client = &mut self.clients[slot as usize];
            match &mut client.state {
                State::Greeting => {
                    let Some((whole, used)) = client.gather(bytes, GREETING_BYTES) else {
                        return Ok(());
                    };
                    at += used;
                    let greeting = Greeting::parse(&whole).ok_or(Refused)?;
                    let state = self.begun(greeting)?;
                    self.clients[slot as usize].state = state;
                }
                State::Messages { request_bytes, got, owed, .. } => {
                    let own = ((*request_bytes - *got) as usize).min(bytes.len());
                    if !is_content(u64::from(*got), &bytes[..own]) {
                        return Err(Refused);
                    }
                    *got += own as u32;
                    at += own;
                    if *got == *request_bytes {
                        *got = 0;
                        *owed += 1;
                        self.answer(io, slot);
                    }
                }
                State::Receiving { session, got } => {
                    session.wrong.fetch_add(u64::from(!is_content(*got, bytes)), Ordering::Relaxed);
                    *got += bytes.len() as u64;
                    session.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    return Ok(());
                }
                State::Sending { on, .. } => {
                    *on = heed(bytes)?.unwrap_or(*on);
                    self.go_on(io, slot);
                    return Ok(());
                }
                State::Counting { session } => {
                    if bytes.iter().any(|byte| *byte != ASK) {
                        return Err(Refused);
                    }
                    let count = session.count(io.now()).bytes();
                    client.outgoing.extend_from_slice(&count.repeat(bytes.len()));
                    self.go_on(io, slot);
                    return Ok(());
                }
                State::Calls => {
                    let Some((whole, used)) = client.gather(bytes, ORDER_BYTES) else {
                        return Ok(());
                    };
                    at += used;
                    let bytes = whole.as_slice().try_into().map_err(|_| Refused)?;
                    let order = Order::parse(bytes).ok_or(Refused)?;
                    // Nothing else is answered meanwhile: what is timed has this thread to itself.
                    let made = tare_io::calls::make(order.call, order.length);
                    client.outgoing.extend_from_slice(&called(&made));
                    self.go_on(io, slot);
                }
            }
        }
    }

    fn begun(&self, greeting: Greeting) -> Result<State, Refused> {
        let session = || self.sessions.of(greeting.session);
        Ok(match greeting.purpose {
            Purpose::Messages { request_bytes, reply_bytes, close } => {
                State::Messages { request_bytes, reply_bytes, close, got: 0, owed: 0 }
            }
            Purpose::Receive { message_bytes } => {
                let session = session();
                session.cut_by(message_bytes);
                State::Receiving { session, got: 0 }
            }
            Purpose::Send { message_bytes } => {
                let session = session();
                session.cut_by(message_bytes);
                State::Sending { session, message_bytes, sent: 0, on: false }
            }
            Purpose::Count => State::Counting { session: session() },
            Purpose::Calls if self.calls => State::Calls,
            Purpose::Calls => return Err(Refused),
        })
    }

    /// A request is whole: its reply goes now, or later.
    fn answer<R: Reactor>(&mut self, io: &mut R, slot: u32) {
        if self.delay == DurationNs::ZERO {
            return self.reply(io, slot);
        }
        let token = self.clients[slot as usize].token;
        self.timers.push(Reverse((io.now() + self.delay, token.slot, token.generation)));
    }

    /// Hands over the replies that are owed; only one send is in the kernel at a time.
    fn reply<R: Reactor>(&mut self, io: &mut R, slot: u32) {
        let client = &mut self.clients[slot as usize];
        let State::Messages { reply_bytes, close, owed, .. } = &mut client.state else { return };
        if client.sending || *owed == 0 {
            return;
        }
        *owed -= 1;
        client.closing |= *close;
        let bytes = content(0, *reply_bytes as usize);
        if bytes.len() <= FIXED_SEND_MAX_BYTES && !*close {
            io.send(client.token, Outgoing::Fixed(bytes));
        } else {
            client.sending = true;
            io.send(client.token, Outgoing::Immortal(bytes));
        }
    }

    /// The kernel takes more: what waits is sent, or the next of a stream.
    fn go_on<R: Reactor>(&mut self, io: &mut R, slot: u32) {
        let client = &mut self.clients[slot as usize];
        if client.sending {
            return;
        }
        if client.closing {
            return self.release(io, slot, Close::Graceful);
        }
        if !client.outgoing.is_empty() {
            client.sending = true;
            let bytes = std::mem::take(&mut client.outgoing);
            return io.send(client.token, Outgoing::Owned(bytes));
        }
        if let State::Sending { session, message_bytes, sent, on: true } = &mut client.state {
            let bytes = content(*sent, *message_bytes as usize);
            *sent += bytes.len() as u64;
            session.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            client.sending = true;
            return io.send(client.token, Outgoing::Immortal(bytes));
        }
        self.reply(io, slot);
    }
}

/// Whether the last word says to send or not to.
fn heed(bytes: &[u8]) -> Result<Option<bool>, Refused> {
    bytes.iter().try_fold(None, |_, byte| match *byte {
        GO => Ok(Some(true)),
        STOP => Ok(Some(false)),
        _ => Err(Refused),
    })
}

impl Client {
    fn new() -> Self {
        Self {
            token: Token::NONE,
            state: State::Greeting,
            partial: Vec::new(),
            outgoing: Vec::new(),
            sending: false,
            closing: false,
        }
    }

    /// A unit of so many bytes once it is whole, and how many of these bytes it took.
    fn gather(&mut self, bytes: &[u8], length: usize) -> Option<(Vec<u8>, usize)> {
        let used = (length - self.partial.len()).min(bytes.len());
        self.partial.extend_from_slice(&bytes[..used]);
        (self.partial.len() == length).then(|| (std::mem::take(&mut self.partial), used))
    }
}
