//! Servers that speak HTTP correctly, in all permitted ways.

use tare_io::{DurationNs, Endpoint, ReactorKind};
use tare_load::pacer::RateProfile;
use tare_load::{FailureKind, Lifetime, LoadError, NoObserver};
use tare_sim::net::NetOptions;
use tare_target::behaviour::{Behaviour, Delay, Service};
use tare_target::serve::{Target, TargetPlan};
use tare_target::stats::Counter;

use crate::worlds::{Case, KINDS, stop};

#[test]
fn kept_connections_are_used_again_and_again() {
    Case::default().everywhere(|found| {
        assert_eq!((found.tally.counts.completed, found.tally.counts.good), (400, 400));
        assert_eq!(found.stat(Counter::Requests), 400);
        assert_eq!((found.tally.counts.opened, found.stat(Counter::Connections)), (4, 4));
        assert_eq!(found.tally.counts.status, [(200, 400)]);
        assert_eq!(found.tally.counts.body_bytes, 400 * 612);
        assert_eq!(found.tally.counts.received_bytes, found.stat(Counter::SentBytes));
        assert_eq!(found.tally.counts.sent_bytes, found.stat(Counter::ReceivedBytes));
        assert_eq!(found.tally.latency.from_sent.count(), 400);
    });
}

#[test]
fn replies_that_wait_for_others_are_all_there() {
    let linger = DurationNs::from_us(50);
    Case { linger, connections: 20, max_connections: 20, ..Default::default() }
        .everywhere(|found| assert_eq!(found.tally.counts.good, 400));
}

#[test]
fn every_framing_of_a_reply() {
    let bodies = [(0, false), (1, true), (612, true), (100_000, false), (100_000, true)];
    for (body_bytes, chunked) in bodies {
        let behaviour = Behaviour { body_bytes, chunked, ..Default::default() };
        // Small pieces in simulation break heads and chunk sizes anywhere.
        let net = NetOptions { piece_max_bytes: 97, ..Default::default() };
        let case = Case { behaviour, net, requests: Some(40), ..Default::default() };
        case.everywhere(|found| {
            assert_eq!(found.tally.counts.good, 40, "{body_bytes} bytes, chunked: {chunked}");
            assert_eq!(found.tally.counts.body_bytes, 40 * body_bytes as u64);
        });
    }
}

#[test]
fn head_has_no_body_and_post_has_one() {
    let head = Case { method: "HEAD", requests: Some(40), ..Default::default() };
    head.everywhere(|found| {
        assert_eq!((found.tally.counts.good, found.tally.counts.body_bytes), (40, 0))
    });
    // The body is larger than a send by reference may be, and larger than socket buffers.
    let body = vec![b'b'; 1_000_000];
    let post = Case { method: "POST", body, requests: Some(8), ..Default::default() };
    post.everywhere(|found| {
        assert_eq!((found.tally.counts.good, found.stat(Counter::Requests)), (8, 8));
        assert!(found.stat(Counter::ReceivedBytes) > 8_000_000);
    });
}

#[test]
fn slow_heads_are_waited_for() {
    let behaviour = Behaviour { slow_head: Some(DurationNs::from_ms(1)), ..Default::default() };
    Case { behaviour, requests: Some(20), ..Default::default() }.everywhere(|found| {
        assert_eq!(found.tally.counts.good, 20);
        assert!(found.tally.latency.from_sent.min() >= DurationNs::from_ms(4));
    });
}

#[test]
fn connections_that_the_server_closes_are_reopened_and_counted() {
    let behaviour = Behaviour { close_after: Some(10), ..Default::default() };
    Case { behaviour, ..Default::default() }.everywhere(|found| {
        assert_eq!((found.tally.counts.good, found.tally.counts.failed), (400, 0));
        // 40 connections carried requests; the last ones may have been opened in vain.
        assert!((40..=44).contains(&found.tally.counts.opened));
        assert!((36..=44).contains(&found.tally.counts.closed_by_server));
    });
}

#[test]
fn new_connections_have_phases() {
    let case = Case { lifetime: Lifetime::PerRequest, ..Default::default() };
    case.everywhere(|found| {
        let tally = &found.tally;
        assert_eq!((tally.counts.good, tally.counts.opened), (400, 400));
        assert_eq!(found.stat(Counter::Connections), 400);
        let latency = &tally.latency;
        for phase in [&latency.connect, &latency.first_byte, &latency.from_sent] {
            assert_eq!(phase.count(), 400);
        }
        let phases = latency.connect.sum_ns() + latency.first_byte.sum_ns();
        assert!(latency.from_sent.sum_ns() >= phases, "the total holds its phases");
    });
}

