//! One connection, and what it carries.

use std::ops::Range;

use tare_io::{Instant, Token};

use super::links::List;
use crate::tls::TlsSession;

/// While more than this waits to be sent, a connection takes no request.
const OUTGOING_ENOUGH_BYTES: usize = 64 << 10;
/// A peer that asks for answers and does not read them is given up when this much waits for it.
pub const OUTGOING_MAX_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub struct Connection {
    pub token: Token,
    pub state: State,
    pub connected: Instant,
    /// When the connection and its TLS handshake were complete.
    pub established: Instant,
    /// Flights that it carries, in the order in which they were sent.
    pub flights: List,
    /// Requests that it may carry at once, from the codec's last answer.
    pub capacity: u32,
    /// It takes no more requests, and closes after those that it carries.
    pub draining: bool,
    /// A request timed out on it, and nothing had been received since that was sent: it may be dead.
    pub retired: bool,
    /// When bytes were last received.
    pub received: Instant,
    /// The request that it was opened for has not been sent: there was no room for it yet.
    pub unsent: bool,
    /// Its new requests are sent at the end of the turn.
    pub gathers: bool,
    /// It is in the queue of connections with room for a request.
    pub offered: bool,
    /// Whole replies in this slot's life.
    pub replies: u64,
    pub tls: Option<Box<TlsSession>>,
    /// Bytes that wait for the send in the kernel to end.
    pub outgoing: Vec<u8>,
    /// Memory for `outgoing` while the kernel has the other buffer.
    pub spare: Vec<u8>,
    /// Part of the last request that follows `outgoing`, too long to be copied.
    pub rest: Option<Range<usize>>,
    /// A send in the kernel has not been reported complete yet.
    pub sending: bool,
    /// Buffer in which the source writes requests that are not fixed.
    pub scratch: Vec<u8>,
}

/// State of a connection: the event that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is no connection.
    Free,
    Connecting,
    Handshaking,
    /// Waits for requests, or for their replies.
    Open,
    /// Waits for the end of a pause that the source asked for.
    Resting,
    /// Waits for the server to close, after the last request of this connection.
    Closing,
}

impl Connection {
    pub fn new() -> Self {
        Self {
            token: Token::NONE,
            state: State::Free,
            connected: Instant::ZERO,
            established: Instant::ZERO,
            flights: List::EMPTY,
            capacity: 0,
            draining: false,
            retired: false,
            received: Instant::ZERO,
            unsent: false,
            gathers: false,
            offered: false,
            replies: 0,
            tls: None,
            outgoing: Vec::new(),
            spare: Vec::new(),
            rest: None,
            sending: false,
            scratch: Vec::new(),
        }
    }

    pub fn is_established(&self) -> bool {
        matches!(self.state, State::Open | State::Resting | State::Closing)
    }

    /// Whether it can take a request now.
    pub fn has_room(&self) -> bool {
        self.state == State::Open
            && self.flights.len() < self.capacity
            && self.rest.is_none()
            // A peer that does not read costs little memory.
            && self.outgoing.len() < OUTGOING_ENOUGH_BYTES
    }
}
