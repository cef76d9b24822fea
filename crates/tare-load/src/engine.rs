//! The load engine: a state machine of one worker's connections, fed with completions.
//!
//! It starts requests when its [`Pacer`] says, on connections it opens through a [`Reactor`], and
//! counts what comes of them in a [`Tally`]. It never blocks, reads no clock but the reactor's, and
//! does not know whether the network is real.
//!
//! A request's life is a [`Flight`]: due → (connect → handshake →) sent → first byte → done or
//! failed. A connection's life is a [`State`], and it carries as many flights as the engine's
//! [`Codec`] lets it.

mod connection;
mod exchange;
mod flights;
mod links;
mod opening;
mod waits;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tare_io::{
    Completion, DurationNs, Endpoint, Happened, Instant, KeptId, Reactor, SocketOptions, Wait,
};
use tare_model::net::Protocol;
use tare_model::status::StatusSet;

use crate::bodies::Bodies;
use crate::codec::{AnyCodec, Codec};
use crate::failure::RequestFailure;
use crate::pacer::Pacer;
use crate::protocol::capture::Wanted;
use crate::protocol::messages::Messages;
use crate::source::{AnySource, Source};
use crate::tally::{Series, Tally};
use crate::tls::TlsClient;

use connection::{Connection, State};
pub use flights::{Flight, FlightId, OfConnection};
use flights::{Flights, Refused};
use waits::Waits;

/// What one worker's engine is to do; everything resolved.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineConfig {
    pub endpoint: Endpoint,
    pub protocol: Protocol,
    pub sockets: SocketOptions,
    /// Source addresses, used in turn; empty leaves the choice to the kernel.
    pub bind: Vec<IpAddr>,
    /// Connections kept, or requests at a time.
    pub connections: u32,
    /// Open loop: how many connections there may be when all are busy.
    pub max_connections: u32,
    pub lifetime: Lifetime,
    pub tls: Option<TlsClient>,
    /// The most time from when a request is sent (or its connection started) to its reply's end.
    pub timeout: DurationNs,
    /// Statuses that count as good throughput.
    pub expected: StatusSet,
    pub wait: WaitPolicy,
}

impl EngineConfig {
    /// What an engine exchanges, where it is not HTTP.
    pub fn messages(&self) -> Option<Messages> {
        let Protocol::Messages { request_bytes, reply_bytes } = self.protocol else { return None };
        let close = self.lifetime == Lifetime::PerRequest;
        Some(Messages::over(&self.endpoint, request_bytes, reply_bytes, close))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifetime {
    /// Connections are used again and again.
    Kept,
    /// Every request has a connection of its own.
    PerRequest,
}

impl Lifetime {
    pub(crate) fn of(new_connections: bool) -> Self {
        if new_connections { Self::PerRequest } else { Self::Kept }
    }
}

/// How precisely to wake, against what it costs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitPolicy {
    /// Closed loop: gather up to so many replies in one system call …
    pub batch_max: u32,
    /// … for at most so long.
    pub linger: DurationNs,
    /// Open loop: poll this long before a request is due.
    pub spin: DurationNs,
    /// Poll while there is load, and never sleep: a server on the same machine pays for waking its
    /// client, as one elsewhere does not, and the more the slower it is.
    pub polls: bool,
}

/// One stretch of load: the ramp is thrown away, the window counts, the drain does not.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stretch {
    /// It begins at this instant of the clock of whoever makes it; `None` begins at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_at: Option<Instant>,
    pub ramp: DurationNs,
    pub window: DurationNs,
    /// Ends the window early once so many requests have ended.
    pub requests: Option<u64>,
    /// Tallies are handed over this often; the window is the sum of its intervals.
    pub interval: DurationNs,
    /// Intervals are handed over as they end; else it is only marked how far they got.
    #[serde(default)]
    pub hands_over: bool,
    /// The window opens and closes with a reply, the first after it was to. What it holds is then a
    /// whole number of replies in exactly the time they took, where a window cut by the clock is
    /// off by up to one of them. Closed loop only: an open loop counts what its schedule holds.
    pub edges: Edges,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Edges {
    Clock,
    Replies,
}

impl Stretch {
    /// No load at all: what a plan holds until it is known how long its load is.
    pub const NONE: Self = Self {
        start_at: None,
        ramp: DurationNs::ZERO,
        window: DurationNs::ZERO,
        requests: None,
        // One interval, however long it is.
        interval: DurationNs::from_secs(24 * 3600),
        hands_over: false,
        edges: Edges::Clock,
    };
}

/// Where finished tallies go.
pub trait IntervalSink {
    /// The window opens: what is measured beside the tally (CPU time) starts now, and of that what
    /// polling for nothing takes, `idle` by now; …
    fn window_opened(&mut self, _idle: DurationNs) {}

