//! The other end of `tare net` and `tare sys`: answers messages, counts streams, makes calls.
//!
//! One port for TCP, the same for UDP. Connections say what they are for (`tare_load::net::wire`);
//! datagrams come back as they are, unless their sender has begun a stream.

mod sessions;
mod tcp;
mod udp;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use tare_io::epoll::EpollReactor;
use tare_io::system::{pin_thread, sharpen_timers};
use tare_io::uring::UringReactor;
use tare_io::{
    Buffers, DurationNs, Endpoint, Reactor, ReactorKind, SetupError, SocketOptions, Tuning, socket,
};

use crate::serve::StopOnEnd;
use sessions::Sessions;
use tcp::Answerer;
pub use udp::Loss;

/// What an endpoint is to be; everything resolved.
#[derive(Clone, Debug)]
pub struct EndpointPlan {
    pub listen: SocketAddr,
    pub threads: u32,
    pub cpus: Vec<usize>,
    pub reactor: Option<ReactorKind>,
    pub sockets: SocketOptions,
    /// Open connections a thread can hold.
    pub slots: u32,
    /// Whether it also makes calls into its kernel for whoever asks.
    pub calls: bool,
    /// Truths to test with: each reply waits so long, and datagrams get lost.
    pub delay: DurationNs,
    pub loss: Loss,
}

/// A running endpoint. Stops when dropped.
pub struct NetEndpoint {
    pub listens: SocketAddr,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<(), SetupError>>>,
}

/// Waits end at least this often, so that a stop is heeded.
const STOP_CHECK: DurationNs = DurationNs::from_ms(50);

impl NetEndpoint {
    pub fn start(plan: &EndpointPlan) -> Result<Self, SetupError> {
        let sessions = Arc::new(Sessions::default());
        let stop = Arc::new(AtomicBool::new(false));
        let shared = plan.threads > 1;
        let mut endpoint = Self { listens: plan.listen, stop, threads: Vec::new() };
        for thread in 0..plan.threads as usize {
            let (listener, bound) = socket::listener(&Endpoint::Tcp(endpoint.listens), shared)?;
            if let Endpoint::Tcp(address) = bound {
                endpoint.listens = address;
            }
            if thread == 0 {
                endpoint.start_udp(plan, &sessions)?;
            }
            let (plan, sessions, stop) = (plan.clone(), sessions.clone(), endpoint.stop.clone());
            endpoint.spawn(move || {
                let _ends_all = StopOnEnd(stop.clone());
                if let Some(cpu) = plan.cpus.get(thread % plan.cpus.len().max(1)) {
                    pin_thread(*cpu)?;
                }
                sharpen_timers();
                let tuning = Tuning { buffers: Buffers::LARGE, sockets: plan.sockets };
                let uring = match plan.reactor {
                    Some(ReactorKind::Epoll) => None,
                    Some(_) => Some(UringReactor::tuned(plan.slots, tuning)?),
                    None => UringReactor::tuned(plan.slots, tuning).ok(),
                };
                if let Some(mut reactor) = uring {
                    reactor.listen(listener)?;
                    return run(reactor, &plan, sessions, &stop);
                }
                let mut reactor = EpollReactor::tuned(plan.slots, tuning)?;
                reactor.listen(listener)?;
                run(reactor, &plan, sessions, &stop)
            })?;
        }
        Ok(endpoint)
    }

    fn start_udp(
        &mut self,
        plan: &EndpointPlan,
        sessions: &Arc<Sessions>,
    ) -> Result<(), SetupError> {
        let (socket, _) = socket::listener(&Endpoint::Udp(self.listens), false)?;
        let socket = std::net::UdpSocket::from(socket);
        let (delay, loss, cpus) = (plan.delay, plan.loss, plan.cpus.clone());
        let (sockets, sessions, stop) = (plan.sockets, sessions.clone(), self.stop.clone());
        self.spawn(move || {
            let _ends_all = StopOnEnd(stop.clone());
            if let Some(cpu) = cpus.first() {
                pin_thread(*cpu)?;
            }
            sharpen_timers();
            udp::serve(&socket, sockets, delay, loss, &sessions, &stop)
        })
    }

    fn spawn(
        &mut self,
        work: impl FnOnce() -> Result<(), SetupError> + Send + 'static,
    ) -> Result<(), SetupError> {
        let thread = std::thread::Builder::new().spawn(work);
        self.threads.push(thread.map_err(|error| SetupError::new("cannot start a thread", error))?);
        Ok(())
    }

    /// Waits until told to stop, or until a thread fails.
    pub fn wait(&mut self) -> Result<(), SetupError> {
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(result) => result?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    }

    /// Ends [`NetEndpoint::wait`].
    pub fn stopper(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }
}

impl Drop for NetEndpoint {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn run<R: Reactor>(
    mut io: R,
    plan: &EndpointPlan,
    sessions: Arc<Sessions>,
    stop: &AtomicBool,
) -> Result<(), SetupError> {
    let mut answerer = Answerer::new(plan.slots, plan.delay, plan.calls, sessions);
    let mut happened = Vec::with_capacity(8192);
    while !stop.load(Ordering::Relaxed) {
        let mut wait = answerer.turn(&mut io, &mut happened);
        let check = io.now() + STOP_CHECK;
        if check < wait.until {
            wait.until = check;
            wait.spin = DurationNs::ZERO;
        }
        io.wait(wait, &mut happened)?;
    }
    Ok(())
}
