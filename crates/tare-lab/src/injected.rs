//! A sidecar that a mesh put into a pod: the cluster starts and ends it. It is metered on its node,
//! and asked by the agent that stands beside it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant};

use crate::agent::Agent;
use crate::agent::protocol::Request;
use crate::error::LabError;
use crate::meter::{FarMeter, Meter};
use crate::server::Server;

/// As Istio's: inside of the pod alone.
pub const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 15_000);
/// For whoever asks whether it is ready: kubelets have no certificate.
const STATUS_PORT: u16 = 15_021;
const STATUS_PATH: &str = "/healthz/ready";
/// Where its counts are for Prometheus.
pub const STATISTICS_PORT: u16 = 15_090;
pub const STATISTICS_PATH: &str = "/stats/prometheus";
/// Which Istio leaves out unless it is asked.
const STATISTICS: [&str; 7] = [
    "upstream_rq_total",
    "upstream_cx_total",
    "downstream_cx_total",
    "ssl.handshake",
    "ssl.session_reused",
    "ssl.no_certificate",
    LOGGED,
];
/// Lines that it gave to be written into its logs.
const LOGGED: &str = "filesystem.write_buffered";
const KNOWS_WITHIN: DurationNs = DurationNs::from_secs(30);
const LOOK: Duration = Duration::from_millis(100);

/// What a pod's configuration of its proxy says of what is to be counted.
pub fn statistics() -> Value {
    json!({"inclusionSuffixes": STATISTICS})
}

#[derive(Clone)]
pub struct Injected {
    /// Whose it is, in words.
    pub who: String,
    pub image: String,
    pub meter: Arc<dyn FarMeter>,
    /// In the same pod.
    pub beside: Arc<Agent>,
    /// In a pod that no mesh has put anything into.
    pub stranger: Arc<Agent>,
    /// A server that it must have heard of before there can be load.
    pub leads_to: Option<SocketAddr>,
}

impl Injected {
    pub fn asks(&self, path: &str) -> Option<String> {
        page(&self.beside, ADMIN, path)
    }

    /// Whether a request in plain text is served there, of one who has no sidecar. That the way is
    /// open shows by a page that sidecars have for everybody.
    pub fn serves_strangers(&self, server: SocketAddr) -> Result<bool, String> {
        if page(&self.stranger, server, "/").is_some() {
            return Ok(true);
        }
        let open = SocketAddr::new(server.ip(), STATUS_PORT);
        match page(&self.stranger, open, STATUS_PATH) {
            Some(_) => Ok(false),
            None => Err(format!("from another pod of tare's nothing at {open} answers")),
        }
    }

    fn knows(&self, server: SocketAddr) -> bool {
        let line = format!("::{server}::health_flags::healthy");
        self.asks("/clusters").is_some_and(|page| page.contains(&line))
    }
}

pub fn page(agent: &Agent, address: SocketAddr, path: &str) -> Option<String> {
    agent.ask(Request::Page { address, path: path.to_owned() }).ok()?
}

impl Server for Injected {
    fn wait_until_listening(&mut self, stop: &AtomicBool) -> Result<(), LabError> {
        let Some(server) = self.leads_to else { return Ok(()) };
        let limit = monotonic_now() + KNOWS_WITHIN;
        while !self.knows(server) && !stop.load(Ordering::Relaxed) {
            if monotonic_now() > limit {
                return Err(LabError::Environment(format!(
                    "{}: after {KNOWS_WITHIN} it does not know of the server at {server}",
                    self.who
                )));
            }
            std::thread::park_timeout(LOOK);
        }
        Ok(())
    }

    fn not_yet(&mut self, _limit: Instant) -> Result<(), LabError> {
        Ok(())
    }

    fn is_alive(&self) -> bool {
        self.beside.is_alive()
    }

    fn meter(&self) -> Meter {
        Meter::far(self.meter.clone())
    }

    /// Since it began; how long its lines are, it does not tell.
    fn logged(&self) -> (u64, u64) {
        let page = self.asks(&format!("/stats?filter={LOGGED}")).unwrap_or_default();
        let line = page.lines().find_map(|line| line.strip_prefix(LOGGED)?.strip_prefix(": "));
        (line.and_then(|number| number.trim().parse().ok()).unwrap_or(0), 0)
    }

    fn page(&self, address: SocketAddr, path: &str) -> Option<String> {
        page(&self.beside, address, path)
    }

    fn lines(&self, _path: &Path) -> Option<u64> {
        None
    }

    fn ask_to_stop(&mut self) {}

    fn stop(&mut self) {}
}

impl fmt::Debug for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Injected").field("who", &self.who).finish_non_exhaustive()
    }
}