#[test]
fn errors_are_counted_by_status_and_are_not_throughput() {
    let behaviour = Behaviour { error_rate: 0.3, seed: 5, ..Default::default() };
    Case { behaviour, ..Default::default() }.everywhere(|found| {
        let errors = found.stat(Counter::Errors);
        assert!((60..180).contains(&errors), "{errors}");
        assert_eq!(found.tally.counts.status, [(200, 400 - errors), (503, errors)]);
        assert_eq!((found.tally.counts.completed, found.tally.counts.good), (400, 400 - errors));
        assert_eq!(found.tally.latency.unexpected.count(), errors);
        assert_eq!(found.tally.latency.from_sent.count(), 400 - errors);
    });
}

#[test]
fn resets_fail_their_request_only() {
    let behaviour = Behaviour { reset_rate: 0.1, seed: 5, ..Default::default() };
    Case { behaviour, ..Default::default() }.everywhere(|found| {
        let resets = found.stat(Counter::Resets);
        assert!(resets > 10, "{resets}");
        assert_eq!((found.tally.counts.failed, found.tally.counts.good), (resets, 400 - resets));
        let text = "connection reset by peer".to_owned();
        assert_eq!(found.failures(), [(FailureKind::Reset, resets, text)]);
    });
}

#[test]
fn nobody_there_is_said_at_once() {
    let case = Case { listening: false, ..Default::default() };
    for kind in [ReactorKind::IoUring, ReactorKind::Epoll] {
        match case.run(kind) {
            Err(LoadError::NoConnection { why, .. }) => assert_eq!(why, "connection refused"),
            other => panic!("{:?}", other.map(|found| found.tally)),
        }
    }
    // Without kept connections nothing is opened beforehand: every request fails.
    let case = Case { lifetime: Lifetime::PerRequest, requests: Some(12), ..case };
    case.everywhere(|found| {
        let text = "connection refused".to_owned();
        assert_eq!(found.failures(), [(FailureKind::Refused, 12, text)]);
        assert_eq!((found.tally.counts.failed, found.tally.counts.not_opened), (12, 12));
    });
}

#[test]
fn timeouts_end_the_request_and_its_connection() {
    let behaviour =
        Behaviour { delay: Delay::Fixed(DurationNs::from_secs(30)), ..Default::default() };
    let timeout = DurationNs::from_ms(30);
    Case { behaviour, timeout, requests: Some(8), ..Default::default() }.everywhere(|found| {
        let text = "no complete reply within the time limit".to_owned();
        assert_eq!(found.failures(), [(FailureKind::TimedOut, 8, text)]);
        assert_eq!(found.tally.counts.failed, 8);
        assert!(found.tally.latency.failed_after.min() >= timeout, "the time waited is kept");
        assert_eq!(found.tally.counts.closed_by_client, 8);
    });
}

#[test]
fn the_end_cuts_nobody_off_and_loses_nobody() {
    let behaviour =
        Behaviour { delay: Delay::Fixed(DurationNs::from_ms(200)), ..Default::default() };
    let case = Case {
        behaviour,
        requests: None,
        window: DurationNs::from_ms(100),
        connections: 7,
        max_connections: 7,
        ..Default::default()
    };
    case.everywhere(|found| {
        let unfinished = &found.tally.counts;
        assert_eq!((found.tally.counts.completed, unfinished.drained, unfinished.cut), (0, 7, 0));
        assert!(found.tally.latency.unfinished_age.min() >= DurationNs::from_ms(200));
        assert_eq!(found.stat(Counter::Replies), 7, "all replies were waited for");
    });
}

#[test]
fn what_is_due_but_cannot_be_sent_is_owed() {
    // One connection, 500 ms per request: the second request is never sent.
    let behaviour =
        Behaviour { delay: Delay::Fixed(DurationNs::from_ms(500)), ..Default::default() };
    let case = Case {
        behaviour,
        connections: 1,
        max_connections: 1,
        rate: Some(RateProfile::constant(100.0).unwrap()),
        requests: None,
        window: DurationNs::from_ms(99),
        ..Default::default()
    };
    case.everywhere(|found| {
        let unfinished = &found.tally.counts;
        assert_eq!(found.tally.counts.started, 10, "due at 0, 10, … 90 ms");
        assert_eq!((unfinished.drained, unfinished.unsent), (1, 9));
    });
}

