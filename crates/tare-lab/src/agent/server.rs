//! A server that an agent runs in its place.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant};

use super::Agent;
use super::protocol::Request;
use crate::cgroup::Cgroup;
use crate::error::LabError;
use crate::launch_spec::LaunchSpec;
use crate::meter::Meter;
use crate::server::Server;

#[derive(Debug)]
pub struct PlacedServer {
    agent: Arc<Agent>,
    who: String,
    ready_within: DurationNs,
    /// The whole place's, on this machine; without one the agent meters.
    cgroup: Option<Cgroup>,
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
        cgroup: Option<Cgroup>,
    ) -> Result<Self, LabError> {
        let ready_within = launch_spec.ready_within();
        let request = Request::Start { launch_spec: Box::new(launch_spec), cpus: cpus.to_vec() };
        let who = who.to_owned();
        let server = Self { agent, who, ready_within, cgroup, stopping: false, stopped: false };
        server.ask::<()>(request)?;
        Ok(server)
    }

    fn ask<T: serde::de::DeserializeOwned>(&self, request: Request) -> Result<T, LabError> {
        self.agent.ask_within(request, super::PATIENCE + SPARE).map_err(|e| e.named(&self.who))
    }
}

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

    fn place_gone(&self) -> Option<LabError> {
        self.agent.gone().map(|error| error.named(&self.who))
    }

    fn meter(&self) -> Meter {
        match &self.cgroup {
            Some(cgroup) => Meter::new(Some(cgroup), self.agent.pid()),
            None => Meter::far(self.agent.clone()),
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
