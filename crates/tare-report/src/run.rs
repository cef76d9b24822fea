//! Results of a run, as data: serialised, they are the JSON (`tare.run/1`); all other formats are
//! made from them.

pub mod csv;
pub mod document;
pub(crate) mod exposure;
pub mod from_rounds;
pub mod markdown;
pub(crate) mod rounds_csv;
mod shown_plan;
pub mod table;
pub mod terminal;
pub(crate) mod trust;
pub mod why;
pub mod words;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
pub use tare_guards::RunGuard;
use tare_guards::clients_summary::ClientsSummary;
use tare_guards::{Code, why_void};
use tare_model::Metric;
use tare_model::samples::Probe;
use tare_model::variant::Skipped;
use tare_stats::{Estimate, Verdict};

pub use shown_plan::ShownPlan;

pub const SCHEMA: &str = "tare.run/1";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunReport {
    pub schema: String,
    pub run: Run,
    /// The machine at the time of the run.
    pub machine: serde_json::Value,
    /// The plan with every default resolved: enough to repeat the run.
    pub plan: ShownPlan,
    pub variants: Vec<Variant>,
    /// Variants that the machine could not run.
    pub skipped: Vec<Skipped>,
    pub comparisons: Vec<Comparison>,
    pub guards: Vec<RunGuard>,
    /// Results of the gates of the command that wrote this report; the store does not hold them.
    #[serde(default)]
    pub gates: Vec<GateResult>,
}

/// Result of a gate (`--fail-if`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateResult {
    pub gate: String,
    /// `None` if the gate could not be decided.
    pub passed: Option<bool>,
    pub text: String,
}

impl GateResult {
    pub fn sentence(&self) -> String {
        let word = match self.passed {
            Some(true) => "passed",
            Some(false) => "exceeded",
            None => "not decided",
        };
        format!("gate {word}: {} (--fail-if '{}')", self.text, self.gate)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    pub id: i64,
    pub name: String,
    pub seed: u64,
    pub tare_version: String,
    pub started_unix_ms: u64,
    /// Command that repeats the run; empty if unknown.
    pub command: String,
    /// Time spent in rounds.
    pub elapsed_ms: u64,
    pub rounds: u32,
    /// Slices of each variant in the last round.
    pub slices_per_round: u32,
    pub slice_ns: u64,
    /// "precision", "gates", "exceeded", "max-time", "screen", "rounds", "void", "interrupted", "failed",
    /// or "killed".
    pub stopped_by: String,
    pub precision: f64,
    /// Required precision of large overheads, as a share of the overhead.
    #[serde(default)]
    pub of_effect: f64,
    pub tolerance: f64,
    /// Estimated seconds until every verdict has the requested precision.
    pub seconds_needed: Option<f64>,
    /// Share of the time spent in rounds that was slices.
    #[serde(default)]
    pub slices_share: f64,
    /// Share of the CPUs that other processes used during slices; null if unknown.
    #[serde(default)]
    pub neighbours_cpu_share: Option<f64>,
    /// Share of cycles in which they used hardly any CPU time; null if unknown.
    #[serde(default)]
    pub calm_cycles_share: Option<f64>,
    /// How the load was made: "io_uring, polling"; null in runs of earlier versions.
    #[serde(default)]
    pub load_by: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    pub name: String,
    pub baseline: bool,
    /// Place of the server: "host", "runc", "vm", …
    pub place: String,
    /// Place of the client.
    pub client: String,
    /// Hops, the nearest to the client first, and the server; empty if tare meters nothing.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// Set if several clients made the load together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<ClientsSummary>,
    /// Starts of the server in this run; 0 if it was already running.
    pub launches: u32,
    /// Starts of the place; 0 on the host.
    pub place_launches: u32,
    /// Requests that were due or begun in slices, without ramps.
    pub requests: u64,
    /// Load on one launch.
    #[serde(default)]
    pub exposure: Exposure,
    pub errors: BTreeMap<String, u64>,
    pub status: BTreeMap<String, u64>,
    pub body_bytes_per_reply: Option<f64>,
    /// Values by the metric's key; metrics that were not measured are missing.
    pub metrics: BTreeMap<String, Estimate>,
    /// The first launch's reply to the probe.
    pub probe: Option<Probe>,
    /// Proofs that the variant's layers were in the path.
    pub proofs: Vec<String>,
    /// Codes of the guards that concern this variant.
    pub guards: Vec<Code>,
}

/// Resources that one part of a variant uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// "server", "proxy nginx", "client's sidecar envoy", …
    pub name: String,
    pub place: String,
    /// Values by the metric's key without "server_".
    pub metrics: BTreeMap<String, Estimate>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    pub baseline: String,
    pub variant: String,
    pub metric: Metric,
    /// Whether the run was to resolve this metric.
    pub asked: bool,
    /// The variant's value over the baseline's. `level` is that of this interval, chosen so that
    /// all requested intervals hold together at 0.95.
    pub ratio: Estimate,
    /// Positive when the variant is worse.
    pub overhead_percent: Bounds,
    /// Overhead in slices alone, if the interval spans slices and sustained load: both agree on the
    /// direction, but not on the size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_slices_percent: Option<Bounds>,
    /// The ratio without trimming; only for metrics that are compared slice by slice.
    pub ratio_of_totals: Option<f64>,
    /// Filters: overhead predicted from the cost of a call without the server.
    pub predicted_percent: Option<f64>,
    /// Result under sustained load on all variants at once; only for throughput and CPU.
    #[serde(default)]
    pub sustained: Option<SustainedCheck>,
    /// Result with clients that sleep while they wait, if the others poll; only for throughput and
    /// CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_sleepers: Option<SleepersCheck>,
    pub verdict: Verdict,
    /// Estimated seconds until slices give a verdict; null if they have one, or never will.
    #[serde(default)]
    pub seconds_needed: Option<f64>,
}

