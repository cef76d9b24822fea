//! What the engine does with a protocol that multiplexes: replies in any order, a limit that moves,
//! requests that fail alone, answers that the protocol owes, a server that says goodbye early. The
//! protocol is made for this test: frames of five bytes, a kind and a number.

use std::collections::HashMap;

use tare_io::{Close, Completion, DurationNs, Happened, Instant, Outgoing, Reactor, Token, Wait};
use tare_load::codec::{Codec, Decoded, Encoded, FlightId, OfConnection, Request};
use tare_load::engine::{Engine, IntervalSink, Next};
use tare_load::pacer::Pacer;
use tare_load::protocol::reply::{Reply, ReplyDefect};
use tare_load::source::FixedRequest;
use tare_load::{EngineConfig, FailureKind, Lifetime, Stretch, Tally, WaitPolicy};
use tare_model::status::StatusSet;
use tare_sim::net::{Net, NetOptions, SimReactor};
use tare_sim::world;

const FRAME_BYTES: usize = 5;

type Frame = [u8; FRAME_BYTES];

fn frame(kind: u8, number: u32) -> Frame {
    let [a, b, c, d] = number.to_be_bytes();
    [kind, a, b, c, d]
}

fn read(frame: &[u8]) -> (u8, u32) {
    (frame[0], u32::from_be_bytes([frame[1], frame[2], frame[3], frame[4]]))
}

/// The client's side. It asks with `Q`, withdraws with `X` and answers a `P` with an `A`; it is
/// told of replies with `R`, of losses with `E`, of its limit with `L`.
#[derive(Default)]
struct Frames {
    connections: HashMap<u32, Streams>,
}

struct Streams {
    limit: u32,
    next: u32,
    flights: HashMap<u32, FlightId>,
    partial: Vec<u8>,
}

impl Streams {
    /// A flight that is known no more had been withdrawn.
    fn take(&mut self, number: u32) -> Option<FlightId> {
        self.flights.remove(&number)
    }
}

impl Codec for Frames {
    fn reset(&mut self, slot: u32) {
        let (flights, partial) = (HashMap::new(), Vec::new());
        self.connections.insert(slot, Streams { limit: 2, next: 0, flights, partial });
    }

    fn capacity(&self, slot: u32) -> u32 {
        self.connections[&slot].limit
    }

    fn encode(&mut self, slot: u32, request: Request<'_>, out: &mut Vec<u8>) -> Encoded {
        let streams = self.connections.get_mut(&slot).unwrap();
        streams.flights.insert(streams.next, request.flight);
        assert!(streams.flights.len() as u32 <= streams.limit);
        out.extend_from_slice(&frame(b'Q', streams.next));
        streams.next += 1;
        Encoded::Replaced
    }

    fn decode(
        &mut self,
        slot: u32,
        input: &mut &[u8],
        flights: &mut OfConnection<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Decoded>, ReplyDefect> {
        let streams = self.connections.get_mut(&slot).unwrap();
        let (taken, rest) = input.split_at((FRAME_BYTES - streams.partial.len()).min(input.len()));
        streams.partial.extend_from_slice(taken);
        *input = rest;
        if streams.partial.len() < FRAME_BYTES {
            return Ok(None);
        }
        let (kind, number) = read(&std::mem::take(&mut streams.partial));
        match kind {
            b'R' => Ok(streams.take(number).map(|flight| {
                flights.replied(flight);
                let reply = Reply { status: 200, keep_alive: true, body_bytes: 1 };
                Decoded::Replied(flight, reply)
            })),
            b'E' => {
                let lost = ReplyDefect::ClosedBeforeReply;
                Ok(streams.take(number).map(|flight| Decoded::Lost(flight, lost)))
            }
            b'L' => {
                streams.limit = number;
                Ok(None)
            }
            b'P' => {
                out.extend_from_slice(&frame(b'A', number));
                Ok(None)
            }
            other => Err(ReplyDefect::BadHead { what: format!("a frame of kind {other}") }),
        }
    }

    fn on_close(
        &mut self,
        _slot: u32,
        _clean: bool,
        _flights: &mut OfConnection<'_>,
    ) -> Result<Option<Decoded>, ReplyDefect> {
        Err(ReplyDefect::ClosedBeforeReply)
    }

    fn cancel(&mut self, slot: u32, flight: FlightId, out: &mut Vec<u8>) -> bool {
        let streams = self.connections.get_mut(&slot).unwrap();
        let number = *streams.flights.iter().find(|(_, known)| **known == flight).unwrap().0;
        streams.flights.remove(&number);
        out.extend_from_slice(&frame(b'X', number));
        true
    }
}

/// The server's side: says to each frame what the test's script says. Each connection has a script
/// of its own.
struct Server<'a> {
    io: SimReactor,
    script: &'a mut dyn FnMut(u32, u8, u32) -> Vec<Frame>,
    partial: HashMap<u32, Vec<u8>>,
}

