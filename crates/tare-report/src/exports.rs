//! Reports in the formats of other tools.

use std::collections::BTreeMap;

use crate::run::document::RunDocument;
use crate::sweep::cells;

pub mod annotations;
pub mod bpftime_json;
pub mod csv;
pub mod fortio_csv;
pub mod junit;
pub mod k6_csv;
pub mod open_metrics;

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

    fn name(&self) -> String {
        cells::name(&self.document.report.run.name, self.values)
    }
}
