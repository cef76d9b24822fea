//! Sends requests, receives replies and counts them.

use std::ops::RangeInclusive;

use tare_io::reactor::{Chunk, QUIET_SEND_MAX_BYTES};
use tare_io::{DurationNs, Instant, Outgoing, Reactor};

use super::connection::{OUTGOING_MAX_BYTES, State};
use super::flights::{ConnectionFlights, Flight, FlightId, PendingRequest};
use super::opening::PIECE_BYTES;
use super::{Engine, Lifetime, Phase};
use crate::codec::{Codec, Decoded, Request, RequestBytes};
use crate::failure::RequestFailure;
use crate::protocol::reply::{GOOD, Reply, ReplyDefect};
use crate::source::Source;
use crate::tls::TlsSession;

/// Linux delays an acknowledgement by 40 ms if it has nothing else to send. A server that uses
/// Nagle's algorithm sends the rest of its reply only then.
const ACK_DELAY: RangeInclusive<DurationNs> = DurationNs::from_ms(38)..=DurationNs::from_ms(55);

impl Engine {
    /// Starts a request on `slot`: on its connection, which has room, or on a new one.
    pub(super) fn start_flight<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        refused: PendingRequest,
        now: Instant,
    ) {
        let connection = &mut self.connections[slot as usize];
        let opened_for_it = connection.state == State::Free;
        let flight = Flight {
            due: refused.due,
            begun: now,
            sent: refused.sent.unwrap_or(now),
            first_byte: None,
            slot,
            to_head: false,
            opened_for_it,
            refusals: refused.times,
            first_begun: refused.begun.unwrap_or(now),
            asked: refused.asked,
        };
        let flight = self.flights.begin(&mut connection.flights, flight);
        if opened_for_it {
            self.connect(io, slot, now);
        } else {
            self.send_request(io, slot, flight, now);
            self.offer(slot);
        }
    }

    pub(super) fn send_request<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        flight: FlightId,
        now: Instant,
    ) {
        let connection = &mut self.connections[slot as usize];
        connection.scratch.clear();
        // A request that was refused is sent again as it was.
        let asked = match self.flights[flight].asked {
            Some(asked) => asked,
            None => self.source.next(&mut connection.scratch),
        };
        self.flights[flight].asked = Some(asked);
        self.stop_asked |= self.source.wants_stop();
        let request = Request { flight, asked, written: &connection.scratch };
        let encoded = self.codec.encode(slot, request, &mut self.codec_output);
        let entry = &mut self.flights[flight];
        entry.to_head = encoded.to_head;
        if entry.refusals == 0 {
            entry.sent = match encoded.bytes {
                RequestBytes::Kept(_) => now,
                // Writing the request took time.
                RequestBytes::Written | RequestBytes::Added => io.now(),
            };
        }
        self.life.sent += u64::from(encoded.requests);
        if encoded.requests > 1 {
            self.begin_others(slot, flight, encoded.requests - 1);
        }
        let connection = &mut self.connections[slot as usize];
        let is_idle = self.codec_output.is_empty()
            // The server may have answered before it had read all of the last request.
            && !connection.sending
            && connection.outgoing.is_empty();
        if let RequestBytes::Kept(range) = &encoded.bytes
            && is_idle
            && connection.tls.is_none()
            && let Some(kept) = self.kept_id
        {
            self.tally.counts.sent_bytes += range.len() as u64;
            // If more may follow before the reply, the kernel must report when this is sent.
            connection.sending = range.len() > QUIET_SEND_MAX_BYTES || !self.is_half_duplex;
            let outgoing = match connection.sending {
                true => Outgoing::Kept(kept, range.clone()),
                false => Outgoing::Quiet(kept, range.clone()),
            };
            return io.send(connection.token, outgoing);
        }
        let mut handed = put(&self.codec_output, &mut connection.tls, &mut connection.outgoing);
        self.codec_output.clear();
        let bytes = match encoded.bytes {
            RequestBytes::Added => &[],
            RequestBytes::Written => connection.scratch.as_slice(),
            RequestBytes::Kept(range) if range.len() > PIECE_BYTES => {
                connection.rest = Some(range);
                &[]
            }
            RequestBytes::Kept(range) => &self.kept[range],
        };
        handed = handed.and_then(|()| put(bytes, &mut connection.tls, &mut connection.outgoing));
        match handed {
            // More requests may start on this connection in this turn; all are sent at its end.
            Ok(()) if !self.is_half_duplex => self.gather(slot),
            Ok(()) => self.send_more(io, slot, now),
            Err(text) => self.fail(io, slot, RequestFailure::Tls(text), now),
        }
    }

    /// Sends what waits on a connection at the end of the turn.
    fn gather(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        if !connection.gathers {
            connection.gathers = true;
            self.gathering.push(slot);
        }
    }

    /// Sends the requests that this turn has started on connections that carry several.
    pub(super) fn send_gathered<R: Reactor>(&mut self, io: &mut R, now: Instant) {
        let mut at = 0;
        while let Some(slot) = self.gathering.get(at).copied() {
            at += 1;
            // Some may have closed since.
            if std::mem::take(&mut self.connections[slot as usize].gathers) {
                self.send_more(io, slot, now);
            }
        }
        self.gathering.clear();
    }

    /// Begins the other requests of a batch. The first was counted when it started; how many follow
    /// in the same bytes is known only when it is sent.
    #[cold]
    fn begin_others(&mut self, slot: u32, first: FlightId, more: u32) {
        let connection = &mut self.connections[slot as usize];
        for _ in 0..more {
            self.flights.begin_beside(&mut connection.flights, first);
        }
        self.tally.counts.started += u64::from(more);
        self.budget = self.budget.saturating_sub(u64::from(more));
    }

    /// Sends what the codec has written for this connection.
    pub(super) fn send_codec_output<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        now: Instant,
    ) -> Connected {
        let put = self.put_codec_output(io, slot, now);
        if put == Connected::Yes {
            self.flush(io, slot);
        }
        put
    }

    /// Like [`Self::send_codec_output`]; where requests are gathered, it leaves with them.
    pub(super) fn queue_codec_output<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        now: Instant,
    ) -> Connected {
        if self.codec_output.is_empty() {
            return Connected::Yes;
        }
        if self.is_half_duplex {
            return self.send_codec_output(io, slot, now);
        }
        let put = self.put_codec_output(io, slot, now);
        if put == Connected::Yes {
            self.gather(slot);
        }
        put
    }

    /// Appends what the codec has written to what waits to be sent.
    pub(super) fn put_codec_output<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        now: Instant,
    ) -> Connected {
        let connection = &mut self.connections[slot as usize];
        debug_assert!(connection.rest.is_none(), "said between the pieces of a request");
        let handed = put(&self.codec_output, &mut connection.tls, &mut connection.outgoing);
        self.codec_output.clear();
        let failure = match handed {
            Ok(()) if connection.outgoing.len() <= OUTGOING_MAX_BYTES => return Connected::Yes,
            Ok(()) => ReplyDefect::NotRead.into(),
            Err(text) => RequestFailure::Tls(text),
        };
        self.fail(io, slot, failure, now);
        Connected::No
    }

    pub(super) fn flush_handed<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        handed: Result<(), String>,
        now: Instant,
    ) -> Connected {
        match handed {
            Ok(()) => {
                self.flush(io, slot);
                Connected::Yes
            }
            Err(text) => {
                self.fail(io, slot, RequestFailure::Tls(text), now);
                Connected::No
            }
        }
    }

    pub(super) fn on_received<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        chunk: &Chunk,
        now: Instant,
    ) {
        self.tally.counts.received_bytes += io.chunk(chunk).len() as u64;
        self.connections[slot as usize].received = now;
        let outcome = if self.connections[slot as usize].tls.is_some() {
            self.take_ciphertext(io, slot, chunk, now)
        } else {
            self.take_plaintext(io, slot, chunk, now)
        };
        match outcome {
            Ok(Connected::Yes) => self.settle(io, slot, now),
            Ok(Connected::No) => {}
            // The codec may have written an error for the peer, which is sent first.
            Err(failure) if self.codec_output.is_empty() => self.fail(io, slot, failure, now),
            Err(failure) => {
                if self.send_codec_output(io, slot, now) == Connected::Yes {
                    self.fail(io, slot, failure, now);
                }
            }
        }
    }

    /// Decodes plain bytes in place.
    fn take_plaintext<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        chunk: &Chunk,
        now: Instant,
    ) -> Result<Connected, RequestFailure> {
        let mut at = 0;
        loop {
            let input = &io.chunk(chunk)[at..];
            let mut rest = input;
            let decoded = self.decode(slot, &mut rest, now)?;
            let left = rest.len();
            at += input.len() - left;
            if self.on_decoded(io, slot, decoded, left, now) == Connected::No {
                return Ok(Connected::No);
            }
            if left == 0 && !self.codec.has_more(slot) {
                return Ok(Connected::Yes);
            }
        }
    }

    fn take_ciphertext<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        chunk: &Chunk,
        now: Instant,
    ) -> Result<Connected, RequestFailure> {
        let mut at = 0;
        loop {
            let connection = &mut self.connections[slot as usize];
            let Some(tls) = &mut connection.tls else { return Ok(Connected::No) };
            let input = &io.chunk(chunk)[at..];
            let mut rest = input;
            let taken = tls.take_ciphertext(&mut rest);
            at += input.len() - rest.len();
            let done = rest.is_empty();
            // After an error, TLS sends an alert to the peer.
            if let Err(text) = taken {
                self.send_tls(io, slot, now);
                return Err(RequestFailure::Tls(text));
            }
            if !tls.is_handshaking() && connection.state == State::Handshaking {
                // The request goes out together with the end of the handshake.
                self.established(io, slot, now);
            }
            self.send_tls(io, slot, now);
            if self.take_decrypted(io, slot, now)? == Connected::No {
                return Ok(Connected::No);
            }
            if self.connections[slot as usize].tls.as_ref().is_some_and(|tls| tls.peer_closed()) {
                // The server's close_notify; it may keep the socket open until we close ours.
                self.on_eof(io, slot, now);
                return Ok(Connected::No);
            }
            if done {
                return Ok(Connected::Yes);
            }
        }
    }

    fn take_decrypted<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        now: Instant,
    ) -> Result<Connected, RequestFailure> {
        loop {
            // The session is taken out while its bytes are parsed, which borrows the whole engine.
            let Some(mut tls) = self.connections[slot as usize].tls.take() else {
                return Ok(Connected::No);
            };
            let input = tls.plaintext();
            let mut rest = input;
            let nothing = input.is_empty() && !self.codec.has_more(slot);
            let decoded = match nothing {
                true => Ok(None),
                false => self.decode(slot, &mut rest, now),
            };
            let (used, left) = (input.len() - rest.len(), rest.len());
            tls.consume_plaintext(used);
            self.connections[slot as usize].tls = Some(tls);
            if nothing {
                return Ok(Connected::Yes);
            }
            if self.on_decoded(io, slot, decoded?, left, now) == Connected::No {
                return Ok(Connected::No);
            }
        }
    }

    fn decode(
        &mut self,
        slot: u32,
        rest: &mut &[u8],
        now: Instant,
    ) -> Result<Option<Decoded>, RequestFailure> {
        let list = &self.connections[slot as usize].flights;
        let flights = &mut ConnectionFlights::new(&mut self.flights, list, now);
        Ok(self.codec.decode(slot, rest, flights, &mut self.codec_output)?)
    }

    /// Handles what the codec decoded; `left` more bytes of the same piece follow it.
    fn on_decoded<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        decoded: Option<Decoded>,
        left: usize,
        now: Instant,
    ) -> Connected {
        let connected = match decoded {
            None => Connected::Yes,
            Some(Decoded::Replied(flight, reply)) => {
                self.finish_reply(io, slot, flight, reply, left, now)
            }
            Some(Decoded::Lost(flight, defect)) => {
                self.fail_flight(flight, &defect.into(), now);
                Connected::Yes
            }
            Some(Decoded::Refused(flight)) => {
                self.refuse(flight, now);
                Connected::Yes
            }
        };
        match connected {
            Connected::Yes => self.queue_codec_output(io, slot, now),
            Connected::No => Connected::No,
        }
    }

    /// Finishes a whole reply; `left` more bytes of the same piece follow it.
    fn finish_reply<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        flight: FlightId,
        reply: Reply,
        left: usize,
        now: Instant,
    ) -> Connected {
        let connection = &mut self.connections[slot as usize];
        let flight = self.flights.end(&mut connection.flights, flight);
        connection.replies += 1;
        if self.is_watched
            && let Some(capture) = self.codec.capture(slot)
        {
            match &mut self.bodies {
                Some(bodies) if self.config.expected.contains(reply.status) => {
                    capture.hash_of_few().into_iter().for_each(|hash| bodies.add(hash));
                }
                Some(_) => {}
                None => self.source.on_reply(&reply, capture),
            }
            capture.forget();
            self.stop_asked |= self.source.wants_stop();
        }
        self.count_reply(&flight, &reply, now);
        let is_last = self.connections[slot as usize].flights.is_empty();
        let kept = self.config.lifetime == Lifetime::Kept;
        match (reply.keep_alive, is_last) {
            (true, true) if !kept => {
                // The server was asked to close but says that it will not: do not wait for it.
                self.drop_connection(io, slot);
                Connected::No
            }
            (true, _) => Connected::Yes,
            (false, true) if left > 0 => {
                self.drop_connection(io, slot);
                Connected::No
            }
            (false, true) => {
                self.await_goodbye(slot, now);
                Connected::Yes
            }
            (false, false) => {
                // The server closes before it has answered all that it was sent.
                self.fail(io, slot, ReplyDefect::ClosedBeforeReply.into(), now);
                Connected::No
            }
        }
    }

    /// Waits for the server to close first, so that TIME_WAIT (and the port that it holds) is on
    /// the server's side.
    fn await_goodbye(&mut self, slot: u32, now: Instant) {
        self.connections[slot as usize].state = State::Closing;
        self.waits.start(slot, now);
    }

    /// Gives a connection its next request, a rest or its end, once all received bytes are handled.
    pub(super) fn settle<R: Reactor>(&mut self, io: &mut R, slot: u32, now: Instant) {
        let connection = &mut self.connections[slot as usize];
        if connection.state != State::Open {
            return;
        }
        self.take_room(io, slot, now);
        if self.pours_bodies {
            self.send_more(io, slot, now);
        }
        let connection = &self.connections[slot as usize];
        if connection.state != State::Open || !connection.flights.is_empty() {
            return self.offer(slot);
        }
        if connection.rest.is_some() {
            // The reply came before all of the request was sent: the server has the usual timeout
            // to read the rest.
            return self.waits.start(slot, now);
        }
        if connection.draining {
            return self.end_drained(io, slot);
        }
        // The connection's only request has failed but left it open.
        if self.config.lifetime == Lifetime::PerRequest {
            return self.drop_connection(io, slot);
        }
        if connection.offered {
            return;
        }
        match self.source.rest() {
            DurationNs::ZERO => self.offer(slot),
            rest => self.rest_slot(slot, now + rest),
        }
    }

    fn count_reply(&mut self, flight: &Flight, reply: &Reply, now: Instant) {
        self.life.answered += 1;
        let tally = &mut *self.tally;
        if let Phase::Drain { .. } = self.phase {
            tally.counts.drained += 1;
            tally.latency.unfinished_age.record(now.since(flight.due));
            return;
        }
        let since = match self.config.lifetime {
            Lifetime::Kept => flight.sent,
            Lifetime::PerRequest => flight.first_begun,
        };
        tally.counts.completed += 1;
        tally.counts.add_status(reply.status, 1);
        tally.counts.body_bytes += reply.body_bytes;
        let open_loop = self.pacer.is_open_loop();
        if !self.config.expected.contains(reply.status) || reply.code != GOOD {
            let since = if open_loop { flight.due } else { since };
            tally.latency.unexpected.record(now.since(since));
            return;
        }
        tally.counts.good += 1;
        let whole_after = flight.first_byte.map_or(DurationNs::ZERO, |begun| now.since(begun));
        tally.counts.held += u64::from(ACK_DELAY.contains(&whole_after));
        tally.latency.from_sent.record(now.since(since));
        if self.config.lifetime == Lifetime::PerRequest {
            let connection = &self.connections[flight.slot as usize];
            tally.latency.connect.record(connection.connected.since(flight.begun));
            if self.config.tls.is_some() {
                tally.latency.tls.record(connection.established.since(connection.connected));
            }
            let first_byte = flight.first_byte.unwrap_or(now);
            tally.latency.first_byte.record(first_byte.since(flight.sent));
        }
        if open_loop {
            tally.latency.from_due.record(now.since(flight.due));
            let handed_over = if flight.opened_for_it { flight.begun } else { flight.sent };
            tally.latency.send_lag.record(handed_over.since(flight.due));
        }
    }

    /// Handles the server closing its side.
    pub(super) fn on_eof<R: Reactor>(&mut self, io: &mut R, slot: u32, now: Instant) {
        let connection = &mut self.connections[slot as usize];
        match connection.state {
            State::Closing | State::Open | State::Resting if connection.flights.is_empty() => {
                self.tally.counts.closed_by_server += 1;
                self.life.closed_by_server += 1;
                self.release_slot(io, slot);
            }
            State::Handshaking => {
                let text = "connection closed during the handshake".to_owned();
                self.fail(io, slot, RequestFailure::Tls(text), now);
            }
            _ => {
                let clean = connection.tls.as_ref().is_none_or(|tls| tls.peer_closed());
                let flights =
                    &mut ConnectionFlights::new(&mut self.flights, &connection.flights, now);
                match self.codec.on_close(slot, clean, flights) {
                    Ok(None) => {}
                    Ok(decoded) => {
                        if self.on_decoded(io, slot, decoded, 0, now) == Connected::Yes {
                            self.on_eof(io, slot, now);
                        }
                    }
                    Err(defect) => self.fail(io, slot, defect.into(), now),
                }
            }
        }
    }
}

/// Appends bytes, encrypted with TLS if there is any, to those that wait to be sent.
fn put(
    bytes: &[u8],
    tls: &mut Option<Box<TlsSession>>,
    outgoing: &mut Vec<u8>,
) -> Result<(), String> {
    match tls {
        _ if bytes.is_empty() => Ok(()),
        Some(tls) => tls.encrypt(bytes, outgoing),
        None => {
            outgoing.extend_from_slice(bytes);
            Ok(())
        }
    }
}

/// Whether the connection is still there after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connected {
    Yes,
    No,
}
