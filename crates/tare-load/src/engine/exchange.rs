//! Requests and replies: sent, received, finished.

use std::ops::RangeInclusive;

use tare_io::reactor::{Chunk, FIXED_SEND_MAX_BYTES};
use tare_io::{DurationNs, Instant, Outgoing, Reactor};

use super::connection::{Flight, State};
use super::{Engine, Lifetime, Phase};
use crate::failure::Failure;
use crate::protocol::http1::{Reply, ReplyDefect};
use crate::source::AskedBytes;

/// Linux holds an acknowledgement back for 40 ms where it has nothing else to send; a server whose
/// sockets wait for it (Nagle's algorithm) sends the rest of its reply then.
const ACK_DELAY: RangeInclusive<DurationNs> = DurationNs::from_ms(38)..=DurationNs::from_ms(55);

impl Engine {
    /// Takes up a request on `slot`: on its idle connection, or on a new one.
    pub(super) fn start_flight<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        due: Instant,
        now: Instant,
    ) {
        self.in_flight += 1;
        let connection = &mut self.connections[slot as usize];
        let opened_for_it = connection.state == State::Free;
        connection.flight = Some(Flight {
            due,
            begun: now,
            connected: now,
            established: now,
            sent: now,
            first_byte: None,
            replies_left: 1,
            to_head: false,
            opened_for_it,
        });
        self.tally.started += 1;
        self.tally.waited += u64::from(due <= self.all_busy_at);
        self.budget -= 1;
        if opened_for_it {
            self.connect(io, slot, now);
        } else {
            connection.state = State::Busy;
            self.deadlines.start(slot, now);
            self.send_request(io, slot, now);
        }
    }

    pub(super) fn send_request<R: Reactor>(&mut self, io: &mut R, slot: u32, now: Instant) {
        let connection = &mut self.connections[slot as usize];
        let Some(flight) = &mut connection.flight else { return };
        connection.scratch.clear();
        let asked = self.source.next(&mut connection.scratch);
        self.stop_asked |= self.source.wants_stop();
        flight.sent = match asked.bytes {
            AskedBytes::Fixed(_) => now,
            // The source took its time to make it.
            AskedBytes::InScratch => io.now(),
        };
        flight.to_head = asked.to_head;
        flight.replies_left = asked.replies;
        // The first was counted when it started; the rest of a pipelined batch is known only here.
        let more = u64::from(asked.replies) - 1;
        self.life.sent += u64::from(asked.replies);
        self.tally.started += more;
        self.budget = self.budget.saturating_sub(more);
        if let Some(greeting) = connection.take_greeting() {
            connection.outgoing.extend_from_slice(&greeting.bytes());
        }
        let bytes = match asked.bytes {
            AskedBytes::Fixed(bytes) => bytes,
            AskedBytes::InScratch => connection.scratch.as_slice(),
        };
        connection.reader.sent(bytes);
        let encrypted = match &mut connection.tls {
            Some(tls) => tls.encrypt(bytes, &mut connection.outgoing),
            None => match asked.bytes {
                // The server may have answered before it had read all of the last request.
                AskedBytes::Fixed(bytes)
                    if !connection.sending && connection.outgoing.is_empty() =>
                {
                    self.tally.sent_bytes += bytes.len() as u64;
                    connection.sending = bytes.len() > FIXED_SEND_MAX_BYTES;
                    let outgoing = match connection.sending {
                        true => Outgoing::Immortal(bytes),
                        false => Outgoing::Fixed(bytes),
                    };
                    return io.send(connection.token, outgoing);
                }
                _ => {
                    connection.outgoing.extend_from_slice(bytes);
                    Ok(())
                }
            },
        };
        match encrypted {
            Ok(()) => self.flush(io, slot),
            Err(text) => self.fail(io, slot, Failure::Tls(text), now),
        }
    }

    pub(super) fn on_received<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        chunk: &Chunk,
        now: Instant,
    ) {
        self.tally.received_bytes += io.chunk(chunk).len() as u64;
        let outcome = if self.connections[slot as usize].tls.is_some() {
            self.take_ciphertext(io, slot, chunk, now)
        } else {
            self.take_plaintext(io, slot, chunk, now)
        };
        if let Err(failure) = outcome {
            self.fail(io, slot, failure, now);
        }
    }

    /// Plain bytes: replies are parsed where they lie.
    fn take_plaintext<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        chunk: &Chunk,
        now: Instant,
    ) -> Result<(), Failure> {
        let mut at = 0;
        loop {
            let input = &io.chunk(chunk)[at..];
            if input.is_empty() {
                return Ok(());
            }
            let mut rest = input;
            let reply = self.parse(slot, &mut rest, now)?;
            at += input.len() - rest.len();
            if let Some(reply) = reply {
                let left = rest.len();
                if self.finish_reply(io, slot, reply, left, now) == Connected::No {
                    return Ok(());
                }
            }
        }
    }

    fn take_ciphertext<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        chunk: &Chunk,
        now: Instant,
    ) -> Result<(), Failure> {
        let mut at = 0;
        loop {
            let connection = &mut self.connections[slot as usize];
            let Some(tls) = &mut connection.tls else { return Ok(()) };
            let input = &io.chunk(chunk)[at..];
            let mut rest = input;
            let taken = tls.take_ciphertext(&mut rest);
            at += input.len() - rest.len();
            let done = rest.is_empty();
            // Also after an error: TLS tells the peer why, in an alert.
            if let Err(text) = taken {
                self.send_tls(io, slot, now);
                return Err(Failure::Tls(text));
            }
            if !tls.is_handshaking() && connection.state == State::Handshaking {
                // The request goes out together with the end of the handshake.
                self.established(io, slot, now);
            }
            self.send_tls(io, slot, now);
            if self.take_decrypted(io, slot, now)? == Connected::No {
                return Ok(());
            }
            if self.connections[slot as usize].tls.as_ref().is_some_and(|tls| tls.said_goodbye()) {
                // The server's end of the stream; it may keep the socket open until we end ours.
                self.on_eof(io, slot, now);
                return Ok(());
            }
            if done {
                return Ok(());
            }
        }
    }

    fn take_decrypted<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        now: Instant,
    ) -> Result<Connected, Failure> {
        loop {
            // The session is taken out while its bytes are parsed, which needs the whole engine.
            let Some(mut tls) = self.connections[slot as usize].tls.take() else {
                return Ok(Connected::No);
            };
            let input = tls.plaintext();
            let mut rest = input;
            let parsed = match input.is_empty() {
                true => Ok(None),
                false => self.parse(slot, &mut rest, now),
            };
            let (used, left) = (input.len() - rest.len(), rest.len());
            let nothing = input.is_empty();
            tls.consume_plaintext(used);
            self.connections[slot as usize].tls = Some(tls);
            if nothing {
                return Ok(Connected::Yes);
            }
            if let Some(reply) = parsed?
                && self.finish_reply(io, slot, reply, left, now) == Connected::No
            {
                return Ok(Connected::No);
            }
        }
    }

    fn parse(
        &mut self,
        slot: u32,
        rest: &mut &[u8],
        now: Instant,
    ) -> Result<Option<Reply>, Failure> {
        let connection = &mut self.connections[slot as usize];
        let Some(flight) = &mut connection.flight else {
            return Err(ReplyDefect::Unasked { bytes: rest.len() }.into());
        };
        if flight.first_byte.is_none() {
            flight.first_byte = Some(now);
        }
        Ok(connection.reader.advance(rest, flight.to_head, &mut self.memo)?)
    }

    /// A reply is whole; `left` more bytes of its chunk follow it.
    fn finish_reply<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        reply: Reply,
        left: usize,
        now: Instant,
    ) -> Connected {
        let connection = &mut self.connections[slot as usize];
        let Some(mut flight) = connection.flight.take() else { return Connected::No };
        connection.replies += 1;
        if let Some(capture) = connection.reader.capture() {
            self.source.on_reply(&reply, capture);
            capture.forget();
            self.stop_asked |= self.source.wants_stop();
        }
        self.count_reply(&flight, &reply, now);
        flight.replies_left -= 1;
        if flight.replies_left > 0 && reply.keep_alive {
            self.connections[slot as usize].flight = Some(flight);
            return Connected::Yes;
        }
        if flight.replies_left > 0 {
            // The server closes in the middle of a pipelined batch.
            self.connections[slot as usize].flight = Some(flight);
            self.fail(io, slot, ReplyDefect::ClosedBeforeReply.into(), now);
            return Connected::No;
        }
        self.in_flight -= 1;
        self.deadlines.stop(slot);
        self.after_flight(io, slot, reply.keep_alive, left, now)
    }

    fn after_flight<R: Reactor>(
        &mut self,
        io: &mut R,
        slot: u32,
        keep_alive: bool,
        left: usize,
        now: Instant,
    ) -> Connected {
        let kept = self.config.lifetime == Lifetime::Kept;
        if keep_alive && !kept {
            // Asked to close, the server says that it will not: waiting for it would be in vain.
            self.drop_connection(io, slot);
            return Connected::No;
        }
        if !keep_alive {
            // The server goes first, so that the wait state of closed connections (and their
            // ports) is its own, not ours.
            self.connections[slot as usize].state = State::Closing;
            self.deadlines.start(slot, now);
            if left == 0 {
                return Connected::Yes;
            }
            self.drop_connection(io, slot);
            return Connected::No;
        }
        if left > 0 {
            self.fail(io, slot, ReplyDefect::Unasked { bytes: left }.into(), now);
            return Connected::No;
        }
        self.connections[slot as usize].state = State::Idle;
        match self.source.rest() {
            DurationNs::ZERO => self.idle.push_back(slot),
            rest => self.rest_slot(slot, now + rest),
        }
        Connected::Yes
    }

    fn count_reply(&mut self, flight: &Flight, reply: &Reply, now: Instant) {
        self.life.answered += 1;
        let tally = &mut *self.tally;
        if let Phase::Drain { .. } = self.phase {
            tally.unfinished.drained += 1;
            tally.latency.unfinished_age.record(now.since(flight.due));
            return;
        }
        let since = match self.config.lifetime {
            Lifetime::Kept => flight.sent,
            Lifetime::PerRequest => flight.begun,
        };
        tally.completed += 1;
        tally.status.add(reply.status, 1);
        tally.body_bytes += reply.body_bytes;
        let open_loop = self.pacer.is_open_loop();
        if !self.config.expected.contains(reply.status) {
            let since = if open_loop { flight.due } else { since };
            tally.latency.unexpected.record(now.since(since));
            return;
        }
        tally.good += 1;
        let whole_after = flight.first_byte.map_or(DurationNs::ZERO, |begun| now.since(begun));
        tally.held += u64::from(ACK_DELAY.contains(&whole_after));
        tally.latency.from_sent.record(now.since(since));
        if self.config.lifetime == Lifetime::PerRequest {
            tally.latency.connect.record(flight.connected.since(flight.begun));
            if self.config.tls.is_some() {
                tally.latency.tls.record(flight.established.since(flight.connected));
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

    /// The server closed its side.
    pub(super) fn on_eof<R: Reactor>(&mut self, io: &mut R, slot: u32, now: Instant) {
        let connection = &mut self.connections[slot as usize];
        match connection.state {
            State::Closing | State::Idle | State::Resting => {
                self.tally.connections.closed_by_server += 1;
                self.life.closed_by_server += 1;
                self.release_slot(io, slot);
            }
            State::Handshaking => {
                let text = "connection closed during the handshake".to_owned();
                self.fail(io, slot, Failure::Tls(text), now);
            }
            _ => {
                let clean = connection.tls.as_ref().is_none_or(|tls| tls.said_goodbye());
                match connection.reader.on_close(clean) {
                    Ok(Some(reply)) => {
                        if self.finish_reply(io, slot, reply, 0, now) == Connected::Yes {
                            self.on_eof(io, slot, now);
                        }
                    }
                    Ok(None) => {}
                    Err(defect) => self.fail(io, slot, defect.into(), now),
                }
            }
        }
    }
}

/// Whether the connection is still there after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connected {
    Yes,
    No,
}