    /// … and ends now; the drain that follows is not part of it.
    fn window_closed(&mut self, _idle: DurationNs) {}

    /// Takes a finished interval and puts a spare tally in its place. `false` where nobody has
    /// room: the engine goes on counting in it, so the interval is longer but nothing is lost.
    fn exchange(&mut self, tally: &mut Box<Tally>) -> bool;
}

/// What the engine wants next.
#[derive(Debug)]
pub enum Next {
    Wait(Wait),
    /// The phase that was begun is over: connections open, or the stretch drained.
    Finished,
}

/// Requests started on one reading of the clock: a few µs of work.
const STARTS_A_CLOCK_READING: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Opening,
    Ramp { until: Instant },
    Window { until: Instant, next_interval: Instant },
    Drain { until: Instant },
}

pub struct Engine {
    config: EngineConfig,
    source: AnySource,
    codec: AnyCodec,
    /// Cached from the codec, as the two below.
    is_half_duplex: bool,
    pours_bodies: bool,
    kept: Arc<[u8]>,
    /// The reactor's number for `kept`; set when connections are opened.
    kept_id: Option<KeptId>,
    /// The source looks at replies.
    is_watched: bool,
    /// Hashes of sampled bodies; `None` if none are sampled.
    bodies: Option<Bodies>,
    pacer: Pacer,
    phase: Phase,
    stretch: Stretch,
    connections: Vec<Connection>,
    flights: Flights,
    /// Requests that a server refused without processing them: they go out again before others do.
    refused: VecDeque<Refused>,
    /// Connections with room for a request; which has had it longest comes first.
    offers: VecDeque<u32>,
    /// Slots without a connection.
    free: Vec<u32>,
    /// Slots that rest until a time: after a failed connect, or because the source says so.
    resting: BinaryHeap<Reverse<(Instant, u32)>>,
    waits: Waits,
    tally: Box<Tally>,
    /// Connections that are being opened and carry nothing yet.
    opening: u32,
    /// What the codec wants to say, until it is handed on.
    said: Vec<u8>,
    /// Requests that may still start, where the stretch has a limit.
    budget: u64,
    binds: usize,
    /// When a due request last found no connection free.
    all_busy_at: Instant,
    stop_asked: bool,
    /// When draining ends at the latest, once the user wants to stop.
    drain_limit: Instant,
    /// This turn brought a reply.
    replied: bool,
    life: Life,
}

/// Replies that are nearly here still come.
const INTERRUPTED_DRAIN: DurationNs = DurationNs::from_secs(1);

/// What an engine did since it was made, whatever the phase: ramps and drains count too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// Requests handed to the kernel, and whole replies.
    pub sent: u64,
    pub answered: u64,
    pub closed_by_server: u64,
    /// Segments with data that came on connections still open at the end, where the reactor can
    /// tell.
    pub data_segments: u64,
    /// Version and cipher of the first TLS connection.
    pub tls: Option<String>,
    /// Replies that each kept connection got; told when all have ended.
    pub replies: Vec<u64>,
}

impl EngineConfig {
    /// Connections that there may be at once.
    pub fn slots(&self, pacer: &Pacer) -> u32 {
        match pacer {
            Pacer::Closed => self.connections,
            Pacer::Open(_) => self.max_connections.max(self.connections),
        }
    }
}

impl Engine {
    /// The codec must have [`EngineConfig::slots`], and keep what the source wants.
    pub fn new(config: EngineConfig, codec: AnyCodec, source: AnySource, pacer: Pacer) -> Self {
        let slots = config.slots(&pacer);
        let mut engine = Self {
            is_half_duplex: codec.is_half_duplex(),
            pours_bodies: codec.pours_bodies(),
            kept: codec.kept().unwrap_or_default(),
            kept_id: None,
            is_watched: !matches!(source.wanted(), Wanted::Nothing),
            bodies: None,
            refused: VecDeque::new(),
            source,
            codec,
            pacer,
            phase: Phase::Idle,
            stretch: Stretch::NONE,
            connections: (0..slots).map(|_| Connection::new()).collect(),
            flights: Flights::with_room_for(slots),
            offers: VecDeque::with_capacity(slots as usize),
            free: (0..slots).rev().collect(),
            resting: BinaryHeap::with_capacity(slots as usize),
            waits: Waits::new(slots),
            tally: Box::default(),
            opening: 0,
            said: Vec::new(),
            budget: u64::MAX,
            binds: 0,
            all_busy_at: Instant::ZERO,
            stop_asked: false,
            drain_limit: Instant::FAR,
            replied: false,
            life: Life::default(),
            config,
        };
        *engine.tally = Tally::for_series(engine.series());
        engine
    }

