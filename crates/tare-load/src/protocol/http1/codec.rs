//! HTTP/1.1 as a codec: requests are sent as they are, and replies come in the order of their
//! requests.

use super::{Capture, HeadMemo, ReplyParser, Wanted};
use crate::codec::{Codec, Decoded, Encoded, OfConnection, Request};
use crate::protocol::reply::ReplyDefect;

pub struct Http1 {
    parsers: Vec<ReplyParser>,
    /// Of all connections: they get the same heads.
    memo: HeadMemo,
    /// Requests that a connection carries at once.
    pipelined: u32,
}

impl Http1 {
    pub fn new(slots: u32, wanted: &Wanted) -> Self {
        let parsers = (0..slots).map(|_| ReplyParser::capturing(wanted)).collect();
        Self { parsers, memo: HeadMemo::default(), pipelined: 1 }
    }

    /// Sends so many requests without waiting for the reply to the first.
    pub fn pipelining(self, requests: u32) -> Self {
        Self { pipelined: requests, ..self }
    }
}

impl Codec for Http1 {
    fn reset(&mut self, slot: u32) {
        self.parsers[slot as usize].reset();
    }

    fn capacity(&self, _slot: u32) -> u32 {
        self.pipelined
    }

    fn takes_turns(&self) -> bool {
        self.pipelined == 1
    }

    fn encode(&mut self, _slot: u32, _request: Request<'_>, _out: &mut Vec<u8>) -> Encoded {
        Encoded::AsItIs
    }

    fn decode(
        &mut self,
        slot: u32,
        input: &mut &[u8],
        flights: &mut OfConnection<'_>,
        _out: &mut Vec<u8>,
    ) -> Result<Option<Decoded>, ReplyDefect> {
        let Some(first) = flights.first() else {
            return Err(ReplyDefect::Unasked { bytes: input.len() });
        };
        let to_head = flights.replied(first).to_head;
        let reply = self.parsers[slot as usize].advance(input, to_head, &mut self.memo)?;
        Ok(reply.map(|reply| Decoded::Replied(first, reply)))
    }

    fn on_close(
        &mut self,
        slot: u32,
        clean: bool,
        flights: &mut OfConnection<'_>,
    ) -> Result<Option<Decoded>, ReplyDefect> {
        let reply = self.parsers[slot as usize].on_close(clean)?;
        Ok(flights.first().zip(reply).map(|(first, reply)| Decoded::Replied(first, reply)))
    }

    fn capture(&mut self, slot: u32) -> Option<&mut Capture> {
        self.parsers[slot as usize].capture()
    }
}
