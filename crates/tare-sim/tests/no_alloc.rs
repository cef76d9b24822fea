//! A worker in its steady state allocates nothing, as a counting allocator shows.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::SocketAddr;

use tare_io::epoll::EpollReactor;
use tare_io::uring::UringReactor;
use tare_io::{DurationNs, Endpoint, Reactor};
use tare_load::codec::Prepared;
use tare_load::engine::{Engine, IntervalSink, Next};
use tare_load::pacer::{Arrivals, Pacer, RateProfile, Spacing};
use tare_load::protocol::capture::Wanted;
use tare_load::request::{RequestParts, Requests};
use tare_load::source::Listed;
use tare_load::tls::{TlsClient, TlsOptions};
use tare_load::{EngineConfig, Lifetime, Stretch, Tally, WaitPolicy};
use tare_model::net::Protocol;
use tare_model::status::StatusSet;
use tare_target::behaviour::{Behaviour, Http2Behaviour};
use tare_target::serve::{Target, TargetPlan};
use tare_target::tls::TlsServer;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Two tallies that are swapped, as a worker's channel does.
struct TwoTallies(Box<Tally>, u64);

impl IntervalSink for TwoTallies {
    fn exchange(&mut self, tally: &mut Box<Tally>) -> bool {
        std::mem::swap(&mut self.0, tally);
        self.1 += 1;
        true
    }
}

struct Steady {
    allocations: u64,
    intervals: u64,
}

/// Counts allocations of the measuring thread, after a warm-up of a tenth of the requests.
fn measure<R: Reactor>(mut io: R, mut engine: Engine, requests: u64) -> Steady {
    let mut happened = Vec::with_capacity(8192);
    let mut sink = TwoTallies(Box::new(Tally::for_series(engine.series())), 0);
    engine.open(&mut io);
    while let Next::Wait(wait) = engine.turn(&mut io, &mut happened, &mut sink) {
        io.wait(wait, &mut happened).unwrap();
    }
    let stretch = |requests| Stretch {
        window: DurationNs::from_secs(600),
        requests: Some(requests),
        interval: DurationNs::from_ms(1),
        ..Stretch::NONE
    };
    let mut run = |requests| {
        engine.begin(stretch(requests), io.now());
        while let Next::Wait(wait) = engine.turn(&mut io, &mut happened, &mut sink) {
            io.wait(wait, &mut happened).unwrap();
        }
    };
    run(requests / 10);
    let before = ALLOCATIONS.with(Cell::get);
    run(requests);
    let allocations = ALLOCATIONS.with(Cell::get) - before;
    Steady { allocations, intervals: sink.1 }
}

fn start(behaviour: Behaviour, tls: Option<TlsServer>) -> Target {
    Target::start(&TargetPlan {
        listen: Endpoint::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))),
        behaviour,
        tls,
        threads: 1,
        cpus: Vec::new(),
        reactor: None,
        slots: 64,
    })
    .unwrap()
}

const CONNECTIONS: u32 = 8;
const HTTP_2: Protocol = Protocol::Http2 { streams: 4, dynamic_table: true };

fn engine(endpoint: Endpoint, protocol: Protocol, tls: Option<TlsClient>, pacer: Pacer) -> Engine {
    let config = EngineConfig {
        protocol,
        sockets: Default::default(),
        endpoint,
        bind: Vec::new(),
        connections: CONNECTIONS,
        max_connections: CONNECTIONS,
        lifetime: Lifetime::Kept,
        tls,
        timeout: DurationNs::from_secs(60),
        expected: StatusSet::success(),
        wait: WaitPolicy {
            batch_max: 8,
            linger: DurationNs::from_us(50),
            spin: DurationNs::from_us(20),
            polls: false,
        },
    };
    let request = RequestParts {
        method: "GET".into(),
        authority: "localhost".into(),
        paths: vec!["/".into()],
        ..Default::default()
    };
    let prepared = Prepared::new(&config, &Requests::Parts(request.into())).unwrap();
    let codec = prepared.codec(config.slots(&pacer), &Wanted::Nothing).unwrap();
    Engine::new(config, codec, Listed::in_turn(1, 0).into(), pacer)
}

#[test]
fn plain_requests_allocate_nothing_but_second_buffers() {
    let one = start(Behaviour::default(), None);
    let http2 = Some(Http2Behaviour::default());
    let two = start(Behaviour { http2, ..Behaviour::default() }, None);
    let open = || {
        let profile = RateProfile::constant(20_000.0).unwrap();
        Pacer::Open(Arrivals::new(profile, 1.0, Spacing::Even { phase: 0.0 }))
    };
    let closed = || Pacer::Closed;
    let cases: [(_, _, fn() -> Pacer); 4] = [
        (&one, Protocol::Http, closed),
        (&one, Protocol::Http, open),
        (&two, HTTP_2, closed),
        (&two, HTTP_2, open),
    ];
    for (target, protocol, pacer) in cases {
        let engine = || engine(target.listens.clone(), protocol, None, pacer());
        let on_uring = measure(UringReactor::new(8).unwrap(), engine(), 20_000);
        let on_epoll = measure(EpollReactor::new(8).unwrap(), engine(), 20_000);
        for steady in [on_uring, on_epoll] {
            assert!(steady.intervals > 10, "intervals were exchanged: {}", steady.intervals);
            // A connection of HTTP/2 gets its second send buffer the first time that it queues a
            // request while another is being sent, and both may grow once.
            let buffers = if protocol == HTTP_2 { 2 * u64::from(CONNECTIONS) } else { 0 };
            assert!(steady.allocations <= buffers, "{} allocations", steady.allocations);
        }
    }
}

#[test]
fn tls_requests_allocate_only_what_rustls_does() {
    // rustls allocates a buffer for each record that it encrypts or decrypts. tare adds none:
    // 20,000 requests of one record each way stay within that.
    let target = start(Behaviour::default(), Some(TlsServer::self_signed().unwrap()));
    let options = TlsOptions { name: "localhost".into(), insecure: true, ..Default::default() };
    let tls = TlsClient::new(&options).unwrap();
    let engine = engine(target.listens.clone(), Protocol::Http, Some(tls), Pacer::Closed);
    let steady = measure(UringReactor::new(8).unwrap(), engine, 20_000);
    let per_request = steady.allocations as f64 / 20_000.0;
    assert!(per_request <= 3.0, "{per_request} allocations a request");
}
