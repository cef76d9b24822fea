//! A sidecar that a mesh injected into a pod. The cluster starts and ends it; it is metered on its
//! node, and queried by the agent in its pod.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tare_io::DurationNs;
use tare_io::time::monotonic_now;

use crate::executor::requests::Page;
use crate::lab::site::Site;
use crate::meters::metering::MeterSource;
use tare_model::Failure;

/// Istio's admin address, which is reachable only inside the pod.
pub const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 15_000);
/// Istio's port for readiness checks, without TLS: kubelets have no certificate.
const STATUS_PORT: u16 = 15_021;
const STATUS_PATH: &str = "/healthz/ready";
/// The port of its Prometheus metrics.
pub const STATISTICS_PORT: u16 = 15_090;
pub const STATISTICS_PATH: &str = "/stats/prometheus";
/// Metrics that Istio omits by default.
const STATISTICS: [&str; 7] = [
    "upstream_rq_total",
    "upstream_cx_total",
    "downstream_cx_total",
    "ssl.handshake",
    "ssl.session_reused",
    "ssl.no_certificate",
    LOGGED,
];
/// Istio's counter of log lines buffered for writing.
const LOGGED: &str = "filesystem.write_buffered";
const KNOWS_WITHIN: DurationNs = DurationNs::from_secs(30);
const LOOK: Duration = Duration::from_millis(100);

/// Returns the part of a pod's proxy configuration that enables the metrics in `STATISTICS`.
pub fn statistics() -> Value {
    json!({"inclusionSuffixes": STATISTICS})
}

#[derive(Clone)]
pub struct Injected {
    /// Its name in messages.
    pub who: String,
    pub image: String,
    pub metered: MeterSource,
    /// The agent in the same pod.
    pub beside: Site,
    /// An agent in a pod without a sidecar.
    pub stranger: Site,
    /// A server that the sidecar must know before load can begin.
    pub leads_to: Option<SocketAddr>,
}

impl Injected {
    pub fn admin_page(&self, path: &str) -> Option<String> {
        page(&self.beside, ADMIN, path)
    }

    /// Returns whether the server replies to plain text from a pod without a sidecar. If not, the
    /// sidecar's status page, open to all, must answer: the pod is then reachable.
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
        self.admin_page("/clusters").is_some_and(|page| page.contains(&line))
    }

    /// Waits until the sidecar knows the server in `leads_to`, or `stop` is set.
    pub fn wait_until_known(&self, stop: &AtomicBool) -> Result<(), Failure> {
        let Some(server) = self.leads_to else { return Ok(()) };
        let limit = monotonic_now() + KNOWS_WITHIN;
        while !self.knows(server) && !stop.load(Ordering::Relaxed) {
            if monotonic_now() > limit {
                return Err(Failure::environment(format!(
                    "{}: after {KNOWS_WITHIN} it does not know of the server at {server}",
                    self.who
                )));
            }
            std::thread::park_timeout(LOOK);
        }
        Ok(())
    }

    /// Returns the lines that the sidecar has logged, and 0 for the bytes, which are unknown.
    pub fn logged(&self) -> (u64, u64) {
        let page = self.admin_page(&format!("/stats?filter={LOGGED}")).unwrap_or_default();
        let line = page.lines().find_map(|line| line.strip_prefix(LOGGED)?.strip_prefix(": "));
        (line.and_then(|number| number.trim().parse().ok()).unwrap_or(0), 0)
    }
}

pub fn page(site: &Site, address: SocketAddr, path: &str) -> Option<String> {
    site.ask(Page { address, path: path.to_owned() }).ok()?
}

impl fmt::Debug for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Injected").field("who", &self.who).finish_non_exhaustive()
    }
}
