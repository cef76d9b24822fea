//! The engine with a protocol that multiplexes: replies in any order, a limit that changes,
//! requests that fail alone, frames that must be answered, a server that says goodbye early. The
//! protocol is made for this test: frames of five bytes, a kind and a number.

use std::collections::{HashMap, VecDeque};

use tare_io::{Close, Completion, DurationNs, Happened, Instant, Outgoing, Reactor, Token, Wait};
use tare_load::codec::{
    AnyCodec, Codec, ConnectionFlights, Decoded, Encoded, FlightId, Request, RequestBytes, Room,
};
use tare_load::engine::{Engine, IntervalSink, Next};
use tare_load::pacer::Pacer;
use tare_load::protocol::reply::{GOOD, Reply, ReplyDefect};
use tare_load::source::Listed;
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

/// The client's side. It begins with an `H`, sends requests as `Q` and bodies in frames of `U`,
/// cancels with `X` and answers a `P` with an `A`. It receives replies as `R` (`T` if their
/// trailers report a failure), losses as `E`, its limit as `L`, and the end as `D`, or as `G` with
/// the number of requests that were processed.
#[derive(Default)]
struct Frames {
    connections: HashMap<u32, Streams>,
    options: Options,
}

#[derive(Clone, Copy, Default)]
struct Options {
    /// No request may be sent before the server has sent its limit.
    waits_for_limit: bool,
    /// Number of frames in each request's body.
    body: u32,
}

struct Streams {
    room: Room,
    next: u32,
    flights: HashMap<u32, FlightId>,
    partial: Vec<u8>,
    /// Outcomes of several requests, returned one at a time.
    told: VecDeque<Decoded>,
    /// Requests with body frames to send, and how many frames each.
    bodies: VecDeque<(u32, u32)>,
}

impl Streams {
    /// Returns the flight of a frame; `None` if it was cancelled.
    fn take(&mut self, number: u32) -> Option<FlightId> {
        self.flights.remove(&number)
    }
}

impl Codec for Frames {
    fn pours_bodies(&self) -> bool {
        self.options.body > 0
    }

    fn established(
        &mut self,
        slot: u32,
        alpn: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), ReplyDefect> {
        assert_eq!(alpn, None, "there is no TLS");
        out.extend_from_slice(&frame(b'H', 1));
        let streams = Streams {
            room: if self.options.waits_for_limit { Room::Blocked } else { Room::Ready(2) },
            next: 0,
            flights: HashMap::new(),
            partial: Vec::new(),
            told: VecDeque::new(),
            bodies: VecDeque::new(),
        };
        self.connections.insert(slot, streams);
        Ok(())
    }

    fn room(&self, slot: u32) -> Room {
        self.connections[&slot].room
    }

    fn encode(&mut self, slot: u32, request: Request<'_>, out: &mut Vec<u8>) -> Encoded {
        let streams = self.connections.get_mut(&slot).unwrap();
        streams.flights.insert(streams.next, request.flight);
        match streams.room {
            Room::Ready(limit) => assert!(streams.flights.len() as u32 <= limit),
            room => panic!("asked for with {room:?}"),
        }
        out.extend_from_slice(&frame(b'Q', streams.next));
        if self.options.body > 0 {
            streams.bodies.push_back((streams.next, self.options.body));
        }
        streams.next += 1;
        Encoded { bytes: RequestBytes::Added, requests: 1, to_head: false }
    }

    fn pour(&mut self, slot: u32, room: usize, out: &mut Vec<u8>) {
        let streams = self.connections.get_mut(&slot).unwrap();
        while out.len() + FRAME_BYTES <= room
            && let Some((number, left)) = streams.bodies.front_mut()
        {
            out.extend_from_slice(&frame(b'U', *number));
            *left -= 1;
            if *left == 0 {
                streams.bodies.pop_front();
            }
        }
    }

