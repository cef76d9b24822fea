//! Opens connections, does their handshakes, sends on them, and closes them.

use std::cmp::Reverse;

use tare_io::{Close, DurationNs, Instant, Outgoing, Reactor, Token};

use super::connection::State;
use super::flights::{Flight, FlightId, PendingRequest};
use super::requests::Connected;
use super::{Engine, Lifetime, Phase};
use crate::codec::{Codec, Room};
use crate::failure::{FailureKind, RequestFailure};
use crate::protocol::reply::ReplyDefect;

impl Engine {
    /// Opens the kept connections, so that no request has to wait for one.
    pub fn open<R: Reactor>(&mut self, io: &mut R) {
        assert_eq!(self.phase, Phase::Idle, "open before the first stretch");
        let now = io.now();
        self.kept_id = Some(io.keep(self.kept.clone()));
        self.tally.reset(now);
        self.phase = Phase::Opening;
        if self.config.lifetime == Lifetime::PerRequest {
            return;
        }
        for _ in 0..self.config.connections {
            if let Some(slot) = self.free.pop() {
                self.opening += 1;
                self.connect(io, slot, now);
            }
        }
    }

    /// Closes every connection.
    pub fn close<R: Reactor>(&mut self, io: &mut R) {
        for slot in 0..self.connections.len() as u32 {
            if self.connections[slot as usize].state != State::Free {
                let token = self.connections[slot as usize].token;
                self.life.data_segments += io.data_segments(token).unwrap_or(0);
                self.drop_connection(io, slot);
            }
        }
    }

    pub(super) fn connect<R: Reactor>(&mut self, io: &mut R, slot: u32, now: Instant) {
        let from = match self.config.bind.len() {
            0 => None,
            n => {
                self.binds = (self.binds + 1) % n;
                Some(self.config.bind[self.binds])
            }
        };
        let connection = &mut self.connections[slot as usize];
        assert_eq!(connection.state, State::Free, "slot {slot}");
        connection.state = State::Connecting;
        connection.token = io.connect(slot, &self.config.endpoint, from);
        if connection.flights.is_empty() {
            self.waits.start(slot, now);
        }
    }

    pub(super) fn on_connected<R: Reactor>(&mut self, io: &mut R, slot: u32, now: Instant) {
        let connection = &mut self.connections[slot as usize];
        connection.connected = now;
        let Some(tls) = &self.config.tls else {
            return self.established(io, slot, now);
        };
        match tls.session() {
            Ok(session) => {
                connection.tls = Some(Box::new(session));
                connection.state = State::Handshaking;
                self.send_tls(io, slot, now);
            }
            Err(text) => self.fail(io, slot, RequestFailure::Tls(text), now),
        }
    }

    /// Takes a connection into use after its handshakes.
    pub(super) fn established<R: Reactor>(&mut self, io: &mut R, slot: u32, now: Instant) {
        let connection = &mut self.connections[slot as usize];
        let alpn = connection.tls.as_ref().and_then(|tls| tls.alpn());
        if let Err(defect) = self.codec.established(slot, alpn, &mut self.codec_output) {
            return self.fail(io, slot, defect.into(), now);
        }
        self.tally.counts.opened += 1;
        if let Some(tls) = &connection.tls {
            self.life.tls.get_or_insert_with(|| tls.negotiated());
            if tls.was_resumed() {
                self.tally.counts.handshakes_resumed += 1;
            } else {
                self.tally.counts.handshakes_full += 1;
            }
        }
        connection.established = now;
        connection.state = State::Open;
        connection.unsent = !connection.flights.is_empty();
        if !connection.unsent {
            self.waits.stop(slot);
            self.opening -= 1;
        }
        if self.queue_codec_output(io, slot, now) == Connected::No {
            return;
        }
        self.go_on(io, slot, now);
    }

    /// Offers an open connection for requests, or closes it if it takes no more and is empty.
    pub(super) fn go_on<R: Reactor>(&mut self, io: &mut R, slot: u32, now: Instant) {
        self.take_room(io, slot, now);
        let connection = &self.connections[slot as usize];
        match connection.draining && connection.flights.is_empty() {
            true => self.end_drained(io, slot),
            false => self.offer(slot),
        }
    }

    /// Asks the codec whether the connection takes requests, and sends the request that it was
    /// opened for if that is still waiting.
    #[inline]
    pub(super) fn take_room<R: Reactor>(&mut self, io: &mut R, slot: u32, now: Instant) {
        let connection = &mut self.connections[slot as usize];
        (connection.capacity, connection.draining) = match self.codec.room(slot) {
            Room::Ready(requests) => (requests, false),
            Room::Blocked => (0, false),
            Room::Draining => (0, true),
        };
        if connection.retired {
            (connection.capacity, connection.draining) = (0, true);
        }
        // A server may allow no request at all, but not for longer than the timeout.
        let is_empty = connection.flights.is_empty() && connection.rest.is_none();
        if !self.is_half_duplex && is_empty && !connection.draining {
            match (connection.capacity, self.waits.is_waiting(slot)) {
                (0, false) => self.waits.start(slot, now),
                (1.., true) => self.waits.stop(slot),
                _ => {}
            }
        }
        let connection = &mut self.connections[slot as usize];
        if connection.unsent
            && let Some(flight) = self.flights.first_in(&connection.flights)
        {
            if connection.capacity > 0 {
                connection.unsent = false;
                self.send_request(io, slot, flight, now);
            } else if connection.draining {
                connection.unsent = false;
                self.refuse(flight, now);
            }
        }
    }