/// Ends the connection instead of being sent.
const GOODBYE: Frame = [b'G', 0, 0, 0, 0];
/// As a kind: a connection has begun.
const BEGUN: u8 = b'B';

impl Server<'_> {
    fn turn(&mut self) {
        let mut happened = Vec::new();
        self.io.wait(Wait::until(Instant::ZERO), &mut happened).unwrap();
        for Completion { token, happened } in happened {
            match happened {
                Happened::Accepted(accepted) => {
                    let token = self.io.adopt(self.partial.len() as u32, accepted);
                    self.partial.insert(token.slot, Vec::new());
                    self.say(token, BEGUN, 0);
                }
                Happened::Received(chunk) => {
                    let partial = self.partial.get_mut(&token.slot).unwrap();
                    partial.extend_from_slice(self.io.chunk(&chunk));
                    let whole = partial.len() / FRAME_BYTES * FRAME_BYTES;
                    let frames: Vec<u8> = partial.drain(..whole).collect();
                    self.io.release(chunk);
                    for (kind, number) in frames.chunks(FRAME_BYTES).map(read) {
                        self.say(token, kind, number);
                    }
                }
                Happened::Eof => self.io.close(token, Close::Graceful),
                Happened::Sent(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn say(&mut self, token: Token, kind: u8, number: u32) {
        for frame in (self.script)(token.slot, kind, number) {
            match frame {
                GOODBYE => self.io.close(token, Close::Graceful),
                frame => self.io.send(token, Outgoing::Owned(frame.to_vec())),
            }
        }
    }
}

struct OneInterval;

impl IntervalSink for OneInterval {
    fn exchange(&mut self, _tally: &mut Box<Tally>) -> bool {
        false
    }
}

/// So many requests in a closed loop on one connection at a time; the counters close.
fn run(requests: u64, script: &mut dyn FnMut(u32, u8, u32) -> Vec<Frame>) -> Tally {
    let net = Net::new(NetOptions { piece_max_bytes: 7, ..Default::default() });
    let (mut io, mut server) = (net.host(), net.host());
    server.listen(&world::endpoint());
    let mut server = Server { io: server, script, partial: HashMap::new() };
    let config = EngineConfig {
        protocol: Default::default(),
        sockets: Default::default(),
        endpoint: world::endpoint(),
        bind: Vec::new(),
        connections: 1,
        max_connections: 1,
        lifetime: Lifetime::Kept,
        tls: None,
        timeout: TIMEOUT,
        expected: StatusSet::success(),
        wait: WaitPolicy {
            batch_max: 1,
            linger: DurationNs::ZERO,
            spin: DurationNs::ZERO,
            polls: false,
        },
    };
    let source = Box::new(FixedRequest::new(b"its own words".to_vec()));
    let codec = Box::new(Frames::default());
    let mut engine = Engine::with_codec(config, codec, source, Pacer::Closed);
    let mut happened = Vec::new();
    let mut finish = |engine: &mut Engine, io: &mut SimReactor| {
        while let Next::Wait(wait) = engine.turn(io, &mut happened, &mut OneInterval) {
            let next = wait.until.min(net.next_event());
            assert!(next < Instant::FAR, "everybody waits for ever");
            net.advance(next.max(net.now()));
            server.turn();
            io.wait(Wait::until(Instant::ZERO), &mut happened).unwrap();
        }
    };
    engine.open(&mut io);
    finish(&mut engine, &mut io);
    let opened = engine.tally().connections.opened;
    let window = DurationNs::from_secs(60);
    let stretch = Stretch { window, requests: Some(requests), ..Stretch::NONE };
    engine.begin(stretch, net.now());
    finish(&mut engine, &mut io);
    let mut tally = engine.tally().clone();
    tally.connections.opened += opened;
    assert_eq!(tally.started, requests);
    tally.assert_closed();
    tally
}

const TIMEOUT: DurationNs = DurationNs::from_ms(50);

#[test]
fn replies_come_in_any_order_and_the_limit_moves() {
    let (mut waiting, mut most, mut pongs) = (Vec::new(), 0, 0);
    let mut answered = 0;
    let tally = run(100, &mut |_, kind, number| match kind {
        BEGUN => vec![frame(b'P', 7)],
        b'A' => {
            pongs += number;
            vec![]
        }
        b'Q' => {
            waiting.push(number);
            most = most.max(waiting.len());
            let limit = if answered < 20 { 2 } else { 8 };
            let mut said = Vec::new();
            if waiting.len() == limit {
                // The latest is answered first.
                while let Some(number) = waiting.pop() {
                    answered += 1;
                    said.push(frame(b'R', number));
                }
                if answered >= 20 {
                    said.insert(0, frame(b'L', 8));
                }
            }
            said
        }
        other => panic!("{other}"),
    });
    assert_eq!((tally.good, tally.failed, tally.connections.opened), (100, 0, 1));
    assert_eq!((most, pongs), (8, 7), "the new limit is used, and a ping is answered");
    assert_eq!(tally.latency.from_sent.count(), 100);
}

#[test]
fn a_request_that_is_lost_or_late_fails_alone() {
    let mut withdrawn = Vec::new();
    let tally = run(30, &mut |_, kind, number| match (kind, number) {
        (b'Q', 3) => vec![frame(b'E', 3)],
        (b'Q', 5 | 8) => vec![],
        (b'Q', number) => vec![frame(b'R', number)],
        // The reply of a request that was withdrawn comes all the same.
        (b'X', number) => {
            withdrawn.push(number);
            vec![frame(b'R', number)]
        }
        _ => vec![],
    });
    assert_eq!((tally.good, tally.failed, tally.connections.opened), (27, 3, 1));
    assert_eq!(tally.failures.count(FailureKind::ClosedEarly), 1);
    assert_eq!(tally.failures.count(FailureKind::TimedOut), 2);
    assert_eq!(withdrawn, [5, 8]);
    assert!(tally.latency.failed_after.max() >= TIMEOUT);
}

#[test]
fn a_connection_that_takes_no_more_ends_with_what_it_carries() {
    let tally = run(20, &mut |connection, kind, number| match (connection, kind, number) {
        // The second request is still under way when the limit falls; its reply is the last.
        (0, b'Q', 0) => vec![],
        (0, b'Q', 1) => vec![frame(b'L', 0), frame(b'R', 1), frame(b'R', 0), GOODBYE],
        (_, b'Q', number) => vec![frame(b'R', number)],
        _ => vec![],
    });
    assert_eq!((tally.good, tally.failed, tally.connections.opened), (20, 0, 2));
    assert_eq!(tally.connections.closed_by_client, 1, "it does not wait for the server to close");
}

#[test]
fn a_connection_that_breaks_takes_all_its_requests_with_it() {
    let tally = run(20, &mut |connection, kind, number| match (connection, kind, number) {
        (0, b'Q', 1) => vec![frame(b'?', 0)],
        (1, b'Q', 1) => vec![GOODBYE],
        (0 | 1, b'Q', 0) => vec![],
        (_, b'Q', number) => vec![frame(b'R', number)],
        _ => vec![],
    });
    assert_eq!((tally.good, tally.failed, tally.connections.opened), (16, 4, 3));
    assert_eq!(tally.failures.count(FailureKind::Malformed), 2);
    assert_eq!(tally.failures.count(FailureKind::ClosedEarly), 2);
}
