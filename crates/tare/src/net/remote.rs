//! What an endpoint is asked beside tests: to serve on another port, to end.

use std::net::SocketAddr;

use tare_io::{DurationNs, Endpoint};
use tare_load::net::control::Control;
use tare_load::net::wire::Purpose;

use crate::failure::Failure;

const PATIENCE: DurationNs = DurationNs::from_secs(5);

/// The endpoint, once it serves on that port.
pub fn on_port(address: SocketAddr, port: u16) -> Result<SocketAddr, Failure> {
    if address.port() != port {
        ask(address, Purpose::Listen { port })?;
    }
    Ok(SocketAddr::new(address.ip(), port))
}

pub fn quit(address: SocketAddr) -> Result<(), Failure> {
    ask(address, Purpose::Quit)
}

/// An endpoint answers there.
pub fn is_there(address: SocketAddr) -> Result<(), Failure> {
    Control::reach(&Endpoint::Tcp(address), &[], PATIENCE, Purpose::Count, 0)?.count()?;
    Ok(())
}

/// One byte comes back where it obeys.
fn ask(address: SocketAddr, purpose: Purpose) -> Result<(), Failure> {
    let mut control = Control::reach(&Endpoint::Tcp(address), &[], PATIENCE, purpose, 0)?;
    control.hear(&mut [0; 1]).map_err(|error| {
        let what = match purpose {
            Purpose::Listen { port } => format!("cannot serve on port {port}"),
            _ => "does not end".to_owned(),
        };
        Failure::Target(format!("{address}: {what}: {error}"))
    })
}
