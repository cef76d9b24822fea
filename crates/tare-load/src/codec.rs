//! Translation between requests and the bytes of connections: each protocol is a [`Codec`].
//!
//! A new protocol needs a file in [`protocol`](crate::protocol), and a line in [`AnyCodec`] and
//! [`Prepared`]. The engine does the timing, counting, opening and closing; a codec knows what
//! bytes mean, and nothing about sockets or clocks.

pub mod lone;

use std::ops::Range;
use std::sync::Arc;

use tare_model::net::Protocol;

use crate::engine::EngineConfig;
pub use crate::engine::{ConnectionFlights, Flight, FlightId};
use crate::protocol::capture::{Capture, Wanted};
use crate::protocol::http1::{Http1, Http1Requests};
use crate::protocol::http2::{Http2, Http2Requests};
use crate::protocol::messages::{MessageCodec, Messages};
use crate::protocol::reply::{Reply, ReplyDefect};
use crate::request::{RequestError, Requests};
use crate::source::NextRequest;

/// Writes and reads one protocol on an engine's connections, each in its slot.
pub trait Codec {
    /// Bytes from which requests can be sent without a copy. Called once, when the engine is
    /// created, like the next two methods.
    fn kept(&self) -> Option<Arc<[u8]>> {
        None
    }

    /// Whether each connection sends nothing before the reply to its last request is whole. Then
    /// the kernel need not report completed sends.
    fn is_half_duplex(&self) -> bool {
        false
    }

    /// Whether the bodies of requests are sent through [`Codec::pour`].
    fn pours_bodies(&self) -> bool {
        false
    }

    /// Called when a connection in this slot is established; the state of the slot's previous
    /// connection is dropped. `alpn` is what TLS negotiated. Bytes that the protocol sends first go
    /// to `out`.
    fn established(
        &mut self,
        slot: u32,
        alpn: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), ReplyDefect>;

    /// Whether the connection takes requests. Called when it is established and after each read.
    fn room(&self, slot: u32) -> Room;

    /// Encodes a request. `out` gets the bytes that are sent before [`Encoded::bytes`], or the
    /// whole request ([`RequestBytes::Added`]).
    fn encode(&mut self, slot: u32, request: Request<'_>, out: &mut Vec<u8>) -> Encoded;

    /// Called when everything has been sent: adds at most about `room` bytes of waiting bodies to
    /// `out`.
    fn pour(&mut self, _slot: u32, _room: usize, _out: &mut Vec<u8>) {}

    /// Takes bytes off the front of `input`, at least one if there are any, up to the outcome of
    /// one request. Bytes that the protocol itself sends in answer go to `out`.
    fn decode(
        &mut self,
        slot: u32,
        input: &mut &[u8],
        flights: &mut ConnectionFlights<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Decoded>, ReplyDefect>;

    /// Whether there are more outcomes in what was decoded: [`Codec::decode`] is called again, even
    /// without input.
    fn has_more(&self, _slot: u32) -> bool {
        false
    }

    /// Called when the server closes its side while requests are under way. `Some` if that ends a
    /// reply; `clean` is false if TLS was cut off without close_notify.
    fn on_close(
        &mut self,
        slot: u32,
        clean: bool,
        flights: &mut ConnectionFlights<'_>,
    ) -> Result<Option<Decoded>, ReplyDefect>;

    /// Gives up a request that has timed out. Returns whether the connection can go on without its
    /// reply, after sending `out`; if not, it is closed and every request on it fails.
    fn cancel(&mut self, _slot: u32, _flight: FlightId, _out: &mut Vec<u8>) -> bool {
        false
    }

    /// The capture of the last decoded reply, if the source wants to see replies.
    fn capture(&mut self, _slot: u32) -> Option<&mut Capture> {
        None
    }
}

/// Whether a connection takes more requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Carries up to this many requests at once, including those under way.
    Ready(u32),
    /// Takes no request until the server allows more.
    Blocked,
    /// Takes no more requests, and closes after those under way.
    Draining,
}

/// A request as its source gives it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The request's flight. If the bytes hold several requests, this is the first one's, and the
    /// flights of the others follow on the connection.
    pub flight: FlightId,
    pub asked: NextRequest,
    /// Bytes that a script wrote; otherwise empty.
    pub written: &'a [u8],
}

/// An encoded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    pub bytes: RequestBytes,
    /// Requests in these bytes; only scripts write more than one.
    pub requests: u32,
    /// The method is HEAD: replies have no body.
    pub to_head: bool,
}