    /// Takes back a request that the server did not process. It is sent again, or fails after too
    /// many refusals.
    pub(super) fn refuse(&mut self, flight: FlightId, now: Instant) {
        let times = self.flights[flight].refusals + 1;
        let is_late = self.flights[flight].first_begun + self.config.timeout <= now;
        if times > REFUSALS_MAX || is_late || matches!(self.phase, Phase::Drain { .. }) {
            let defect = ReplyDefect::RefusedAgain { times };
            return self.fail_flight(flight, &defect.into(), now);
        }
        self.tally.counts.refused += 1;
        let Flight { due, sent, first_begun, asked, .. } = self.end_flight(flight);
        let (sent, begun) = (Some(sent), Some(first_begun));
        self.refused.push_back(PendingRequest { due, sent, begun, asked, times });
    }

    /// Fails refused requests for which no connection has had room within the timeout.
    pub(super) fn expire_refused(&mut self, now: Instant) {
        let limit = self.config.timeout;
        while let Some(pending) = self.refused.front().copied()
            && pending.begun.is_some_and(|begun| begun + limit <= now)
        {
            self.refused.pop_front();
            self.tally.counts.failed += 1;
            let defect = ReplyDefect::RefusedAgain { times: pending.times };
            self.tally.failures.add(&defect.into(), 1);
            self.tally.latency.failed_after.record(now.since(pending.due));
        }
    }

    /// Sends what TLS has to send.
    pub(super) fn send_tls<R: Reactor>(&mut self, io: &mut R, slot: u32, now: Instant) {
        let connection = &mut self.connections[slot as usize];
        let Some(tls) = &mut connection.tls else { return };
        match tls.take_outgoing(&mut connection.outgoing) {
            Ok(()) => self.flush(io, slot),
            Err(text) => self.fail(io, slot, RequestFailure::Tls(text), now),
        }
    }

    pub(super) fn flush<R: Reactor>(&mut self, io: &mut R, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        if connection.sending || connection.outgoing.is_empty() {
            return;
        }
        let spare = std::mem::take(&mut connection.spare);
        let bytes = std::mem::replace(&mut connection.outgoing, spare);
        self.tally.counts.sent_bytes += bytes.len() as u64;
        connection.sending = true;
        io.send(connection.token, Outgoing::Owned(bytes));
    }

