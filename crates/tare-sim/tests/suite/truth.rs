//! Latencies compared with arithmetic, in simulation, where time is exact.

use tare_io::{DurationNs, ReactorKind};
use tare_load::pacer::RateProfile;
use tare_model::samples::ReplySkew;
use tare_target::behaviour::{Behaviour, Delay, Service, Stall};

use crate::worlds::{Case, CaseResult};

/// Simulates a network without latency, so that only the server's times are left.
fn simulate(case: Case) -> CaseResult {
    let mut case = case;
    case.net.latency = DurationNs::ZERO;
    case.run(ReactorKind::Simulated).unwrap()
}

fn at_rate(per_s: f64, seconds: u64) -> Case {
    Case {
        rate: Some(RateProfile::constant(per_s).unwrap()),
        requests: None,
        window: DurationNs::from_secs(seconds),
        connections: 500,
        max_connections: 500,
        ..Default::default()
    }
}

fn close(got: DurationNs, wanted_ms: f64, tolerance: f64) {
    let got_ms = got.as_ns() as f64 / 1e6;
    assert!((got_ms / wanted_ms - 1.0).abs() <= tolerance, "{got_ms} ms, wanted {wanted_ms} ms");
}

#[test]
fn a_fixed_delay_is_measured_as_it_is() {
    let behaviour = Behaviour { delay: Delay::Fixed(DurationNs::from_ms(5)), ..Default::default() };
    let found = simulate(Case { behaviour, ..at_rate(2000.0, 5) });
    let latency = &found.tally.latency;
    assert_eq!(found.tally.counts.started, 10_000);
    for q in [0.01, 0.5, 0.99, 1.0] {
        close(latency.from_due.quantile(q), 5.0, 0.001);
    }
    assert_eq!(latency.send_lag.max(), DurationNs::ZERO, "nothing holds a request back here");
}

#[test]
fn poisson_arrivals_at_one_worker_follow_the_md1_formula() {
    let service =
        Service { time: DurationNs::from_ms(1), workers: 1, turn: DurationNs::ZERO, sticky: false };
    let load = 0.7;
    let case = Case {
        behaviour: Behaviour { service: Some(service), ..Default::default() },
        poisson: true,
        ..at_rate(load * 1000.0, 600)
    };
    let found = simulate(case);
    // Mean time in an M/D/1 system: service × (1 + load / (2 (1 − load))).
    close(found.tally.latency.from_due.mean(), 1.0 + load / (2.0 * (1.0 - load)), 0.05);
}

#[test]
fn a_stall_is_seen_whole_from_due_and_hidden_from_sent() {
    let stall = Stall { length: DurationNs::from_ms(100), every: DurationNs::from_secs(1) };
    let behaviour = Behaviour { stall: Some(stall), ..Default::default() };
    // Few connections, as closed-loop tools have: most requests of a stall wait to be sent.
    let case = Case { behaviour, connections: 5, max_connections: 5, ..at_rate(1000.0, 100) };
    let found = simulate(case);
    let latency = &found.tally.latency;
    // The 100 requests of a stall, out of 1,000 in its second, wait 100 … 1 ms; the first of the
    // 100 seconds has no stall. Therefore 5 % × 0.99 wait over 50 ms, and 1 % of all over 90 ms.
    let over_50_ms = 1.0 - latency.from_due.share_up_to(DurationNs::from_ms(50));
    assert!((over_50_ms / 0.0495 - 1.0).abs() < 0.05, "{over_50_ms}");
    close(latency.from_due.quantile(0.99), 90.0, 0.05);
    // From sent, only the five requests under way saw the stall: 0.5 % of all.
    let hidden = 1.0 - latency.from_sent.share_up_to(DurationNs::from_ms(50));
    assert!(hidden < 0.006, "{hidden}");
    close(latency.send_lag.max(), 95.0, 0.05);
    // 95 of the 100 requests of a stall wait for a connection.
    let waited = found.tally.counts.waited as f64 / found.tally.counts.started as f64;
    assert!((waited / (0.095 * 0.99) - 1.0).abs() < 0.05, "{waited}");
}