    /// Looks at the bodies of a few replies, which the codec keeps ([`Wanted::Few`]).
    pub fn looking_at_bodies(self) -> Self {
        Self { is_watched: true, bodies: Some(Bodies::default()), ..self }
    }

    /// Bodies that were looked at since this was last asked, and how often each came.
    pub fn take_bodies(&mut self) -> Vec<(String, u64)> {
        self.bodies.as_mut().map(Bodies::take).unwrap_or_default()
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.config.endpoint
    }

    /// Connections that there may be at once: the slots a reactor must have.
    pub fn slots(&self) -> u32 {
        self.connections.len() as u32
    }

    /// One message at a time, and nothing else to wait for.
    pub fn exchanges_one_message(&self) -> bool {
        self.slots() == 1 && !self.pacer.is_open_loop() && self.config.messages().is_some()
    }

    pub fn series(&self) -> Series {
        Series {
            open_loop: self.pacer.is_open_loop(),
            new_connections: self.config.lifetime == Lifetime::PerRequest,
            tls: self.config.tls.is_some(),
        }
    }

    /// Starts a stretch of load.
    pub fn begin(&mut self, stretch: Stretch, now: Instant) {
        assert_eq!(self.phase, Phase::Idle, "one stretch at a time");
        self.stretch = stretch;
        self.budget = u64::MAX;
        self.stop_asked = false;
        self.drain_limit = Instant::FAR;
        self.pacer.begin(now);
        // Without a ramp the window opens in the first turn, before anything starts.
        self.phase = Phase::Ramp { until: now + stretch.ramp };
    }

    /// Ends the window at the next turn; what is in flight is still waited for.
    pub fn stop(&mut self) {
        self.stop_asked = true;
    }

    /// The same for a user who waits: what is in flight gets a moment, however long the time limit.
    pub fn interrupt(&mut self, now: Instant) {
        self.stop_asked = true;
        self.drain_limit = self.drain_limit.min(now + INTERRUPTED_DRAIN);
    }

    /// The tally of the current interval, or of the last one once [`Next::Finished`].
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    pub fn exchange_tally(&mut self, spare: Box<Tally>) -> Box<Tally> {
        std::mem::replace(&mut self.tally, spare)
    }

    pub fn life(&self) -> &Life {
        &self.life
    }

    /// Its life when its connections have ended.
    pub fn ended_life(&self) -> Life {
        let kept = self.config.lifetime == Lifetime::Kept;
        let connections = self.connections.iter().filter(|_| kept);
        Life { replies: connections.map(|one| one.replies).collect(), ..self.life.clone() }
    }

    pub fn open_connections(&self) -> usize {
        self.connections.iter().filter(|c| c.is_established()).count()
    }

    /// One turn: takes in what happened, starts what is due, says how long to wait.
    pub fn turn<R: Reactor>(
        &mut self,
        io: &mut R,
        happened: &mut Vec<Completion>,
        sink: &mut dyn IntervalSink,
    ) -> Next {
        let now = io.now();
        let answered = self.life.answered;
        for completion in happened.drain(..) {
            self.on_completion(io, completion, now);
        }
        self.expire(io, now);
        self.replied = self.life.answered > answered;
        self.advance_phase(io, now, sink);
        match self.phase {
            Phase::Opening if self.opening == 0 => self.finish_phase(now),
            Phase::Drain { .. } if self.flights.is_empty() => self.finish_phase(now),
            Phase::Idle => Next::Finished,
            Phase::Ramp { .. } | Phase::Window { .. } => {
                self.start_due(io, now);
                Next::Wait(self.wait(now))
            }
            _ => Next::Wait(self.wait(now)),
        }
    }

    fn finish_phase(&mut self, now: Instant) -> Next {
        if self.phase != Phase::Opening {
            self.tally.assert_closed();
        } else {
            self.tally.end = now;
        }
        self.phase = Phase::Idle;
        Next::Finished
    }

