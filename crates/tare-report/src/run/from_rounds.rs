//! Builds the report from digested rounds: equal rounds give a byte-identical report.

use tare_guards::clients_summary::ClientsSummary;
use tare_guards::rules::run_guards;
use tare_guards::{Circumstances, Evidence, RunGuard, filters, places, proofs, why_void};
use tare_model::Metric;
use tare_model::calibration::Calibration;
use tare_model::plan::{LEVEL, PlanParts};
use tare_stats::estimate::median;
use tare_stats::neighbours::Neighbours;
use tare_stats::parts::{PartCosts, parts};
use tare_stats::sleepers::BySleepers;
use tare_stats::stopping::Goal;
use tare_stats::{Estimate, Question, RoundDigest, Verdict};

use crate::run::exposure::{check_of, exposure};
use crate::run::{Comparison, Part, Run, RunReport, SCHEMA, ShownPlan, SleepersCheck, Variant};

/// Facts that the rounds do not hold: the run's head, and its plan.
#[derive(Clone, Debug)]
pub struct RunFacts {
    pub id: i64,
    pub tare_version: String,
    pub started_unix_ms: u64,
    /// Command that made this run, with its seed; empty if unknown.
    pub command: String,
    pub stopped_by: String,
    pub machine: serde_json::Value,
    pub plan: PlanParts,
    /// Settings that the first rounds determined.
    pub found: Option<Calibration>,
    /// Number of lost rounds, and the reason for the first.
    pub lost: (u32, Option<String>),
}

impl RunFacts {
    fn circumstances(&self) -> Circumstances {
        let cpus = self.machine.get("cpus").and_then(|cpus| cpus.as_array());
        Circumstances { cpus: cpus.map(Vec::len), lost: self.lost.clone() }
    }

    pub fn question(&self) -> Question {
        Question::from_plan(&self.plan)
    }
}

pub fn build(facts: &RunFacts, digests: &[RoundDigest]) -> RunReport {
    let evidence = Evidence::new(&facts.plan, digests, facts.circumstances());
    let guards = run_guards(&evidence);
    let names: Vec<&str> =
        facts.plan.variants.iter().map(|variant| variant.name.as_str()).collect();
    let variants = (0..names.len()).map(|index| variant(&evidence, index, &guards)).collect();
    let baseline = names.get(evidence.question.baseline).copied().unwrap_or_default();
    let is_void = |variant: &str| why_void(&guards, variant, Some(baseline)).is_some();
    let comparisons = evidence.analysis.comparisons.iter().map(|comparison| {
        let variant = names[comparison.variant];
        Comparison {
            baseline: baseline.to_owned(),
            variant: variant.to_owned(),
            metric: comparison.metric,
            asked: comparison.asked,
            ratio: comparison.stated,
            in_slices_percent: comparison.spans.map(|_| {
                let percent = |ratio| comparison.metric.overhead_percent(ratio);
                comparison.ratio.map(percent).into()
            }),
            overhead_percent: comparison.overhead_percent.into(),
            ratio_of_totals: comparison.ratio_of_totals,
            predicted_percent: filters::predicted(&evidence, comparison),
            sustained: check_of(comparison),
            by_sleepers: sleepers_check(comparison),
            verdict: if is_void(variant) { Verdict::Void } else { comparison.verdict },
            seconds_needed: seconds_needed(&evidence, comparison),
        }
    });
    RunReport {
        schema: SCHEMA.into(),
        run: head(facts, &evidence),
        machine: facts.machine.clone(),
        plan: ShownPlan { parts: facts.plan.clone(), found: facts.found.clone() },
        variants,
        skipped: facts.plan.skipped.clone(),
        comparisons: comparisons.collect(),
        guards,
        gates: Vec::new(),
    }
}

fn sleepers_check(comparison: &tare_stats::Comparison) -> Option<SleepersCheck> {
    let BySleepers { ratio, differs, .. } = comparison.by_sleepers?;
    let percent = |ratio: Estimate| ratio.map(|ratio| comparison.metric.overhead_percent(ratio));
    let (overhead_percent, polled_percent) =
        (percent(ratio).into(), percent(comparison.ratio).into());
    Some(SleepersCheck { ratio, overhead_percent, polled_percent, differs })
}

/// Returns the median length of a round; the first round counts without the longer load that served
/// to survey its launches.
fn seconds_a_round(digests: &[RoundDigest]) -> f64 {
    let seconds = digests.iter().enumerate().map(|(at, digest)| {
        let launches = digest.variants.iter().filter_map(|round| round.launch.as_ref());
        let looks = launches.filter_map(|launch| launch.load.sustained.as_ref());
        let looks = looks.filter(|load| at == 0 && load.cold);
        let all = looks.map(|load| load.bins.iter().map(|bin| bin.ns).sum::<u64>()).max();
        let beyond = all.unwrap_or(0).saturating_sub(digest.warm_ns());
        digest.elapsed_ns.saturating_sub(beyond) as f64 / 1e9
    });
    median(&seconds.collect::<Vec<_>>())
}

/// Returns the seconds that slices still need for a verdict.
fn seconds_needed(evidence: &Evidence<'_>, comparison: &tare_stats::Comparison) -> Option<f64> {
    let rounds = evidence.digests.len() as u32;
    let needed = Goal::from_plan(evidence.plan).rounds_for(comparison);
    let is_open = |needed: &u32| {
        comparison.in_slices == Verdict::Unresolved
            || (comparison.apart().is_some() && *needed > rounds)
    };
    let needed = needed.filter(is_open)?;
    let more = needed.saturating_sub(rounds).max(1);
    Some(f64::from(more) * seconds_a_round(evidence.digests))
}

