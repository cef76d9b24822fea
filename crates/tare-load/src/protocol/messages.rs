//! Requests and replies of fixed sizes, with content that is checked.

use std::sync::Arc;

use tare_io::Endpoint;

use super::content::{Checker, content};
use super::wire::{self, Greeting, Purpose, REPLY, TAG_BYTES};
use crate::codec::{Codec, ConnectionFlights, Decoded, Encoded, Request, RequestBytes, Room};
use crate::protocol::reply::{GOOD, Reply, ReplyDefect};

/// The shape of an engine's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Messages {
    pub request_bytes: u32,
    pub reply_bytes: u32,
    pub datagrams: bool,
    /// Each connection carries one request, and the endpoint closes it.
    pub close: bool,
}

impl Messages {
    pub fn over(endpoint: &Endpoint, request_bytes: u32, reply_bytes: u32, close: bool) -> Self {
        let datagrams = matches!(endpoint, Endpoint::Udp(_));
        Self { request_bytes, reply_bytes, datagrams, close }
    }

    /// The greeting before a connection's first request. Datagrams are echoed and need none.
    pub fn greeting(&self) -> Option<Greeting> {
        let Self { request_bytes, reply_bytes, close, .. } = *self;
        let purpose = Purpose::Messages { request_bytes, reply_bytes, close };
        (!self.datagrams).then_some(Greeting { purpose, session: 0 })
    }
}

/// Messages as a codec: one at a time on each connection, after a greeting.
pub struct MessageCodec {
    messages: Messages,
    bytes: Arc<[u8]>,
    /// The number of the next datagram.
    next: u64,
    connections: Vec<MessageReader>,
}

impl MessageCodec {
    pub fn new(messages: Messages, slots: u32) -> Self {
        let connections = (0..slots).map(|_| MessageReader::new(messages)).collect();
        let bytes = content(0, messages.request_bytes as usize).into();
        Self { messages, bytes, next: 0, connections }
    }
}

impl Codec for MessageCodec {
    fn kept(&self) -> Option<Arc<[u8]>> {
        Some(self.bytes.clone())
    }

    fn is_half_duplex(&self) -> bool {
        true
    }

    fn established(
        &mut self,
        slot: u32,
        _alpn: Option<&[u8]>,
        _out: &mut Vec<u8>,
    ) -> Result<(), ReplyDefect> {
        self.connections[slot as usize].reset();
        Ok(())
    }

    fn room(&self, _slot: u32) -> Room {
        Room::Ready(1)
    }

    /// Each datagram begins with its number, so that a duplicate of the last reply is not mistaken
    /// for the reply to this one.
    fn encode(&mut self, slot: u32, _request: Request<'_>, out: &mut Vec<u8>) -> Encoded {
        let connection = &mut self.connections[slot as usize];
        let bytes = if self.messages.datagrams {
            let start = out.len();
            out.extend_from_slice(&self.bytes);
            let tag = wire::tag(self.next);
            let length = tag.len().min(self.bytes.len());
            out[start..start + length].copy_from_slice(&tag[..length]);
            self.next += 1;
            connection.sent(&out[start..]);
            RequestBytes::Added
        } else {
            let is_first = !std::mem::replace(&mut connection.greeted, true);
            if let Some(greeting) = self.messages.greeting().filter(|_| is_first) {
                out.extend_from_slice(&greeting.bytes());
            }
            RequestBytes::Kept(0..self.bytes.len())
        };
        Encoded { bytes, requests: 1, to_head: false }
    }

    fn decode(
        &mut self,
        slot: u32,
        input: &mut &[u8],
        flights: &mut ConnectionFlights<'_>,
        _out: &mut Vec<u8>,
    ) -> Result<Option<Decoded>, ReplyDefect> {
        let Some(flight) = flights.first() else {
            return Err(ReplyDefect::Unasked { bytes: input.len() });
        };
        flights.record_first_byte(flight);
        let reply = self.connections[slot as usize].advance(input)?;
        Ok(reply.map(|reply| Decoded::Replied(flight, reply)))
    }

    fn on_close(
        &mut self,
        slot: u32,
        _clean: bool,
        _flights: &mut ConnectionFlights<'_>,
    ) -> Result<Option<Decoded>, ReplyDefect> {
        Err(self.connections[slot as usize].on_close())
    }
}

/// Reads the replies of one connection.
#[derive(Debug)]
struct MessageReader {
    messages: Messages,
    greeted: bool,
    got: u32,
    /// The tag of the datagram under way.
    tag: [u8; TAG_BYTES],
    checker: Checker,
}

impl MessageReader {
    fn new(messages: Messages) -> Self {
        let (tag, checker) = ([0; TAG_BYTES], Checker::default());
        Self { messages, greeted: false, got: 0, tag, checker }
    }

