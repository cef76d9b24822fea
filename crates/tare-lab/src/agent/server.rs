//! A server that an agent runs in its place.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant};
use tare_model::plain;

use super::Agent;
use super::protocol::Request;
use crate::cgroup::Cgroup;
use crate::error::LabError;
use crate::launch_spec::LaunchSpec;
use crate::meter::{FarMeter, Meter};
use crate::server::Server;

/// Who reads what a server in a place uses.
#[derive(Debug)]
pub enum MeteredBy {
    /// This process: the whole place's control group is on this machine.
    Cgroup(Cgroup),
    Other(Arc<dyn FarMeter>),
    Agent,
}

impl MeteredBy {
    /// The nearest that sees all of it.
    pub fn of(cgroup: Option<Cgroup>, far: Option<Arc<dyn FarMeter>>) -> Self {
        match (cgroup, far) {
            (Some(cgroup), _) => Self::Cgroup(cgroup),
            (None, Some(far)) => Self::Other(far),
            (None, None) => Self::Agent,
        }
    }
}

#[derive(Debug)]
pub struct PlacedServer {
    agent: Arc<Agent>,
    who: String,
    ready_within: DurationNs,
    metered_by: MeteredBy,
    port: u16,
    /// Who was connected when it was last metered.
    peers: Mutex<BTreeMap<IpAddr, u64>>,
    stopping: bool,
    stopped: bool,
}

/// Beyond what the launch allows it, an agent answers within this.
const SPARE: DurationNs = DurationNs::from_secs(10);

impl PlacedServer {
    pub fn start(
        agent: Arc<Agent>,
        who: &str,
        launch_spec: LaunchSpec,
        cpus: &[usize],
        metered_by: MeteredBy,
    ) -> Result<Self, LabError> {
        let ready_within = launch_spec.ready_within();
        let port = launch_spec.address.port();
        let request = Request::Start { launch_spec: Box::new(launch_spec), cpus: cpus.to_vec() };
        let who = who.to_owned();
        let peers = Mutex::default();
        let (stopping, stopped) = (false, false);
        let server = Self { agent, who, ready_within, metered_by, port, peers, stopping, stopped };
        server.ask::<()>(request)?;
        Ok(server)
    }

    fn ask<T: serde::de::DeserializeOwned>(&self, request: Request) -> Result<T, LabError> {
        self.agent.ask_within(request, super::PATIENCE + SPARE).map_err(|e| e.named(&self.who))
    }
}

const WORDS_CHARS_MAX: usize = 300;

impl Server for PlacedServer {
    fn wait_until_listening(&mut self, _stop: &AtomicBool) -> Result<(), LabError> {
        let patience = self.ready_within + SPARE;
        self.agent.ask_within(Request::Listening, patience).map_err(|error| error.named(&self.who))
    }

    fn not_yet(&mut self, limit: Instant) -> Result<(), LabError> {
        self.ask(Request::NotYet { late: monotonic_now() > limit })
    }

    fn is_alive(&self) -> bool {
        self.agent.is_alive() && self.ask(Request::IsAlive).unwrap_or(false)
    }

    fn how_it_ended(&mut self) -> Option<String> {
        let told: Option<String> = self.ask(Request::HowItEnded).ok()?;
        told.map(|words| plain::short(&words, WORDS_CHARS_MAX))
    }

    fn place_gone(&self, patience: DurationNs) -> Option<LabError> {
        self.agent.gone(patience).map(|error| error.named(&self.who))
    }

    fn meter(&self) -> Meter {
        // Connections are open when it is made anew, after warm-up.
        if let Ok(peers) = self.ask::<BTreeMap<IpAddr, u64>>(Request::Peers { port: self.port })
            && !peers.is_empty()
        {
            *self.peers.lock().unwrap_or_else(|e| e.into_inner()) = peers;
        }
        match &self.metered_by {
            MeteredBy::Cgroup(cgroup) => Meter::new(Some(cgroup), self.agent.pid()),
            MeteredBy::Other(other) => Meter::far(other.clone()),
            MeteredBy::Agent => Meter::far(self.agent.clone()),
        }
    }

    fn logged(&self) -> (u64, u64) {
        self.ask(Request::Logged).unwrap_or_default()
    }

    fn page(&self, address: SocketAddr, path: &str) -> Option<String> {
        let path = path.to_owned();
        self.ask(Request::Page { address, path }).ok()?
    }

    fn lines(&self, path: &Path) -> Option<u64> {
        self.ask(Request::Lines { path: path.to_owned() }).ok()?
    }

    fn peers(&self) -> BTreeMap<IpAddr, u64> {
        self.peers.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    fn ask_to_stop(&mut self) {
        if !self.stopping {
            self.stopping = true;
            let _ = self.ask::<()>(Request::AskToStop);
        }
    }

    fn stop(&mut self) {
        if !self.stopped {
            self.stopped = true;
            let _ = self.ask::<()>(Request::Stop);
        }
    }
}

impl Drop for PlacedServer {
    fn drop(&mut self) {
        self.stop();
    }
}
