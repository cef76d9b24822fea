//! One launch of one variant: its server and its layers' processes, wherever they run.
//!
//! A variant's settings and a [`context`] of the place go in; a [`Launched`] comes out: an address,
//! hops (`hop`), companion processes ([`companion`]), a mesh's sidecars (`injected`), and a way to
//! end them. [`spec`] describes how to start a process; [`certificates`] are made once per process.

pub mod certificates;
pub mod companion;
pub mod context;
pub(crate) mod hop;
pub(crate) mod injected;
pub mod spec;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tare_bypass::Bypass;
use tare_io::time::{monotonic_now, wall_unix_ms};
use tare_io::{DurationNs, Instant};
use tare_model::layers::{HopPosition, LayerSpec};
use tare_model::samples::{LaunchPart, Proof, Sent};

use crate::lab::server::Server;
use crate::launch::hop::{CertificateKind, Hop, Upstream};
use crate::launch::spec::LaunchSpec;
use crate::layers::{self, LayerProof, ProofContext};
use crate::meters::metering::{MeterSource, Metering};
use crate::world::{CountSettled, Launch, ProbeSender};
use tare_model::Failure;

const SETTLED_WITHIN: DurationNs = DurationNs::from_ms(1000);
const SETTLED_CHECK: Duration = Duration::from_millis(10);

/// A running launch. Dropping it ends it.
#[derive(Debug)]
pub struct Launched {
    pub launch_spec: LaunchSpec,
    pub started_unix_ms: u64,
    started: Instant,
    /// How often its count was read.
    readings: AtomicU64,
    /// The network link that carries all traffic of the server.
    link: Option<String>,
    pub(crate) entry: Option<Entry>,
    /// The proof that clients connected through `entry`.
    pub path: Option<Box<dyn LayerProof>>,
    /// The bypass, which moves its connections' data past TCP.
    pub(crate) bypass: Option<Arc<Bypass>>,
    /// Layers that are processes, starting at the client. They end before the server.
    hops: Vec<Hop>,
    pub server: Server,
    /// Proofs that its layers are in the path, begun before the load.
    proofs: Vec<Box<dyn LayerProof>>,
    call_ns: Option<f64>,
    needs: Arc<LaunchNeeds>,
}

/// The parts of the lab that launches of one variant need.
#[derive(Debug)]
pub struct LaunchNeeds {
    /// The folder with the journals.
    pub state: PathBuf,
    pub server_cpus: Vec<usize>,
    pub layers: Vec<LayerSpec>,
    /// The name of the server's place.
    pub place: String,
    pub stop: Arc<AtomicBool>,
}

/// The address that clients connect to, if that is not the server's own.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name of the software that answers there.
    pub name: &'static str,
    pub address: SocketAddr,
    /// The host that clients name in their requests to the entry.
    pub host: String,
    /// Meters of everything between the entry and the server.
    pub meters: Vec<MeterSource>,
}

impl Launched {
    pub fn begin(
        launch_spec: LaunchSpec,
        link: Option<String>,
        needs: Arc<LaunchNeeds>,
        start: impl FnOnce(LaunchSpec) -> Result<Server, Failure>,
    ) -> Result<Self, Failure> {
        let (started, started_unix_ms) = (monotonic_now(), wall_unix_ms());
        let server = start(launch_spec.clone())?;
        Ok(Self {
            launch_spec,
            started_unix_ms,
            started,
            readings: AtomicU64::new(0),
            link,
            entry: None,
            path: None,
            bypass: None,
            server,
            hops: Vec::new(),
            proofs: Vec::new(),
            call_ns: None,
            needs,
        })
    }

    /// Adds a hop in front of all others.
    pub(crate) fn add_hop(&mut self, hop: Hop) {
        self.hops.insert(0, hop);
    }

    /// Returns the target for a new hop in front of all others.
    pub fn entrance(&self) -> Upstream {
        let entered = self.hops.iter().find(|hop| !hop.intercepts);
        let of_server = || self.launch_spec.tls.then_some(CertificateKind::Server);
        let shows = entered.map_or_else(of_server, |hop| hop.shows);
        Upstream { address: Launch::address(self), shows }
    }

    pub fn all_hops(&self) -> impl Iterator<Item = &Hop> {
        self.hops.iter()
    }

    /// Returns the hops of one layer.
    pub fn hops(&self, layer: usize) -> Vec<&Hop> {
        self.hops.iter().filter(|hop| hop.layer == layer).collect()
    }

    /// Iterates over the server and its hops.
    fn all(&self) -> impl Iterator<Item = &Server> {
        std::iter::once(&self.server).chain(self.hops.iter().map(|hop| &hop.server))
    }

