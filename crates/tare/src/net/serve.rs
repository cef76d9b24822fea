//! Serves as the endpoint of network tests.

use std::net::SocketAddr;

use tare_io::system;
use tare_target::endpoint::{EndpointPlan, NetEndpoint};

use crate::load::interrupt;
use crate::load::outputs::print;
use tare_model::Failure;

/// Open files besides connections: listeners, standard streams.
const SPARE_FILES: u64 = 64;
/// Maximum number of connections; each has a thread and a buffer.
const CONNECTIONS_MAX: u64 = 1024;

/// Returns how many connections an endpoint may hold within the open-file limit.
pub fn connections_max() -> u32 {
    let allowed = system::raise_open_files(CONNECTIONS_MAX + SPARE_FILES);
    allowed.saturating_sub(SPARE_FILES).clamp(1, CONNECTIONS_MAX) as u32
}

/// Serves until interrupted; prints the text that `words` returns for the listen address.
pub fn serve(plan: &EndpointPlan, words: impl FnOnce(SocketAddr) -> String) -> Result<(), Failure> {
    let mut endpoint = NetEndpoint::start(plan)?;
    interrupt::on_interrupt(endpoint.stopper())?;
    print(&words(endpoint.listens))
        .map_err(|error| Failure::environment(format!("standard output: {error}")))?;
    let waited = endpoint.wait();
    // The endpoint's threads end with the process; waiting for them takes long in gVisor.
    std::mem::forget(endpoint);
    Ok(waited?)
}
