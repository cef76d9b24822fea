//! Endpoints of `tare net` in this process, and strangers that are none.

use std::net::TcpListener;

use tare_io::{DurationNs, SocketOptions};
use tare_target::endpoint::{EndpointPlan, Loss, NetEndpoint, Obeys};

pub fn plan() -> EndpointPlan {
    EndpointPlan {
        listen: ([127, 0, 0, 1], 0).into(),
        cpus: Vec::new(),
        sockets: SocketOptions::default(),
        connections_max: 1024,
        calls: false,
        obeys: Obeys::Clients { token: None },
        delay: DurationNs::ZERO,
        loss: Loss::default(),
    }
}

pub fn endpoint(plan: EndpointPlan) -> (NetEndpoint, String) {
    let endpoint = NetEndpoint::start(&plan).unwrap();
    let address = endpoint.listens.to_string();
    (endpoint, address)
}

/// Somebody else who listens.
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