#[test]
fn the_ramp_is_thrown_away_and_uses_up_nothing() {
    let ramp = DurationNs::from_ms(30);
    let closed = Case { ramp, ..Default::default() };
    closed.everywhere(|found| {
        assert_eq!((found.tally.counts.started, found.tally.counts.completed), (400, 400));
        assert!(found.stat(Counter::Requests) > 400, "the ramp's came on top");
    });
    // Stages start with the window, not with the ramp.
    let stages = RateProfile::parse("50ms:1000,50ms:2000").unwrap();
    let window = stages.duration().unwrap();
    let open = Case { ramp, rate: Some(stages), requests: None, window, ..Default::default() };
    let found = open.run(ReactorKind::Simulated).unwrap();
    assert!((150..=152).contains(&found.tally.counts.started), "{}", found.tally.counts.started);
}

#[test]
fn open_loop_opens_connections_when_all_are_busy() {
    let behaviour =
        Behaviour { delay: Delay::Fixed(DurationNs::from_secs(2)), ..Default::default() };
    let case = Case {
        behaviour,
        connections: 1,
        max_connections: 20,
        rate: Some(RateProfile::constant(100.0).unwrap()),
        requests: Some(10),
        ..Default::default()
    };
    case.everywhere(|found| {
        assert_eq!((found.tally.counts.good, found.tally.counts.opened), (10, 10));
    });
}

#[test]
fn open_loop_keeps_both_series() {
    let case = Case { rate: Some(RateProfile::constant(2000.0).unwrap()), ..Default::default() };
    case.everywhere(|found| {
        let latency = &found.tally.latency;
        for series in [&latency.from_due, &latency.from_sent, &latency.send_lag] {
            assert_eq!(series.count(), 400);
        }
        assert!(latency.from_due.sum_ns() >= latency.from_sent.sum_ns());
    });
}

#[test]
fn a_queue_is_seen_from_due() {
    // 1 ms of service at 2,000/s: the queue grows, and only the series from due shows all of it.
    let service = Some(Service {
        time: DurationNs::from_ms(1),
        workers: 1,
        turn: DurationNs::ZERO,
        sticky: false,
    });
    let case = Case {
        behaviour: Behaviour { service, ..Default::default() },
        rate: Some(RateProfile::constant(2000.0).unwrap()),
        requests: Some(200),
        ..Default::default()
    };
    case.everywhere(|found| {
        let latency = &found.tally.latency;
        assert!(latency.from_due.max() >= DurationNs::from_ms(100), "{}", latency.from_due.max());
        assert!(latency.from_sent.quantile(0.5) < latency.from_due.quantile(0.5));
    });
}

#[test]
fn unix_sockets_and_ipv6() {
    let path = std::env::temp_dir().join(format!("tare-test-{}.sock", std::process::id()));
    let places = [Endpoint::Unix(path.clone()), Endpoint::Tcp("[::1]:0".parse().unwrap())];
    for listen in places {
        for kind in [ReactorKind::IoUring, ReactorKind::Epoll] {
            let _ = std::fs::remove_file(&path);
            let target = Target::start(&TargetPlan {
                listen: listen.clone(),
                behaviour: Behaviour::default(),
                tls: None,
                threads: 1,
                cpus: Vec::new(),
                reactor: Some(kind),
                slots: 64,
            })
            .unwrap();
            let plan = Case::default().plan(kind, target.listens.clone());
            let result = tare_load::run(&plan, &stop(), &mut NoObserver).unwrap();
            assert_eq!(result.total.counts.good, 400, "{listen} on {}", kind.name());
        }
    }
    let _ = std::fs::remove_file(&path);
}

#[test]
fn source_addresses_are_used_in_turn() {
    let target = Target::start(&TargetPlan {
        listen: Endpoint::Tcp("127.0.0.1:0".parse().unwrap()),
        behaviour: Behaviour::default(),
        tls: None,
        threads: 1,
        cpus: Vec::new(),
        reactor: None,
        slots: 64,
    })
    .unwrap();
    for kind in [ReactorKind::IoUring, ReactorKind::Epoll] {
        let case = Case { lifetime: Lifetime::PerRequest, ..Default::default() };
        let mut plan = case.plan(kind, target.listens.clone());
        plan.engine.bind = vec!["127.0.0.2".parse().unwrap(), "127.0.0.3".parse().unwrap()];
        let result = tare_load::run(&plan, &stop(), &mut NoObserver).unwrap();
        assert_eq!(result.total.counts.good, 400);
        // The kernel refuses an address that this machine does not have.
        plan.engine.bind = vec!["192.0.2.7".parse().unwrap()];
        plan.stretch.requests = Some(3);
        let result = tare_load::run(&plan, &stop(), &mut NoObserver).unwrap();
        assert_eq!(result.total.failures.count(FailureKind::NoLocalPort), 3);
    }
}

