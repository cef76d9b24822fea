//! Endpoints of `tare net` in this process, and servers that are not endpoints.

use std::net::TcpListener;

use tare_io::{DurationNs, SocketOptions};
use tare_report::net::{NetCell, NetReport};
use tare_target::endpoint::{EndpointPlan, Loss, NetEndpoint, RemoteControl};

use super::util::tare;

pub fn plan() -> EndpointPlan {
    EndpointPlan {
        listen: ([127, 0, 0, 1], 0).into(),
        cpus: Vec::new(),
        sockets: SocketOptions::default(),
        connections_max: 1024,
        calls: false,
        obeys: RemoteControl::Clients { token: None },
        delay: DurationNs::ZERO,
        loss: Loss::default(),
    }
}

pub fn endpoint(plan: EndpointPlan) -> (NetEndpoint, String) {
    let endpoint = NetEndpoint::start(&plan).unwrap();
    let address = endpoint.listens.to_string();
    (endpoint, address)
}

/// A server that is not an endpoint.
pub fn stranger() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// Two endpoints, compared briefly.
pub const PAIR: &str = r#"
[slices]
window = "5ms"
cycles = 2
no_sustained = true
[stop]
rounds = 5
[server.e]
net = {}
[[variant]]
name = "a"
server = "e"
[[variant]]
name = "b"
server = "e"
"#;

pub const TESTS: [&str; 6] =
    ["tcp_rr", "tcp_crr", "tcp_stream", "tcp_stream_reverse", "udp_rr", "udp_stream"];

pub fn net(address: &str, args: &[&str]) -> NetReport {
    let all: Vec<&str> = ["net", address, "--json", "-"].iter().chain(args).copied().collect();
    serde_json::from_str(&tare(&all).success().stdout).unwrap()
}

pub fn check_counts(cell: &NetCell) {
    assert!(cell.messages > 0, "{cell:?}");
    assert!(cell.errors.is_empty(), "{cell:?}");
    assert!(cell.elapsed_ns > 0 && cell.messages_per_s.unwrap().point > 0.0, "{cell:?}");
    // Whole messages, plus the rest of a stream.
    let whole = cell.messages * u64::from(cell.message_bytes);
    let parts = u64::from(cell.rounds * cell.threads);
    let spare = (parts + 1) * u64::from(cell.message_bytes);
    assert!((whole..whole + spare).contains(&cell.bytes), "{cell:?}");
    let exchange = cell.test.ends_with("rr");
    assert_eq!(cell.reply_bytes, exchange.then_some(cell.message_bytes), "{cell:?}");
    assert_eq!(cell.latency_ns_mean.is_some(), exchange, "{cell:?}");
    assert_eq!(cell.nodelay, (!cell.test.starts_with("udp")).then_some(exchange), "{cell:?}");
}
