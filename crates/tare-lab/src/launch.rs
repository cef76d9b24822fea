//! One launch of one server: how it is spoken to wherever it runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tare_bypass::Bypass;
use tare_io::time::{monotonic_now, wall_unix_ms};
use tare_io::{DurationNs, Instant};

use crate::count;
use crate::error::LabError;
use crate::injected::Injected;
use crate::intercept::Namespace;
use crate::launch_spec::LaunchSpec;
use crate::layers::{LayerProof, Stand};
use crate::meter::{FarMeter, Meter};
use crate::server::Server;

/// When a count is believed to be the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    AtLeast(u64),
    /// Twice the same.
    Quiet,
}

const SETTLED_WITHIN: DurationNs = DurationNs::from_ms(1000);
const SETTLED_CHECK: Duration = Duration::from_millis(10);

/// A launch: dropped, it ends.
#[derive(Debug)]
pub struct Launched {
    pub launch_spec: LaunchSpec,
    pub started_unix_ms: u64,
    started: Instant,
    /// How often its count was read.
    readings: AtomicU64,
    /// Carries all that it sends and receives.
    link: Option<String>,
    pub(crate) entry: Option<Entry>,
    /// What will show that they came that way.
    pub path: Option<Box<dyn LayerProof>>,
    /// What hands its connections' data past TCP.
    pub(crate) bypass: Option<Arc<Bypass>>,
    /// Layers that are processes, from the client's side on: they end before the server.
    hops: Vec<Hop>,
    pub server: Box<dyn Server>,
}

/// Where clients connect to, where that is not what the server listens on.
#[derive(Clone, Debug)]
pub struct Entry {
    pub address: SocketAddr,
    /// What they ask for there.
    pub host: String,
    /// Of what stands between there and the server.
    pub meters: Vec<Arc<dyn FarMeter>>,
}

/// A layer's process.
#[derive(Debug)]
pub struct Hop {
    pub name: String,
    /// Its layer's place among the variant's.
    pub layer: usize,
    pub stand: Stand,
    /// Where it is, beside client or server.
    pub namespace: Option<Namespace>,
    /// What a cluster's mesh put there.
    pub injected: Option<Injected>,
    /// Clients are sent through it, and know only what is behind it.
    pub intercepts: bool,
    /// What it passes on to.
    pub to: SocketAddr,
    pub launch_spec: LaunchSpec,
    pub server: Box<dyn Server>,
}

impl Launched {
    pub fn begin(
        launch_spec: LaunchSpec,
        link: Option<String>,
        start: impl FnOnce(LaunchSpec) -> Result<Box<dyn Server>, LabError>,
    ) -> Result<Self, LabError> {
        let (started, started_unix_ms) = (monotonic_now(), wall_unix_ms());
        let server = start(launch_spec.clone())?;
        let readings = AtomicU64::new(0);
        let hops = Vec::new();
        let (entry, path, bypass) = (None, None, None);
        Ok(Self {
            launch_spec,
            started_unix_ms,
            started,
            readings,
            link,
            entry,
            path,
            bypass,
            server,
            hops,
        })
    }

    /// Puts a layer's process before all that are there.
    pub(crate) fn add_hop(&mut self, hop: Hop) {
        self.hops.insert(0, hop);
    }

    pub fn all_hops(&self) -> impl Iterator<Item = &Hop> {
        self.hops.iter()
    }

    /// Those of one layer.
    pub fn hops(&self, layer: usize) -> Vec<&Hop> {
        self.hops.iter().filter(|hop| hop.layer == layer).collect()
    }

    /// Where its client connects to.
    pub fn address(&self) -> SocketAddr {
        let own = self.entry.as_ref().map_or(self.launch_spec.address, |entry| entry.address);
        let entered = self.hops.iter().find(|hop| !hop.intercepts);
        entered.map_or(own, |hop| hop.launch_spec.address)
    }

    /// What clients ask for, where they connect to what stands for it: a Service.
    pub fn entry_host(&self) -> Option<&str> {
        self.entry.as_ref().map(|entry| entry.host.as_str())
    }

    /// The server and its hops.
    fn all(&self) -> impl Iterator<Item = &dyn Server> {
        let hops = self.hops.iter().map(|hop| hop.server.as_ref());
        std::iter::once(self.server.as_ref()).chain(hops)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn Server>> {
        let hops = self.hops.iter_mut().map(|hop| &mut hop.server);
        std::iter::once(&mut self.server).chain(hops)
    }

    pub fn wait_until_listening(&mut self, stop: &AtomicBool) -> Result<(), LabError> {
        self.all_mut().try_for_each(|server| server.wait_until_listening(stop))
    }

    pub fn not_yet(&mut self, limit: Instant) -> Result<(), LabError> {
        self.all_mut().try_for_each(|server| server.not_yet(limit))
    }

    pub fn is_alive(&self) -> bool {
        self.all().all(Server::is_alive)
    }

    /// How the first of them that is not alive ended.
    pub fn what_ended(&mut self) -> (String, Option<String>) {
        match self.hops.iter_mut().find(|hop| !hop.server.is_alive()) {
            Some(hop) => (format!("its {}", hop.name), hop.server.how_it_ended()),
            None => ("the server".into(), self.server.how_it_ended()),
        }
    }

    /// What they use, with the packets of the server's place.
    pub fn meter(&self) -> Meter {
        let own = self.server.meter().with_link(self.link.as_deref());
        let own = self.hops.iter().fold(own, |meter, hop| meter.and(hop.server.meter()));
        let entry = self.entry.iter().flat_map(|entry| &entry.meters);
        entry.fold(own, |meter, far| meter.and(Meter::far(far.clone())))
    }

    /// Lines and bytes that they wrote.
    pub fn logged(&self) -> (u64, u64) {
        self.all().map(Server::logged).fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1))
    }

    pub fn ask_to_stop(&mut self) {
        self.hops.iter_mut().for_each(|hop| hop.server.ask_to_stop());
        self.server.ask_to_stop();
    }

    /// Ends them all, what is nearest to the client first.
    pub fn stop(&mut self) {
        self.hops.iter_mut().for_each(|hop| hop.server.stop());
        self.server.stop();
    }

    pub fn started(&self) -> Instant {
        self.started
    }

    /// When it counts as not having become ready.
    pub fn ready_limit(&self) -> Instant {
        self.started + self.launch_spec.ready_within()
    }

    /// Requests that it served so far, without those that asked for this; where it can be asked. A
    /// line of a log may come after the reply: then it is waited for until there are `expected`.
    pub fn served(&self, expected: Expected) -> Option<u64> {
        let source = self.launch_spec.count.as_ref()?;
        let limit = monotonic_now() + SETTLED_WITHIN;
        let mut before = None;
        loop {
            let now = count::read(source, self.server.as_ref())?;
            // What the asking itself adds is the same with each reading.
            let readings = self.readings.fetch_add(1, Ordering::Relaxed) + 1;
            let now = now.saturating_sub(readings * source.own_requests());
            let is_settled = match expected {
                Expected::AtLeast(n) => now >= n,
                Expected::Quiet => before == Some(now),
            };
            if is_settled || !source.is_late() || monotonic_now() > limit {
                return Some(now);
            }
            before = Some(now);
            std::thread::park_timeout(SETTLED_CHECK);
        }
    }
}