/// Source of a request's bytes, which are sent after what the codec has added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestBytes {
    /// A range of [`Codec::kept`]. A long range is sent in pieces, and the codec must send nothing
    /// between them; if it has to, it uses [`Codec::pour`] for bodies instead.
    Kept(Range<usize>),
    /// In [`Request::written`].
    Written,
    /// The codec has added all bytes of the request to its output.
    Added,
}

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    Replied(FlightId, Reply),
    /// The server gave up on this request; the connection stays open.
    Lost(FlightId, ReplyDefect),
    /// The server certainly did not process this request, so it can be sent again.
    Refused(FlightId),
}

/// Requests as bytes, made once and shared by the codecs of all workers.
#[derive(Clone, Debug)]
pub enum Prepared {
    Http1(Http1Requests),
    Http2 {
        requests: Http2Requests,
        streams: u32,
    },
    Messages(Messages),
    /// A stream or calls, which need no engine.
    Nothing,
}

impl Prepared {
    pub fn new(config: &EngineConfig, requests: &Requests) -> Result<Self, RequestError> {
        match config.protocol {
            Protocol::Http => Ok(Self::Http1(Http1Requests::new(requests)?)),
            Protocol::Http2 { streams, dynamic_table } => {
                let requests = Http2Requests::new(requests, config.tls.is_some(), dynamic_table)?;
                Ok(Self::Http2 { requests, streams })
            }
            Protocol::Messages { .. } => {
                Ok(config.messages().map_or(Self::Nothing, Self::Messages))
            }
            Protocol::Stream { .. } | Protocol::Calls { .. } => Ok(Self::Nothing),
        }
    }

    /// The codec of one worker, with room for `slots` connections.
    pub fn codec(self, slots: u32, wanted: &Wanted) -> Option<AnyCodec> {
        match self {
            Self::Http1(requests) => Some(AnyCodec::Http1(Http1::new(slots, wanted, requests))),
            Self::Http2 { requests, streams } => {
                Some(AnyCodec::Http2(Http2::new(slots, streams, wanted, requests)))
            }
            Self::Messages(messages) => {
                Some(AnyCodec::Messages(MessageCodec::new(messages, slots)))
            }
            Self::Nothing => None,
        }
    }
}

/// A codec of any kind. An enum, since a call through a vtable for each request costs more.
pub enum AnyCodec {
    Http1(Http1),
    Http2(Http2),
    Messages(MessageCodec),
    /// A codec from outside this crate, such as one in the tests.
    Other(Box<dyn Codec>),
}

macro_rules! each {
    ($codec:expr, $name:ident => $body:expr) => {
        match $codec {
            AnyCodec::Http1($name) => $body,
            AnyCodec::Http2($name) => $body,
            AnyCodec::Messages($name) => $body,
            AnyCodec::Other($name) => $body,
        }
    };
}

impl Codec for AnyCodec {
    fn kept(&self) -> Option<Arc<[u8]>> {
        each!(self, codec => codec.kept())
    }

    fn is_half_duplex(&self) -> bool {
        each!(self, codec => codec.is_half_duplex())
    }

    fn pours_bodies(&self) -> bool {
        each!(self, codec => codec.pours_bodies())
    }

    fn established(
        &mut self,
        slot: u32,
        alpn: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), ReplyDefect> {
        each!(self, codec => codec.established(slot, alpn, out))
    }

    #[inline]
    fn room(&self, slot: u32) -> Room {
        each!(self, codec => codec.room(slot))
    }

    #[inline]
    fn encode(&mut self, slot: u32, request: Request<'_>, out: &mut Vec<u8>) -> Encoded {
        each!(self, codec => codec.encode(slot, request, out))
    }

    fn pour(&mut self, slot: u32, room: usize, out: &mut Vec<u8>) {
        each!(self, codec => codec.pour(slot, room, out));
    }

    #[inline]
    fn decode(
        &mut self,
        slot: u32,
        input: &mut &[u8],
        flights: &mut ConnectionFlights<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Decoded>, ReplyDefect> {
        each!(self, codec => codec.decode(slot, input, flights, out))
    }

    #[inline]
    fn has_more(&self, slot: u32) -> bool {
        each!(self, codec => codec.has_more(slot))
    }

    fn on_close(
        &mut self,
        slot: u32,
        clean: bool,
        flights: &mut ConnectionFlights<'_>,
    ) -> Result<Option<Decoded>, ReplyDefect> {
        each!(self, codec => codec.on_close(slot, clean, flights))
    }

    fn cancel(&mut self, slot: u32, flight: FlightId, out: &mut Vec<u8>) -> bool {
        each!(self, codec => codec.cancel(slot, flight, out))
    }

    fn capture(&mut self, slot: u32) -> Option<&mut Capture> {
        each!(self, codec => codec.capture(slot))
    }
}
