//! Finds reasons to doubt imported numbers, with one function per mistake. Each finding says what
//! was seen and what it means.

mod asked;
mod claims;
mod load;
mod results;
mod shape;

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};
use tare_guards::{Code, Severity};
use tare_model::Metric;

use crate::import::Import;
use crate::sample::Sample;

/// One mistake, or something worth knowing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    pub code: Code,
    pub severity: Severity,
    /// The variant that the finding concerns; `None` means all.
    pub variant: Option<String>,
    pub case: Option<String>,
    /// Metrics that a void finding voids; if empty, all of them.
    pub metrics: Vec<Metric>,
    /// What was seen.
    pub text: String,
    pub means: String,
    /// File and lines, as in "results.md:12-20".
    pub place: Option<String>,
}

impl Finding {
    fn new(code: Code, severity: Severity, text: String, means: &str) -> Self {
        Self {
            code,
            severity,
            variant: None,
            case: None,
            metrics: Vec::new(),
            text,
            means: means.to_owned(),
            place: None,
        }
    }

    /// Attaches the finding to one output.
    fn about(mut self, sample: &Sample) -> Self {
        self.variant = Some(sample.variant.clone());
        self.case = Some(sample.case.clone());
        self.place = Some(sample.place());
        self
    }

    /// Returns the document, and the first line in it that the finding concerns.
    fn place(&self) -> (&str, Option<u32>) {
        let place = self.place.as_deref().unwrap_or_default();
        let split = place
            .rsplit_once(':')
            .and_then(|(file, lines)| Some((file, lines.split('-').next()?.parse().ok()?)));
        split.map_or((place, None), |(file, line)| (file, Some(line)))
    }

    fn file(&self) -> &str {
        self.place().0
    }

    /// Returns the first line of its document that the finding concerns.
    pub fn line(&self) -> Option<u32> {
        self.place().1
    }

    fn only(mut self, metrics: &[Metric]) -> Self {
        self.metrics = metrics.to_vec();
        self
    }
}

/// Groups findings of one kind in one document, in the order of the audit.
pub fn by_kind(findings: &[Finding]) -> Vec<Vec<&Finding>> {
    let mut kinds: Vec<Vec<&Finding>> = Vec::new();
    for finding in findings {
        let is_alike = |kind: &&mut Vec<&Finding>| {
            let first = kind[0];
            // Findings of these kinds are not grouped, because each lists different lines.
            let is_list = matches!(first.code, Code::Pooled | Code::NotCompared);
            !is_list
                && (first.code, first.severity, &first.means, first.file())
                    == (finding.code, finding.severity, &finding.means, finding.file())
        };
        match kinds.iter_mut().find(is_alike) {
            Some(kind) => kind.push(finding),
            None => kinds.push(vec![finding]),
        }
    }
    kinds
}

/// All metrics by which latencies are compared.
pub(crate) const LATENCIES: [Metric; 5] = [
    Metric::LatencyMean,
    Metric::LatencyP50,
    Metric::LatencyP90,
    Metric::LatencyP99,
    Metric::LatencyP999,
];

/// Returns all findings, the most severe first.
pub fn audit(import: &Import) -> Vec<Finding> {
    let of_samples: [fn(&Sample) -> Option<Finding>; 16] = [
        results::bad_status,
        results::doubts_itself,
        results::littles_law,
        results::cut_at_the_end,
        results::few_in_flight,
        results::reconnects,
        load::rate_missed,
        load::cut_short,
        load::connections_lost,
        asked::other_than_asked,
        shape::impossible,
        shape::beyond_the_sample,
        shape::coarse,
        shape::coarse_clock,
        shape::half_round_trip,
        shape::left_out,
    ];
    let of_all: [fn(&Import) -> Vec<Finding>; 18] = [
        shape::unread,
        results::unequal_replies,
        load::unequal_load,
        load::different_tools,
        load::short_runs,
        results::all_errors,
        asked::wrong_headings,
        shape::single_runs,
        shape::one_after_another,
        shape::copies,
        shape::without_partner,
        claims::claims,
        claims::kept_apart,
        claims::unchecked,
        claims::not_compared,
        shape::pooled,
        claims::without_a_sample,
        claims::sums_only,
    ];
    let mut found: Vec<Finding> = of_all.iter().flat_map(|check| check(import)).collect();
    for sample in &import.samples {
        found.extend(of_samples.iter().filter_map(|check| check(sample)));
    }
    // The sort is stable: findings of one kind stay in the order of the outputs.
    let order =
        |finding: &Finding| (Reverse(finding.severity), finding.code.family(), finding.code.word());
    found.sort_by_cached_key(order);
    found
}
