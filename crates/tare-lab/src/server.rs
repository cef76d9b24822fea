//! A server that runs, here or elsewhere.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use tare_io::{DurationNs, Instant};

use crate::error::LabError;
use crate::meter::Meter;

pub trait Server: Debug + Send {
    /// Waits until something accepts connections at its address. Returns at once when `stop` is
    /// set.
    fn wait_until_listening(&mut self, stop: &AtomicBool) -> Result<(), LabError>;

    /// Waits a little for the server to become ready; an error once it is dead, or too late.
    fn not_yet(&mut self, limit: Instant) -> Result<(), LabError>;

    fn is_alive(&self) -> bool;

    /// How it ended, in words that help; `None` where only its place knows.
    fn how_it_ended(&mut self) -> Option<String> {
        None
    }

    /// Why the place it runs in is no more; `None` where it still is after so long.
    fn place_gone(&self, _patience: DurationNs) -> Option<LabError> {
        None
    }

    /// Made when the server has given a reply: its processes are then all there.
    fn meter(&self) -> Meter;

    /// Lines and bytes that it wrote: to its standard streams, and to its log files.
    fn logged(&self) -> (u64, u64);

    /// A page over plain HTTP, asked where the server runs.
    fn page(&self, address: SocketAddr, path: &str) -> Option<String>;

    /// Lines of a file, where the server runs.
    fn lines(&self, path: &Path) -> Option<u64>;

    /// Who is connected to it, as far as was seen when it was metered.
    fn peers(&self) -> BTreeMap<IpAddr, u64> {
        BTreeMap::new()
    }

    /// Asks it to end; [`Server::stop`] then waits. Servers that are stopped together are asked
    /// together.
    fn ask_to_stop(&mut self);

    /// Ends it and all its processes.
    fn stop(&mut self);
}
