//! Flights: requests on their way, from when they are due until the reply is whole or they have
//! failed. Timeouts and counts apply to flights; a connection carries as many as its codec allows.

use std::ops::{Index, IndexMut};

use tare_io::Instant;

use super::links::{Link, Linked, List};
use crate::source::NextRequest;

/// Identifies one of an engine's flights; reused once the flight has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlightId(u32);

impl FlightId {
    /// Small: identifiers are used again.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One request on its way.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    pub due: Instant,
    /// When work on the request began: the start of connecting, or of sending.
    pub begun: Instant,
    pub sent: Instant,
    pub first_byte: Option<Instant>,
    /// The slot of the connection that carries it.
    pub slot: u32,
    /// The method is HEAD: the reply has no body.
    pub to_head: bool,
    /// The connection was opened for this request.
    pub opened_for_it: bool,
    pub refusals: u8,
    /// When work on its first attempt began.
    pub first_begun: Instant,
    /// Which request it is, once it has been sent.
    pub asked: Option<NextRequest>,
}

/// A request that was refused and will be sent again.
#[derive(Clone, Copy, Debug)]
pub struct PendingRequest {
    pub due: Instant,
    /// When it was first sent.
    pub sent: Option<Instant>,
    /// When work on its first attempt began, and which request it is.
    pub begun: Option<Instant>,
    pub asked: Option<NextRequest>,
    pub times: u8,
}

impl PendingRequest {
    /// A request that was never refused, to be sent for the first time.
    pub fn first_attempt(due: Instant) -> Self {
        Self { due, sent: None, begun: None, asked: None, times: 0 }
    }
}

/// All flights of an engine.
#[derive(Debug)]
pub struct Flights {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Flights under way, the oldest first. All timeouts are equal, so the oldest flight is the
    /// first to expire.
    by_age: List,
    /// Number of connections that carry flights.
    connections: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    flight: Flight,
    age: Link,
    /// The flight's link in the list of its connection.
    neighbours: Link,
}

struct ByAge<'a>(&'a mut [Entry]);

impl Linked for ByAge<'_> {
    fn link(&mut self, entry: u32) -> &mut Link {
        &mut self.0[entry as usize].age
    }
}

struct OnConnections<'a>(&'a mut [Entry]);

impl Linked for OnConnections<'_> {
    fn link(&mut self, entry: u32) -> &mut Link {
        &mut self.0[entry as usize].neighbours
    }
}

impl Flights {
    /// Preallocated; may still grow.
    pub fn with_room_for(flights: u32) -> Self {
        let flights = flights as usize;
        let (entries, free) = (Vec::with_capacity(flights), Vec::with_capacity(flights));
        Self { entries, free, by_age: List::EMPTY, connections: 0 }
    }

    /// Number of flights under way.
    pub fn len(&self) -> u32 {
        self.by_age.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_age.is_empty()
    }

    /// Number of connections that carry flights.
    pub fn connections(&self) -> u32 {
        self.connections
    }

    /// The flight that has been under way longest.
    pub fn oldest(&self) -> Option<FlightId> {
        self.by_age.first().map(FlightId)
    }

    /// The flight that was sent first in a connection's list.
    pub fn first_in(&self, of_connection: &List) -> Option<FlightId> {
        of_connection.first().map(FlightId)
    }

    /// Begins a flight on the connection that has this list. Calls must come in the order of
    /// `begun`.
    pub fn begin(&mut self, of_connection: &mut List, flight: Flight) -> FlightId {
        let id = self.enter(flight);
        self.connections += u32::from(of_connection.is_empty());
        ByAge(&mut self.entries).push(&mut self.by_age, id);
        OnConnections(&mut self.entries).push(of_connection, id);
        FlightId(id)
    }

    /// Begins a copy of `first` right behind it, for a request that is sent in the same bytes.
    pub fn begin_beside(&mut self, of_connection: &mut List, first: FlightId) -> FlightId {
        let id = self.enter(self[first]);
        ByAge(&mut self.entries).insert_behind(&mut self.by_age, first.0, id);
        OnConnections(&mut self.entries).insert_behind(of_connection, first.0, id);
        FlightId(id)
    }

    fn enter(&mut self, flight: Flight) -> u32 {
        match self.free.pop() {
            Some(id) => {
                self.entries[id as usize].flight = flight;
                id
            }
            None => {
                self.entries.push(Entry { flight, age: Link::NONE, neighbours: Link::NONE });
                self.entries.len() as u32 - 1
            }
        }
    }

    /// Ends a flight and returns it.
    pub fn end(&mut self, of_connection: &mut List, id: FlightId) -> Flight {
        ByAge(&mut self.entries).remove(&mut self.by_age, id.0);
        OnConnections(&mut self.entries).remove(of_connection, id.0);
        self.connections -= u32::from(of_connection.is_empty());
        self.free.push(id.0);
        self[id]
    }
}

impl Index<FlightId> for Flights {
    type Output = Flight;

    fn index(&self, id: FlightId) -> &Flight {
        &self.entries[id.0 as usize].flight
    }
}

impl IndexMut<FlightId> for Flights {
    fn index_mut(&mut self, id: FlightId) -> &mut Flight {
        &mut self.entries[id.0 as usize].flight
    }
}

/// The flights of one connection, as its codec sees them while it decodes.
pub struct ConnectionFlights<'a> {
    flights: &'a mut Flights,
    list: &'a List,
    now: Instant,
}

impl<'a> ConnectionFlights<'a> {
    pub(crate) fn new(flights: &'a mut Flights, list: &'a List, now: Instant) -> Self {
        Self { flights, list, now }
    }

    /// The flight that was sent first, if any is under way.
    pub fn first(&self) -> Option<FlightId> {
        self.flights.first_in(self.list)
    }

    /// Records the first byte of its reply, unless that was recorded before.
    pub fn record_first_byte(&mut self, id: FlightId) -> &Flight {
        let flight = &mut self.flights[id];
        flight.first_byte.get_or_insert(self.now);
        flight
    }
}
