//! A run with everything that its reports are made from, and its formats.

use tare_model::Distribution;
use tare_model::samples::{Counts, Series};
use tare_stats::RoundDigest;

use crate::exports::Part;
use crate::formats::{Document, Form};
use crate::run::RunReport;
use crate::run::csv;
use crate::run::from_rounds::{RunFacts, build};
use crate::run::markdown;
use crate::run::rounds_csv;
use crate::run::terminal;
use crate::run::why;
use crate::timeline::Timeline;
use crate::{exports, html};

#[derive(Clone, Debug)]
pub struct RunDocument {
    pub report: RunReport,
    pub facts: RunFacts,
    pub digests: Vec<RoundDigest>,
    pub timeline: Timeline,
}

impl RunDocument {
    pub fn new(facts: RunFacts, digests: Vec<RoundDigest>, timeline: Timeline) -> Self {
        Self { report: build(&facts, &digests), facts, digests, timeline }
    }
}

impl Document for RunDocument {
    fn kind(&self) -> &'static str {
        "a run"
    }

    fn form(&self, form: Form) -> Option<String> {
        Some(match form {
            Form::Text => terminal::render(&self.report),
            Form::Why => why::render(&self.report),
            Form::Json => self.report.json(),
            Form::Markdown => markdown::render(&self.report),
            Form::Csv => csv::render(&self.report),
            Form::RoundsCsv => rounds_csv::render(self),
            Form::Html => html::run::render(self),
            Form::OpenMetrics => exports::open_metrics::render(&[Part::whole(self)]),
            Form::FortioCsv => exports::fortio_csv::render(&[Part::whole(self)]),
            Form::K6Csv => exports::k6_csv::render(&[Part::whole(self)]),
            Form::BencherJson => exports::bencher_json::render(&[Part::whole(self)]),
            Form::GithubBigger => exports::github_benchmark::render(&[Part::whole(self)], true),
            Form::GithubSmaller => exports::github_benchmark::render(&[Part::whole(self)], false),
            Form::GoBench => exports::go_bench::render(&[Part::whole(self)]),
            Form::OtavaCsv => exports::otava_csv::render(&[Part::whole(self)]),
            Form::BpftimeJson => exports::bpftime_json::render(self),
            // Those are for checks.
            Form::Junit | Form::Annotations => return None,
        })
    }
}

impl RunDocument {
    /// Returns a variant's counts over all rounds.
    pub(crate) fn counts(&self, variant: usize) -> Counts {
        let mut counts = Counts::default();
        for digest in &self.digests {
            counts.accumulate(&digest.variants[variant].counts);
        }
        counts
    }

    /// Returns a variant's latencies over all rounds.
    pub(crate) fn latency(&self, variant: usize, series: Series) -> Option<Distribution> {
        let mut all: Option<Distribution> = None;
        for digest in &self.digests {
            let Some(more) = digest.variants[variant].latency(series) else { continue };
            all.get_or_insert_default().merge(more);
        }
        all
    }
}