impl Comparison {
    /// Whether its interval spans results that differ.
    pub fn spans_several(&self) -> bool {
        self.in_slices_percent.is_some() || self.by_sleepers.as_ref().is_some_and(|s| s.differs)
    }

    /// Returns the overhead under sustained load, if it is too imprecise to confirm the slices.
    pub fn unconfirmed(&self) -> Option<Bounds> {
        let check = self.sustained.as_ref().filter(|check| check.agrees.is_none());
        let check = check.filter(|_| self.in_slices_percent.is_none());
        check.map(|check| check.overhead_percent)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SustainedCheck {
    pub ratio: Estimate,
    pub overhead_percent: Bounds,
    pub launches: u32,
    /// Shortest sustained load on a launch.
    pub ns: u64,
    /// Whether slices and sustained load agree within the tolerance; null if that is unclear.
    pub agrees: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SleepersCheck {
    pub ratio: Estimate,
    pub overhead_percent: Bounds,
    /// Overhead with clients that poll.
    pub polled_percent: Bounds,
    /// Whether the two differ by more than the interval's half width; the interval then spans both.
    pub differs: bool,
}

/// Load on the launches of a variant: medians over launches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exposure {
    /// Load before the first slice.
    pub warmup_ns: u64,
    /// Time after which the cost of requests was constant, if determined.
    #[serde(default)]
    pub warm_after_ns: Option<u64>,
    /// Load in the windows of slices.
    pub load_ns: u64,
    pub requests: u64,
    /// Launches with sustained load.
    pub sustained_launches: u32,
    /// Length of the shortest sustained load.
    pub sustained_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    pub point: f64,
    pub lower: f64,
    pub upper: f64,
}

impl RunReport {
    pub fn json(&self) -> String {
        // Plain data: serialising it cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    pub fn variant(&self, name: &str) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.name == name)
    }

    pub fn baseline(&self) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.baseline)
    }

    /// Returns the requested comparisons of one variant.
    pub fn asked_of<'a>(&'a self, variant: &'a str) -> impl Iterator<Item = &'a Comparison> {
        self.comparisons.iter().filter(move |c| c.asked && c.variant == variant)
    }

    /// Whether there is only one variant, so nothing to compare it with.
    pub fn is_single(&self) -> bool {
        self.plan.parts.variants.len() == 1
    }

    /// Returns the requested metrics.
    pub fn asked(&self) -> Vec<Metric> {
        if self.is_single() {
            return self.plan.parts.stop.metrics.clone();
        }
        let mut found = Vec::new();
        for comparison in self.comparisons.iter().filter(|comparison| comparison.asked) {
            if !found.contains(&comparison.metric) {
                found.push(comparison.metric);
            }
        }
        found
    }

    /// Returns the gravest guard that forbids a verdict on this variant.
    pub fn why_void(&self, variant: &str) -> Option<&RunGuard> {
        let baseline = self.baseline().map(|variant| variant.name.as_str());
        why_void(&self.guards, variant, baseline)
    }
}

impl Variant {
    pub fn metric(&self, metric: Metric) -> Option<&Estimate> {
        self.metrics.get(metric.key())
    }

    /// Returns all parts except the server.
    pub fn hops(&self) -> &[Part] {
        self.parts.split_last().map_or(&[], |(_server, hops)| hops)
    }

    pub fn metric_of(&self, part: &str, metric: Metric) -> Option<&Estimate> {
        let part = self.parts.iter().find(|own| own.name == part)?;
        part.metrics.get(metric.key_of_part())
    }
}

impl From<Estimate> for Bounds {
    fn from(estimate: Estimate) -> Self {
        Self { point: estimate.point, lower: estimate.lower, upper: estimate.upper }
    }
}