    fn reset(&mut self) {
        (self.greeted, self.got) = (false, 0);
    }

    /// Remembers the tag of a datagram that was sent, to recognise its reply.
    fn sent(&mut self, bytes: &[u8]) {
        let length = TAG_BYTES.min(bytes.len());
        self.tag[..length].copy_from_slice(&bytes[..length]);
    }

    fn advance(&mut self, rest: &mut &[u8]) -> Result<Option<Reply>, ReplyDefect> {
        let bytes = std::mem::take(rest);
        if self.messages.datagrams {
            return self.datagram(bytes);
        }
        let left = (self.messages.reply_bytes - self.got) as usize;
        let (own, more) = bytes.split_at(left.min(bytes.len()));
        *rest = more;
        if !self.checker.is_content(u64::from(self.got), own) {
            return Err(ReplyDefect::WrongContent);
        }
        self.got += own.len() as u32;
        Ok((self.got == self.messages.reply_bytes).then(|| {
            self.got = 0;
            self.reply()
        }))
    }

    fn datagram(&mut self, bytes: &[u8]) -> Result<Option<Reply>, ReplyDefect> {
        let expected = self.messages.reply_bytes as usize;
        if bytes.len() != expected {
            return Err(ReplyDefect::WrongLength {
                got_bytes: bytes.len() as u64,
                expected_bytes: expected as u64,
            });
        }
        let (tag, rest) = bytes.split_at(TAG_BYTES.min(expected));
        let mut awaited = self.tag;
        awaited[0] |= REPLY;
        if tag != &awaited[..tag.len()] {
            // A duplicate or late reply to an earlier datagram.
            return Ok(None);
        }
        match self.checker.is_content(TAG_BYTES as u64, rest) {
            true => Ok(Some(self.reply())),
            false => Err(ReplyDefect::WrongContent),
        }
    }

    fn reply(&self) -> Reply {
        let body_bytes = u64::from(self.messages.reply_bytes);
        Reply { status: WHOLE, keep_alive: !self.messages.close, body_bytes, code: GOOD }
    }

    /// Returns the defect of a reply that the peer's close cuts off.
    fn on_close(&self) -> ReplyDefect {
        match self.got {
            0 => ReplyDefect::ClosedBeforeReply,
            got => ReplyDefect::ClosedInBody {
                got_bytes: u64::from(got),
                expected_bytes: u64::from(self.messages.reply_bytes),
            },
        }
    }
}

/// The HTTP status that stands for a whole reply.
const WHOLE: u16 = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(datagrams: bool) -> Messages {
        Messages { request_bytes: 10, reply_bytes: 10, datagrams, close: false }
    }

    #[test]
    fn replies_are_put_together_and_their_content_is_checked() {
        let mut reader = MessageReader::new(messages(false));
        let bytes: Vec<u8> = [content(0, 10), content(0, 10)].concat();
        let mut rest = &bytes[..7];
        assert_eq!(reader.advance(&mut rest), Ok(None));
        let mut rest = &bytes[7..15];
        assert_eq!(reader.advance(&mut rest).unwrap().unwrap().body_bytes, 10);
        assert_eq!(rest.len(), 5);
        assert_eq!(reader.advance(&mut rest), Ok(None));
        assert_eq!(
            reader.on_close(),
            ReplyDefect::ClosedInBody { got_bytes: 5, expected_bytes: 10 }
        );
        let mut rest = &b"wrong"[..];
        assert_eq!(reader.advance(&mut rest), Err(ReplyDefect::WrongContent));
    }

    #[test]
    fn a_datagram_answers_the_one_that_was_sent_last_and_no_other() {
        let mut reader = MessageReader::new(messages(true));
        let numbered = |number: u64| {
            let mut bytes = content(0, 10).to_vec();
            bytes[..TAG_BYTES].copy_from_slice(&wire::tag(number));
            bytes
        };
        let (mut first, mut second) = (numbered(0), numbered(1));
        reader.sent(&second);
        assert_eq!(reader.advance(&mut second.as_slice()), Ok(None), "a request is no reply");
        (first[0], second[0]) = (first[0] | REPLY, second[0] | REPLY);
        assert_eq!(reader.advance(&mut first.as_slice()), Ok(None));
        assert!(reader.advance(&mut second.as_slice()).unwrap().is_some());
        second[9] ^= 1;
        assert_eq!(reader.advance(&mut second.as_slice()), Err(ReplyDefect::WrongContent));
        let short = ReplyDefect::WrongLength { got_bytes: 9, expected_bytes: 10 };
        assert_eq!(reader.advance(&mut &first[..9]), Err(short));
    }
}