#[test]
fn several_workers_share_the_load_without_remainder() {
    for kind in KINDS.into_iter().filter(|kind| *kind != ReactorKind::Simulated) {
        let target = Target::start(&TargetPlan {
            listen: Endpoint::Tcp("127.0.0.1:0".parse().unwrap()),
            behaviour: Behaviour::default(),
            tls: None,
            threads: 2,
            cpus: Vec::new(),
            reactor: Some(kind),
            slots: 64,
        })
        .unwrap();
        let case = Case { connections: 7, requests: Some(401), ..Default::default() };
        let mut plan = case.plan(kind, target.listens.clone());
        plan.workers = 3;
        let result = tare_load::run(&plan, &stop(), &mut NoObserver).unwrap();
        assert_eq!((result.workers.len(), result.total.counts.good), (3, 401));
        assert_eq!(result.total.counts.opened, 7);
    }
}

#[test]
fn no_content_has_no_body() {
    let behaviour = Behaviour { error_rate: 1.0, error_status: 204, ..Default::default() };
    Case { behaviour, ..Default::default() }.everywhere(|found| {
        assert_eq!((found.tally.counts.good, found.tally.counts.body_bytes), (400, 0));
        assert_eq!(found.tally.counts.opened, 4, "nothing unasked followed");
    });
}

/// Clients may send requests behind the last one that is answered, or never read replies.
#[test]
fn the_target_outlives_rude_clients() {
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpStream;
    let behaviours = [
        Behaviour { reset_rate: 1.0, ..Default::default() },
        Behaviour { close_after: Some(1), ..Default::default() },
        Behaviour { body_bytes: 3000, ..Default::default() },
    ];
    for kind in [ReactorKind::IoUring, ReactorKind::Epoll] {
        for behaviour in behaviours.clone() {
            let target = Target::start(&TargetPlan {
                listen: Endpoint::Tcp("127.0.0.1:0".parse().unwrap()),
                behaviour: behaviour.clone(),
                tls: None,
                threads: 1,
                cpus: Vec::new(),
                reactor: Some(kind),
                slots: 64,
            })
            .unwrap();
            let Endpoint::Tcp(address) = &target.listens else { panic!("{}", target.listens) };
            let get = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
            let mut rude = TcpStream::connect(address).unwrap();
            rude.write_all(&get.repeat(3)).unwrap();
            if behaviour.body_bytes == 3000 {
                // Sends until the target's replies fill every buffer on the way.
                rude.set_nonblocking(true).unwrap();
                let mut asked = 0;
                while asked < 20_000 && rude.write_all(get).is_ok() {
                    asked += 1;
                }
            } else {
                let mut replies = Vec::new();
                match rude.read_to_end(&mut replies) {
                    Ok(_) => {
                        assert_eq!(replies.windows(9).filter(|w| w == b"HTTP/1.1 ").count(), 1)
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
                }
            }
            // It still serves others.
            let mut stats = TcpStream::connect(address).unwrap();
            stats.write_all(b"GET /stats HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
            let mut text = String::new();
            stats.read_to_string(&mut text).unwrap();
            assert!(text.contains("\"stats_requests\": 1"), "{text}");
        }
    }
}

#[test]
fn the_target_tells_http_1_0_clients_that_it_keeps() {
    use std::io::{Read, Write};
    let target = Target::start(&TargetPlan {
        listen: Endpoint::Tcp("127.0.0.1:0".parse().unwrap()),
        behaviour: Behaviour { body_bytes: 1, ..Default::default() },
        tls: None,
        threads: 1,
        cpus: Vec::new(),
        reactor: None,
        slots: 8,
    })
    .unwrap();
    let Endpoint::Tcp(address) = &target.listens else { panic!("{}", target.listens) };
    let mut client = std::net::TcpStream::connect(address).unwrap();
    client.write_all(b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").unwrap();
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    let heads: Vec<_> = text.split("HTTP/1.1 200 OK").skip(1).collect();
    assert_eq!(heads.len(), 2, "{text}");
    assert!(heads[0].contains("Connection: keep-alive\r\n"), "{text}");
    assert!(heads[1].contains("Connection: close\r\n"), "{text}");
}
