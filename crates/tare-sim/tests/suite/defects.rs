//! Servers that violate HTTP: each defect has its exact error, in every world.

use tare_io::{DurationNs, Random};
use tare_load::FailureKind;
use tare_load::protocol::http1::{HeadMemo, ReplyParser};
use tare_sim::net::NetOptions;
use tare_target::behaviour::{Behaviour, Defect};
use tare_target::stats::Counter;

use crate::worlds::Case;

#[test]
fn every_defect_has_its_kind_and_its_words() {
    use FailureKind::{ClosedEarly, Malformed, TimedOut};
    for (name, kind, text) in [
        ("cut-head", ClosedEarly, "connection closed after 27 bytes of the reply head"),
        ("cut-body", ClosedEarly, "connection closed after 5 of 100 body bytes"),
        ("cut-chunks", ClosedEarly, "connection closed after 5 body bytes, before the last chunk"),
        ("no-reply", ClosedEarly, "connection closed before the reply began"),
        ("silence", TimedOut, "no complete reply within the time limit"),
        ("bad-status-line", Malformed, "reply head is malformed: invalid HTTP version"),
        ("bad-length", Malformed, "content-length 'ten' is not a number of bytes"),
        ("two-lengths", Malformed, "reply has two content-lengths, 1 and 2"),
        (
            "length-and-chunked",
            Malformed,
            "reply has both content-length and chunked transfer-encoding",
        ),
        ("bad-chunk-size", Malformed, "chunk size line is malformed at byte 0x78"),
        ("bad-chunk-end", Malformed, "chunk data is not followed by a line end but by byte 0x4e"),
        ("long-head", Malformed, "reply head is over 65536 bytes"),
        ("many-headers", Malformed, "reply head has over 128 header lines"),
        ("switch-protocols", Malformed, "server switched protocols (101) unasked"),
        ("endless-interim", Malformed, "over 100 interim (1xx) replies in a row"),
    ] {
        let behaviour = Behaviour { defect: Defect::parse(name), ..Default::default() };
        let case = Case {
            behaviour,
            requests: Some(12),
            timeout: DurationNs::from_ms(if kind == TimedOut { 30 } else { 60_000 }),
            net: NetOptions { piece_max_bytes: 1000, ..Default::default() },
            ..Default::default()
        };
        case.everywhere(|found| {
            assert_eq!(found.failures(), [(kind, 12, text.to_owned())], "{name}");
            assert_eq!((found.tally.counts.failed, found.tally.counts.good), (12, 0), "{name}");
            assert_eq!(found.stat(Counter::Requests), 12, "{name}");
        });
    }
}

#[test]
fn bytes_that_nobody_asked_for_end_the_connection_but_not_the_request() {
    let behaviour = Behaviour { defect: Some(Defect::Unasked), ..Default::default() };
    Case { behaviour, requests: Some(12), ..Default::default() }.everywhere(|found| {
        assert_eq!((found.tally.counts.good, found.tally.counts.failed), (12, 0));
        let failures = found.failures();
        assert_eq!((failures.len(), failures[0].0, failures[0].1), (1, FailureKind::Malformed, 12));
        assert!(failures[0].2.ends_with("bytes that no request asked for"), "{}", failures[0].2);
        assert_eq!(found.tally.counts.opened, 12, "each was good for one request");
        assert_eq!(found.tally.counts.closed_by_client, 12);
    });
}

#[test]
fn lost_packets_and_resets_while_connecting_are_survived() {
    let net = NetOptions { loss: 0.05, connect_reset: 0.2, seed: 3, ..Default::default() };
    let behaviour = Behaviour { close_after: Some(3), ..Default::default() };
    let case = Case { behaviour, net, connections: 20, ..Default::default() };
    let found = case.run(tare_io::ReactorKind::Simulated).unwrap();
    let resets = found.tally.failures.count(FailureKind::Reset);
    assert!(resets > 0);
    assert_eq!(found.tally.counts.good + found.tally.counts.failed, 400);
    assert!(found.tally.counts.not_opened >= found.tally.counts.failed);
}

/// A fuzzing smoke test for stable: mutated replies, cut at random, never make the parser panic or
/// hang, and the cuts never change the result. `make fuzz` continues with coverage.
#[test]
fn mutated_replies_never_confuse_the_parser() {
    let mut random = Random::stream(0x7a7e, "mutations", 0);
    let seeds: Vec<Vec<u8>> = Defect::ALL
        .iter()
        .map(|(_, defect)| defect.bytes().0)
        .filter(|bytes| bytes.len() < 4000)
        .chain([
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_vec(),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n"
                .to_vec(),
        ])
        .collect();
    for _ in 0..100_000 {
        let mut bytes = seeds[random.below(seeds.len() as u64) as usize].clone();
        for _ in 0..random.below(4) {
            let at = random.below(bytes.len().max(1) as u64) as usize;
            match random.below(4) {
                0 if !bytes.is_empty() => bytes[at] = random.next_u64() as u8,
                1 => bytes.truncate(at),
                2 => bytes.insert(at.min(bytes.len()), b"\r\n:0;,"[random.below(6) as usize]),
                _ => bytes.extend_from_within(at.min(bytes.len())..),
            }
        }
        let whole = outcome(&bytes, &mut |left| left);
        let cut = outcome(&bytes, &mut |left| 1 + random.below(left as u64) as usize);
        assert_eq!(whole, cut, "{:?}", String::from_utf8_lossy(&bytes));
    }
}

/// Parses to the end; returns the replies, and whether there was no error. A malformed head may be
/// noticed before or after its last bytes arrive, so errors are not compared further.
fn outcome(bytes: &[u8], piece: &mut dyn FnMut(usize) -> usize) -> (Vec<String>, bool) {
    let (mut parser, mut memo) = (ReplyParser::default(), HeadMemo::default());
    let mut replies = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (mut now, later) = rest.split_at(piece(rest.len()));
        while !now.is_empty() {
            match parser.advance(&mut now, false, &mut memo) {
                Ok(reply) => replies.extend(reply.map(|reply| format!("{reply:?}"))),
                Err(_) => return (replies, false),
            }
        }
        rest = later;
    }
    if parser.is_between_replies() {
        return (replies, true);
    }
    match parser.on_close(true) {
        Ok(reply) => {
            replies.extend(reply.map(|reply| format!("{reply:?}")));
            (replies, true)
        }
        Err(_) => (replies, false),
    }
}
