//! HTTP/2 as a codec of the engine.

use super::connection::Connection;
use super::requests::Http2Requests;
use crate::codec::{
    Codec, ConnectionFlights, Decoded, Encoded, FlightId, Request, RequestBytes, Room,
};
use crate::protocol::capture::{Capture, Wanted};
use crate::protocol::reply::ReplyDefect;
use crate::source::NextRequest;

pub struct Http2 {
    requests: Http2Requests,
    /// Requests at a time on each connection, if the server allows as many.
    streams: u32,
    wanted: Wanted,
    /// The stream of each flight.
    ids: Vec<u32>,
    connections: Vec<Connection>,
}

impl Http2 {
    pub fn new(slots: u32, streams: u32, wanted: &Wanted, requests: Http2Requests) -> Self {
        let connections = (0..slots).map(|_| Connection::new(wanted)).collect();
        Self { requests, streams, wanted: wanted.clone(), ids: Vec::new(), connections }
    }
}

impl Codec for Http2 {
    fn pours_bodies(&self) -> bool {
        !self.requests.body.is_empty()
    }

    fn established(
        &mut self,
        slot: u32,
        alpn: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), ReplyDefect> {
        if self.requests.over_tls && alpn != Some(ALPN) {
            return Err(ReplyDefect::OnlyHttp1);
        }
        self.connections[slot as usize].begin(&self.wanted, &self.requests, self.streams, out);
        Ok(())
    }

    #[inline]
    fn room(&self, slot: u32) -> Room {
        self.connections[slot as usize].room(self.streams)
    }

    #[inline]
    fn encode(&mut self, slot: u32, request: Request<'_>, out: &mut Vec<u8>) -> Encoded {
        let at = match request.asked {
            NextRequest::Listed(at) => at,
            // Scripts write requests of HTTP/1.1, which `Http2Requests` refuses.
            NextRequest::Written { .. } => 0,
        };
        let connection = &mut self.connections[slot as usize];
        let id = connection.send(&self.requests, at, request.flight, out);
        let index = request.flight.index();
        if index >= self.ids.len() {
            self.ids.resize(index + 1, 0);
        }
        self.ids[index] = id;
        Encoded { bytes: RequestBytes::Added, requests: 1, to_head: self.requests.to_head }
    }

    fn pour(&mut self, slot: u32, room: usize, out: &mut Vec<u8>) {
        self.connections[slot as usize].pour(&self.requests.body, room, out);
    }

    #[inline]
    fn decode(
        &mut self,
        slot: u32,
        input: &mut &[u8],
        flights: &mut ConnectionFlights<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Decoded>, ReplyDefect> {
        self.connections[slot as usize].advance(input, flights, out)
    }

    #[inline]
    fn has_more(&self, slot: u32) -> bool {
        self.connections[slot as usize].has_more()
    }

    fn on_close(
        &mut self,
        slot: u32,
        _clean: bool,
        _flights: &mut ConnectionFlights<'_>,
    ) -> Result<Option<Decoded>, ReplyDefect> {
        Err(self.connections[slot as usize].closed())
    }

    fn cancel(&mut self, slot: u32, flight: FlightId, out: &mut Vec<u8>) -> bool {
        self.connections[slot as usize].cancel(self.ids[flight.index()], out);
        true
    }

    fn capture(&mut self, slot: u32) -> Option<&mut Capture> {
        self.connections[slot as usize].capture()
    }
}

/// The name of HTTP/2 in ALPN.
pub const ALPN: &[u8] = b"h2";
