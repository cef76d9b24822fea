//! What a run found, as data: the JSON (`tare.run/1`) is this, all other forms are made from this.

pub mod build;
pub mod csv;
pub mod document;
pub(crate) mod exposure;
pub mod markdown;
pub(crate) mod rounds_csv;
mod shown_plan;
pub mod text;
pub(crate) mod trust;
pub mod why;
pub mod words;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
pub use tare_guards::RunGuard;
use tare_guards::clients::ClientsFound;
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
    /// The machine as it was.
    pub machine: serde_json::Value,
    /// The plan with every default resolved: enough to repeat the run.
    pub plan: ShownPlan,
    pub variants: Vec<Variant>,
    /// Variants that the machine could not have.
    pub skipped: Vec<Skipped>,
    pub comparisons: Vec<Comparison>,
    pub guards: Vec<RunGuard>,
    /// Of the command that wrote this, not of the store.
    #[serde(default)]
    pub gates: Vec<GateResult>,
}

/// What became of a gate (`--fail-if`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateResult {
    pub gate: String,
    /// `None` where the run is too imprecise to tell.
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
    /// Typed again, it repeats the run; empty where it is not known.
    pub command: String,
    /// Time spent in rounds.
    pub elapsed_ms: u64,
    pub rounds: u32,
    /// Of each variant, in the last round.
    pub slices_per_round: u32,
    pub slice_ns: u64,
    /// "precision", "gates", "max-time", "rounds", "void", "interrupted", "failed", or "killed".
    pub stopped_by: String,
    pub precision: f64,
    /// An overhead that is larger need only be known to this share of itself.
    #[serde(default)]
    pub of_effect: f64,
    pub tolerance: f64,
    /// Seconds that it would still take to every verdict, as precisely as asked.
    pub seconds_needed: Option<f64>,
    /// What made the load: "io_uring, polling"; null in runs of earlier versions.
    #[serde(default)]
    pub load_by: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    pub name: String,
    pub baseline: bool,
    /// Where its server runs and its load comes from: "host", "runc", "vm", …
    pub place: String,
    pub client: String,
    /// Its hops, the nearest to the client first, and its server; empty where tare meters nothing.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// Where several clients made its load together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<ClientsFound>,
    /// Times that its server was started for this run; 0 where it was up already.
    pub launches: u32,
    /// Times that its place was started; 0 on the host.
    pub place_launches: u32,
    /// Requests that were due or begun in slices, their ramps not counted.
    pub requests: u64,
    /// What one launch saw.
    #[serde(default)]
    pub exposure: Exposure,
    pub errors: BTreeMap<String, u64>,
    pub status: BTreeMap<String, u64>,
    pub body_bytes_per_reply: Option<f64>,
    /// By the metric's key. A metric that was not measured is not there.
    pub metrics: BTreeMap<String, Estimate>,
    /// The first launch's answer to the question that all are asked.
    pub probe: Option<Probe>,
    /// What shows that its layers were in the path.
    pub proofs: Vec<String>,
    /// Codes of the guards that concern it.
    pub guards: Vec<Code>,
}

/// What one part of a variant takes of what the variant takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// "server", "proxy nginx", "client's sidecar envoy", …
    pub name: String,
    /// Where it runs.
    pub place: String,
    /// By the metric's key without "server_".
    pub metrics: BTreeMap<String, Estimate>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    pub baseline: String,
    pub variant: String,
    pub metric: Metric,
    /// One of the metrics that the run was to resolve.
    pub asked: bool,
    /// The variant's value over the baseline's. `level` is this interval's own; it is such that all
    /// intervals asked for are right together at 0.95.
    pub ratio: Estimate,
    /// Positive when the variant is worse.
    pub overhead_percent: Bounds,
    /// The same in slices alone, where the interval spans them and sustained load: both say slower (or
    /// faster), and not by how much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_slices_percent: Option<Bounds>,
    /// The ratio without trimming; only of metrics that are compared slice by slice.
    pub ratio_of_totals: Option<f64>,
    /// Filters: what the cost of a call without the server adds up to, if nothing else matters.
    pub predicted_percent: Option<f64>,
    /// The same under load that does not let up, on all variants at once; of throughput and CPU.
    #[serde(default)]
    pub sustained: Option<SustainedCheck>,
    pub verdict: Verdict,
    /// That slices would still take to a verdict; null where they have one, or never would.
    #[serde(default)]
    pub seconds_needed: Option<f64>,
}

impl Comparison {
    /// What sustained load says, where it is not known well enough to confirm slices.
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
    /// On each of them, at least.
    pub ns: u64,
    /// Whether it is the same within the tolerance; null where that is not clear.
    pub agrees: Option<bool>,
}

/// Medians over launches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exposure {
    /// Load before the first slice.
    pub warmup_ns: u64,
    /// When requests cost what they cost from then on, where that was looked for.
    #[serde(default)]
    pub warm_after_ns: Option<u64>,
    /// In windows of slices.
    pub load_ns: u64,
    pub requests: u64,
    /// Launches that had sustained load, and the shortest of it.
    pub sustained_launches: u32,
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
        // Plain data: nothing in it can fail to be written.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    pub fn variant(&self, name: &str) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.name == name)
    }

    pub fn baseline(&self) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.baseline)
    }

    /// The comparisons of one variant that the run was to resolve.
    pub fn asked_of<'a>(&'a self, variant: &'a str) -> impl Iterator<Item = &'a Comparison> {
        self.comparisons.iter().filter(move |c| c.asked && c.variant == variant)
    }

    /// Whether there is one variant, which is compared with nothing.
    pub fn is_single(&self) -> bool {
        self.plan.parts.variants.len() == 1
    }

    /// The metrics that were to be resolved.
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

    /// The gravest guard that forbids a verdict on this variant.
    pub fn why_void(&self, variant: &str) -> Option<&RunGuard> {
        let baseline = self.baseline().map(|variant| variant.name.as_str());
        why_void(&self.guards, variant, baseline)
    }
}

impl Variant {
    pub fn metric(&self, metric: Metric) -> Option<&Estimate> {
        self.metrics.get(metric.key())
    }

    /// Its parts but for the server.
    pub fn hops(&self) -> &[Part] {
        self.parts.split_last().map_or(&[], |(_server, hops)| hops)
    }

    /// What one of its parts takes.
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
