//! Being the other end.

use std::net::SocketAddr;

use tare_io::system;
use tare_target::endpoint::{EndpointPlan, NetEndpoint};

use crate::load::interrupt;
use crate::load::outputs::print;
use tare_model::Failure;

/// Beside connections: listeners, standard streams.
const SPARE_FILES: u64 = 64;
/// Each has a thread with a buffer of its own.
const CONNECTIONS_MAX: u64 = 1024;

/// Connections that an endpoint may hold, as far as the open-file limit goes.
pub fn connections_max() -> u32 {
    let allowed = system::raise_open_files(CONNECTIONS_MAX + SPARE_FILES);
    allowed.saturating_sub(SPARE_FILES).clamp(1, CONNECTIONS_MAX) as u32
}

/// Serves until interrupted; says where, in `words`.
pub fn serve(plan: &EndpointPlan, words: impl FnOnce(SocketAddr) -> String) -> Result<(), Failure> {
    let mut endpoint = NetEndpoint::start(plan)?;
    interrupt::on_interrupt(endpoint.stopper())?;
    print(&words(endpoint.listens))
        .map_err(|error| Failure::environment(format!("standard output: {error}")))?;
    let waited = endpoint.wait();
    // Its threads end with the process; waiting for them takes long in gVisor.
    std::mem::forget(endpoint);
    Ok(waited?)
}
