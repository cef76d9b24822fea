//! An experiment over values, as data: the JSON (`tare.sweep/1`) is this.

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

/// The experiment with one value for each thing that is swept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepCell {
    pub values: BTreeMap<String, String>,
    pub report: RunReport,
}

impl Sweep {
    pub fn of(cells: Vec<SweepCell>, missing: Vec<MissingCell>) -> Self {
        Self { schema: SCHEMA.into(), cells, missing }
    }

    pub fn json(&self) -> String {
        // Plain data: nothing in it can fail to be written.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

impl SweepCell {
    pub fn label(&self) -> String {
        label(&self.values)
    }
}

/// The experiment's, without what tells a run's values.
pub fn name(run: &str, values: &BTreeMap<String, String>) -> String {
    let parts = values.iter().map(|(key, value)| format!(" ({key} {value})"));
    parts.fold(run.to_owned(), |name, part| name.replace(&part, ""))
}

/// "url_length 100".
pub fn label(values: &BTreeMap<String, String>) -> String {
    let words: Vec<String> = values.iter().map(|(key, v)| format!("{key} {v}")).collect();
    words.join(", ")
}
