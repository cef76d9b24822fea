//! HTTP/2 against a target with known replies.

use tare_io::DurationNs;
use tare_load::codec::Prepared;
use tare_load::engine::Engine;
use tare_load::pacer::{Arrivals, Pacer, RateProfile, Spacing};
use tare_load::protocol::capture::Wanted;
use tare_load::request::{RequestParts, Requests};
use tare_load::source::Listed;
use tare_load::{EngineConfig, Lifetime, Stretch, WaitPolicy};
use tare_model::net::Protocol;
use tare_model::status::StatusSet;
use tare_sim::net::NetOptions;
use tare_sim::world::{self, Outcome, World};
use tare_target::behaviour::{Behaviour, Delay, Http2Behaviour, Service};
use tare_target::stats::Counter;

use tare_io::Random;

struct Load {
    connections: u32,
    streams: u32,
    rate: Option<f64>,
    lifetime: Lifetime,
    timeout: DurationNs,
    body_bytes: usize,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            connections: 2,
            streams: 10,
            rate: None,
            lifetime: Lifetime::Kept,
            timeout: DurationNs::from_secs(1),
            body_bytes: 0,
        }
    }
}

impl Load {
    fn engine(&self) -> Engine {
        let pacer = match self.rate {
            None => Pacer::Closed,
            Some(per_s) => {
                let profile = RateProfile::constant(per_s).unwrap();
                Pacer::Open(Arrivals::new(profile, 1.0, Spacing::Even { phase: 0.5 }))
            }
        };
        let config = EngineConfig {
            endpoint: world::endpoint(),
            protocol: Protocol::Http2 { streams: self.streams, dynamic_table: true },
            sockets: Default::default(),
            bind: Vec::new(),
            connections: self.connections,
            max_connections: self.connections,
            lifetime: self.lifetime,
            tls: None,
            timeout: self.timeout,
            expected: StatusSet::default(),
            wait: WaitPolicy {
                batch_max: 1,
                linger: DurationNs::ZERO,
                spin: DurationNs::ZERO,
                polls: false,
            },
        };
        let parts = RequestParts {
            method: if self.body_bytes > 0 { "POST".into() } else { "GET".into() },
            authority: "target".into(),
            paths: vec!["/".into(), "/other".into()],
            body: vec![b'b'; self.body_bytes],
            ..RequestParts::default()
        };
        let prepared = Prepared::new(&config, &Requests::Parts(parts.into())).unwrap();
        let codec = prepared.codec(config.slots(&pacer), &Wanted::Nothing).unwrap();
        Engine::new(config, codec, Listed::in_turn(2, 0).into(), pacer)
    }

    fn run(&self, world: &World, window: DurationNs) -> Outcome {
        let stretch = Stretch { window, interval: DurationNs::from_secs(100), ..Stretch::NONE };
        world.run(self.engine(), stretch)
    }
}

fn world(behaviour: Behaviour, http2: Http2Behaviour) -> World {
    World::new(Behaviour { http2: Some(http2), ..behaviour })
}

const SECOND: DurationNs = DurationNs::from_secs(1);

#[test]
fn streams_carry_as_much_as_connections() {
    let delay = Delay::Fixed(DurationNs::from_ms(1));
    let world = world(Behaviour { delay, ..Behaviour::default() }, Http2Behaviour::default());
    let outcome = Load::default().run(&world, SECOND);
    // A millisecond at the target and 20 us on the way, for twenty requests at a time.
    let counts = &outcome.tally.counts;
    let expected = 20.0 / 1.020e-3;
    assert!((counts.completed as f64 / expected - 1.0).abs() < 0.01, "{}", counts.completed);
    let p50 = outcome.tally.latency.from_sent.quantile(0.5).as_ns() as f64 / 1e3;
    assert!((p50 - 1020.0).abs() < 3.0, "{p50} us");
    assert_eq!(counts.failed + counts.refused + counts.closed_by_server, 0);
    assert_eq!(outcome.stats.get(Counter::Connections), 2);
}

