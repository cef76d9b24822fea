//! HTTP/1.1 as a codec: requests are sent unchanged, and replies arrive in the order of requests.

use std::sync::Arc;

use super::{Capture, HeadMemo, Http1Requests, ReplyParser, Wanted};
use crate::codec::{Codec, ConnectionFlights, Decoded, Encoded, Request, RequestBytes, Room};
use crate::protocol::reply::ReplyDefect;
use crate::source::NextRequest;

pub struct Http1 {
    requests: Http1Requests,
    parsers: Vec<ReplyParser>,
    /// Shared by all connections, which receive the same heads.
    memo: HeadMemo,
    /// Requests that a connection carries at once.
    pipelined: u32,
}

impl Http1 {
    pub fn new(slots: u32, wanted: &Wanted, requests: Http1Requests) -> Self {
        let parsers = (0..slots).map(|_| ReplyParser::capturing(wanted)).collect();
        Self { requests, parsers, memo: HeadMemo::default(), pipelined: 1 }
    }

    /// Sends this many requests without waiting for the reply to the first.
    pub fn pipelining(self, requests: u32) -> Self {
        Self { pipelined: requests, ..self }
    }
}

impl Codec for Http1 {
    fn kept(&self) -> Option<Arc<[u8]>> {
        Some(self.requests.bytes.clone())
    }

    fn is_half_duplex(&self) -> bool {
        self.pipelined == 1
    }

    fn established(
        &mut self,
        slot: u32,
        _alpn: Option<&[u8]>,
        _out: &mut Vec<u8>,
    ) -> Result<(), ReplyDefect> {
        self.parsers[slot as usize].reset();
        Ok(())
    }

    #[inline]
    fn room(&self, _slot: u32) -> Room {
        Room::Ready(self.pipelined)
    }

    #[inline]
    fn encode(&mut self, _slot: u32, request: Request<'_>, _out: &mut Vec<u8>) -> Encoded {
        match request.asked {
            NextRequest::Listed(at) => {
                let (range, to_head) = self.requests.at(at);
                let requests = self.requests.together;
                Encoded { bytes: RequestBytes::Kept(range), requests, to_head }
            }
            NextRequest::Written { requests, to_head } => {
                Encoded { bytes: RequestBytes::Written, requests, to_head }
            }
        }
    }

    #[inline]
    fn decode(
        &mut self,
        slot: u32,
        input: &mut &[u8],
        flights: &mut ConnectionFlights<'_>,
        _out: &mut Vec<u8>,
    ) -> Result<Option<Decoded>, ReplyDefect> {
        let Some(first) = flights.first() else {
            return Err(ReplyDefect::Unasked { bytes: input.len() });
        };
        let to_head = flights.record_first_byte(first).to_head;
        let reply = self.parsers[slot as usize].advance(input, to_head, &mut self.memo)?;
        Ok(reply.map(|reply| Decoded::Replied(first, reply)))
    }

    fn on_close(
        &mut self,
        slot: u32,
        clean: bool,
        flights: &mut ConnectionFlights<'_>,
    ) -> Result<Option<Decoded>, ReplyDefect> {
        let reply = self.parsers[slot as usize].on_close(clean)?;
        Ok(flights.first().zip(reply).map(|(first, reply)| Decoded::Replied(first, reply)))
    }

    fn capture(&mut self, slot: u32) -> Option<&mut Capture> {
        self.parsers[slot as usize].capture()
    }
}
