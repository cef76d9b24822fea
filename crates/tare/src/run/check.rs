//! Carries out checks: finds the rate, measures the runs of each experiment, and answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Deserializer};
use tare_io::DurationNs;
use tare_io::time::monotonic_now;
use tare_lab::Halt;
use tare_model::check::{Check, CheckLimit};
use tare_model::plan::{Draft, Plan};
use tare_model::variant::Skipped;
use tare_model::{Failure, Metric};
use tare_report::check::{CheckDocument, Outcome};
use tare_report::run::document::RunDocument;
use tare_run::{Start, Stopped};
use tare_store::RunRow;

use super::RunOptions;
use super::aside::{Temporary, measure_aside};
use super::begin::{begin, carry_out, open_store, stop_on_interrupt};
use super::choices::percent;
use super::machine::check_machine;
use super::measure::{Begun, StoredRuns};
use crate::load::interrupt;
use crate::load::outputs::Outputs;

/// A metric of a check, with a limit of its own or without: `cpu`, `p99=10%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricLimit {
    pub metric: Metric,
    /// How much worse it may become, as a share.
    pub worse_by: Option<f64>,
}

impl MetricLimit {
    pub fn of(metric: Metric) -> Self {
        Self { metric, worse_by: None }
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        let (metric, worse_by) = match text.split_once('=') {
            Some((metric, share)) => (metric, Some(percent(share)?)),
            None => (text, None),
        };
        Ok(Self { metric: Metric::parse(metric)?, worse_by })
    }
}

impl<'de> Deserialize<'de> for MetricLimit {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// One experiment of a check.
pub struct Asked {
    /// Has two variants, the old one first.
    pub draft: Draft,
    pub limits: Vec<CheckLimit>,
    pub screen: DurationNs,
}

impl Asked {
    /// Metrics of a closed loop: at a fixed rate they would show the rate.
    fn closed(&self) -> Vec<CheckLimit> {
        let own = self.limits.iter().filter(|limit| is_closed(limit.metric));
        own.copied().collect()
    }

    fn at_rate(&self) -> Vec<CheckLimit> {
        self.limits.iter().filter(|limit| !is_closed(limit.metric)).copied().collect()
    }

    fn runs(&self) -> u32 {
        u32::from(!self.closed().is_empty()) + u32::from(!self.at_rate().is_empty())
    }

    /// The draft with the old version twice, and the name of its second start.
    fn with_again(&self) -> (Draft, String) {
        let mut draft = self.draft.clone();
        let mut again = draft.variants[0].clone();
        again.name = format!("{} again", again.name);
        again.baseline = false;
        let name = again.name.clone();
        draft.variants.insert(1, again);
        (draft, name)
    }

    /// Returns the runs of this experiment; `runs` is the number of all runs of the check.
    fn plans(&self, rate: Option<f64>, runs: u32) -> Result<Vec<Plan>, Failure> {
        let (draft, again) = self.with_again();
        let head = draft.variants[2].name.clone();
        let plan = |limits: Vec<CheckLimit>, rate: Option<f64>| {
            let mut draft = draft.clone();
            draft.stop.metrics = limits.iter().map(|limit| limit.metric).collect();
            let percent = limits.iter().map(|limit| limit.percent).fold(f64::INFINITY, f64::min);
            (draft.stop.precision, draft.stop.tolerance) = (percent / 100.0, percent / 100.0);
            draft.stop.of_effect = 0.0;
            if let Some(rate) = rate.filter(|_| draft.load.rate.is_none()) {
                draft.load.rate = Some(rate);
                draft.load.linger = None;
                draft.name += &format!(" (rate {rate})");
                draft.cell = BTreeMap::from([("rate".to_owned(), rate.to_string())]);
            }
            let (head, again, screen) = (head.clone(), again.clone(), self.screen);
            draft.check = Some(Check { head, again, limits, runs, screen });
            let plan = Plan::try_from(draft)?;
            check_machine(&plan)?;
            Ok(plan)
        };
        let closed = Some(self.closed()).filter(|limits| !limits.is_empty());
        let at_rate = Some(self.at_rate()).filter(|limits| !limits.is_empty());
        let closed = closed.map(|limits| plan(limits, None));
        closed.into_iter().chain(at_rate.map(|limits| plan(limits, rate))).collect()
    }

    /// Checks the experiment before anything is started.
    pub fn check(&self) -> Result<(), Failure> {
        if self.draft.load.rate.is_some() && !self.closed().is_empty() {
            let text = "--metric throughput cannot be used with --rate, which fixes the throughput; remove one \
                        of them";
            return Err(Failure::usage(text));
        }
        self.plans(Some(1.0), self.runs()).map(drop)
    }