    /// Makes a meter of all parts, with the packets of the server's place.
    pub fn meter(&self) -> Metering {
        let place = &*self.needs.place;
        // A cluster's entry is in front of the server's own sidecar.
        let behind = |hop: &&Hop| hop.stand == HopPosition::BesideServer;
        let told = |name: &str, place: &str, place_starts: u32| {
            let (name, place) = (name.to_owned(), place.to_owned());
            LaunchPart { name, place, place_starts, ..LaunchPart::default() }
        };
        let add = |all: Metering, hop: &Hop| {
            all.with_part(told(&hop.name, &hop.place, hop.place_starts), hop.server.meter())
        };
        let before = self.hops.iter().filter(|hop| !behind(hop));
        let mut all = before.fold(Metering::default(), add);
        if let Some(entry) = &self.entry {
            for (at, source) in entry.meters.iter().enumerate() {
                let name = match at {
                    0 => entry.name.to_owned(),
                    n => format!("{} {}", entry.name, n + 1),
                };
                all = all.with_part(told(&name, place, 0), source);
            }
        }
        all = self.hops.iter().filter(behind).fold(all, add);
        all.with_part(told("server", place, 0), self.server.meter())
            .with_shared(self.link.as_deref())
    }
}

impl Launch for Launched {
    type Meter = Metering;

    fn address(&self) -> SocketAddr {
        let own = self.entry.as_ref().map_or(self.launch_spec.address, |entry| entry.address);
        let entered = self.hops.iter().find(|hop| !hop.intercepts);
        entered.map_or(own, |hop| hop.launch_spec.address)
    }

    fn entry_host(&self) -> Option<&str> {
        self.entry.as_ref().map(|entry| entry.host.as_str())
    }

    fn started(&self) -> Instant {
        self.started
    }

    fn ready_limit(&self) -> Instant {
        self.started + self.launch_spec.ready_within()
    }

    fn wait_until_listening(&mut self) -> Result<(), Failure> {
        let stop = &self.needs.stop;
        let port = self.server.wait_until_listening(stop)?;
        self.launch_spec.address.set_port(port);
        let mut hops = self.hops.iter_mut();
        hops.try_for_each(|hop| hop.server.wait_until_listening(stop).map(drop))
    }

    fn wait_until_ready(&mut self, limit: Instant) -> Result<(), Failure> {
        self.all().try_for_each(|server| server.not_yet(limit))
    }

    fn is_alive(&self) -> bool {
        self.all().all(Server::is_alive)
    }

    fn describe_end(&mut self) -> (String, Option<String>) {
        match self.hops.iter().find(|hop| !hop.server.is_alive()) {
            Some(hop) => (format!("its {}", hop.name), hop.server.how_it_ended()),
            None => ("the server".into(), self.server.how_it_ended()),
        }
    }

    fn place_failure(&self, timeout: DurationNs) -> Option<Failure> {
        self.all().find_map(|server| server.place_gone(timeout))
    }

    fn begin_proofs(&mut self, path: &str, asker: &mut dyn ProbeSender) -> Result<(), Failure> {
        let needs = self.needs.clone();
        let (state, cpus) = (&needs.state, &needs.server_cpus);
        let mut context = ProofContext { path, asker, state, cpus };
        let mut layers: Vec<(usize, &LayerSpec)> = needs.layers.iter().enumerate().collect();
        // Layers with processes come last, so that their counts leave out requests for other
        // layers' proofs.
        layers.sort_by_key(|(_, layer)| !layer.facts().hop_positions().is_empty());
        for (at, layer) in layers {
            let hops = self.hops(at);
            let proof = layers::kind(layer).begin_proof(self, &hops, &mut context)?;
            self.proofs.extend(proof);
        }
        if let Some(path) = &mut self.path {
            path.begin();
        }
        self.call_ns = self.proofs.iter().find_map(|proof| proof.call_ns());
        Ok(())
    }

    fn end_proofs(&mut self, sent: Sent) -> Vec<Proof> {
        let all = self.path.take().into_iter().chain(self.proofs.drain(..));
        all.map(|proof| proof.end(&self.server, sent)).collect()
    }

    fn call_ns(&self) -> Option<f64> {
        self.call_ns
    }

    /// Reads the count again if it may lag behind the replies.
    fn served(&self, expected: CountSettled) -> Option<u64> {
        let source = self.launch_spec.count.as_ref()?;
        let limit = monotonic_now() + SETTLED_WITHIN;
        let mut before = None;
        loop {
            let now = self.server.count(source)?;
            // Each reading itself adds the same number of requests.
            let readings = self.readings.fetch_add(1, Ordering::Relaxed) + 1;
            let now = now.saturating_sub(readings * source.own_requests());
            let is_settled = match expected {
                CountSettled::AtLeast(n) => now >= n,
                CountSettled::Quiet => before == Some(now),
            };
            if is_settled || !source.is_late() || monotonic_now() > limit {
                return Some(now);
            }
            before = Some(now);
            std::thread::park_timeout(SETTLED_CHECK);
        }
    }

    fn logged(&self) -> (u64, u64) {
        self.all().map(Server::logged).fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1))
    }

    fn meter(&self) -> Metering {
        Self::meter(self)
    }

    fn ask_to_stop(&mut self) {
        self.hops.iter_mut().for_each(|hop| hop.server.ask_to_stop());
        self.server.ask_to_stop();
    }

    /// Ends the hop nearest to the client first, the server last.
    fn stop(&mut self) {
        self.hops.iter_mut().for_each(|hop| hop.server.stop());
        self.server.stop();
    }
}