#[test]
fn percentiles_of_a_known_distribution_come_back() {
    let delay = Delay::parse("50:1ms,99:20ms,100:100ms").unwrap();
    let found = simulate(Case {
        behaviour: Behaviour { delay, seed: 9, ..Default::default() },
        ..at_rate(1000.0, 200)
    });
    for (q, ms) in [(0.5, 1.0), (0.99, 20.0), (0.995, 60.0)] {
        close(found.tally.latency.from_due.quantile(q), ms, 0.05);
    }
}

/// Returns replies per second of a server that takes waiting requests in turns of 30 µs and `each`
/// for every request.
fn rate_with_turns(connections: u32, each: DurationNs, linger: DurationNs) -> f64 {
    let service = Service { time: each, workers: 1, turn: DurationNs::from_us(30), sticky: false };
    let window = DurationNs::from_secs(1);
    let found = simulate(Case {
        behaviour: Behaviour { service: Some(service), ..Default::default() },
        connections,
        max_connections: connections,
        requests: None,
        window,
        linger,
        ..Default::default()
    });
    found.tally.counts.good as f64 / window.as_secs_f64()
}

#[test]
fn a_client_that_sends_at_once_is_not_seen_by_a_server_that_gains_from_batches() {
    let (fast, slow) = (DurationNs::from_us(11), DurationNs::from_us(30));
    for connections in [1, 2, 10, 50] {
        for each in [fast, slow] {
            let c = f64::from(connections);
            let truth = c / (30e-6 + c * each.as_secs_f64());
            let found = rate_with_turns(connections, each, DurationNs::ZERO);
            assert!((found / truth - 1.0).abs() < 0.005, "{connections}: {found}, not {truth}");
        }
    }
    // Replies that wait for each other leave the server idle, which changes its turns. A faster
    // server is affected more, so that the loss looks smaller than it is.
    let linger = DurationNs::from_us(50);
    let at_once =
        rate_with_turns(10, slow, DurationNs::ZERO) / rate_with_turns(10, fast, DurationNs::ZERO);
    let lingering = rate_with_turns(10, slow, linger) / rate_with_turns(10, fast, linger);
    assert!(lingering > at_once + 0.03, "{lingering} with lingering, {at_once} without");
}

#[test]
fn connections_that_stay_with_a_worker_by_lot_are_served_unevenly_and_counted() {
    let favoured = |sticky| {
        let time = DurationNs::from_us(100);
        let service = Service { time, workers: 5, turn: DurationNs::ZERO, sticky };
        let found = simulate(Case {
            behaviour: Behaviour { service: Some(service), seed: 3, ..Default::default() },
            connections: 20,
            max_connections: 20,
            requests: None,
            window: DurationNs::from_secs(1),
            ..Default::default()
        });
        let answered: u64 = found.replies.iter().sum();
        assert_eq!(answered, found.tally.counts.good + found.tally.counts.drained);
        ReplySkew::from_replies(&found.replies).unwrap().share()
    };
    let shared = favoured(false);
    assert!((0.25..0.26).contains(&shared), "{shared} where any worker takes any request");
    // A worker with one connection serves it five times as often as a worker with five serves each.
    assert!(favoured(true) > 0.4, "{}", favoured(true));
}

#[test]
fn replies_that_an_acknowledgement_holds_back_are_told_from_slow_ones() {
    let held = |pieces_ms| {
        // The head comes in four pieces, then the rest.
        let slow_head = Some(DurationNs::from_ms(pieces_ms));
        let behaviour = Behaviour { slow_head, ..Default::default() };
        let found = simulate(Case { behaviour, ..Case::default() });
        found.tally.counts.held as f64 / found.tally.counts.good as f64
    };
    assert_eq!([held(1), held(10), held(20)], [0.0, 1.0, 0.0]);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let case = || Case {
        behaviour: Behaviour {
            delay: Delay::Exponential(DurationNs::from_ms(1)),
            error_rate: 0.1,
            reset_rate: 0.05,
            seed: 4,
            ..Default::default()
        },
        poisson: true,
        ..at_rate(1000.0, 5)
    };
    let summary = |found: &CaseResult| {
        let latency = &found.tally.latency;
        let values: Vec<_> = latency.from_due.recorded().collect();
        (values, found.tally.counts.status.clone(), found.failures())
    };
    let (a, b) = (simulate(case()), simulate(case()));
    assert_eq!(summary(&a), summary(&b));
    let other = simulate(Case { seed: 2, ..case() });
    assert_ne!(summary(&a), summary(&other));
}
