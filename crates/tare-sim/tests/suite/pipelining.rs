//! Sixteen HTTP/1.1 requests at once on each connection, in simulation. Whatever happens to a
//! connection or a request, each request is counted once.

use tare_io::{DurationNs, ReactorKind};
use tare_load::pacer::RateProfile;
use tare_load::tls::{TlsClient, TlsOptions};
use tare_load::{FailureKind, Lifetime};
use tare_sim::net::NetOptions;
use tare_target::behaviour::{Behaviour, Defect, Delay};
use tare_target::stats::Counter;
use tare_target::tls::TlsServer;

use crate::worlds::{Case, CaseResult};

const PIPELINED: u32 = 16;

/// Runs a case with pipelining, and checks that the counters balance.
fn pipelined(case: Case) -> CaseResult {
    Case { pipelined: PIPELINED, ..case }.run(ReactorKind::Simulated).unwrap()
}

/// Returns a behaviour that delays each reply by 5 ms, however many there are.
fn delaying() -> Behaviour {
    Behaviour { delay: Delay::Fixed(DurationNs::from_ms(5)), ..Default::default() }
}

#[test]
fn every_request_has_its_reply() {
    for piece_max_bytes in [0, 97] {
        let net = NetOptions { piece_max_bytes, ..Default::default() };
        let found = pipelined(Case { net, ..Default::default() });
        assert_eq!((found.tally.counts.good, found.stat(Counter::Requests)), (400, 400));
        assert_eq!(found.tally.counts.body_bytes, 400 * 612);
        assert_eq!(found.tally.counts.received_bytes, found.stat(Counter::SentBytes));
        assert_eq!(found.tally.counts.sent_bytes, found.stat(Counter::ReceivedBytes));
        assert_eq!(found.tally.latency.from_sent.count(), 400);
        assert_eq!(found.tally.counts.opened, 4);
        assert_eq!(found.replies.iter().sum::<u64>(), 400);
    }
    let head = pipelined(Case { method: "HEAD", ..Default::default() });
    assert_eq!((head.tally.counts.good, head.tally.counts.body_bytes), (400, 0));
}

#[test]
fn requests_and_replies_are_encrypted_together() {
    let options = TlsOptions { name: "localhost".into(), insecure: true, ..Default::default() };
    let found = pipelined(Case {
        server_tls: Some(TlsServer::self_signed().unwrap()),
        client_tls: Some(TlsClient::new(&options).unwrap()),
        ..Default::default()
    });
    assert_eq!((found.tally.counts.good, found.tally.counts.handshakes_full), (400, 4));
}

#[test]
fn as_many_are_under_way_as_fit_and_littles_law_holds() {
    let mut case = Case {
        behaviour: delaying(),
        requests: None,
        ramp: DurationNs::from_ms(100),
        window: DurationNs::from_secs(2),
        ..Default::default()
    };
    case.net.latency = DurationNs::ZERO;
    let found = pipelined(case);
    let latency = found.tally.latency.from_sent.mean().as_secs_f64();
    let under_way = found.tally.good_per_s() * latency;
    assert!((under_way / 64.0 - 1.0).abs() < 0.01, "{under_way} under way on 4 connections");
    assert!((latency / 0.005 - 1.0).abs() < 0.01, "{latency} s");
    assert_eq!(found.tally.counts.unfinished(), 64, "those that the window's end cut");
}

#[test]
fn in_open_loop_a_connection_that_is_busy_takes_more() {
    let mut case = Case {
        behaviour: delaying(),
        rate: Some(RateProfile::constant(3000.0).unwrap()),
        connections: 1,
        max_connections: 1,
        requests: None,
        window: DurationNs::from_secs(1),
        ..Default::default()
    };
    case.net.latency = DurationNs::ZERO;
    // 15 are under way on average, so that one connection is enough and no request waits for it.
    let found = pipelined(case.clone());
    let tally = &found.tally;
    assert_eq!((tally.counts.started, tally.counts.failed, tally.counts.waited), (3000, 0, 0));
    assert_eq!(tally.latency.send_lag.max(), DurationNs::ZERO);
    assert_eq!(tally.latency.from_due.max(), DurationNs::from_ms(5));
    // Without pipelining, the connection carries 200 requests per second; the others stay unsent.
    let alone = case.run(ReactorKind::Simulated).unwrap();
    assert_eq!(alone.tally.counts.started, 3000);
    assert!(
        (199..=201).contains(&alone.tally.counts.completed),
        "{}",
        alone.tally.counts.completed
    );
}

