//! Runs the target on threads of this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use tare_io::epoll::EpollReactor;
use tare_io::system::{pin_thread, sharpen_timers};
use tare_io::uring::UringReactor;
use tare_io::{DurationNs, Endpoint, Reactor, ReactorKind, SetupError, socket};

use crate::behaviour::Behaviour;
use crate::server::Server;
use crate::stats::Stats;
use crate::tls::TlsServer;

#[derive(Clone, Debug)]
pub struct TargetPlan {
    pub listen: Endpoint,
    pub behaviour: Behaviour,
    pub tls: Option<TlsServer>,
    pub threads: u32,
    pub cpus: Vec<usize>,
    /// `None` takes io_uring if the kernel allows it, otherwise epoll.
    pub reactor: Option<ReactorKind>,
    /// Most connections that a thread can hold open.
    pub slots: u32,
}

/// A running target. Stops when dropped.
pub struct Target {
    pub listens: Endpoint,
    pub stats: Stats,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<(), SetupError>>>,
}

impl Target {
    pub fn start(plan: &TargetPlan) -> Result<Self, SetupError> {
        let shared = plan.threads > 1;
        let stats = Stats::new(plan.threads as usize);
        let stop = Arc::new(AtomicBool::new(false));
        let mut target = Self { listens: plan.listen.clone(), stats, stop, threads: Vec::new() };
        for thread in 0..plan.threads as usize {
            // The first thread binds the port, which may be 0; the others share the port it got.
            let (listener, bound) = socket::listener(&target.listens, shared)?;
            target.listens = bound;
            let (plan, stats, stop) = (plan.clone(), target.stats.clone(), target.stop.clone());
            let builder = std::thread::Builder::new();
            let thread = builder.spawn(move || {
                let _ends_all = StopOnEnd(stop.clone());
                if let Some(cpu) = plan.cpus.get(thread % plan.cpus.len().max(1)) {
                    pin_thread(*cpu)?;
                }
                sharpen_timers();
                let uring = match plan.reactor {
                    Some(ReactorKind::Epoll) => None,
                    Some(_) => Some(UringReactor::new(plan.slots)?),
                    None => UringReactor::new(plan.slots).ok(),
                };
                if let Some(mut reactor) = uring {
                    reactor.listen(listener)?;
                    return run(reactor, &plan, stats, thread, &stop);
                }
                let mut reactor = EpollReactor::new(plan.slots)?;
                reactor.listen(listener)?;
                run(reactor, &plan, stats, thread, &stop)
            });
            target.threads.push(thread.map_err(|e| SetupError::new("cannot start a thread", e))?);
        }
        Ok(target)
    }

    /// Waits until stopped, or until a thread fails.
    pub fn wait(&mut self) -> Result<(), SetupError> {
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(result) => result?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    }

    /// Returns the flag that ends [`Target::wait`].
    pub fn stopper(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Stops all threads when one ends: without one of them, the target would not behave as configured.
pub(crate) struct StopOnEnd(pub(crate) Arc<AtomicBool>);

impl Drop for StopOnEnd {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits end at least this often, so that a stop is noticed.
const STOP_CHECK: DurationNs = DurationNs::from_ms(50);

fn run<R: Reactor>(
    mut io: R,
    plan: &TargetPlan,
    stats: Stats,
    thread: usize,
    stop: &AtomicBool,
) -> Result<(), SetupError> {
    let behaviour = plan.behaviour.clone();
    let started = io.now();
    let mut server = Server::new(behaviour, plan.tls.clone(), stats, thread, plan.slots, started);
    let mut happened = Vec::with_capacity(8192);
    while !stop.load(Ordering::Relaxed) {
        let mut wait = server.turn(&mut io, &mut happened);
        let check = io.now() + STOP_CHECK;
        if check < wait.until {
            wait.until = check;
            wait.spin = DurationNs::ZERO;
        }
        io.wait(wait, &mut happened)?;
    }
    Ok(())
}