    fn decode(
        &mut self,
        slot: u32,
        input: &mut &[u8],
        flights: &mut ConnectionFlights<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Decoded>, ReplyDefect> {
        let streams = self.connections.get_mut(&slot).unwrap();
        if let Some(told) = streams.told.pop_front() {
            return Ok(Some(told));
        }
        let (taken, rest) = input.split_at((FRAME_BYTES - streams.partial.len()).min(input.len()));
        streams.partial.extend_from_slice(taken);
        *input = rest;
        if streams.partial.len() < FRAME_BYTES {
            return Ok(None);
        }
        let (kind, number) = read(&std::mem::take(&mut streams.partial));
        match kind {
            b'R' | b'T' => Ok(streams.take(number).map(|flight| {
                flights.record_first_byte(flight);
                let code = if kind == b'R' { GOOD } else { 13 };
                let reply = Reply { status: 200, keep_alive: true, body_bytes: 1, code };
                Decoded::Replied(flight, reply)
            })),
            b'E' => {
                let lost = ReplyDefect::ClosedBeforeReply;
                Ok(streams.take(number).map(|flight| Decoded::Lost(flight, lost)))
            }
            b'L' => {
                streams.room = if number == 0 { Room::Blocked } else { Room::Ready(number) };
                Ok(None)
            }
            b'D' => {
                streams.room = Room::Draining;
                Ok(None)
            }
            b'G' => {
                streams.room = Room::Draining;
                let mut behind: Vec<u32> = streams.flights.keys().copied().collect();
                behind.retain(|own| *own >= number);
                behind.sort_unstable();
                for number in behind {
                    streams.told.extend(streams.flights.remove(&number).map(Decoded::Refused));
                }
                Ok(streams.told.pop_front())
            }
            b'P' => {
                out.extend_from_slice(&frame(b'A', number));
                Ok(None)
            }
            other => Err(ReplyDefect::BadHead { what: format!("a frame of kind {other}") }),
        }
    }

    fn has_more(&self, slot: u32) -> bool {
        !self.connections[&slot].told.is_empty()
    }

    fn on_close(
        &mut self,
        _slot: u32,
        _clean: bool,
        _flights: &mut ConnectionFlights<'_>,
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

/// The server's side: sends what the test's script returns for each frame. The script is given the
/// connection, and the kind and number of the frame.
struct Server<'a> {
    io: SimReactor,
    script: &'a mut dyn FnMut(u32, u8, u32) -> Vec<Frame>,
    partial: HashMap<u32, Vec<u8>>,
    /// The most bytes received at once.
    largest: usize,
}

/// Closes the connection instead of being sent.
const CLOSE: Frame = [b'C', 0, 0, 0, 0];
/// The kind that the script is given for a new connection.
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
                    self.largest = self.largest.max(self.io.chunk(&chunk).len());
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
                CLOSE => self.io.close(token, Close::Graceful),
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

/// Makes this many requests in a closed loop on one connection at a time; the counters balance.
fn run(requests: u64, script: &mut dyn FnMut(u32, u8, u32) -> Vec<Frame>) -> Tally {
    run_with(Options::default(), requests, script)
}

fn run_with(
    options: Options,
    requests: u64,
    script: &mut dyn FnMut(u32, u8, u32) -> Vec<Frame>,
) -> Tally {
    let piece_max_bytes = if options.body > 0 { 0 } else { 7 };
    let net = Net::new(NetOptions { piece_max_bytes, ..Default::default() });
    let (mut io, mut server) = (net.host(), net.host());
    server.listen(&world::endpoint());
    let mut server = Server { io: server, script, partial: HashMap::new(), largest: 0 };
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
    let codec = AnyCodec::Other(Box::new(Frames { options, ..Frames::default() }));
    let source = Listed::in_turn(1, 0).into();
    let mut engine = Engine::new(config, codec, source, Pacer::Closed);
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
    let opened = engine.tally().counts.opened;
    let window = DurationNs::from_secs(60);
    let stretch = Stretch { window, requests: Some(requests), ..Stretch::NONE };
    engine.begin(stretch, net.now());
    finish(&mut engine, &mut io);
    let mut tally = engine.tally().clone();
    tally.counts.opened += opened;
    assert_eq!(tally.counts.started, requests);
    tally.assert_closed();
    assert!(server.largest <= 64 << 10, "{} bytes at a time", server.largest);
    tally
}

const TIMEOUT: DurationNs = DurationNs::from_ms(50);

#[test]
fn replies_come_in_any_order_and_the_limit_moves() {
    let (mut waiting, mut most, mut pongs) = (Vec::new(), 0, 0);
    let mut answered = 0;
    let tally = run(100, &mut |_, kind, number| match kind {
        BEGUN => vec![frame(b'P', 7)],
        b'H' => vec![],
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
    assert_eq!((tally.counts.good, tally.counts.failed, tally.counts.opened), (100, 0, 1));
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
        // The reply of a cancelled request arrives all the same.
        (b'X', number) => {
            withdrawn.push(number);
            vec![frame(b'R', number)]
        }
        _ => vec![],
    });
    assert_eq!((tally.counts.good, tally.counts.failed, tally.counts.opened), (27, 3, 1));
    assert_eq!(tally.failures.count(FailureKind::ClosedEarly), 1);
    assert_eq!(tally.failures.count(FailureKind::TimedOut), 2);
    assert_eq!(withdrawn, [5, 8]);
    assert!(tally.latency.failed_after.max() >= TIMEOUT);
}

#[test]
fn a_connection_that_takes_no_more_ends_with_what_it_carries() {
    let tally = run(20, &mut |connection, kind, number| match (connection, kind, number) {
        // Both requests are under way when the connection begins to drain; they are still answered.
        (0, b'Q', 0) => vec![],
        (0, b'Q', 1) => vec![frame(b'D', 0), frame(b'R', 1), frame(b'R', 0), CLOSE],
        (_, b'Q', number) => vec![frame(b'R', number)],
        _ => vec![],
    });
    assert_eq!((tally.counts.good, tally.counts.failed, tally.counts.opened), (20, 0, 2));
    // The client closes at once, which the server has asked for.
    assert_eq!((tally.counts.closed_by_server, tally.counts.closed_by_client), (1, 0));
}

#[test]
fn a_connection_that_breaks_takes_all_its_requests_with_it() {
    let tally = run(20, &mut |connection, kind, number| match (connection, kind, number) {
        (0, b'Q', 1) => vec![frame(b'?', 0)],
        (1, b'Q', 1) => vec![CLOSE],
        (0 | 1, b'Q', 0) => vec![],
        (_, b'Q', number) => vec![frame(b'R', number)],
        _ => vec![],
    });
    assert_eq!((tally.counts.good, tally.counts.failed, tally.counts.opened), (16, 4, 3));
    assert_eq!(tally.failures.count(FailureKind::Malformed), 2);
    assert_eq!(tally.failures.count(FailureKind::ClosedEarly), 2);
}

#[test]
fn the_protocol_speaks_first_and_waits_until_it_may_ask() {
    let mut heard = Vec::new();
    let options = Options { waits_for_limit: true, ..Options::default() };
    let tally = run_with(options, 12, &mut |_, kind, number| {
        heard.push(kind);
        match kind {
            b'H' => vec![frame(b'L', 3)],
            // The limit is 0 for a while: the connection stays open and takes requests later.
            b'Q' if number == 5 => vec![frame(b'L', 0), frame(b'R', 5), frame(b'P', 1)],
            b'A' => vec![frame(b'L', 1)],
            b'Q' => vec![frame(b'R', number)],
            _ => vec![],
        }
    });
    assert_eq!((tally.counts.good, tally.counts.failed, tally.counts.opened), (12, 0, 1));
    assert_eq!(heard[..3], [BEGUN, b'H', b'Q']);
}

#[test]
fn a_goodbye_ends_many_and_what_was_not_processed_goes_out_again() {
    let mut asked = [0; 2];
    let options = Options { waits_for_limit: true, ..Options::default() };
    let tally = run_with(options, 30, &mut |connection, kind, number| match (connection, kind) {
        (_, b'H') => vec![frame(b'L', 8)],
        (0, b'Q') => {
            asked[0] += 1;
            match number {
                // The server has processed the first two of eight requests under way.
                7 => vec![frame(b'G', 2), frame(b'R', 1), frame(b'R', 0)],
                _ => vec![],
            }
        }
        (_, b'Q') => {
            asked[1] += 1;
            vec![frame(b'R', number)]
        }
        _ => vec![],
    });
    assert_eq!((tally.counts.good, tally.counts.failed, tally.counts.refused), (30, 0, 6));
    assert_eq!(asked, [8, 28], "two there, six again and the other twenty-two here");
    assert_eq!(tally.counts.opened, 2);
}

#[test]
fn a_request_that_is_refused_again_and_again_fails() {
    let tally = run(4, &mut |_, kind, number| match (kind, number) {
        (b'Q', 0) => vec![frame(b'G', 0)],
        _ => vec![],
    });
    assert_eq!((tally.counts.good, tally.counts.failed, tally.counts.refused), (0, 4, 400));
    let (_, _, why) = tally.failures.seen().next().unwrap();
    assert_eq!(why, "the server refused the request 101 times without processing it");
}

#[test]
fn trailers_may_say_that_a_reply_with_a_good_status_failed() {
    let tally = run(10, &mut |_, kind, number| match (kind, number) {
        (b'Q', 3 | 4) => vec![frame(b'T', number)],
        (b'Q', number) => vec![frame(b'R', number)],
        _ => vec![],
    });
    assert_eq!((tally.counts.completed, tally.counts.good, tally.counts.failed), (10, 8, 0));
    assert_eq!(tally.latency.unexpected.count(), 2);
}

#[test]
fn bodies_wait_until_there_is_room_for_them() {
    let mut frames = HashMap::new();
    let options = Options { body: 100_000, ..Options::default() };
    let tally = run_with(options, 4, &mut |_, kind, number| match kind {
        b'U' => {
            let seen = frames.entry(number).or_insert(0u32);
            *seen += 1;
            if *seen == options.body { vec![frame(b'R', number)] } else { vec![] }
        }
        _ => vec![],
    });
    assert_eq!((tally.counts.good, tally.counts.failed, tally.counts.opened), (4, 0, 1));
    assert_eq!(tally.counts.sent_bytes, 4 * 5 * (1 + 100_000));
}
