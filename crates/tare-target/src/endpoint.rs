//! The other end of `tare net` and `tare sys`: answers messages, counts streams, makes calls.
//!
//! One port for TCP, the same for UDP. Connections say what they are for
//! (`tare_load::protocol::wire`); datagrams come back as they are, unless their sender has begun a
//! stream.

mod sessions;
mod tcp;
mod udp;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use tare_io::process::pin_to;
use tare_io::system::sharpen_timers;
use tare_io::{DurationNs, Endpoint, SetupError, SocketOptions, socket};

use crate::serve::StopOnEnd;
use sessions::Sessions;
use tcp::Door;
pub use udp::Loss;

/// What an endpoint is to be; everything resolved.
#[derive(Clone, Debug)]
pub struct EndpointPlan {
    pub listen: SocketAddr,
    /// CPUs for all its threads; empty leaves them to the kernel.
    pub cpus: Vec<usize>,
    pub sockets: SocketOptions,
    /// Open connections: each has a thread.
    pub connections_max: u32,
    /// Whether it also makes calls into its kernel for whoever asks.
    pub calls: bool,
    /// Whether it opens other ports and ends when a client says so, as qperf's servers do.
    pub obeys: Obeys,
    /// Truths to test with: each reply waits so long, and datagrams get lost.
    pub delay: DurationNs,
    pub loss: Loss,
}

/// What an endpoint does at a client's word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Obeys {
    #[default]
    Nobody,
    /// Opens other ports for any client; ends for one on loopback, or one that knows the token.
    Clients { token: Option<u64> },
}

/// A running endpoint. Stops when dropped.
pub struct NetEndpoint {
    pub listens: SocketAddr,
    stop: Arc<AtomicBool>,
    /// Shut down, it wakes whoever waits for connections.
    listener: OwnedFd,
    threads: Vec<JoinHandle<Result<(), SetupError>>>,
}

impl NetEndpoint {
    pub fn start(plan: &EndpointPlan) -> Result<Self, SetupError> {
        let sessions = Arc::new(Sessions::default());
        let stop = Arc::new(AtomicBool::new(false));
        let (listener, bound) = socket::listener(&Endpoint::Tcp(plan.listen), false)?;
        let Endpoint::Tcp(listens) = bound else { unreachable!("TCP was asked for") };
        let (datagrams, _) = socket::listener(&Endpoint::Udp(listens), false)?;
        let cannot = |error| SetupError::new("cannot keep a socket", error);
        let own = listener.try_clone().map_err(cannot)?;
        let mut endpoint = Self { listens, stop: stop.clone(), listener: own, threads: Vec::new() };
        let door = Door::new(listener, plan, sessions.clone(), stop.clone())?;
        endpoint.spawn(move || door.serve(true))?;
        let plan = plan.clone();
        let datagrams = std::net::UdpSocket::from(datagrams);
        endpoint.spawn(move || {
            settle_thread(&plan.cpus)?;
            sharpen_timers();
            udp::serve(&datagrams, &plan, &sessions, &stop)
        })?;
        Ok(endpoint)
    }

    fn spawn(
        &mut self,
        work: impl FnOnce() -> Result<(), SetupError> + Send + 'static,
    ) -> Result<(), SetupError> {
        let stop = self.stop.clone();
        let thread = std::thread::Builder::new().spawn(move || {
            let _ends_all = StopOnEnd(stop);
            work()
        });
        self.threads.push(thread.map_err(|error| SetupError::new("cannot start a thread", error))?);
        Ok(())
    }

    /// Waits until told to stop, or until a thread fails. Threads may be deep in a call that some
    /// kernels do not end in time (gVisor's accept knows no time limit): they end with the process.
    pub fn wait(&mut self) -> Result<(), SetupError> {
        while !self.stop.load(Ordering::Relaxed) {
            std::thread::park_timeout(STOP_CHECK);
        }
        match self.threads.iter().position(JoinHandle::is_finished) {
            None => Ok(()),
            Some(ended) => self.threads.swap_remove(ended).join().unwrap_or_else(|panic| {
                std::panic::resume_unwind(panic);
            }),
        }
    }

    /// Ends [`NetEndpoint::wait`].
    pub fn stopper(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }
}

impl Drop for NetEndpoint {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Not the socket of datagrams: std does not expect what it would receive then.
        let _ = socket::shut_down(&self.listener);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

const STOP_CHECK: std::time::Duration = std::time::Duration::from_millis(20);

fn settle_thread(cpus: &[usize]) -> Result<(), SetupError> {
    if cpus.is_empty() { Ok(()) } else { pin_to(cpus) }
}
