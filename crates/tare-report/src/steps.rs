//! Procedures, timed: what each takes, in time and in steps (`tare.steps/1`).

mod analysis;
mod text;

use serde::{Deserialize, Serialize};
use tare_model::steps::{Repetition, Units};
use tare_stats::{Estimate, Verdict};

pub use analysis::{StepsAsked, analyse};

use crate::form::{Document, Form};
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
    /// A share: differences within it are the same.
    pub tolerance: f64,
    pub interrupted: bool,
    /// Why it ended before all repetitions were made.
    pub failed: Option<String>,
    /// What was not carried out here.
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
    /// Seconds from the first step to the end of the last, with those of persons.
    pub total_s: Option<Estimate>,
    /// Of these: doing, waiting, and what persons were once seen to take.
    pub doing_s: Option<Estimate>,
    pub waiting_s: Option<Estimate>,
    pub recorded_s: f64,
    /// The longest way through what each step needs: what it would take with all others beside.
    pub critical_s: Option<Estimate>,
    /// Seconds of CPU time of the whole machine.
    pub cpu_s: Option<Estimate>,
    /// That tools said they had made or changed.
    pub objects: Option<Estimate>,
    /// Images that nodes started containers from, those they pulled, and bytes of these.
    pub images: Option<Estimate>,
    pub pulled: Option<Estimate>,
    pub pulled_bytes: Option<Estimate>,
    /// Of `total_s` to the baseline's, paired by round.
    pub ratio: Option<Estimate>,
    /// Of `total_s` and the baseline's, likewise.
    pub difference_s: Option<Estimate>,
    /// Positive takes longer.
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
    /// A person does it; its time was recorded elsewhere.
    pub manual: bool,
    /// Medians over repetitions.
    pub started_s: f64,
    pub took_s: f64,
    pub shortest_s: f64,
    pub longest_s: f64,
    /// Tries beyond the first, of all repetitions.
    pub retries: u32,
    /// The share of repetitions in which it was on the longest way.
    pub critical: f64,
}

impl Document for StepsReport {
    fn kind(&self) -> &'static str {
        "a report of procedures"
    }

    fn form(&self, form: Form) -> Option<String> {
        Some(match form {
            // Plain data: nothing in it can fail to be written.
            Form::Json => serde_json::to_string_pretty(self).unwrap_or_default() + "\n",
            Form::Text => text::text(self),
            Form::Markdown => text::markdown(self),
            Form::Csv => text::csv(self),
            Form::Html => html::steps::render(self),
            _ => return None,
        })
    }
}
