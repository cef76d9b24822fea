//! Kinds of layers: how each is put in the path of a variant's requests, and how its presence is
//! proven. To add a kind, add a file here that implements [`LayerKind`] for its settings
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
pub use tare_model::layers::HopPosition;
use tare_model::layers::{LayerFacts, LayerSpec};
use tare_model::samples::{Proof, Sent};

use crate::lab::server::Server;
use crate::launch::Launched;
use crate::launch::context::LaunchContext;
use crate::launch::hop::{CertificateKind, Hop, Upstream};
use crate::launch::spec::{CompanionSpec, LaunchSpec};
use crate::network::intercept::Namespace;
use crate::world::ProbeSender;
use tare_model::Failure;

pub trait LayerKind {
    /// Describes what it does; fails if this machine lacks something for it.
    fn describe(&self) -> Result<String, Failure>;

    /// Checks whether this machine supports it.
    fn check_machine(&self) -> Result<(), Failure>;

    /// Absolute paths of the programs and files that it needs where the server runs; none if it
    /// always runs on this machine.
    fn needs(&self) -> Result<Vec<PathBuf>, Failure> {
        Ok(Vec::new())
    }

    /// Adds its parts to the server's own configuration.
    fn insert(&self, _: &LaunchContext<'_>, _: &mut Inserted) -> Result<(), Failure> {
        Ok(())
    }

    /// Environment variables for all of the variant's processes.
    fn env(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Whether BPF programs are attached to the variant's processes.
    fn bypasses(&self) -> bool {
        false
    }

    /// Additions to the pods of a variant's server or client.
    fn pod_parts(&self, _: &PodSeat<'_>) -> PodParts {
        PodParts::default()
    }

    /// Whether the cluster injects its processes into pods.
    fn is_injected(&self) -> bool {
        false
    }

    /// Absolute paths of the programs and files that its processes need where they run.
    fn needs_of_hop(&self) -> Result<Vec<PathBuf>, Failure> {
        Ok(Vec::new())
    }

    /// Plans one of its processes, which forwards to `to`.
    fn hop(
        &self,
        _context: &LaunchContext<'_>,
        _seat: &Seat<'_>,
        _to: Upstream,
    ) -> Result<HopPlan, Failure> {
        Err(Failure::environment("this layer is no process"))
    }

    /// Collects the evidence available before load that it is in the path; `hops` are its
    /// processes.
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

/// A process's position in the path.
#[derive(Debug)]
pub struct Seat<'a> {
    pub stand: HopPosition,
    /// Set for processes beside the client or the server.
    pub namespace: Option<&'a Namespace>,
}

/// Facts about a pod that are known before it is created.
#[derive(Debug)]
pub struct PodSeat<'a> {
    pub stand: HopPosition,
    /// Tag of its server's place, and the name of its Service.
    pub tag: &'a str,
    pub namespace: &'a str,
    /// Labels of all pods of that place.
    pub selector: Value,
}

/// Additions of layers to a pod and to its namespace.
#[derive(Debug, Default, PartialEq)]
pub struct PodParts {
    pub labels: Vec<(String, String)>,
    pub annotations: Vec<(String, String)>,
    /// Specifications of objects that belong to its server.
    pub objects: Vec<(Kind, Value)>,
}

/// How to start a process of a layer.
#[derive(Debug)]
pub struct HopPlan {
    pub launch_spec: LaunchSpec,
    /// The certificate that its clients see, if they speak TLS with it or through it.
    pub shows: Option<CertificateKind>,
    /// Whether it speaks TLS with what is behind it.
    pub makes_tls: bool,
    /// Port that connections are redirected to; `None` if clients connect to its address.
    pub intercepts: Option<u16>,
}

/// Additions of layers to a server, and beside it.
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
    /// Goes into the server of pages that only tare requests.
    pub pages: String,
}

/// Collects what all layers of a launch add to its server.
pub fn inserted(context: &LaunchContext<'_>) -> Result<Inserted, Failure> {
    context.layers_taken.set(true);
    let mut inserted = Inserted::default();
    for layer in context.layers {
        kind(layer).insert(context, &mut inserted)?;
    }
    Ok(inserted)
}

/// Whether the cluster injects the layer's processes into pods.
pub fn is_injected(layer: &LayerSpec) -> bool {
    kind(layer).is_injected()
}

/// Collects what all layers add to a pod.
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

/// Collects the environment variables that all layers add to a variant's processes.
pub fn env(layers: &[LayerSpec]) -> Vec<(String, String)> {
    layers.iter().flat_map(|layer| kind(layer).env()).collect()
}

/// Collects what all layers need where the server runs.
pub fn needs(layers: &[LayerSpec]) -> Result<Vec<PathBuf>, Failure> {
    let all: Result<Vec<Vec<PathBuf>>, Failure> =
        layers.iter().map(|layer| kind(layer).needs()).collect();
    Ok(all?.concat())
}

/// Describes the hop's own place, if it has one.
fn where_it_runs(layer: &dyn LayerFacts) -> String {
    layer.place().map_or_else(String::new, |place| format!(" in {}", place.name()))
}

/// Context for collecting evidence.
pub struct ProofContext<'a> {
    /// The path that the load requests.
    pub path: &'a str,
    pub asker: &'a mut dyn ProbeSender,
    /// Folder of the journals.
    pub state: &'a Path,
    pub cpus: &'a [usize],
}

/// Addresses of a variant's client, filled in once it runs.
pub type ClientAddresses = Arc<Mutex<Vec<IpAddr>>>;

/// Evidence about one layer in one launch, from its start to its end.
pub trait LayerProof: Debug {
    /// Cost of one call without a server, if the layer can be called that way.
    fn call_ns(&self) -> Option<f64> {
        None
    }

    /// Called right before the load, after all other requests.
    fn begin(&mut self) {}

    /// Called after the load; `sent` counts its requests.
    fn end(self: Box<Self>, server: &Server, sent: Sent) -> Proof;
}
