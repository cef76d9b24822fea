//! Slices on real sockets: connections stay open between them, and nothing sent goes uncounted.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tare_io::{DurationNs, Endpoint, ReactorKind};
use tare_load::pacer::RateProfile;
use tare_load::request::{Order, RequestParts, Requests};
use tare_load::session::{Sampling, Session};
use tare_load::{
    EngineConfig, LaneId, Lifetime, LoadError, LoadPlan, NoObserver, Observer, Part, Progress,
    Stretch, WaitPolicy,
};
use tare_model::status::StatusSet;
use tare_target::behaviour::Behaviour;
use tare_target::serve::{Target, TargetPlan};
use tare_target::stats::Counter;

fn target(behaviour: Behaviour) -> Target {
    Target::start(&TargetPlan {
        listen: Endpoint::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))),
        behaviour,
        tls: None,
        threads: 1,
        cpus: Vec::new(),
        reactor: None,
        slots: 256,
    })
    .unwrap()
}

fn stretch() -> Stretch {
    Stretch {
        ramp: DurationNs::from_ms(1),
        window: DurationNs::from_ms(5),
        interval: DurationNs::from_secs(1),
        edges: tare_load::Edges::Replies,
        ..Stretch::NONE
    }
}

fn plan(endpoint: &Endpoint, rate: Option<f64>, reactor: Option<ReactorKind>) -> LoadPlan {
    let parts = RequestParts {
        method: "GET".into(),
        authority: "target".into(),
        paths: vec!["/".into()],
        ..RequestParts::default()
    };
    LoadPlan {
        engine: EngineConfig {
            protocol: Default::default(),
            sockets: Default::default(),
            endpoint: endpoint.clone(),
            bind: Vec::new(),
            connections: 5,
            max_connections: 5,
            lifetime: Lifetime::Kept,
            tls: None,
            timeout: DurationNs::from_secs(10),
            expected: StatusSet::success(),
            wait: WaitPolicy {
                batch_max: 16,
                linger: DurationNs::from_us(50),
                spin: DurationNs::ZERO,
                polls: false,
            },
        },
        requests: Requests::Parts(parts.into()),
        order: Order::InTurn { from: 0 },
        source: None,
        worker_endpoints: Vec::new(),
        rate: rate.map(|rate| RateProfile::constant(rate).unwrap()),
        poisson: false,
        stretch: stretch(),
        workers: 2,
        cpus: Vec::new(),
        reactor,
        seed: 1,
        part: Part::WHOLE,
    }
}

#[test]
fn lanes_keep_their_connections_and_their_counts() {
    for reactor in [ReactorKind::IoUring, ReactorKind::Epoll] {
        let targets = [target(Behaviour::default()), target(Behaviour::default())];
        let plans = targets.each_ref().map(|t| plan(&t.listens, None, Some(reactor)));
        let mut session = Session::start(2, &[], &Arc::new(AtomicBool::new(false))).unwrap();
        for _round in 0..2 {
            session.open(&plans.each_ref(), Sampling::Few, &mut NoObserver).unwrap();
            for lane in [0, 1, 1, 0] {
                let sliced = session.slice(LaneId(lane), stretch(), &mut NoObserver).unwrap();
                assert_eq!(sliced.workers.len(), 2);
                let counts = &sliced.total.counts;
                sliced.total.assert_closed();
                assert_eq!(counts.opened, 0, "they were open before");
                let sent: u64 = sliced.workers.iter().map(|worker| worker.sent).sum();
                assert_eq!(sent, counts.answered, "the drain takes the last reply in");
                assert_eq!(sliced.total.latency.from_sent.count(), counts.good);
            }
            session.close().unwrap();
        }
        for target in &targets {
            assert!(target.stats.get(Counter::Requests) > 0);
            assert_eq!(target.stats.get(Counter::Connections), 10, "5 a round, over two workers");
        }
    }
}

#[test]
fn what_was_sent_is_what_the_server_counted() {
    let target = target(Behaviour::default());
    let plan = plan(&target.listens, None, None);
    let mut session = Session::start(1, &[], &Arc::new(AtomicBool::new(false))).unwrap();
    session.open(&[&plan], Sampling::Few, &mut NoObserver).unwrap();
    let mut sent = 0;
    for _ in 0..5 {
        sent += session.slice(LaneId(0), stretch(), &mut NoObserver).unwrap().workers[0].sent;
    }
    assert_eq!(session.close().unwrap()[0][0].sent, sent);
    assert_eq!(target.stats.get(Counter::Requests), sent);
}

#[test]
fn connections_closed_while_idle_are_opened_again_and_counted() {
    let target = target(Behaviour { close_after: Some(3), ..Behaviour::default() });
    let plan = plan(&target.listens, None, None);
    let mut session = Session::start(1, &[], &Arc::new(AtomicBool::new(false))).unwrap();
    session.open(&[&plan], Sampling::Few, &mut NoObserver).unwrap();
    let mut closed = 0;
    for _ in 0..3 {
        let sliced = session.slice(LaneId(0), stretch(), &mut NoObserver).unwrap();
        assert_eq!(sliced.total.counts.failed, 0);
        closed += sliced.workers[0].closed_by_server;
    }
    assert!(closed > 0);
}

#[test]
fn a_dead_server_is_named_and_the_session_lives_on() {
    let dead = target(Behaviour::default()).listens.clone();
    let alive = target(Behaviour::default());
    let mut session = Session::start(2, &[], &Arc::new(AtomicBool::new(false))).unwrap();
    let error =
        session.open(&[&plan(&dead, None, None)], Sampling::Few, &mut NoObserver).unwrap_err();
    assert!(matches!(error, LoadError::NoConnection { .. }), "{error}");
    session
        .open(&[&plan(&alive.listens, Some(1000.0), None)], Sampling::Few, &mut NoObserver)
        .unwrap();
    let started =
        session.slice(LaneId(0), stretch(), &mut NoObserver).unwrap().total.counts.started;
    assert!((4..=6).contains(&started), "5 are due in 5 ms: {started}");
}

#[test]
fn a_slice_can_hand_its_intervals_over() {
    struct Seen(Vec<u64>);
    impl Observer for Seen {
        fn interval(&mut self, progress: Progress<'_>) {
            progress.interval.assert_closed();
            self.0.push(progress.interval.counts.good);
        }
    }
    let target = target(Behaviour::default());
    let plan = plan(&target.listens, None, None);
    let mut session = Session::start(2, &[], &Arc::new(AtomicBool::new(false))).unwrap();
    session.open(&[&plan], Sampling::Few, &mut NoObserver).unwrap();
    for _ in 0..2 {
        let stretch = Stretch {
            window: DurationNs::from_secs(60),
            requests: Some(20_000),
            interval: DurationNs::from_ms(1),
            hands_over: true,
            ..Stretch::NONE
        };
        let mut seen = Seen(Vec::new());
        let sliced = session.slice(LaneId(0), stretch, &mut seen).unwrap();
        // The number of intervals depends on the machine, but nothing may be lost between them.
        assert_eq!(seen.0.iter().sum::<u64>(), sliced.total.counts.good);
        assert_eq!(sliced.total.counts.good, 20_000);
        assert!(seen.0.len() > 1, "nobody answers twenty thousand requests in a millisecond");
        assert!(sliced.workers.iter().all(|worker| worker.marks.is_empty()));
    }
}
