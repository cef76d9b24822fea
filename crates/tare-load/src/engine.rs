//! The load engine: a state machine of one worker's connections, fed with completions.
//!
//! It starts requests when its [`Pacer`] says, on connections it opens through a [`Reactor`], and
//! counts the results in a [`Tally`]. It never blocks, reads no clock but the reactor's, and does
//! not know whether the network is real.
//!
//! A request's life is a [`Flight`]: due → (connect → handshake →) sent → first byte → done or
//! failed. A connection is always in one [`State`], and carries as many flights as the engine's
//! [`Codec`] allows.

mod connection;
mod flights;
mod links;
mod opening;
mod requests;
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
pub(crate) use flights::Flights;
use flights::PendingRequest;
pub use flights::{ConnectionFlights, Flight, FlightId};
pub(crate) use links::List;
use waits::Waits;

/// Configuration of one worker's engine, with everything resolved.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineConfig {
    pub endpoint: Endpoint,
    pub protocol: Protocol,
    pub sockets: SocketOptions,
    /// Source addresses, used in turn; empty leaves the choice to the kernel.
    pub bind: Vec<IpAddr>,
    /// Number of kept connections or, with a new connection for each request, of concurrent
    /// requests.
    pub connections: u32,
    /// Open loop: limit up to which connections are added while all are busy.
    pub max_connections: u32,
    pub lifetime: Lifetime,
    pub tls: Option<TlsClient>,
    /// Timeout of a request, from sending it (or starting its connection) to the end of its reply.
    pub timeout: DurationNs,
    /// Statuses that count as good throughput.
    pub expected: StatusSet,
    pub wait: WaitPolicy,
}

/// Most flights for which memory is set aside at the start.
const ROOM_MAX: u32 = 1 << 20;

impl EngineConfig {
    /// The messages that the engine exchanges; `None` for other protocols.
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
    pub(crate) fn from_new_connections(new_connections: bool) -> Self {
        if new_connections { Self::PerRequest } else { Self::Kept }
    }
}

/// How to wait: more precise wake-ups cost more CPU time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitPolicy {
    /// Closed loop: gather up to this many replies in one system call.
    pub batch_max: u32,
    /// Closed loop: longest time to gather replies.
    pub linger: DurationNs,
    /// Open loop: poll this long before a request is due.
    pub spin: DurationNs,
    /// Poll while there is load, and never sleep. A server on the same machine pays for waking a
    /// sleeping client, which a remote server does not.
    pub polls: bool,
}

/// One stretch of load: a ramp, a window and a drain, of which only the window counts.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stretch {
    /// When it begins, by the clock of the machine that makes the load; `None` begins at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_at: Option<Instant>,
    pub ramp: DurationNs,
    pub window: DurationNs,
    /// Ends the window early once this many requests have ended.
    pub requests: Option<u64>,
    /// Tallies are handed over this often; the window is the sum of its intervals.
    pub interval: DurationNs,
    /// Hand over each interval's tally as it ends; if false, only the time and the number of
    /// replies are kept.
    #[serde(default)]
    pub hands_over: bool,
    /// With [`Edges::Replies`] the window opens and closes with the first reply after its time. It
    /// then holds a whole number of replies in exactly the time they took; a window cut by the
    /// clock is off by up to one reply. Closed loop only: an open loop counts its schedule.
    pub edges: Edges,
    /// Sleep while there is nothing to do, even if the plan says to poll.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sleeps: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Edges {
    Clock,
    Replies,
}

impl Stretch {
    /// No load: a placeholder in a plan until the length of its load is known.
    pub const NONE: Self = Self {
        start_at: None,
        ramp: DurationNs::ZERO,
        window: DurationNs::ZERO,
        requests: None,
        // Longer than any window, so that it is one interval.
        interval: DurationNs::from_secs(24 * 3600),
        hands_over: false,
        edges: Edges::Clock,
        sleeps: false,
    };
}

/// Receives finished tallies.
pub trait IntervalSink {
    /// Called when the window opens: measuring CPU time starts now. `idle` is the time that the
    /// reactor has polled in vain so far.
    fn window_opened(&mut self, _idle: DurationNs) {}

