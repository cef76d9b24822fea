//! HTTPS: handshakes are counted, verified, and resumed only on demand; every failure is named.

use tare_io::ReactorKind;
use tare_load::failure::NO_TLS;
use tare_load::tls::{Pem, TlsClient, TlsOptions};
use tare_load::{FailureKind, Lifetime};
use tare_model::layers::TlsVersion;
use tare_sim::net::NetOptions;
use tare_target::behaviour::Behaviour;
use tare_target::stats::Counter;
use tare_target::tls::TlsServer;

use crate::worlds::Case;

fn options() -> TlsOptions {
    TlsOptions { name: "localhost".into(), insecure: true, ..Default::default() }
}

fn case(options: &TlsOptions) -> Case {
    Case {
        server_tls: Some(TlsServer::self_signed().unwrap()),
        client_tls: Some(TlsClient::new(options).unwrap()),
        requests: Some(40),
        ..Default::default()
    }
}

#[test]
fn kept_connections_shake_hands_once() {
    for version in [None, Some(TlsVersion::V1_2), Some(TlsVersion::V1_3)] {
        let mut case = case(&TlsOptions { version, ..options() });
        case.behaviour = Behaviour { body_bytes: 100_000, chunked: true, ..Default::default() };
        case.net = NetOptions { piece_max_bytes: 5000, ..Default::default() };
        case.everywhere(|found| {
            assert_eq!((found.tally.counts.good, found.tally.counts.body_bytes), (40, 4_000_000));
            assert_eq!(found.tally.counts.handshakes_full, 4);
            assert_eq!(found.stat(Counter::HandshakesFull), 4);
        });
    }
}

#[test]
fn sessions_are_resumed_only_when_asked() {
    for resume in [false, true] {
        let mut case = case(&TlsOptions { resume, ..options() });
        case.lifetime = Lifetime::PerRequest;
        case.everywhere(|found| {
            let connections = found.tally.counts.clone();
            assert_eq!((found.tally.counts.good, connections.opened), (40, 40));
            assert_eq!(connections.handshakes_full + connections.handshakes_resumed, 40);
            assert_eq!(connections.handshakes_resumed > 0, resume, "{connections:?}");
            assert_eq!(found.stat(Counter::HandshakesResumed), connections.handshakes_resumed);
            assert_eq!(found.tally.latency.tls.count(), 40);
        });
    }
}

#[test]
fn certificates_are_verified_unless_told_otherwise() {
    let mut trusting = case(&options());
    let own = trusting.server_tls.as_ref().unwrap().certificate_pem.clone().unwrap();
    let pem = |text| Some(Pem { path: "authorities.pem".into(), text });
    let verified = TlsOptions { insecure: false, authorities: pem(own), ..options() };
    trusting.client_tls = Some(TlsClient::new(&verified).unwrap());
    trusting.everywhere(|found| assert_eq!(found.tally.counts.good, 40));

    let wrong_name = TlsOptions { name: "example.org".into(), ..verified.clone() };
    let other_authority = case(&options()).server_tls.unwrap().certificate_pem.unwrap();
    let stranger = TlsOptions { authorities: pem(other_authority), ..verified };
    for (options, text) in [
        (wrong_name, "TLS: certificate not valid for name"),
        (stranger, "TLS: the server's certificate is "),
    ] {
        let mut case = case(&options);
        case.server_tls = trusting.server_tls.clone();
        case.lifetime = Lifetime::PerRequest;
        case.requests = Some(4);
        case.everywhere(|found| {
            let failures = found.failures();
            assert_eq!((failures.len(), failures[0].0, failures[0].1), (1, FailureKind::Tls, 4));
            assert!(failures[0].2.starts_with(text), "{}", failures[0].2);
            assert_eq!(found.tally.counts.handshakes_full, 0);
        });
    }
}

#[test]
fn a_server_without_tls_is_named_as_such() {
    let mut case = case(&options());
    case.server_tls = None;
    case.lifetime = Lifetime::PerRequest;
    case.requests = Some(4);
    case.everywhere(|found| {
        assert_eq!(found.failures(), [(FailureKind::Tls, 4, NO_TLS.to_owned())]);
        assert_eq!(found.stat(Counter::BadRequests), 4);
    });
}

#[test]
fn a_client_without_tls_gets_an_error_not_a_hang() {
    let mut case = case(&options());
    case.client_tls = None;
    case.lifetime = Lifetime::PerRequest;
    case.requests = Some(4);
    case.everywhere(|found| {
        assert_eq!((found.tally.counts.failed, found.stat(Counter::HandshakesFailed)), (4, 4));
    });
}

#[test]
fn options_that_cannot_work_say_so() {
    let empty = Pem { path: "empty.pem".into(), text: String::new() };
    for (options, text) in [
        (TlsOptions { name: "a b".into(), ..options() }, "'a b' is not a host name for TLS"),
        (
            TlsOptions { authorities: Some(empty.clone()), insecure: false, ..options() },
            "cannot read certificates (PEM) from empty.pem: there is none in the file",
        ),
        (
            TlsOptions { certificate: Some(empty), ..options() },
            "--cert and --key belong together; give both",
        ),
        (
            TlsOptions { ciphers: vec!["RC4".into()], ..options() },
            "--ciphers: 'RC4' is not known; choose among TLS_AES",
        ),
    ] {
        let error = TlsClient::new(&options).unwrap_err().to_string();
        assert!(error.starts_with(text), "{error}");
    }
    let suite = TlsOptions { ciphers: vec!["TLS_CHACHA20_POLY1305_SHA256".into()], ..options() };
    case(&suite).everywhere(|found| assert_eq!(found.tally.counts.good, 40));
}

#[test]
fn a_long_body_is_encrypted_in_pieces() {
    let mut case = case(&options());
    case.method = "POST";
    case.body = vec![b'b'; 1_000_000];
    case.requests = Some(20);
    case.everywhere(|found| {
        assert_eq!((found.tally.counts.good, found.stat(Counter::Requests)), (20, 20));
        assert!(found.stat(Counter::ReceivedBytes) > 20_000_000);
    });
}

#[test]
fn whether_sessions_are_resumed_is_decided_in_one_place() {
    let mut case = case(&TlsOptions { resume: true, ..options() });
    case.lifetime = Lifetime::PerRequest;
    let resumed = case.run(ReactorKind::Simulated).unwrap().tally.counts;
    assert!(resumed.handshakes_resumed > 30, "{resumed:?}");
    case.client_tls = case.client_tls.map(|client| client.never_resuming());
    let full = case.run(ReactorKind::Simulated).unwrap().tally.counts;
    assert_eq!((full.handshakes_full, full.handshakes_resumed), (40, 0));
}
