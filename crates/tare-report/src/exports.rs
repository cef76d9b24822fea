//! Reports in the formats of other tools.

use std::collections::BTreeMap;

use crate::run::document::RunDocument;
use crate::sweep::cells;

pub mod annotations;
pub mod bencher_json;
pub mod bpftime_json;
pub mod csv;
pub mod fortio_csv;
pub mod github_benchmark;
pub mod go_bench;
pub mod junit;
pub mod k6_csv;
pub mod open_metrics;
pub mod otava_csv;

/// Input of most of these formats: a run, or a run of a sweep with its values.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    pub document: &'a RunDocument,
    pub values: &'a BTreeMap<String, String>,
}

static NO_VALUES: BTreeMap<String, String> = BTreeMap::new();

impl<'a> Part<'a> {
    pub fn whole(document: &'a RunDocument) -> Self {
        Self { document, values: &NO_VALUES }
    }

    /// Names a variant in lists of several experiments and values.
    fn name_of(&self, variant: &str) -> String {
        match self.values.is_empty() {
            true => format!("{}: {variant}", self.name()),
            false => format!("{}: {variant}, {}", self.name(), cells::label(self.values)),
        }
    }

    fn name(&self) -> String {
        cells::name(&self.document.report.run.name, self.values)
    }
}