    pub(super) fn on_sent<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        spent: Vec<u8>,
        now: Instant,
    ) {
        let connection = &mut self.connections[slot as usize];
        connection.sending = false;
        match connection.outgoing.capacity() {
            _ if spent.capacity() == 0 => {}
            0 => connection.outgoing = spent,
            _ => connection.spare = spent,
        }
        self.send_more(io, slot, now);
        self.offer(slot);
    }

    /// Sends what is waiting, in order: queued bytes, the rest of the last request, then bodies
    /// that the codec holds back. At most one piece of these is queued at a time, so that a peer
    /// that does not read costs no memory.
    pub(super) fn send_more<R: Reactor>(&mut self, io: &mut R, slot: u32, now: Instant) {
        let connection = &mut self.connections[slot as usize];
        if connection.sending {
            return;
        }
        if !connection.outgoing.is_empty() {
            // The start of a body leaves with its head.
            if self.pours_bodies && connection.outgoing.len() < PIECE_BYTES {
                let room = PIECE_BYTES - connection.outgoing.len();
                self.codec.pour(slot, room, &mut self.codec_output);
                if self.put_codec_output(io, slot, now) == Connected::No {
                    return;
                }
            }
            return self.flush(io, slot);
        }
        if let Some(rest) = connection.rest.take() {
            let Some(tls) = &mut connection.tls else {
                let Some(kept) = self.kept_id else { return };
                self.tally.counts.sent_bytes += rest.len() as u64;
                connection.sending = true;
                io.send(connection.token, Outgoing::Kept(kept, rest));
                self.waits.stop(slot);
                return self.offer(slot);
            };
            let end = rest.end.min(rest.start + PIECE_BYTES);
            connection.rest = (end < rest.end).then_some(end..rest.end);
            if connection.rest.is_none() {
                self.waits.stop(slot);
            }
            let encrypted = tls.encrypt(&self.kept[rest.start..end], &mut connection.outgoing);
            if self.flush_handed(io, slot, encrypted, now) == Connected::Yes {
                self.offer(slot);
            }
        } else if self.pours_bodies {
            self.codec.pour(slot, PIECE_BYTES, &mut self.codec_output);
            if !self.codec_output.is_empty() {
                self.send_codec_output(io, slot, now);
            }
        }
    }

    /// Fails this connection and all requests that it carries.
    pub(super) fn fail<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        failure: RequestFailure,
        now: Instant,
    ) {
        let connection = &mut self.connections[slot as usize];
        let reached = connection.is_established();
        if connection.flights.is_empty() {
            // An established connection that ends without a request is no failure, unless the
            // server has sent something unasked.
            if !reached || failure.kind() == FailureKind::Malformed {
                self.tally.failures.add(&failure, 1);
            }
            self.opening -= u32::from(!reached);
        }
        while let Some(flight) = self.flights.first_in(&self.connections[slot as usize].flights) {
            self.fail_flight(flight, &failure, now);
        }
        let counts = &mut self.tally.counts;
        match (reached, is_close_by_server(&failure)) {
            (false, _) => counts.not_opened += 1,
            (true, true) => {
                counts.closed_by_server += 1;
                self.life.closed_by_server += 1;
            }
            (true, false) => counts.closed_by_client += 1,
        }
        self.release_slot(io, slot);
        if !reached {
            self.rest_slot(slot, now + REST_AFTER_FAILED_CONNECT);
        }
    }

    /// Takes a flight off its connection.
    pub(super) fn end_flight(&mut self, flight: FlightId) -> Flight {
        let slot = self.flights[flight].slot;
        self.flights.end(&mut self.connections[slot as usize].flights, flight)
    }

    /// Ends a request without a reply: failed, or cut if it is in the drain.
    pub(super) fn fail_flight(&mut self, flight: FlightId, failure: &RequestFailure, now: Instant) {
        let flight = self.end_flight(flight);
        match self.phase {
            Phase::Drain { .. } => {
                self.tally.counts.cut += 1;
                self.tally.latency.unfinished_age.record(now.since(flight.due));
            }
            _ => {
                self.tally.counts.failed += 1;
                self.tally.failures.add(failure, 1);
                self.tally.latency.failed_after.record(now.since(flight.due));
            }
        }
    }

    /// Fails a request that has timed out, and its connection too unless that can go on.
    pub(super) fn give_up<R: Reactor>(&mut self, io: &mut R, flight: FlightId, now: Instant) {
        let slot = self.flights[flight].slot;
        let connection = &self.connections[slot as usize];
        let is_sent = connection.state == State::Open && !connection.unsent;
        if !is_sent || !self.codec.cancel(slot, flight, &mut self.codec_output) {
            return self.fail(io, slot, RequestFailure::TimedOut, now);
        }
        let begun = self.flights[flight].begun;
        let connection = &mut self.connections[slot as usize];
        connection.retired |= connection.received < begun;
        self.fail_flight(flight, &RequestFailure::TimedOut, now);
        if self.queue_codec_output(io, slot, now) == Connected::Yes {
            self.settle(io, slot, now);
        }
    }

    /// Closes a drained connection. It counts as closed by the server, which takes no more requests.
    pub(super) fn end_drained<R: Reactor>(&mut self, io: &mut R, slot: u32) {
        if self.connections[slot as usize].retired {
            return self.drop_connection(io, slot);
        }
        self.tally.counts.closed_by_server += 1;
        self.life.closed_by_server += 1;
        self.release_slot(io, slot);
    }

    /// Closes a connection that carries nothing.
    pub(super) fn drop_connection<R: Reactor>(&mut self, io: &mut R, slot: u32) {
        self.tally.counts.closed_by_client += 1;
        self.release_slot(io, slot);
    }

    /// Closes a connection and frees its slot; every connection ends here.
    pub(super) fn release_slot<R: Reactor>(&mut self, io: &mut R, slot: u32) {
        self.waits.stop(slot);
        let connection = &mut self.connections[slot as usize];
        io.close(connection.token, Close::Graceful);
        connection.token = Token::NONE;
        connection.tls = None;
        self.codec_output.clear();
        connection.outgoing.clear();
        connection.rest = None;
        connection.unsent = false;
        connection.gathers = false;
        connection.retired = false;
        connection.sending = false;
        // A resting slot becomes free when its rest is over.
        if connection.state != State::Resting {
            self.free.push(slot);
        }
        connection.state = State::Free;
    }

    /// Keeps a slot, connected or free, out of use until `until`.
    pub(super) fn rest_slot(&mut self, slot: u32, until: Instant) {
        let connection = &mut self.connections[slot as usize];
        match connection.state {
            State::Free => self.free.retain(|free| *free != slot),
            _ => connection.state = State::Resting,
        }
        self.resting.push(Reverse((until, slot)));
    }
}

/// A request that is refused more often fails. A server that closes connections often refuses most
/// of the open streams each time.
const REFUSALS_MAX: u8 = 100;

/// Longer requests are sent in pieces of this size.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// Pause of a slot after a failed connect, so that a dead server is not retried in a busy loop.
const REST_AFTER_FAILED_CONNECT: DurationNs = DurationNs::from_ms(10);

fn is_close_by_server(failure: &RequestFailure) -> bool {
    match failure {
        RequestFailure::Reply(defect) => defect.is_early_close(),
        RequestFailure::Errno(_) => true,
        RequestFailure::TimedOut | RequestFailure::Tls(_) => false,
    }
}