#[test]
fn a_queue_sees_the_requests_of_all_streams() {
    let time = DurationNs::from_us(100);
    let service = Some(Service { time, workers: 1, turn: DurationNs::ZERO, sticky: false });
    let world = world(Behaviour { service, ..Behaviour::default() }, Http2Behaviour::default());
    let outcome = Load::default().run(&world, SECOND);
    // Twenty requests wait for one worker: 10,000/s, and each takes 2 ms (Little's law).
    let completed = outcome.tally.counts.completed as f64;
    assert!((completed / 10_000.0 - 1.0).abs() < 0.01, "{completed}");
    let p50 = outcome.tally.latency.from_sent.quantile(0.5).as_ns() as f64 / 1e3;
    assert!((p50 / 2000.0 - 1.0).abs() < 0.02, "{p50} us");
}

#[test]
fn stream_limits_are_obeyed_and_the_wait_counts() {
    let delay = Delay::Fixed(DurationNs::from_ms(1));
    let behaviour = Behaviour { delay, ..Behaviour::default() };
    let limited = Http2Behaviour { streams: vec![3], ..Http2Behaviour::default() };
    let outcome = Load::default().run(&world(behaviour.clone(), limited), SECOND);
    let expected = 6.0 / 1.020e-3;
    let completed = outcome.tally.counts.completed as f64;
    assert!((completed / expected - 1.0).abs() < 0.01, "{completed}, not {expected}");
    assert_eq!(outcome.stats.get(Counter::Refused), 0);
    // At a rate that three streams hardly carry, requests wait for a stream, and the wait counts.
    let limited = Http2Behaviour { streams: vec![3], ..Http2Behaviour::default() };
    let load = Load { rate: Some(2900.0), connections: 1, ..Load::default() };
    let outcome = load.run(&world(behaviour.clone(), limited), SECOND);
    let latency = &outcome.tally.latency;
    let (due, sent) = (latency.from_due.quantile(0.5), latency.from_sent.quantile(0.5));
    assert!((sent.as_ns() as f64 / 1e3 - 1020.0).abs() < 3.0, "{sent}");
    assert!(due < DurationNs::from_us(1300), "{due}: three streams are nearly enough");
    // A limit that changes while requests are under way.
    let changing = Http2Behaviour { streams: vec![10, 1, 4], ..Http2Behaviour::default() };
    let outcome = Load::default().run(&world(behaviour, changing), SECOND);
    let counts = &outcome.tally.counts;
    assert!(counts.completed > 2000 && counts.failed == 0, "{counts:?}");
}

#[test]
fn goaway_loses_no_request() {
    let behaviour = Behaviour { close_after: Some(100), ..Behaviour::default() };
    let outcome = Load::default().run(&world(behaviour, Http2Behaviour::default()), SECOND);
    let counts = &outcome.tally.counts;
    assert!(counts.completed > 100_000 && counts.failed == 0, "{counts:?}");
    assert!(counts.refused > 0, "requests behind the last are sent again");
    // Every connection but the last ones carries a hundred requests.
    let connections = outcome.stats.get(Counter::Connections);
    let expected = outcome.stats.get(Counter::Requests) / 100;
    assert!(connections.abs_diff(expected) <= 3, "{connections} connections, not {expected}");
    assert_eq!(outcome.stats.get(Counter::BadRequests), 0);
}

#[test]
fn timeouts_cancel_streams_and_keep_connections() {
    let slow =
        Delay::Quantiles(vec![(0.95, DurationNs::from_ms(1)), (1.0, DurationNs::from_ms(99))]);
    let load = Load { timeout: DurationNs::from_ms(10), ..Load::default() };
    let behaviour = Behaviour { delay: slow, ..Behaviour::default() };
    let outcome = load.run(&world(behaviour, Http2Behaviour::default()), SECOND);
    let counts = &outcome.tally.counts;
    assert!(counts.failed > 50, "{counts:?}");
    assert_eq!(outcome.stats.get(Counter::Connections), 2);
    let cancelled = outcome.stats.get(Counter::Cancelled);
    assert!(cancelled >= counts.failed && cancelled <= counts.failed + 20, "{cancelled}");
}

#[test]
fn a_server_that_allows_no_stream_delays_nothing_beyond_the_timeout() {
    let nothing = Http2Behaviour { streams: vec![0], ..Http2Behaviour::default() };
    let load = Load { timeout: DurationNs::from_ms(100), ..Load::default() };
    let outcome = load.run(&world(Behaviour::default(), nothing), SECOND);
    let counts = &outcome.tally.counts;
    assert_eq!(counts.completed, 0);
    assert!(counts.failed >= 10 && counts.closed_by_client >= 10, "{counts:?}");
}