#[test]
fn a_connection_that_ends_takes_its_requests_with_it() {
    let close_after = Behaviour { close_after: Some(10), ..Default::default() };
    let found = pipelined(Case { behaviour: close_after, ..Default::default() });
    // The server answers ten of each sixteen requests.
    let closed = found.tally.failures.count(FailureKind::ClosedEarly);
    assert_eq!((found.tally.counts.good + closed, found.tally.counts.failed), (400, closed));
    assert!((120..=180).contains(&closed), "{closed}");

    let resets = Behaviour { reset_rate: 0.05, seed: 5, ..Default::default() };
    let found = pipelined(Case { behaviour: resets, ..Default::default() });
    let reset = found.tally.failures.count(FailureKind::Reset);
    assert_eq!((found.tally.counts.good + reset, found.tally.counts.failed), (400, reset));
    assert!(reset > found.stat(Counter::Resets), "{reset}");
}

#[test]
fn time_limits_are_of_requests() {
    let silence = Behaviour { defect: Some(Defect::Silence), ..Default::default() };
    let timeout = DurationNs::from_ms(30);
    let found = pipelined(Case { behaviour: silence, timeout, ..Default::default() });
    assert_eq!(found.tally.failures.count(FailureKind::TimedOut), 400);
    assert_eq!(found.tally.latency.failed_after.count(), 400);
    // The first on a new connection waits for it to open, and the others end at the same time.
    let round_trip = DurationNs::from_us(20);
    let failed_after = &found.tally.latency.failed_after;
    assert_eq!(failed_after.max(), timeout);
    assert_eq!(failed_after.min() + round_trip, timeout);
    // 400 requests in batches of 64, each of which takes the whole timeout.
    let lots = found.tally.elapsed().as_secs_f64() / 0.03;
    assert!((6.9..8.0).contains(&lots), "{lots}");
}

#[test]
fn a_reply_too_many_is_taken_for_the_next_and_the_last_ends_the_connection() {
    let behaviour = Behaviour { defect: Some(Defect::Unasked), ..Default::default() };
    // Each of sixteen requests gets two replies; HTTP/1.1 does not say which reply is for which.
    let case = Case { behaviour, connections: 1, max_connections: 1, ..Default::default() };
    let found = pipelined(Case { requests: Some(16), ..case });
    assert_eq!((found.tally.counts.good, found.tally.counts.failed), (16, 0));
    assert_eq!(found.tally.failures.count(FailureKind::Malformed), 1);
    assert_eq!(found.tally.counts.closed_by_client, 1);
}

#[test]
fn long_requests_are_sent_one_after_another() {
    let body = vec![b'b'; 100_000];
    let found = pipelined(Case { method: "POST", body, requests: Some(64), ..Default::default() });
    assert_eq!((found.tally.counts.good, found.stat(Counter::Requests)), (64, 64));
    assert!(found.stat(Counter::ReceivedBytes) > 6_400_000);
}

#[test]
fn those_that_the_end_cuts_are_given_up_together() {
    let silence = Behaviour { defect: Some(Defect::Silence), ..Default::default() };
    let case = Case { behaviour: silence, requests: None, ..Default::default() };
    let (window, timeout) = (DurationNs::from_ms(5), DurationNs::from_secs(1));
    let found = pipelined(Case { window, timeout, ..case });
    assert_eq!((found.tally.counts.started, found.tally.counts.cut), (64, 64));
    assert_eq!((found.tally.counts.completed, found.tally.counts.failed), (0, 0));
}

#[test]
fn a_connection_for_each_request_carries_no_other() {
    let lifetime = Lifetime::PerRequest;
    let found = pipelined(Case { lifetime, requests: Some(40), ..Default::default() });
    assert_eq!((found.tally.counts.good, found.tally.counts.opened), (40, 40));
    assert_eq!(found.stat(Counter::Connections), 40);
}

#[test]
fn more_connections_are_opened_when_all_are_full() {
    let mut case = Case {
        behaviour: delaying(),
        rate: Some(RateProfile::constant(10_000.0).unwrap()),
        connections: 1,
        max_connections: 4,
        requests: None,
        window: DurationNs::from_secs(1),
        ..Default::default()
    };
    case.net.latency = DurationNs::ZERO;
    // 50 are under way on average: four connections hold 64.
    let found = pipelined(case);
    assert_eq!((found.tally.counts.started, found.tally.counts.failed), (10_000, 0));
    assert_eq!((found.tally.counts.unsent, found.tally.counts.opened), (0, 4));
    assert_eq!(found.tally.latency.from_due.max(), DurationNs::from_ms(5));
}
