//! Results of procedures: the time and the steps that each takes (`tare.steps/1`).

mod analysis;
mod text;

use serde::{Deserialize, Serialize};
use tare_model::steps::{Repetition, Units};
use tare_stats::{Estimate, Verdict};

pub use analysis::{StepsAsked, analyse};

use crate::formats::{Document, Form};
use crate::html;
pub(crate) use text::{heading, seconds, sentences, steps_table, times_table, units_table};

pub const SCHEMA: &str = "tare.steps/1";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepsReport {
    pub schema: String,
    pub name: String,
    pub started_unix_ms: u64,
    pub tare_version: String,
    pub seed: u64,
    /// Differences up to this share count as the same.
    pub tolerance: f64,
    pub interrupted: bool,
    /// Why the measurement ended before all repetitions were done.
    pub failed: Option<String>,
    /// Procedures that were not carried out.
    pub skipped: Vec<Skipped>,
    pub variants: Vec<StepsVariant>,
    pub repetitions: Vec<Repetition>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    pub name: String,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepsVariant {
    pub name: String,
    pub baseline: bool,
    pub units: Units,
    pub repetitions: u32,
    /// Seconds from the first step to the end of the last, with recorded times of people.
    pub total_s: Option<Estimate>,
    /// Part of the total that is work on steps.
    pub doing_s: Option<Estimate>,
    /// Part of the total that is waiting.
    pub waiting_s: Option<Estimate>,
    /// Part of the total that is recorded times of people.
    pub recorded_s: f64,
    /// Length of the critical path: the time if independent steps ran in parallel.
    pub critical_s: Option<Estimate>,
    /// Seconds of CPU time of the whole machine.
    pub cpu_s: Option<Estimate>,
    /// Objects that tools reported as created or changed.
    pub objects: Option<Estimate>,
    /// Images from which nodes started containers.
    pub images: Option<Estimate>,
    /// Images that nodes pulled.
    pub pulled: Option<Estimate>,
    /// Bytes of the images that nodes pulled.
    pub pulled_bytes: Option<Estimate>,
    /// `total_s` over the baseline's, paired by round.
    pub ratio: Option<Estimate>,
    /// `total_s` minus the baseline's, paired by round.
    pub difference_s: Option<Estimate>,
    /// Change of the total against the baseline in percent; positive if it takes longer.
    pub change_percent: Option<Estimate>,
    pub verdict: Option<Verdict>,
    pub steps: Vec<StepsStep>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepsStep {
    pub name: String,
    pub kind: String,
    pub waiting: bool,
    /// A person does this step; its time was recorded elsewhere.
    pub manual: bool,
    /// Median start over repetitions.
    pub started_s: f64,
    /// Median length over repetitions.
    pub took_s: f64,
    pub shortest_s: f64,
    pub longest_s: f64,
    /// Tries beyond the first, over all repetitions.
    pub retries: u32,
    /// Share of repetitions in which the step was on the critical path.
    pub critical: f64,
}

impl Document for StepsReport {
    fn kind(&self) -> &'static str {
        "a report of procedures"
    }

    fn form(&self, form: Form) -> Option<String> {
        Some(match form {
            // Plain data: serialising it cannot fail.
            Form::Json => serde_json::to_string_pretty(self).unwrap_or_default() + "\n",
            Form::Text => text::text(self),
            Form::Markdown => text::markdown(self),
            Form::Csv => text::csv(self),
            Form::Html => html::steps::render(self),
            _ => return None,
        })
    }
}