#[test]
fn a_silent_connection_takes_no_more_requests() {
    // Every request on it waits for longer than its timeout, and nothing else comes.
    let behaviour =
        Behaviour { delay: Delay::Fixed(DurationNs::from_secs(5)), ..Behaviour::default() };
    let load = Load { timeout: DurationNs::from_ms(100), connections: 1, ..Load::default() };
    let outcome = load.run(&world(behaviour, Http2Behaviour::default()), SECOND);
    assert!(outcome.tally.counts.failed >= 90, "{:?}", outcome.tally.counts);
    let connections = outcome.stats.get(Counter::Connections);
    // On a new one the server's settings have arrived, so its second timeout ends it.
    assert!((4..=6).contains(&connections), "{connections}");
}

#[test]
fn a_new_connection_for_each_request_sends_it_at_once() {
    let load = Load { lifetime: Lifetime::PerRequest, streams: 1, ..Load::default() };
    let outcome = load.run(&world(Behaviour::default(), Http2Behaviour::default()), SECOND);
    let counts = &outcome.tally.counts;
    assert_eq!((counts.failed, counts.refused), (0, 0));
    // Connecting takes 20 us, the request 20 more: it does not wait for the server's settings.
    let p50 = outcome.tally.latency.from_sent.quantile(0.5).as_ns() as f64 / 1e3;
    assert!((p50 - 40.0).abs() < 2.0, "{p50} us");
    let connections = outcome.stats.get(Counter::Connections);
    assert_eq!(connections, outcome.stats.get(Counter::Requests));
}

/// Everything at once, at random: nothing is lost, nothing is answered twice.
#[test]
fn counters_close_in_random_worlds() {
    let seeds = std::env::var("TARE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    for seed in 0..seeds {
        let mut random = Random::stream(seed, "http2 worlds", 0);
        let latency = DurationNs::from_us(1 + random.below(300));
        let pieces = if random.chance(0.5) { 1 + random.below(200) as usize } else { 0 };
        // A long body in tiny pieces would take long to simulate.
        let body_max = if pieces > 0 { 30 * pieces as u64 } else { 200_000 };
        let net = NetOptions {
            latency,
            piece_max_bytes: pieces,
            loss: if random.chance(0.2) { 0.01 } else { 0.0 },
            seed,
            ..NetOptions::default()
        };
        let streams = (0..random.below(3)).map(|_| 1 + random.below(12) as u32).collect();
        let refuse_rate = if random.chance(0.3) { 0.05 } else { 0.0 };
        let behaviour = Behaviour {
            delay: Delay::Exponential(DurationNs::from_us(1 + random.below(2000))),
            body_bytes: random.below(body_max) as usize,
            chunked: random.chance(0.3),
            close_after: random.chance(0.5).then(|| 1 + random.below(50)),
            error_rate: if random.chance(0.2) { 0.1 } else { 0.0 },
            reset_rate: if random.chance(0.1) { 0.002 } else { 0.0 },
            seed,
            ..Behaviour::default()
        };
        let world = World { net, ..world(behaviour, Http2Behaviour { streams, refuse_rate }) };
        let load = Load {
            connections: 1 + random.below(4) as u32,
            streams: 1 + random.below(15) as u32,
            rate: random.chance(0.4).then(|| 500.0 + random.below(5000) as f64),
            timeout: DurationNs::from_ms(500),
            body_bytes: if random.chance(0.3) { random.below(body_max) as usize } else { 0 },
            ..Load::default()
        };
        let outcome = load.run(&world, DurationNs::from_ms(30));
        let counts = &outcome.tally.counts;
        outcome.tally.assert_closed();
        // Every request that the client saw answered was answered once, and the target saw no
        // request that breaks the protocol.
        let stats = &outcome.stats;
        let asked = stats.get(Counter::Requests);
        let answered = counts.completed + counts.drained;
        assert!(asked >= answered, "seed {seed}: {asked} asked, {answered} answered");
        assert!(asked <= counts.started, "seed {seed}: {asked} of {}", counts.started);
        assert_eq!(stats.get(Counter::BadRequests), 0, "seed {seed}");
        if world.behaviour.reset_rate == 0.0 {
            assert_eq!(counts.failed, 0, "seed {seed}: {:?}", outcome.tally.failures);
        }
    }
}
