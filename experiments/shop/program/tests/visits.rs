//! Visits all eleven services, which run on this machine.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use tare_shop::graph::SHOP;
use tare_shop::visit::{Wanted, visit};
use tare_shop::{Callee, Settings, serve};

fn get(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn page(address: SocketAddr, path: &str) -> String {
    get(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
}

/// Starts the services except those in `without`, and returns the addresses of all.
fn shop(without: &[&str]) -> BTreeMap<&'static str, SocketAddr> {
    let listeners: Vec<(&str, TcpListener)> = SHOP
        .iter()
        .map(|service| (service.name, TcpListener::bind("127.0.0.1:0").unwrap()))
        .collect();
    let at: BTreeMap<&str, SocketAddr> =
        listeners.iter().map(|(name, one)| (*name, one.local_addr().unwrap())).collect();
    for ((name, listener), service) in listeners.into_iter().zip(&SHOP) {
        if without.contains(&name) {
            continue;
        }
        let calls = service
            .calls
            .iter()
            .map(|callee| Callee { name: (*callee).into(), host: at[callee].to_string() });
        let settings = Settings {
            name: name.into(),
            cluster: service.cluster.to_string(),
            listen: at[name],
            calls: calls.collect(),
        };
        std::thread::spawn(move || serve(&listener, settings));
    }
    at
}

#[test]
fn each_service_serves_its_share_and_says_so() {
    let at = shop(&[]);
    const VISITS: u64 = 20;
    for _ in 0..VISITS {
        let answer = page(at["frontend"], "/");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(answer.matches("\"service\"").count(), 17, "{answer}");
        assert_eq!(answer.matches("\"cluster\": \"2\"").count(), 10, "{answer}");
    }
    let split = Wanted { split: true, mtls: None };
    visit(&at["frontend"].to_string(), 1, split).unwrap();
    let why = visit(&at["frontend"].to_string(), 1, Wanted::default()).unwrap_err();
    assert!(why.starts_with("visit 1: {\"service\": \"frontend\", \"cluster\": \"1\""), "{why}");
    let why =
        visit(&at["frontend"].to_string(), 1, Wanted { mtls: Some("shop"), ..split }).unwrap_err();
    assert!(why.contains("\"asked_by\": \"\""), "no sidecar told whose certificate: {why}");
    for service in &SHOP {
        let counts = page(at[service.name], "/counts");
        let expected = format!("\"served\": {}", (VISITS + 3) * service.share);
        assert!(counts.contains(&expected), "{}: {counts}", service.name);
        assert!(page(at[service.name], "/ready").starts_with("HTTP/1.1 200"));
    }
}

#[test]
fn who_is_missing_is_named() {
    let at = shop(&["payment"]);
    let answer = page(at["frontend"], "/");
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert!(answer.contains("frontend: checkout: status 502"), "{answer}");
    assert!(page(at["checkout"], "/").contains("checkout: payment: "));
}

#[test]
fn what_is_no_visit_is_refused() {
    let at = shop(&[])["redis"];
    assert!(get(at, "POST / HTTP/1.1\r\nConnection: close\r\n\r\n").starts_with("HTTP/1.1 405"));
    let with_body = "GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcde";
    assert!(get(at, with_body).starts_with("HTTP/1.1 400"));
    let endless = format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(20 << 10));
    let mut stream = TcpStream::connect(at).unwrap();
    let _ = stream.write_all(endless.as_bytes());
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    assert!(text.is_empty(), "it ends");
    assert!(page(at, "/counts").contains("\"served\": 0"));
}
