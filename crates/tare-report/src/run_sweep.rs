//! An experiment over values, as data: the JSON (`tare.sweep/1`) is this.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::form::{Document, Form};
use crate::run::RunReport;
use crate::{html, run_sweep_text};

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
    /// "url_length 100".
    pub fn label(&self) -> String {
        let words: Vec<String> = self.values.iter().map(|(key, v)| format!("{key} {v}")).collect();
        words.join(", ")
    }
}

impl Document for Sweep {
    fn kind(&self) -> &'static str {
        "a sweep"
    }

    fn form(&self, form: Form) -> Option<String> {
        match form {
            Form::Text => Some(run_sweep_text::render(self)),
            Form::Json => Some(self.json()),
            Form::Markdown => Some(run_sweep_text::markdown(self)),
            Form::Csv => Some(run_sweep_text::csv(self)),
            Form::Html => Some(html::sweep::render(self)),
            _ => None,
        }
    }
}
