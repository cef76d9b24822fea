//! Kinds of layers: how each is put in the path of a variant's requests, and what shows that it is
//! there. A new kind is a file here that implements [`LayerKind`] for its settings
//! (`tare_model::layers`), and a line in [`kind`].

mod filter;
mod proxy;

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tare_model::layers::LayerSpec;
use tare_model::samples::{Probe, Proof};

use crate::context::LaunchContext;
use crate::error::LabError;
use crate::launch::Launched;
use crate::launch_spec::{CompanionSpec, LaunchSpec};
use crate::server::Server;

pub trait LayerKind {
    /// What it does, in words; what this machine lacks for it is an error.
    fn describe(&self) -> Result<String, LabError>;

    /// Whether this machine can have it.
    fn check_machine(&self) -> Result<(), LabError>;

    /// The programs and files that it needs where the server runs, by their absolute paths.
    fn needs(&self) -> Result<Vec<PathBuf>, LabError>;

    /// What it puts into the server's own configuration.
    fn insert(&self, context: &LaunchContext<'_>, into: &mut Inserted) -> Result<(), LabError>;

    /// Whether it is a process between client and server.
    fn is_hop(&self) -> bool {
        false
    }

    /// The process that stands before what listens at `to`, where the layer is one.
    fn hop(
        &self,
        _context: &LaunchContext<'_>,
        _to: SocketAddr,
    ) -> Result<Option<LaunchSpec>, LabError> {
        Ok(None)
    }

    /// Collects evidence that it is in the path, as far as it can be had before load; `hop` is its
    /// process.
    fn begin_proof(
        &self,
        launched: &Launched,
        hop: Option<&LaunchSpec>,
        proof: &mut ProofContext<'_>,
    ) -> Result<Option<Box<dyn LayerProof>>, LabError>;
}

/// The registry: a line for each kind.
pub fn kind(spec: &LayerSpec) -> &dyn LayerKind {
    match spec {
        LayerSpec::Filter(spec) => spec,
        LayerSpec::Proxy(spec) => spec,
    }
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
pub fn inserted(context: &LaunchContext<'_>) -> Result<Inserted, LabError> {
    context.layers_taken.set(true);
    let mut inserted = Inserted::default();
    for layer in context.layers {
        kind(layer).insert(context, &mut inserted)?;
    }
    Ok(inserted)
}

/// What all of these need where the server runs.
pub fn needs(layers: &[LayerSpec]) -> Result<Vec<PathBuf>, LabError> {
    let all: Result<Vec<Vec<PathBuf>>, LabError> =
        layers.iter().map(|layer| kind(layer).needs()).collect();
    Ok(all?.concat())
}

/// Asks for one path of a server, beside its load.
pub trait Asker {
    /// The reply; where no whole one came, why.
    fn ask(&mut self, target: &str) -> Result<Result<Probe, String>, LabError>;

    /// Requests that were sent since this was last called.
    fn take_sent(&mut self) -> u64;
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

/// One launch's evidence about one layer, between its start and its end.
pub trait LayerProof: Debug {
    /// What one call of it costs without a server, where it can be called so.
    fn call_ns(&self) -> Option<f64> {
        None
    }

    /// After the load, of which so many requests were sent.
    fn end(self: Box<Self>, server: &dyn Server, sent: u64) -> Proof;
}
