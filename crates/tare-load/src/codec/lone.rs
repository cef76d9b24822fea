//! A codec with one connection and no engine, for tests and fuzzing.

use tare_io::Instant;

use super::{Codec, ConnectionFlights, Decoded, Flight, FlightId, Request};
use crate::engine::{Flights, List};
use crate::protocol::reply::ReplyDefect;
use crate::source::NextRequest;

pub struct LoneConnection<C> {
    pub codec: C,
    flights: Flights,
    list: List,
    /// What it has sent.
    pub sent: Vec<u8>,
}

impl<C: Codec> LoneConnection<C> {
    /// Establishes the connection, without TLS.
    pub fn new(mut codec: C) -> Self {
        let mut sent = Vec::new();
        let begun = codec.established(0, None, &mut sent);
        assert_eq!(begun, Ok(()), "no TLS is asked for");
        Self { codec, flights: Flights::with_room_for(1), list: List::EMPTY, sent }
    }

    /// Sends the first request of the list.
    pub fn ask(&mut self) -> FlightId {
        let flight = Flight {
            due: Instant::ZERO,
            begun: Instant::ZERO,
            sent: Instant::ZERO,
            first_byte: None,
            slot: 0,
            to_head: false,
            opened_for_it: false,
            refusals: 0,
            first_begun: Instant::ZERO,
            asked: None,
        };
        let flight = self.flights.begin(&mut self.list, flight);
        let request = Request { flight, asked: NextRequest::Listed(0), written: &[] };
        self.codec.encode(0, request, &mut self.sent);
        flight
    }

    /// Takes bytes from the server; adds the outcomes to `outcomes`, also before a defect.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        outcomes: &mut Vec<Decoded>,
    ) -> Result<(), ReplyDefect> {
        let mut rest = bytes;
        while !rest.is_empty() || self.codec.has_more(0) {
            let before = rest.len();
            let flights = &mut ConnectionFlights::new(&mut self.flights, &self.list, Instant::ZERO);
            let outcome = self.codec.decode(0, &mut rest, flights, &mut self.sent)?;
            assert!(rest.len() < before || outcome.is_some(), "every step takes something");
            outcomes.extend(outcome);
        }
        Ok(())
    }

    /// What the codec returns if the server closes now.
    pub fn close(&mut self) -> Result<Option<Decoded>, ReplyDefect> {
        let flights = &mut ConnectionFlights::new(&mut self.flights, &self.list, Instant::ZERO);
        self.codec.on_close(0, true, flights)
    }
}
