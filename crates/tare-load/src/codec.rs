//! What stands between requests and the bytes of connections: a protocol is a [`Codec`].
//!
//! A new one is a file in [`protocol`](crate::protocol) and a line in [`of`]. The engine keeps the
//! time, counts, opens and closes; a codec knows what bytes mean, and nothing of sockets or clocks.

use crate::engine::EngineConfig;
pub use crate::engine::{Flight, FlightId, OfConnection};
use crate::protocol::http1::{Capture, Http1, Wanted};
use crate::protocol::messages::MessageCodec;
use crate::protocol::reply::{Reply, ReplyDefect};

/// One engine's connections, each in its slot, as one protocol writes and reads them.
pub trait Codec {
    /// Forgets what was of the connection in this slot: another is opened there.
    fn reset(&mut self, slot: u32);

    /// How many requests the connection may carry at once; asked once it stands, and whenever
    /// something was received. It begins with one or more; at 0 it gets no more, and ends with
    /// those that it carries.
    fn capacity(&self, slot: u32) -> u32;

    /// On no connection is anything sent before the reply to the last request is whole: then the
    /// kernel need not tell when it has sent one.
    fn takes_turns(&self) -> bool {
        false
    }

    /// A request goes out: adds to `out` what goes before its bytes, or instead of them.
    fn encode(&mut self, slot: u32, request: Request<'_>, out: &mut Vec<u8>) -> Encoded;

    /// Takes bytes off the front of `input`, at least one, up to the end of a reply. What the
    /// protocol itself answers (not what it asks) is added to `out`.
    fn decode(
        &mut self,
        slot: u32,
        input: &mut &[u8],
        flights: &mut OfConnection<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Decoded>, ReplyDefect>;

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

/// A request as its source gives it: in the bytes of HTTP/1.1, or of messages.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// With several requests in the same bytes, as scripts pipeline them in HTTP/1.1, the first; the
    /// others follow it on the connection, whatever its capacity.
    pub flight: FlightId,
    pub bytes: &'a [u8],
    pub to_head: bool,
}

/// What is sent of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoded {
    /// Its bytes, after what was added; alone they are not even copied.
    AsItIs,
    /// What was added takes their place.
    Replaced,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    Replied(FlightId, Reply),
    /// The server gave up on this one; the connection goes on.
    Lost(FlightId, ReplyDefect),
}

/// The codec of what an engine exchanges, for so many connections.
pub(crate) fn of(config: &EngineConfig, slots: u32, wanted: &Wanted) -> Box<dyn Codec> {
    match config.messages() {
        Some(messages) => Box::new(MessageCodec::new(messages, slots)),
        None => Box::new(Http1::new(slots, wanted)),
    }
}
