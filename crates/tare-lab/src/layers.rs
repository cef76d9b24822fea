//! Kinds of layers: how each is put in the path of a variant's requests, and what shows that it is
//! there. A new kind is a file here that implements [`LayerKind`] for its settings
//! (`tare_model::layers`), and a line in [`kind`].

mod bypass;
mod crypto;
mod evidence;
mod filter;
mod gateway;
mod mesh;
mod proxies;
mod proxy;

use std::fmt::Debug;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tare_kube::Kind;
pub use tare_model::layers::Stand;
use tare_model::layers::{LayerFacts, LayerSpec};
use tare_model::samples::{Proof, Sent};

use crate::lab::server::Server;
use crate::launch::Launched;
use crate::launch::context::LaunchContext;
use crate::launch::hop::{Hop, Shows, Upstream};
use crate::launch::spec::{CompanionSpec, LaunchSpec};
use crate::network::intercept::Namespace;
use crate::world::Asker;
use tare_model::Failure;

pub trait LayerKind {
    /// What it does, in words; what this machine lacks for it is an error.
    fn describe(&self) -> Result<String, Failure>;

    /// Whether this machine can have it.
    fn check_machine(&self) -> Result<(), Failure>;

    /// The programs and files that it needs where the server runs, by their absolute paths.
    /// What runs on this machine, wherever the server does, needs none.
    fn needs(&self) -> Result<Vec<PathBuf>, Failure> {
        Ok(Vec::new())
    }

    /// What it puts into the server's own configuration.
    fn insert(&self, _: &LaunchContext<'_>, _: &mut Inserted) -> Result<(), Failure> {
        Ok(())
    }

    /// What it puts into the environment of all of the variant's processes.
    fn env(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Whether BPF programs are to watch the connections of the variant's processes.
    fn bypasses(&self) -> bool {
        false
    }

    /// What it wants of pods that a variant's server or client is in.
    fn pod_parts(&self, _: &PodSeat<'_>) -> PodParts {
        PodParts::default()
    }

    /// Its processes are put into pods by their cluster.
    fn is_injected(&self) -> bool {
        false
    }

    /// The programs and files that its processes need where they run, by their absolute paths.
    fn needs_of_hop(&self) -> Result<Vec<PathBuf>, Failure> {
        Ok(Vec::new())
    }

    /// One of its processes, which passes on to what is behind it.
    fn hop(
        &self,
        _context: &LaunchContext<'_>,
        _seat: &Seat<'_>,
        _to: Upstream,
    ) -> Result<HopPlan, Failure> {
        Err(Failure::environment("this layer is no process"))
    }

    /// Collects evidence that it is in the path, as far as it can be had before load; `hops` are
    /// its processes.
    fn begin_proof(
        &self,
        launched: &Launched,
        hops: &[&Hop],
        proof: &mut ProofContext<'_>,
    ) -> Result<Option<Box<dyn LayerProof>>, Failure>;
}

/// The registry: a line for each kind.
pub fn kind(spec: &LayerSpec) -> &dyn LayerKind {
    match spec {
        LayerSpec::Filter(spec) => spec,
        LayerSpec::Proxy(spec) => spec,
        LayerSpec::Gateway(spec) => spec,
        LayerSpec::Crypto(spec) => spec,
        LayerSpec::Bypass(spec) => spec,
        LayerSpec::Mesh(spec) => spec,
    }
}

/// What a process may know of where it stands.
#[derive(Debug)]
pub struct Seat<'a> {
    pub stand: Stand,
    /// It is known of those that stand beside client or server.
    pub namespace: Option<&'a Namespace>,
}

/// What may be known of a pod before it is made.
#[derive(Debug)]
pub struct PodSeat<'a> {
    pub stand: Stand,
    /// What its server's place is called; so is the Service before it.
    pub tag: &'a str,
    pub namespace: &'a str,
    /// Labels of all pods of that place.
    pub selector: Value,
}

/// What layers want of a pod, and of its namespace.
#[derive(Debug, Default, PartialEq)]
pub struct PodParts {
    pub labels: Vec<(String, String)>,
    pub annotations: Vec<(String, String)>,
    /// The specifications of objects that stand beside its server.
    pub objects: Vec<(Kind, Value)>,
}

/// A process of a layer, as it is to be started.
#[derive(Debug)]
pub struct HopPlan {
    pub launch_spec: LaunchSpec,
    /// Whose certificate clients of it see, where they speak TLS with it or through it.
    pub shows: Option<Shows>,
    /// It speaks TLS with what is behind it.
    pub makes_tls: bool,
    /// Connections come to this port of it unseen; else clients connect to where it listens.
    pub intercepts: Option<u16>,
}

/// What layers put into a server, and beside it.
#[derive(Debug, Default, PartialEq)]
pub struct Inserted {
    pub nginx: NginxParts,
    pub env: Vec<(String, String)>,
    pub companion: Option<CompanionSpec>,
}

/// Directives of nginx, by the block they go into.
#[derive(Debug, Default, PartialEq)]
pub struct NginxParts {
    pub main: String,
    pub http: String,
    /// The server of pages that only tare asks for.
    pub pages: String,
}

/// What all layers of a launch put into its server.
pub fn inserted(context: &LaunchContext<'_>) -> Result<Inserted, Failure> {
    context.layers_taken.set(true);
    let mut inserted = Inserted::default();
    for layer in context.layers {
        kind(layer).insert(context, &mut inserted)?;
    }
    Ok(inserted)
}

/// Whether a cluster puts its processes into pods.
pub fn is_injected(layer: &LayerSpec) -> bool {
    kind(layer).is_injected()
}

/// What all of these want of a pod.
pub fn pod_parts(layers: &[LayerSpec], seat: &PodSeat<'_>) -> PodParts {
    let mut all = PodParts::default();
    for layer in layers {
        let parts = kind(layer).pod_parts(seat);
        all.labels.extend(parts.labels);
        all.annotations.extend(parts.annotations);
        all.objects.extend(parts.objects);
    }
    all
}

/// What all of these put into the environment of a variant's processes.
pub fn env(layers: &[LayerSpec]) -> Vec<(String, String)> {
    layers.iter().flat_map(|layer| kind(layer).env()).collect()
}

/// What all of these need where the server runs.
pub fn needs(layers: &[LayerSpec]) -> Result<Vec<PathBuf>, Failure> {
    let all: Result<Vec<Vec<PathBuf>>, Failure> =
        layers.iter().map(|layer| kind(layer).needs()).collect();
    Ok(all?.concat())
}

/// The place of its own that a hop has, in words.
fn where_it_runs(layer: &dyn LayerFacts) -> String {
    layer.place().map_or_else(String::new, |place| format!(" in {}", place.name()))
}

/// What evidence is collected with.
pub struct ProofContext<'a> {
    /// The path that load asks for.
    pub path: &'a str,
    pub asker: &'a mut dyn Asker,
    /// Where journals are kept.
    pub state: &'a Path,
    /// CPUs of the servers.
    pub cpus: &'a [usize],
}

/// Addresses that a variant's client has, known once it is there.
pub type ClientAddresses = Arc<Mutex<Vec<IpAddr>>>;

/// One launch's evidence about one layer, between its start and its end.
pub trait LayerProof: Debug {
    /// What one call of it costs without a server, where it can be called so.
    fn call_ns(&self) -> Option<f64> {
        None
    }

    /// Right before the load, once nothing else is asked.
    fn begin(&mut self) {}

    /// After the load, of which so many requests were sent.
    fn end(self: Box<Self>, server: &Server, sent: Sent) -> Proof;
}