    /// Called when the window ends; the drain that follows is not part of it.
    fn window_closed(&mut self, _idle: DurationNs) {}

    /// Takes a finished interval and puts a spare tally in its place. `false` if there is no room:
    /// the engine goes on counting in it, so that the interval is longer but nothing is lost.
    fn exchange(&mut self, tally: &mut Box<Tally>) -> bool;
}

/// Result of a turn.
#[derive(Debug)]
pub enum Next {
    Wait(Wait),
    /// The phase is over: connections are open, or the stretch has drained.
    Finished,
}

/// Requests started per reading of the clock: a few µs of work.
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
    /// Cached from the codec, like the next two fields.
    is_half_duplex: bool,
    pours_bodies: bool,
    kept: Arc<[u8]>,
    /// The reactor's number for `kept`; set when connections are opened.
    kept_id: Option<KeptId>,
    /// Replies are captured, for the source or to hash bodies.
    is_watched: bool,
    /// Hashes of sampled bodies; `None` if none are sampled.
    bodies: Option<Bodies>,
    pacer: Pacer,
    phase: Phase,
    stretch: Stretch,
    connections: Vec<Connection>,
    flights: Flights,
    /// Requests that a server refused without processing them: sent again before new ones.
    refused: VecDeque<PendingRequest>,
    /// Connections with room for a request, the one that has waited longest first.
    offers: VecDeque<u32>,
    /// Slots without a connection.
    free: Vec<u32>,
    /// Slots that rest until a time: after a failed connect, or because the source says so.
    resting: BinaryHeap<Reverse<(Instant, u32)>>,
    waits: Waits,
    tally: Box<Tally>,
    /// Connections that are being opened and carry nothing yet.
    opening: u32,
    /// Bytes that the codec wants to send, until they are handed on.
    codec_output: Vec<u8>,
    /// Connections with new requests, which are sent at the end of the turn.
    gathering: Vec<u32>,
    /// Requests that may still start, if the stretch has a limit.
    budget: u64,
    binds: usize,
    /// When a due request last found no connection free.
    all_busy_at: Instant,
    stop_asked: bool,
    /// Latest end of the drain, once the user wants to stop.
    drain_limit: Instant,
    /// This turn brought a reply.
    replied: bool,
    life: Life,
}

/// Time for replies in flight when the user interrupts.
const INTERRUPTED_DRAIN: DurationNs = DurationNs::from_secs(1);

/// Activity of an engine since it was created, ramps and drains included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// Requests handed to the kernel.
    pub sent: u64,
    /// Whole replies.
    pub answered: u64,
    pub closed_by_server: u64,
    /// Segments with data received on connections still open at the end, if the reactor knows.
    pub data_segments: u64,
    /// Version and cipher of the first TLS connection.
    pub tls: Option<String>,
    /// Replies on each kept connection; filled in when all have ended.
    pub replies: Vec<u64>,
}

impl EngineConfig {
    /// The most requests at a time on a connection.
    pub fn streams(&self) -> u32 {
        match self.protocol {
            Protocol::Http2 { streams, .. } => streams,
            _ => 1,
        }
    }

    /// Most connections at once.
    pub fn slots(&self, pacer: &Pacer) -> u32 {
        match pacer {
            Pacer::Closed => self.connections,
            Pacer::Open(_) => self.max_connections.max(self.connections),
        }
    }
}

impl Engine {
    /// The codec must have room for [`EngineConfig::slots`] connections, and capture what the
    /// source wants.
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
            flights: Flights::with_room_for(slots.saturating_mul(config.streams()).min(ROOM_MAX)),
            offers: VecDeque::with_capacity(slots as usize),
            free: (0..slots).rev().collect(),
            resting: BinaryHeap::with_capacity(slots as usize),
            waits: Waits::new(slots),
            tally: Box::default(),
            opening: 0,
            codec_output: Vec::new(),
            gathering: Vec::with_capacity(slots as usize),
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

    /// Hashes the bodies of a few replies, which the codec captures ([`Wanted::Few`]).
    pub fn looking_at_bodies(self) -> Self {
        Self { is_watched: true, bodies: Some(Bodies::default()), ..self }
    }

