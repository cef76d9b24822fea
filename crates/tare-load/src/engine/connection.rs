//! One connection, and the request it carries.

use tare_io::{Instant, Token};

use crate::http1::ReplyParser;
use crate::tls::TlsSession;

#[derive(Debug)]
pub struct Connection {
    pub token: Token,
    pub state: State,
    pub flight: Option<Flight>,
    pub parser: ReplyParser,
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
    pub fn new(capturing: bool) -> Self {
        Self {
            token: Token::NONE,
            state: State::Free,
            flight: None,
            parser: if capturing { ReplyParser::capturing() } else { ReplyParser::default() },
            tls: None,
            outgoing: Vec::new(),
            sending: false,
            scratch: Vec::new(),
        }
    }

    pub fn is_established(&self) -> bool {
        matches!(self.state, State::Idle | State::Resting | State::Busy | State::Closing)
    }
}
