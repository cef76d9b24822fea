//! What stands between requests and the bytes of connections: a protocol is a [`Codec`].
//!
//! A new one is a file in [`protocol`](crate::protocol), and a line in [`AnyCodec`] and [`Prepared`].
//! The engine keeps the time, counts, opens and closes; a codec knows what bytes mean, and nothing
//! of sockets or clocks.

use std::ops::Range;
use std::sync::Arc;

use tare_model::net::Protocol;

use crate::engine::EngineConfig;
pub use crate::engine::{Flight, FlightId, OfConnection};
use crate::protocol::capture::{Capture, Wanted};
use crate::protocol::http1::{Http1, Http1Requests};
use crate::protocol::messages::{MessageCodec, Messages};
use crate::protocol::reply::{Reply, ReplyDefect};
use crate::request::{RequestError, Requests};
use crate::source::Asked;

/// One engine's connections, each in its slot, as one protocol writes and reads them.
pub trait Codec {
    /// Bytes that requests can be sent from without being copied. Asked once, when the engine is
    /// made, as the two below.
    fn kept(&self) -> Option<Arc<[u8]>> {
        None
    }

    /// On no connection is anything sent before the reply to the last request is whole: then the
    /// kernel need not tell when it has sent one.
    fn is_half_duplex(&self) -> bool {
        false
    }

    /// Bodies of requests go out by [`Codec::pour`], where there are any.
    fn pours_bodies(&self) -> bool {
        false
    }

    /// A new connection stands in this slot; whatever was known of the last one there is forgotten.
    /// `alpn` is what TLS agreed on. What the protocol says first is added to `out`.
    fn established(
        &mut self,
        slot: u32,
        alpn: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), ReplyDefect>;

    /// Whether the connection takes requests; asked once it stands, and whenever something was
    /// received.
    fn room(&self, slot: u32) -> Room;

    /// A request goes out: adds to `out` what goes before its bytes, or instead of them.
    fn encode(&mut self, slot: u32, request: Request<'_>, out: &mut Vec<u8>) -> Encoded;

    /// All that was to be sent has been: adds at most about `room` more bytes to `out`, of bodies
    /// that wait.
    fn pour(&mut self, _slot: u32, _room: usize, _out: &mut Vec<u8>) {}

    /// Takes bytes off the front of `input`, at least one where there are any, up to what became of
    /// one request. What the protocol itself answers (not what it asks) is added to `out`.
    fn decode(
        &mut self,
        slot: u32,
        input: &mut &[u8],
        flights: &mut OfConnection<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Decoded>, ReplyDefect>;

    /// There is more to tell of what was decoded: [`Codec::decode`] is called again, also without
    /// input.
    fn has_more(&self, _slot: u32) -> bool {
        false
    }

    /// The server closed its side while requests were under way. `Some` where that is how a reply
    /// ends; `clean` is false where TLS was cut off without its goodbye.
    fn on_close(
        &mut self,
        slot: u32,
        clean: bool,
        flights: &mut OfConnection<'_>,
    ) -> Result<Option<Decoded>, ReplyDefect>;

    /// A request has waited too long. Whether the connection can go on without its reply, after
    /// what is added to `out`; else it is closed, and every request on it fails.
    fn cancel(&mut self, _slot: u32, _flight: FlightId, _out: &mut Vec<u8>) -> bool {
        false
    }

    /// What was kept of the reply that was decoded last, where the source wants to see some.
    fn capture(&mut self, _slot: u32) -> Option<&mut Capture> {
        None
    }
}

/// Whether a connection takes more requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// This many at once, those under way included.
    Ready(u32),
    /// Not now; the server will say when.
    Blocked,
    /// Never again: it ends with those that it carries.
    Draining,
}

/// A request as its source gives it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// With several requests in the same bytes the first; the others follow it on the connection.
    pub flight: FlightId,
    pub asked: Asked,
    /// What a script wrote; else empty.
    pub written: &'a [u8],
}

/// What is sent of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    pub bytes: RequestBytes,
    /// Requests in these bytes: one, but for what scripts write.
    pub requests: u32,
    /// The method is HEAD: replies have no body.
    pub to_head: bool,
}

/// Where the bytes of a request are that follow what the codec has added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestBytes {
    /// In [`Codec::kept`]. Long ones go out in pieces, between which the codec must say nothing:
    /// one that answers for its protocol pours its bodies instead.
    Kept(Range<usize>),
    /// What the script wrote.
    Written,
    /// The codec has added all of them.
    Added,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    Replied(FlightId, Reply),
    /// The server gave up on this one; the connection goes on.
    Lost(FlightId, ReplyDefect),
    /// The server surely did not process this one: it can go out again.
    Refused(FlightId),
}

/// What the codecs of all workers share: requests as bytes, made once.
#[derive(Clone, Debug)]
pub enum Prepared {
    Http1(Http1Requests),
    Messages(Messages),
    /// Nothing is exchanged by an engine: a stream, or calls.
    Nothing,
}

impl Prepared {
    pub fn new(config: &EngineConfig, requests: &Requests) -> Result<Self, RequestError> {
        match config.protocol {
            Protocol::Http => Ok(Self::Http1(Http1Requests::new(requests)?)),
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
    Messages(MessageCodec),
    /// A codec from outside this crate: the tests have one.
    Other(Box<dyn Codec>),
}

macro_rules! each {
    ($codec:expr, $name:ident => $body:expr) => {
        match $codec {
            AnyCodec::Http1($name) => $body,
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
        flights: &mut OfConnection<'_>,
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
        flights: &mut OfConnection<'_>,
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