    /// Returns the hashes of bodies since the last call, and how often each occurred.
    pub fn take_bodies(&mut self) -> Vec<(String, u64)> {
        self.bodies.as_mut().map(Bodies::take).unwrap_or_default()
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.config.endpoint
    }

    /// Most connections at once: the slots that a reactor must have.
    pub fn slots(&self) -> u32 {
        self.connections.len() as u32
    }

    /// Whether at most one message is under way, and only its reply must be waited for.
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

    /// Like [`Engine::stop`], for a user who waits: what is in flight gets 1 s at most.
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

    /// Returns the engine's [`Life`] after its connections have ended.
    pub fn ended_life(&self) -> Life {
        let kept = self.config.lifetime == Lifetime::Kept;
        let connections = self.connections.iter().filter(|_| kept);
        Life { replies: connections.map(|one| one.replies).collect(), ..self.life.clone() }
    }

    pub fn open_connections(&self) -> usize {
        self.connections.iter().filter(|c| c.is_established()).count()
    }

    /// Runs one turn: handles completions, starts due requests, and returns how long to wait.
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
        if matches!(self.phase, Phase::Ramp { .. } | Phase::Window { .. }) {
            self.start_due(io, now);
        }
        self.send_gathered(io, now);
        match self.phase {
            Phase::Opening if self.opening == 0 => self.finish_phase(now),
            Phase::Drain { .. } if self.flights.is_empty() => self.finish_phase(now),
            Phase::Idle => Next::Finished,
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

    /// Starts counting. Requests in flight from the ramp are carried over.
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
                // A closed loop has counted all replies until now, so its window ends now; an open
                // loop counts all requests due by `until`, so its window ends then.
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

    /// Whether the edge of the window that is planned for `until` has been reached.
    fn is_edge(&self, until: Instant, now: Instant) -> bool {
        now >= until && (self.replied || now >= self.edge_limit(until))
    }

    /// Returns the latest time of an edge that waits for a reply. Waiting keeps a server's stall
    /// inside the window; in the drain it would not count.
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
        // In open loop, due requests count even if they were never sent.
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

    /// Starts every request that is due and for which a connection is available.
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
            self.start_flight(io, slot, PendingRequest::first_attempt(due), now);
            started += 1;
            // Starting many requests takes time; with an old `now`, sent times would be too early.
            if started.is_multiple_of(STARTS_A_CLOCK_READING) {
                now = io.now();
            }
        }
    }

    fn slot_for_request(&mut self) -> Option<u32> {
        while let Some(slot) = self.offers.pop_front() {
            let connection = &mut self.connections[slot as usize];
            connection.offered = false;
            // Skips connections that have closed since they were queued.
            if connection.has_room() {
                return Some(slot);
            }
        }
        self.free.pop()
    }

    /// Queues a connection for a request, if it has room for one and is not queued yet.
    fn offer(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        let kept = self.config.lifetime == Lifetime::Kept;
        if kept && connection.has_room() && !connection.offered {
            connection.offered = true;
            self.offers.push_back(slot);
        }
    }

    /// Fails requests and connections that have waited longer than the timeout.
    fn expire<R: Reactor>(&mut self, io: &mut R, now: Instant) {
        let limit = self.config.timeout;
        while let Some(oldest) = self.flights.oldest()
            && self.flights[oldest].begun + limit <= now
        {
            self.give_up(io, oldest, now);
        }
        self.expire_refused(now);
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
        if let Some(begun) = self.refused.front().and_then(|pending| pending.begun) {
            until = until.min(begun + self.config.timeout);
        }
        let policy = self.config.wait;
        let mut spin = DurationNs::ZERO;
        let is_loaded = !matches!(self.phase, Phase::Idle | Phase::Opening);
        let polls = policy.polls && is_loaded && !self.stretch.sleeps;
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
                spin = if self.stretch.sleeps { DurationNs::ZERO } else { policy.spin };
            }
        }
        let batch = match self.pacer {
            // Replies on one connection arrive together, so connections are counted.
            Pacer::Closed => (self.flights.connections() / 2).clamp(1, policy.batch_max),
            Pacer::Open(_) => 1,
        };
        Wait { until, batch, linger: policy.linger, spin, polls }
    }
}
