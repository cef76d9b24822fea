//! One connection, and the request it carries.

use tare_io::{Instant, Token};

use crate::protocol::http1::{Capture, HeadMemo, Reply, ReplyDefect, ReplyParser};
use crate::protocol::messages::MessageReader;
use crate::protocol::wire::Greeting;
use crate::tls::TlsSession;

#[derive(Debug)]
pub struct Connection {
    pub token: Token,
    pub state: State,
    pub flight: Option<Flight>,
    pub reader: Reader,
    /// Whole replies in this slot's life.
    pub replies: u64,
    /// What goes before its first request, and whether it is still to go.
    greeting: Option<Greeting>,
    greets: bool,
    pub tls: Option<Box<TlsSession>>,
    /// Bytes that wait for the send in the kernel to end.
    pub outgoing: Vec<u8>,
    /// An owned buffer is in the kernel.
    pub sending: bool,
    /// Where the source writes requests that are not fixed.
    pub scratch: Vec<u8>,
}

/// What the connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No connection.
    Free,
    Connecting,
    Handshaking,
    Idle,
    /// The end of a pause that the source asked for.
    Resting,
    /// A reply.
    Busy,
    /// The server's goodbye, after the only request of this connection.
    Closing,
}

/// One request (or one pipelined batch) on its way.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    pub due: Instant,
    /// When the request was taken up: the start of connecting, or of sending.
    pub begun: Instant,
    pub connected: Instant,
    /// Connected, and TLS shaken hands on.
    pub established: Instant,
    pub sent: Instant,
    pub first_byte: Option<Instant>,
    pub replies_left: u32,
    pub to_head: bool,
    /// The connection was opened for this request.
    pub opened_for_it: bool,
}

impl Connection {
    pub fn new(reader: Reader, greeting: Option<Greeting>) -> Self {
        Self {
            token: Token::NONE,
            state: State::Free,
            flight: None,
            reader,
            replies: 0,
            greeting,
            greets: false,
            tls: None,
            outgoing: Vec::new(),
            sending: false,
            scratch: Vec::new(),
        }
    }

    /// Before it is opened again.
    pub fn reset(&mut self) {
        self.reader.reset();
        self.greets = self.greeting.is_some();
    }

    /// The greeting, where this is the first request of its connection.
    pub fn take_greeting(&mut self) -> Option<Greeting> {
        std::mem::take(&mut self.greets).then_some(self.greeting).flatten()
    }

    pub fn is_established(&self) -> bool {
        matches!(self.state, State::Idle | State::Resting | State::Busy | State::Closing)
    }
}

/// Finds replies in what is received.
#[derive(Debug)]
pub enum Reader {
    Http(ReplyParser),
    Messages(MessageReader),
}

impl Reader {
    fn reset(&mut self) {
        match self {
            Self::Http(parser) => parser.reset(),
            Self::Messages(reader) => reader.reset(),
        }
    }

    /// What was just asked.
    pub fn sent(&mut self, bytes: &[u8]) {
        if let Self::Messages(reader) = self {
            reader.sent(bytes);
        }
    }

    pub fn advance(
        &mut self,
        rest: &mut &[u8],
        to_head: bool,
        memo: &mut HeadMemo,
    ) -> Result<Option<Reply>, ReplyDefect> {
        match self {
            Self::Http(parser) => parser.advance(rest, to_head, memo),
            Self::Messages(reader) => reader.advance(rest),
        }
    }

    pub fn capture(&mut self) -> Option<&mut Capture> {
        match self {
            Self::Http(parser) => parser.capture(),
            Self::Messages(_) => None,
        }
    }

    pub fn on_close(&mut self, clean: bool) -> Result<Option<Reply>, ReplyDefect> {
        match self {
            Self::Http(parser) => parser.on_close(clean),
            Self::Messages(reader) => Err(reader.on_close()),
        }
    }
}
