//! One connection, and what it carries.

use std::ops::Range;

use tare_io::{Instant, Token};

use super::links::List;
use crate::tls::TlsSession;

#[derive(Debug)]
pub struct Connection {
    pub token: Token,
    pub state: State,
    pub connected: Instant,
    /// Connected, and TLS shaken hands on.
    pub established: Instant,
    /// Those that it carries, in the order in which they were sent.
    pub flights: List,
    /// Requests that it may carry at once, as its codec said last.
    pub capacity: u32,
    /// It takes no more, and ends with those that it carries.
    pub draining: bool,
    /// The request that it was opened for has not been sent: there was no room for it yet.
    pub unsent: bool,
    /// It is in the queue of those that can take a request.
    pub offered: bool,
    /// Whole replies in this slot's life.
    pub replies: u64,
    pub tls: Option<Box<TlsSession>>,
    /// Bytes that wait for the send in the kernel to end.
    pub outgoing: Vec<u8>,
    /// What follows them of the request that was asked last: too much to be copied.
    pub rest: Option<Range<usize>>,
    /// The kernel has yet to say that it has sent something.
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
    /// Requests, or their replies.
    Open,
    /// The end of a pause that the source asked for.
    Resting,
    /// The server's goodbye, after the last request of this connection.
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
            unsent: false,
            offered: false,
            replies: 0,
            tls: None,
            outgoing: Vec::new(),
            rest: None,
            sending: false,
            scratch: Vec::new(),
        }
    }

    pub fn is_established(&self) -> bool {
        matches!(self.state, State::Open | State::Resting | State::Closing)
    }

    /// It can take a request now.
    pub fn has_room(&self) -> bool {
        self.state == State::Open && self.flights.len() < self.capacity && self.rest.is_none()
    }
}
