//! One table of what must be equal in a run wherever its servers and its load are: for an agent at
//! the end of a byte stream and for one in a place.

use std::collections::BTreeSet;

use tare_model::Metric;
use tare_model::metric::Basis;
use tare_report::run::{RunReport, Variant};

/// A load, a server, and the guard that they trip.
pub struct Row {
    /// Lines of `[load]`.
    pub load: &'static str,
    /// A line of the server's `target`.
    pub server: &'static str,
    pub sets_off: Option<&'static str>,
}

const fn row(load: &'static str, server: &'static str, sets_off: Option<&'static str>) -> Row {
    Row { load, server, sets_off }
}

pub const ROWS: [Row; 9] = [
    row("connections = 4", "", None),
    row("connections = 4", "error_rate = 0.2", Some("errors")),
    row("connections = 4", "close_after = 20", Some("reconnects")),
    row("connections = 4\nnew_connections = true", "", None),
    row("connections = 4\nnew_connections = true\ntls_resume = true", "tls = true", None),
    row("connections = 4\npaths = [\"/a\", \"/b\", \"/c\"]", "", None),
    row("connections = 8\nrate = 2000\npoisson = true", "", None),
    row("connections = 1\nrate = 2000", "delay = \"5ms\"", Some("rate-missed")),
    row("connections = 4\nmethod = \"POST\"\nbody = \"x\"", "body_bytes = 3000", None),
];

/// Guards that depend on requests and replies, not on speed or steadiness.
const FACTS: [&str; 8] = [
    "chatty",
    "count-mismatch",
    "errors",
    "littles-law",
    "not-proven",
    "reconnects",
    "resumed",
    "unequal-reply",
];
/// Metrics that may be missing by chance: only a place has its own link, the kernel samples user
/// and system time, a busy server is never rescheduled, and rare work, such as that of kernel
/// threads, may not occur.
const METRICS_BY_CHANCE: [&str; 7] = [
    "packets_per_request",
    "server_cpu_user_ns_per_request",
    "server_cpu_system_ns_per_request",
    "server_switches_per_request",
    "idle_cpu_ns_per_s",
    "minor_faults_per_request",
    "softirq_ns_per_request",
];

fn guards(variant: &Variant) -> BTreeSet<&str> {
    variant.guards.iter().map(|code| code.word()).filter(|code| FACTS.contains(code)).collect()
}

/// Leaves out quantiles too: they need more replies than a busy machine gives.
fn metrics(variant: &Variant) -> BTreeSet<&str> {
    let is_quantile = |key: &str| {
        let metric = Metric::ALL.into_iter().find(|metric| metric.key() == key);
        metric.is_some_and(|metric| matches!(metric.basis(), Basis::Quantile(..)))
    };
    let all = variant.metrics.keys().map(String::as_str);
    all.filter(|key| !METRICS_BY_CHANCE.contains(key) && !is_quantile(key)).collect()
}

fn outcomes(variant: &Variant) -> BTreeSet<&str> {
    variant.status.keys().chain(variant.errors.keys()).map(String::as_str).collect()
}

impl Row {
    /// Every variant trips the expected guard.
    #[track_caller]
    pub fn sets_off(&self, report: &RunReport) {
        let Some(code) = self.sets_off else { return };
        for variant in &report.variants {
            let name = format!("{self}: {}", variant.name);
            assert!(variant.guards.iter().any(|own| own == code), "{name}: {:#?}", report.guards);
        }
    }

    /// Equal facts are known about both variants.
    #[track_caller]
    pub fn same(&self, here: &Variant, other: &Variant) {
        let name = format!("{self}: {}", other.name);
        assert_eq!(metrics(here), metrics(other), "{name}");
        assert_eq!(guards(here), guards(other), "{name}");
        assert_eq!(outcomes(here), outcomes(other), "{name}");
        let (own, its) = (&here.exposure, &other.exposure);
        assert_eq!(own.warm_after_ns.is_some(), its.warm_after_ns.is_some(), "{name}");
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.load.replace('\n', ", "), self.server)
    }
}