    fn on_completion<R: Reactor>(&mut self, io: &mut R, completion: Completion, now: Instant) {
        let token = completion.token;
        let current = self.connections.get(token.slot as usize).is_some_and(|c| c.token == token);
        match completion.happened {
            Happened::Received(chunk) => {
                if current {
                    self.on_received(io, token.slot, &chunk, now);
                }
                io.release(chunk);
            }
            _ if !current => {}
            Happened::Connected => self.on_connected(io, token.slot, now),
            Happened::Sent(spent) => self.on_sent(io, token.slot, spent, now),
            Happened::Eof => self.on_eof(io, token.slot, now),
            Happened::Failed(errno) => self.fail(io, token.slot, RequestFailure::Errno(errno), now),
            Happened::Accepted(_) => {}
        }
    }

    /// From here on things count. What the ramp left in flight is carried over.
    fn open_window(&mut self, now: Instant) {
        self.tally.reset(now);
        self.tally.counts.started = self.under_way();
        self.budget = match self.stretch.requests {
            Some(requests) => requests.saturating_sub(self.tally.counts.started),
            None => u64::MAX,
        };
        self.pacer.begin(now);
        self.phase = Phase::Window {
            until: now + self.stretch.window,
            next_interval: now + self.stretch.interval,
        };
    }

    /// Requests that have begun and not ended.
    fn under_way(&self) -> u64 {
        u64::from(self.flights.len()) + self.refused.len() as u64
    }

    fn advance_phase<R: Reactor>(&mut self, io: &mut R, now: Instant, sink: &mut dyn IntervalSink) {
        if self.phase == Phase::Opening && self.stop_asked {
            for slot in 0..self.connections.len() as u32 {
                let state = self.connections[slot as usize].state;
                if matches!(state, State::Connecting | State::Handshaking) {
                    self.fail(io, slot, RequestFailure::TimedOut, now);
                }
            }
        }
        if let Phase::Ramp { until } = self.phase
            && (self.is_edge(until, now) || self.stop_asked)
        {
            self.open_window(now);
            sink.window_opened(io.idle());
        }
        if let Phase::Window { until, next_interval } = self.phase {
            let exhausted = self.budget == 0 && self.under_way() == 0;
            if self.is_edge(until, now) || exhausted || self.stop_asked {
                // In closed loop what came until now has been counted, so it is now that ends it;
                // an open loop owes what its schedule holds until then.
                let end = if self.pacer.is_open_loop() { until.min(now) } else { now };
                self.close_window(end, now);
                sink.window_closed(io.idle());
            } else if now >= next_interval {
                self.hand_over(now, sink);
            }
        }
        if let Phase::Drain { until } = self.phase
            && now >= until.min(self.drain_limit)
        {
            for slot in 0..self.connections.len() as u32 {
                if !self.connections[slot as usize].flights.is_empty() {
                    self.fail(io, slot, RequestFailure::TimedOut, now);
                }
            }
        }
    }

    /// Whether the window opens, or closes, that was to do so at `until`.
    fn is_edge(&self, until: Instant, now: Instant) -> bool {
        now >= until && (self.replied || now >= self.edge_limit(until))
    }

    /// When an edge comes without a reply to make it. A server that stalls is waited for, so that
    /// all of its stall is in the window: what the drain saw would count for nothing.
    fn edge_limit(&self, until: Instant) -> Instant {
        let on_replies = self.stretch.edges == Edges::Replies && !self.pacer.is_open_loop();
        if on_replies { until + self.config.timeout } else { until }
    }

    /// Ends the interval. Requests in flight are carried into the next.
    fn hand_over(&mut self, now: Instant, sink: &mut dyn IntervalSink) {
        let carried = self.under_way();
        self.tally.counts.started -= carried;
        self.tally.end = now;
        self.tally.assert_closed();
        if sink.exchange(&mut self.tally) {
            self.tally.reset(now);
        }
        self.tally.counts.started += carried;
        if let Phase::Window { next_interval, .. } = &mut self.phase {
            while *next_interval <= now {
                *next_interval = *next_interval + self.stretch.interval;
            }
        }
    }

    fn close_window(&mut self, end: Instant, now: Instant) {
        self.tally.end = end;
        // In open loop what was due is owed, sent or not.
        if self.pacer.is_open_loop() && !self.stop_asked {
            while self.budget > 0 && self.pacer.next_due(now) < end {
                let due = self.pacer.take(now);
                self.budget -= 1;
                self.tally.counts.started += 1;
                self.tally.counts.unsent += 1;
                self.tally.latency.unfinished_age.record(now.since(due));
            }
        }
        for refused in std::mem::take(&mut self.refused) {
            self.tally.counts.cut += 1;
            self.tally.latency.unfinished_age.record(now.since(refused.due));
        }
        self.phase = Phase::Drain { until: now + self.config.timeout };
    }