fn head(facts: &RunFacts, evidence: &Evidence<'_>) -> Run {
    let Evidence { plan, digests, analysis, .. } = evidence;
    let elapsed_ns: u64 = digests.iter().map(|digest| digest.elapsed_ns).sum();
    let rounds = digests.len() as u32;
    let goal = Goal::from_plan(plan);
    let needed = match rounds {
        0 => None,
        1 => goal.rounds_expected(LEVEL),
        _ => goal.rounds_needed(analysis),
    };
    let needed = needed.filter(|needed| *needed > rounds);
    let in_slices: u64 = digests
        .iter()
        .flat_map(|digest| &digest.variants)
        .map(|round| round.counts.window_ns + round.slept.window_ns)
        .sum();
    let neighbours = Neighbours::from_rounds(digests);
    let last = digests.last();
    let windows = last.and_then(|digest| {
        let counts = &digest.variants.first()?.counts;
        Some(counts.window_ns / u64::from(digest.cycles.max(1)))
    });
    Run {
        id: facts.id,
        name: plan.name.clone(),
        seed: plan.seed,
        tare_version: facts.tare_version.clone(),
        started_unix_ms: facts.started_unix_ms,
        command: facts.command.clone(),
        elapsed_ms: elapsed_ns / 1_000_000,
        rounds,
        slices_per_round: last.map_or(0, |digest| digest.cycles),
        slice_ns: windows.unwrap_or(0),
        stopped_by: facts.stopped_by.clone(),
        precision: plan.stop.precision,
        of_effect: plan.stop.of_effect,
        tolerance: plan.stop.tolerance,
        slices_share: in_slices as f64 / elapsed_ns.max(1) as f64,
        neighbours_cpu_share: neighbours.and_then(|taken| taken.cpu_share),
        calm_cycles_share: neighbours.map(|taken| taken.calm_cycles),
        load_by: load_by(evidence),
        seconds_needed: needed.map(|needed| f64::from(needed - rounds) * seconds_a_round(digests)),
    }
}

/// Describes how the load was made; clients in different places may use different reactors.
fn load_by(evidence: &Evidence<'_>) -> Option<String> {
    let launches = evidence.totals.iter().flat_map(|totals| &totals.launches);
    let mut by: Vec<&str> = launches.filter_map(|launch| launch.load.by.as_deref()).collect();
    by.sort_unstable();
    by.dedup();
    (!by.is_empty()).then(|| by.join("; "))
}

fn variant(evidence: &Evidence<'_>, index: usize, guards: &[RunGuard]) -> Variant {
    let (variant, totals) = (&evidence.plan.variants[index], &evidence.totals[index]);
    let counts = &totals.counts;
    let metrics = evidence.analysis.metrics.get(index).into_iter().flatten();
    let metrics = metrics.map(|(metric, value)| {
        (metric.key().to_owned(), beside_baseline(evidence, index, *metric, *value))
    });
    let concerning = guards.iter().filter(|g| g.variant.as_deref() == Some(&variant.name));
    Variant {
        name: variant.name.clone(),
        baseline: index == evidence.question.baseline,
        place: variant.place.name(),
        client: variant.clients.name(),
        parts: parts(evidence.digests, index, LEVEL).into_iter().map(part).collect(),
        clients: counts.together.as_ref().map(ClientsSummary::new),
        launches: totals.launches.iter().filter(|launch| launch.fresh).count() as u32,
        place_launches: places::place_launches(evidence, index),
        requests: counts.started,
        exposure: exposure(evidence, index),
        errors: counts.errors.iter().map(|(kind, n, _)| (kind.clone(), *n)).collect(),
        status: counts.status.iter().map(|(status, n)| (status.to_string(), *n)).collect(),
        body_bytes_per_reply: (counts.completed > 0)
            .then(|| counts.body_bytes as f64 / counts.completed as f64),
        metrics: metrics.collect(),
        probe: totals.launches.iter().find_map(|launch| launch.probe.clone()),
        proofs: proofs::proofs(&totals.launches),
        guards: concerning.map(|guard| guard.code).collect(),
    }
}

/// Returns a variant's value that is consistent with its overhead: the baseline's value times the
/// ratio, which trims cycles and weights rounds. Separate means of the same rounds may differ in
/// the other direction.
fn beside_baseline(
    evidence: &Evidence<'_>,
    variant: usize,
    metric: Metric,
    value: Estimate,
) -> Estimate {
    let analysis = &evidence.analysis;
    let own = analysis.comparisons.iter().find(|c| c.variant == variant && c.metric == metric);
    let of_baseline = analysis.metrics.get(evidence.question.baseline).into_iter().flatten();
    let base = of_baseline.filter(|(of, _)| *of == metric).map(|(_, value)| value.point).next();
    match own.zip(base) {
        Some((own, base)) => value.map(|bound| bound * base * own.ratio.point / value.point),
        None => value,
    }
}

fn part(found: PartCosts) -> Part {
    let PartCosts { name, place, metrics } = found;
    let metrics = metrics.into_iter().map(|(metric, value)| (metric.key_of_part().into(), value));
    Part { name, place, metrics: metrics.collect() }
}
