//! Results of a sweep, as data: serialised, they are the JSON (`tare.sweep/1`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::run::RunReport;

pub const SCHEMA: &str = "tare.sweep/1";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    pub schema: String,
    pub cells: Vec<SweepCell>,
    /// Values that could not be measured, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingCell>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MissingCell {
    pub values: BTreeMap<String, String>,
    pub reason: String,
}

/// The run for one combination of the swept values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepCell {
    pub values: BTreeMap<String, String>,
    pub report: RunReport,
}

impl Sweep {
    pub fn new(cells: Vec<SweepCell>, missing: Vec<MissingCell>) -> Self {
        Self { schema: SCHEMA.into(), cells, missing }
    }

    pub fn json(&self) -> String {
        // Plain data: serialising it cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

impl SweepCell {
    pub fn label(&self) -> String {
        label(&self.values)
    }
}

/// Returns the name of the experiment: a run's name without its values.
pub fn name(run: &str, values: &BTreeMap<String, String>) -> String {
    let parts = values.iter().map(|(key, value)| format!(" ({key} {value})"));
    parts.fold(run.to_owned(), |name, part| name.replace(&part, ""))
}

/// Formats values: "url_length 100".
pub fn label(values: &BTreeMap<String, String>) -> String {
    let words: Vec<String> = values.iter().map(|(key, v)| format!("{key} {v}")).collect();
    words.join(", ")
}
