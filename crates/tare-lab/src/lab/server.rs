//! Handles on running servers and layers' processes, wherever they run.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant};
use tare_model::plain;

use crate::agent::TIMEOUT;
use crate::executor::requests::{
    AskToStop, AwaitListening, AwaitReady, ExecutorRequest, HowItEnded, IsAlive, Lines, Logged,
    Page, Peers, Start, Stop,
};
use crate::executor::{ServerId, Target};
use crate::lab::site::Site;
use crate::launch::injected::Injected;
use crate::launch::spec::{CountSource, LaunchSpec};
use crate::machine::cgroup::Cgroup;
use crate::meters::metering::MeterSource;
use tare_model::Failure;

/// A running server or layer's process. Dropping it ends it.
#[derive(Debug)]
pub struct Server {
    who: String,
    /// The site that carries out requests about it.
    site: Site,
    process: Process,
    /// The site and target that meter it.
    metered: MeterSource,
    port: u16,
    ready_within: DurationNs,
    /// Peers at the time of the last metering; recorded only if the site is an agent.
    peers: Mutex<BTreeMap<IpAddr, u64>>,
}

#[derive(Debug)]
enum Process {
    Started(ServerId),
    /// The process has ended, after logging this many lines and bytes.
    Ended((u64, u64)),
    /// A cluster starts and ends it.
    Injected(Box<Injected>),
}

/// How a server is started.
#[derive(Debug)]
pub struct Starting<'a> {
    pub site: Site,
    pub who: &'a str,
    pub cpus: Vec<usize>,
    /// The control group that it is started in.
    pub cgroup: Option<Cgroup>,
    /// The site and target that meter the server; `None` for its own site and the server itself.
    pub metered: Option<MeterSource>,
}

/// Extra time for a reply, beyond the timeout of the request.
const GRACE: DurationNs = DurationNs::from_secs(10);
/// Limit of a remote server's output in the report of its end.
const WORDS_CHARS_MAX: usize = 4000;

impl Server {
    pub fn start(starting: Starting<'_>, launch_spec: LaunchSpec) -> Result<Self, Failure> {
        let Starting { site, who, cpus, cgroup, metered } = starting;
        let (ready_within, port) = (launch_spec.ready_within(), launch_spec.address.port());
        let launch_spec = Box::new(launch_spec);
        let request = Start { who: who.to_owned(), launch_spec, cpus, cgroup };
        let started = site.ask_within(request, ready_within + TIMEOUT);
        let id = started.map_err(|error| error.named(who))?;
        let itself = || MeterSource { site: site.clone(), target: Target::Server(id) };
        Ok(Self {
            who: who.to_owned(),
            metered: metered.unwrap_or_else(itself),
            site,
            process: Process::Started(id),
            port,
            ready_within,
            peers: Mutex::default(),
        })
    }

    pub fn injected(injected: Injected) -> Self {
        Self {
            who: injected.who.clone(),
            site: injected.beside.clone(),
            metered: injected.metered.clone(),
            process: Process::Injected(Box::new(injected)),
            port: 0,
            ready_within: DurationNs::ZERO,
            peers: Mutex::default(),
        }
    }

    fn ask<A: ExecutorRequest>(
        &self,
        request: A,
        timeout: DurationNs,
    ) -> Result<A::Reply, Failure> {
        self.site.ask_within(request, timeout + GRACE).map_err(|error| error.named(&self.who))
    }

    /// Waits until something accepts connections at its address, and returns the port. Returns at
    /// once when `stop` is set.
    pub fn wait_until_listening(&mut self, stop: &AtomicBool) -> Result<u16, Failure> {
        match &self.process {
            Process::Started(server) => {
                let request = AwaitListening { server: *server };
                self.port = self.ask(request, self.ready_within)?;
            }
            Process::Injected(injected) => injected.wait_until_known(stop)?,
            Process::Ended(_) => {}
        }
        Ok(self.port)
    }

    /// Waits briefly for the server to become ready; fails once it is dead or past `limit`.
    pub fn not_yet(&self, limit: Instant) -> Result<(), Failure> {
        let Process::Started(server) = self.process else { return Ok(()) };
        self.ask(AwaitReady { server, late: monotonic_now() > limit }, TIMEOUT)
    }

    pub fn is_alive(&self) -> bool {
        let there = self.site.agent().is_none_or(|agent| agent.is_alive());
        there
            && match self.process {
                Process::Started(server) => self.ask(IsAlive { server }, TIMEOUT).unwrap_or(false),
                Process::Injected(_) => true,
                Process::Ended(_) => false,
            }
    }

    /// Describes how the server ended; `None` if this is unknown here.
    pub fn how_it_ended(&self) -> Option<String> {
        let Process::Started(server) = self.process else { return None };
        let told = self.ask(HowItEnded { server }, TIMEOUT).ok()??;
        Some(match self.site {
            Site::Here(_) => told,
            Site::There(_) => {
                let cut: String = told.chars().take(WORDS_CHARS_MAX).collect();
                plain::lines(&cut).into_owned()
            }
        })
    }

    /// Waits up to `timeout` for its place to end; returns why it ended, or `None` if it is still
    /// up.
    pub fn place_gone(&self, timeout: DurationNs) -> Option<Failure> {
        self.site.gone(timeout).map(|error| error.named(&self.who))
    }

    /// Returns the site and target that meter the server. Call this once the server has replied:
    /// all its processes exist by then.
    pub fn meter(&self) -> &MeterSource {
        // The meter is made again after warm-up, when connections are open and show the peers.
        if self.site.agent().is_some()
            && matches!(self.process, Process::Started(_))
            && let Ok(peers) = self.ask(Peers { port: self.port }, TIMEOUT)
            && !peers.is_empty()
        {
            *self.peers.lock().unwrap_or_else(|e| e.into_inner()) = peers;
        }
        &self.metered
    }

    /// Returns the site that carries out requests about the server.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// Returns the lines and bytes that it wrote to its standard streams and log files.
    pub fn logged(&self) -> (u64, u64) {
        match &self.process {
            Process::Started(server) => {
                self.ask(Logged { server: *server }, TIMEOUT).unwrap_or_default()
            }
            Process::Ended(logged) => *logged,
            Process::Injected(injected) => injected.logged(),
        }
    }

    /// Fetches a page over plain HTTP from where the server runs.
    pub fn page(&self, address: SocketAddr, path: &str) -> Option<String> {
        self.ask(Page { address, path: path.to_owned() }, TIMEOUT).ok()?
    }

    /// Counts the lines of a file where the server runs.
    pub fn lines(&self, path: &Path) -> Option<u64> {
        self.ask(Lines { path: path.to_owned() }, TIMEOUT).ok()?
    }

    /// Reads the server's own count of requests at its site.
    pub fn count(&self, source: &CountSource) -> Option<u64> {
        match source {
            CountSource::Page { address, path, page } => page.parse(&self.page(*address, path)?),
            CountSource::AccessLog(path) => self.lines(path),
        }
    }

    /// Returns the peers that were connected when it was last metered.
    pub fn peers(&self) -> BTreeMap<IpAddr, u64> {
        self.peers.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Asks it to end; [`Server::stop`] then waits. Several servers can thus end at the same time.
    pub fn ask_to_stop(&mut self) {
        if let Process::Started(server) = self.process {
            let _ = self.ask(AskToStop { server }, TIMEOUT);
        }
    }

    /// Ends it and all its processes.
    pub fn stop(&mut self) {
        if let Process::Started(server) = self.process {
            let logged = self.ask(Stop { server }, TIMEOUT).unwrap_or_default();
            self.process = Process::Ended(logged);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}
