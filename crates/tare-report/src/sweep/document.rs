//! A sweep with everything that its reports are made from, and its formats.

use std::collections::BTreeMap;

use crate::exports::Part;
use crate::formats::{Document, Form};
use crate::run::document::RunDocument;
use crate::run::why;
use crate::sweep::cells::{MissingCell, Sweep, SweepCell};
use crate::sweep::text;
use crate::{exports, html};

#[derive(Clone, Debug)]
pub struct SweepDocument {
    sweep: Sweep,
    /// The runs, one per cell.
    runs: Vec<RunDocument>,
}

impl SweepDocument {
    /// Makes a sweep of runs with their values, and of values that could not be measured.
    pub fn new(
        runs: Vec<(BTreeMap<String, String>, RunDocument)>,
        missing: Vec<MissingCell>,
    ) -> Self {
        let cell = |(values, run): &(BTreeMap<String, String>, RunDocument)| SweepCell {
            values: values.clone(),
            report: run.report.clone(),
        };
        let sweep = Sweep::new(runs.iter().map(cell).collect(), missing);
        Self { sweep, runs: runs.into_iter().map(|(_, run)| run).collect() }
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let cells = self.sweep.cells.iter().zip(&self.runs);
        cells.map(|(cell, document)| Part { document, values: &cell.values }).collect()
    }
}

impl Document for SweepDocument {
    fn kind(&self) -> &'static str {
        "a sweep"
    }

    fn form(&self, form: Form) -> Option<String> {
        let sweep = &self.sweep;
        Some(match form {
            Form::Text => text::render(sweep),
            Form::Why => {
                let cells = sweep.cells.iter().map(|cell| why::render(&cell.report));
                cells.collect::<Vec<_>>().join("\n")
            }
            Form::Json => sweep.json(),
            Form::Markdown => text::markdown(sweep),
            Form::Csv => text::csv(sweep),
            Form::Html => html::sweep::render(sweep),
            Form::OpenMetrics => exports::open_metrics::render(&self.parts()),
            Form::FortioCsv => exports::fortio_csv::render(&self.parts()),
            Form::K6Csv => exports::k6_csv::render(&self.parts()),
            Form::BencherJson => exports::bencher_json::render(&self.parts()),
            Form::GithubBigger => exports::github_benchmark::render(&self.parts(), true),
            Form::GithubSmaller => exports::github_benchmark::render(&self.parts(), false),
            Form::GoBench => exports::go_bench::render(&self.parts()),
            Form::OtavaCsv => exports::otava_csv::render(&self.parts()),
            // These formats hold a single run.
            Form::RoundsCsv | Form::BpftimeJson => return None,
            // Those are for checks.
            Form::Junit | Form::Annotations => return None,
        })
    }
}
