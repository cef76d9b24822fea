//! A server that tare-lab started, behind the runner's trait.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tare_io::{DurationNs, Instant};
use tare_lab::Launched;
use tare_lab::launch::Expected;
use tare_lab::layers::{self, Asker, LayerProof, ProofContext};
use tare_lab::machine::{self, throttled_periods};
use tare_lab::meter;
use tare_model::layers::LayerSpec;
use tare_model::samples::{MachineUse, Proof, ServerUse};

use crate::error::RunError;
use crate::lab::{Launch, MachineReading, Meter, ServerReading};

pub struct RealLaunch {
    launched: Launched,
    layers: Vec<LayerSpec>,
    /// Of this launch's layers, from before load on.
    proofs: Vec<Box<dyn LayerProof>>,
    call_ns: Option<f64>,
    context: Arc<LaunchNeeds>,
}

/// What launches need of their lab.
pub(super) struct LaunchNeeds {
    pub state: PathBuf,
    pub server_cpus: Vec<usize>,
    pub stop: Arc<AtomicBool>,
}

impl RealLaunch {
    pub(super) fn new(
        launched: Launched,
        layers: Vec<LayerSpec>,
        context: Arc<LaunchNeeds>,
    ) -> Self {
        Self { launched, layers, proofs: Vec::new(), call_ns: None, context }
    }
}

impl Launch for RealLaunch {
    type Meter = RealMeter;

    fn address(&self) -> SocketAddr {
        self.launched.address()
    }

    fn entry_host(&self) -> Option<&str> {
        self.launched.entry_host()
    }

    fn started(&self) -> Instant {
        self.launched.started()
    }

    fn ready_limit(&self) -> Instant {
        self.launched.ready_limit()
    }

    fn wait_until_listening(&mut self) -> Result<(), RunError> {
        Ok(self.launched.wait_until_listening(&self.context.stop)?)
    }

    fn not_yet(&mut self, limit: Instant) -> Result<(), RunError> {
        Ok(self.launched.not_yet(limit)?)
    }

    fn is_alive(&self) -> bool {
        self.launched.is_alive()
    }

    fn what_ended(&mut self) -> (String, Option<String>) {
        self.launched.what_ended()
    }

    fn place_gone(&self, patience: DurationNs) -> Option<RunError> {
        self.launched.server.place_gone(patience).map(RunError::from)
    }

    fn begin_proofs(&mut self, path: &str, asker: &mut dyn Asker) -> Result<(), RunError> {
        let LaunchNeeds { state, server_cpus, .. } = self.context.as_ref();
        let mut context = ProofContext { path, asker, state, cpus: server_cpus };
        let mut layers: Vec<(usize, &LayerSpec)> = self.layers.iter().enumerate().collect();
        // What others ask for their proofs passes through processes too: these count from then on.
        layers.sort_by_key(|(_, layer)| !layers::kind(layer).stands().is_empty());
        for (at, layer) in layers {
            let hops = self.launched.hops(at);
            let proof = layers::kind(layer).begin_proof(&self.launched, &hops, &mut context)?;
            self.proofs.extend(proof);
        }
        if let Some(path) = &mut self.launched.path {
            path.begin();
        }
        self.call_ns = self.proofs.iter().find_map(|proof| proof.call_ns());
        Ok(())
    }

    fn end_proofs(&mut self, sent: u64) -> Vec<Proof> {
        let path = self.launched.path.take();
        let server = self.launched.server.as_ref();
        path.into_iter().chain(self.proofs.drain(..)).map(|proof| proof.end(server, sent)).collect()
    }

    fn call_ns(&self) -> Option<f64> {
        self.call_ns
    }

    fn served(&self, expected: Expected) -> Option<u64> {
        self.launched.served(expected)
    }

    fn logged(&self) -> (u64, u64) {
        self.launched.logged()
    }

    fn meter(&self) -> RealMeter {
        RealMeter(self.launched.meter())
    }

    fn ask_to_stop(&mut self) {
        self.launched.ask_to_stop();
    }

    fn stop(&mut self) {
        self.launched.stop();
    }
}

#[derive(Debug)]
pub struct RealMeter(meter::Meter);

impl RealMeter {
    pub(super) fn reading(&self) -> ServerReading {
        let cpu_ns = self.read().map_or(0, |used| used.cpu_ns);
        ServerReading { cpu_ns, threads: self.threads() }
    }
}

impl Meter for RealMeter {
    fn read(&self) -> Option<ServerUse> {
        self.0.read()
    }

    fn cpu_ns(&self) -> Option<u64> {
        self.0.cpu_ns()
    }

    fn threads(&self) -> Vec<[u64; 2]> {
        self.0.threads()
    }

    fn rss_bytes(&self) -> Option<u64> {
        self.0.rss_bytes()
    }

    fn layers_rss_bytes(&self) -> Option<u64> {
        self.0.others_rss_bytes()
    }

    /// Its first process is its launcher in a container, its last is in the group that is limited.
    fn throttled_periods(&self) -> u64 {
        if let Some(told) = self.0.far_throttled_periods() {
            return told;
        }
        let pids = self.0.pids();
        let ends = pids.first().into_iter().chain(pids.last());
        ends.map(|pid| throttled_periods(&pid.to_string())).max().unwrap_or(0)
    }
}

impl MachineReading for machine::Reading {
    fn since(&self, earlier: &Self) -> MachineUse {
        Self::since(self, earlier)
    }

    fn ports_used(&self) -> Option<f64> {
        machine::ports_used()
    }
}