    /// Half of the rate that the old version sustains, if a rate is needed and not given.
    fn find_rate(&self, stop: &Arc<AtomicBool>, left: DurationNs) -> Result<Option<f64>, Failure> {
        if self.at_rate().is_empty() || self.draft.load.rate.is_some() {
            return Ok(None);
        }
        let (mut draft, _) = self.with_again();
        draft.variants.truncate(2);
        draft.name = format!("{}: the rate that {} sustains", draft.name, draft.variants[0].name);
        (draft.stop.precision, draft.stop.tolerance) = (ROUGH, ROUGH);
        draft.stop.metrics = vec![Metric::Throughput];
        // The check itself needs most of the time.
        draft.stop.max_time = DurationNs::from_ns(left.as_ns() / 2);
        draft.stop.rounds = None;
        draft.slices.sustained = Some(SHORT);
        draft.slices.warmup_max = None;
        let plan = Plan::try_from(draft)?;
        let folder = Temporary::new()?;
        let StoredRuns { documents, stopped, written } =
            measure_aside(&[plan], &folder.store(), stop)?;
        written?;
        match stopped.into_iter().next() {
            Some(Stopped::Failed(failure)) => return Err(failure),
            Some(Stopped::Interrupted) => return Err(Failure::interrupted()),
            _ => {}
        }
        let base = documents.first().and_then(|document| document.report.baseline());
        let sustained = base.and_then(|base| base.metric(Metric::Throughput));
        let Some(sustained) = sustained else {
            let text = "could not find a rate that base sustains within --max-time; set one with --rate or raise \
                        --max-time";
            return Err(Failure::unresolved(text));
        };
        Ok(Some(round_down(sustained.point / 2.0)))
    }
}

/// The precision that is enough to find a rate.
const ROUGH: f64 = 0.5;
/// Sustained load in the search for a rate.
const SHORT: DurationNs = DurationNs::from_secs(1);

/// The shortest time in which an experiment is begun.
const SHARE_MIN: DurationNs = DurationNs::from_secs(4);
const NO_ROUND: &str = "no round was finished within its share of --max-time";

fn is_closed(metric: Metric) -> bool {
    matches!(metric, Metric::Throughput | Metric::Bandwidth)
}

/// Rounds down to two digits; a rate that people can remember.
fn round_down(per_s: f64) -> f64 {
    let step = 10f64.powf(per_s.log10().floor() - 1.0);
    ((per_s / step).floor() * step).max(1.0).round()
}

/// Checks all experiments, and fails as the answer demands. `max_time` is for all of them together;
/// without it, each has its own.
pub fn run_check(
    all: &[Asked],
    max_time: Option<DurationNs>,
    options: &RunOptions,
) -> Result<(), Failure> {
    let mut outputs = Outputs::create(&options.forms)?;
    let stop = stop_on_interrupt()?;
    let runs = all.iter().map(Asked::runs).sum();
    let (mut documents, mut missing, mut failed) = (Vec::new(), Vec::new(), None);
    for (at, asked) in all.iter().enumerate() {
        let share = max_time.map_or(asked.draft.stop.max_time, |max_time| {
            let spent = monotonic_now().since(options.began);
            let left = max_time.as_ns().saturating_sub(spent.as_ns());
            DurationNs::from_ns(left / (all.len() - at) as u64)
        });
        // A run that failed may have rounds that show why: other replies, or an exceeded limit.
        let (measured, failure) = match measure(asked, runs, share, options, &stop) {
            Ok(measured) => measured,
            Err(failure) => (Vec::new(), Some(failure)),
        };
        documents.extend(measured);
        if let Some(failure) = failure {
            let (name, reason) = (asked.draft.name.clone(), failure.to_string());
            missing.push(Skipped { name, reason });
            failed.get_or_insert(failure);
        }
        if interrupt::was_interrupted() {
            failed = Some(Failure::interrupted());
            break;
        }
    }
    let document = CheckDocument::new(documents, missing);
    outputs.write(&document, None)?;
    let sentence = || document.sentence.clone();
    match (failed, document.outcome) {
        (Some(failure), outcome) if outcome > Outcome::Worse => Err(failure),
        (_, Outcome::RepliesDiffer) => Err(Failure::target(sentence())),
        (_, Outcome::Worse) => Err(Failure::gate(sentence())),
        (_, Outcome::Unfit | Outcome::Void) => Err(Failure::void(sentence())),
        (_, Outcome::Undecided) => Err(Failure::unresolved(sentence())),
        (_, Outcome::NotWorse) => Ok(()),
    }
}

/// Measures the runs of one experiment.
fn measure(
    asked: &Asked,
    runs: u32,
    share: DurationNs,
    options: &RunOptions,
    stop: &Arc<AtomicBool>,
) -> Result<(Vec<RunDocument>, Option<Failure>), Failure> {
    if share < SHARE_MIN {
        return Err(Failure::unresolved("no time is left for it within --max-time"));
    }
    let end = monotonic_now() + share;
    let rate = asked.find_rate(stop, share)?;
    let plans = asked.plans(rate, runs)?;
    let mut store = open_store(options)?;
    let rows: Result<Vec<RunRow>, Failure> =
        plans.iter().map(|plan| begin(plan, &mut store)).collect();
    let rows = rows?;
    let begun = plans.iter().zip(&rows).map(|(plan, row)| Begun::new(plan, row)).collect();
    let halt = Halt::at(end, stop.clone(), interrupt::was_interrupted)?;
    let StoredRuns { documents, stopped, written } =
        carry_out(begun, store, Start::default(), options, &halt)?;
    written?;
    let failed = stopped.into_iter().find_map(|stopped| match stopped {
        Stopped::Failed(failure) => Some(failure),
        _ => None,
    });
    let all = documents.len();
    let measured: Vec<RunDocument> =
        documents.into_iter().filter(|document| document.report.run.rounds > 0).collect();
    let is_missing = measured.len() < all;
    let failed = failed.or_else(|| is_missing.then(|| Failure::unresolved(NO_ROUND)));
    Ok((measured, failed))
}
