//! The other end of `tare net` and `tare sys`: answers messages, counts streams, makes calls.
//!
//! It listens on one port for both TCP and UDP. Connections state their purpose
//! (`tare_load::protocol::wire`); datagrams come back marked as replies, unless their sender has
//! begun a stream.

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
use tcp::TcpServer;
pub use udp::Loss;

/// Settings of an endpoint, with everything resolved.
#[derive(Clone, Debug)]
pub struct EndpointPlan {
    pub listen: SocketAddr,
    /// CPUs for all its threads; empty leaves them to the kernel.
    pub cpus: Vec<usize>,
    pub sockets: SocketOptions,
    /// Most open connections: each has a thread.
    pub connections_max: u32,
    /// Whether it also makes system calls for any client.
    pub calls: bool,
    /// Whether it opens other ports and quits at a client's request, as qperf's servers do.
    pub obeys: RemoteControl,
    /// For tests: delays each reply by this.
    pub delay: DurationNs,
    /// For tests: loses datagrams.
    pub loss: Loss,
}

/// Which clients may make an endpoint open ports and quit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemoteControl {
    #[default]
    Nobody,
    /// Opens other ports for any client; quits for one on loopback or one with the token.
    Clients { token: Option<u64> },
}

/// A running endpoint. Stops when dropped.
pub struct NetEndpoint {
    pub listens: SocketAddr,
    stop: Arc<AtomicBool>,
    /// Shutting it down wakes the threads that wait for connections.
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
        let door = TcpServer::new(listener, plan, sessions.clone(), stop.clone())?;
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

    /// Waits until stopped, or until a thread fails. Other threads may be blocked in a call that
    /// some kernels do not end (gVisor's accept has no timeout): they end with the process.
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

    /// Returns the flag that ends [`NetEndpoint::wait`].
    pub fn stopper(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }
}

impl Drop for NetEndpoint {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The UDP socket is not shut down: std does not expect what it would then receive.
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