    /// Starts every request that is due and has a connection to go on.
    fn start_due<R: Reactor>(&mut self, io: &mut R, now: Instant) {
        while let Some(Reverse((until, slot))) = self.resting.peek().copied()
            && until <= now
        {
            self.resting.pop();
            let connection = &mut self.connections[slot as usize];
            if connection.state == State::Free {
                self.free.push(slot);
            } else {
                connection.state = State::Open;
                self.go_on(io, slot, now);
            }
        }
        while !self.refused.is_empty() && !self.stop_asked {
            let Some(slot) = self.slot_for_request() else {
                self.all_busy_at = now;
                return;
            };
            let Some(refused) = self.refused.pop_front() else { return };
            self.start_flight(io, slot, refused, now);
        }
        let mut now = now;
        let mut started = 0u32;
        while self.budget > 0 && !self.stop_asked && self.pacer.next_due(now) <= now {
            let Some(slot) = self.slot_for_request() else {
                self.all_busy_at = now;
                return;
            };
            let due = self.pacer.take(now);
            self.tally.counts.started += 1;
            self.tally.counts.waited += u64::from(due <= self.all_busy_at);
            self.budget -= 1;
            self.start_flight(io, slot, Refused::never(due), now);
            started += 1;
            // Starting many takes time; none of them may seem sent long before it was.
            if started.is_multiple_of(STARTS_A_CLOCK_READING) {
                now = io.now();
            }
        }
    }

    fn slot_for_request(&mut self) -> Option<u32> {
        while let Some(slot) = self.offers.pop_front() {
            let connection = &mut self.connections[slot as usize];
            connection.offered = false;
            // A connection that closed since then has left its entry behind.
            if connection.has_room() {
                return Some(slot);
            }
        }
        self.free.pop()
    }

    /// Queues a connection for a request, where it has room for one and is not queued yet.
    fn offer(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        let kept = self.config.lifetime == Lifetime::Kept;
        if kept && connection.has_room() && !connection.offered {
            connection.offered = true;
            self.offers.push_back(slot);
        }
    }

    /// Fails what has waited longer than the time limit.
    fn expire<R: Reactor>(&mut self, io: &mut R, now: Instant) {
        let limit = self.config.timeout;
        while let Some(oldest) = self.flights.oldest()
            && self.flights[oldest].begun + limit <= now
        {
            self.give_up(io, oldest, now);
        }
        while let Some((slot, since)) = self.waits.oldest()
            && since + limit <= now
        {
            self.waits.stop(slot);
            if matches!(self.connections[slot as usize].state, State::Closing) {
                self.drop_connection(io, slot);
            } else {
                self.fail(io, slot, RequestFailure::TimedOut, now);
            }
        }
    }

    fn rest_ends(&self) -> Instant {
        self.resting.peek().map_or(Instant::FAR, |Reverse((at, _))| *at)
    }

    fn wait(&self, now: Instant) -> Wait {
        let mut until = Instant::FAR;
        if let Some(oldest) = self.flights.oldest() {
            until = until.min(self.flights[oldest].begun + self.config.timeout);
        }
        if let Some((_, since)) = self.waits.oldest() {
            until = until.min(since + self.config.timeout);
        }
        let policy = self.config.wait;
        let mut spin = DurationNs::ZERO;
        let polls = policy.polls && !matches!(self.phase, Phase::Idle | Phase::Opening);
        match self.phase {
            Phase::Idle | Phase::Opening => {}
            Phase::Drain { until: end } => until = until.min(end),
            Phase::Ramp { until: end } => {
                let end = if now < end { end } else { self.edge_limit(end) };
                until = until.min(end).min(self.rest_ends());
            }
            Phase::Window { until: end, next_interval } => {
                let end = if now < end { end } else { self.edge_limit(end) };
                until = until.min(end).min(next_interval).min(self.rest_ends());
            }
        }
        if matches!(self.phase, Phase::Ramp { .. } | Phase::Window { .. })
            && self.pacer.is_open_loop()
            && self.budget > 0
        {
            let due = self.pacer.next_due(now);
            // A request that is already late waits for a connection, not for the clock.
            if due > now && due < until {
                until = due;
                spin = policy.spin;
            }
        }
        let batch = match self.pacer {
            // What one connection brings comes together, however many replies it holds.
            Pacer::Closed => (self.flights.connections() / 2).clamp(1, policy.batch_max),
            Pacer::Open(_) => 1,
        };
        Wait { until, batch, linger: policy.linger, spin, polls }
    }
}
