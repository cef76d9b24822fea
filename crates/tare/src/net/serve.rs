//! Being the other end.

use std::net::SocketAddr;

use tare_io::system;
use tare_target::endpoint::{EndpointPlan, NetEndpoint};

use crate::failure::Failure;
use crate::load::interrupt;
use crate::load::outputs::print;

/// Beside connections: rings, listeners, standard streams.
const SPARE_FILES: u64 = 64;
const SLOTS_MAX: u64 = 16_384;

/// Open connections a thread may hold, as far as the open-file limit goes.
pub fn slots(threads: u32) -> u32 {
    let wanted = SLOTS_MAX * u64::from(threads) + SPARE_FILES;
    let allowed = system::raise_open_files(wanted).saturating_sub(SPARE_FILES);
    (allowed / u64::from(threads)).clamp(1, SLOTS_MAX) as u32
}

/// Serves until interrupted; says where, in `words`.
pub fn serve(plan: &EndpointPlan, words: impl FnOnce(SocketAddr) -> String) -> Result<(), Failure> {
    let mut endpoint = NetEndpoint::start(plan)?;
    interrupt::on_interrupt(endpoint.stopper())?;
    print(&words(endpoint.listens))
        .map_err(|error| Failure::Environment(format!("standard output: {error}")))?;
    Ok(endpoint.wait()?)
}
