//! Requests to an endpoint besides tests: to serve on another port, to end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use aws_lc_rs::digest::{SHA256, digest};
use tare_io::DurationNs;
use tare_load::protocol::control::Control;
use tare_load::protocol::wire::{Greeting, Purpose};

use tare_model::Failure;

const TIMEOUT: DurationNs = DurationNs::from_secs(5);

/// Makes the endpoint serve on that port and returns its address there.
pub fn on_port(
    address: SocketAddr,
    port: u16,
    stop: &Arc<AtomicBool>,
) -> Result<SocketAddr, Failure> {
    if address.port() != port {
        ask(address, Purpose::Listen { port }, 0, stop)?;
    }
    Ok(SocketAddr::new(address.ip(), port))
}

pub fn quit(
    address: SocketAddr,
    word: Option<&str>,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    ask(address, Purpose::Quit, word.map_or(0, token), stop)
}

/// Returns a token as sent on the wire. Its 64 bits cannot be guessed, and a longer token would not
/// stop an eavesdropper either.
pub fn token(word: &str) -> u64 {
    let hash = digest(&SHA256, word.as_bytes());
    hash.as_ref().iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Fails unless an endpoint answers at this address.
pub fn check_endpoint(address: SocketAddr, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let greeting = Greeting { purpose: Purpose::Count, session: 0 };
    Control::reach(address, None, TIMEOUT, greeting, stop)?.count()?;
    Ok(())
}

/// Sends a request, which the endpoint confirms with one byte.
fn ask(
    address: SocketAddr,
    purpose: Purpose,
    session: u64,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    let greeting = Greeting { purpose, session };
    let mut control = Control::reach(address, None, TIMEOUT, greeting, stop)?;
    control.hear(&mut [0; 1]).map_err(|error| {
        let what = match purpose {
            Purpose::Listen { port } => {
                format!("cannot serve on port {port} (1024 to 65535 are allowed)")
            }
            _ => "does not end (quit is allowed from 127.0.0.1, or with the server's --token)"
                .to_owned(),
        };
        Failure::target(format!("{address}: {what}: {error}"))
    })
}
