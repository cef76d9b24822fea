//! From digested rounds to the report: the same rounds give the same report, to the byte.

use tare_model::plan::PlanParts;
use tare_model::samples::{Counts, Launch, MachineUse};
use tare_stats::stopping::rounds_needed;
use tare_stats::{Analysis, Question, RoundDigest, Verdict, analyse};

use crate::clients::ClientsFound;
use crate::load::guards::Severity;
use crate::run::filters;
use crate::run::guards;
use crate::run::places;
use crate::run::steady;
use crate::run::{Comparison, Run, RunGuard, RunReport, SCHEMA, Variant};

/// What the rounds do not tell: the run's head, and its plan.
#[derive(Clone, Debug)]
pub struct RunFacts {
    pub id: i64,
    pub tare_version: String,
    pub started_unix_ms: u64,
    /// What was typed to make this run, with its seed; empty where that is not known.
    pub command: String,
    pub stopped_by: String,
    pub machine: serde_json::Value,
    pub plan: PlanParts,
    /// The plan as it is stored: another version's may have other keys.
    pub stored_plan: serde_json::Value,
    /// Rounds that were lost, and why the first of them was.
    pub lost: (u32, Option<String>),
}

impl RunFacts {
    /// Of a run that has no head yet.
    pub fn of_plan(plan: &PlanParts) -> Self {
        Self {
            id: 0,
            tare_version: String::new(),
            started_unix_ms: 0,
            command: String::new(),
            stopped_by: String::new(),
            machine: serde_json::Value::Null,
            plan: plan.clone(),
            stored_plan: serde_json::Value::Null,
            lost: (0, None),
        }
    }

    pub fn question(&self) -> Question {
        Question::of(&self.plan)
    }
}

/// A variant over the whole run.
pub(crate) struct Totals<'a> {
    pub counts: Counts,
    pub launches: Vec<&'a Launch>,
}

/// Everything that guards look at.
pub(crate) struct Evidence<'a> {
    pub facts: &'a RunFacts,
    pub plan: &'a PlanParts,
    pub question: Question,
    pub digests: &'a [RoundDigest],
    pub totals: Vec<Totals<'a>>,
    pub machine: MachineUse,
    pub analysis: Analysis,
}

pub fn build(facts: &RunFacts, digests: &[RoundDigest]) -> RunReport {
    let evidence = Evidence::of(facts, digests);
    let guards = guards::of_run(&evidence);
    let names: Vec<&str> =
        facts.plan.variants.iter().map(|variant| variant.name.as_str()).collect();
    let variants = (0..names.len()).map(|index| variant(&evidence, index, &guards)).collect();
    let baseline = names.get(evidence.question.baseline).copied().unwrap_or_default();
    let is_void = |variant: &str| {
        guards.iter().any(|guard| {
            guard.severity == Severity::Void
                && guard.variant.as_deref().is_none_or(|v| v == variant || v == baseline)
        })
    };
    let comparisons = evidence.analysis.comparisons.iter().map(|comparison| {
        let variant = names[comparison.variant];
        Comparison {
            baseline: baseline.to_owned(),
            variant: variant.to_owned(),
            metric: comparison.metric,
            asked: comparison.asked,
            ratio: comparison.ratio,
            overhead_percent: comparison.overhead_percent.into(),
            ratio_of_totals: comparison.ratio_of_totals,
            predicted_percent: filters::predicted(&evidence, comparison),
            sustained: steady::check_of(comparison),
            verdict: if is_void(variant) { Verdict::Void } else { comparison.verdict },
        }
    });
    RunReport {
        schema: SCHEMA.into(),
        run: head(&evidence),
        machine: facts.machine.clone(),
        plan: facts.stored_plan.clone(),
        variants,
        skipped: facts.plan.skipped.clone(),
        comparisons: comparisons.collect(),
        guards,
        gates: Vec::new(),
    }
}

impl<'a> Evidence<'a> {
    pub fn of(facts: &'a RunFacts, digests: &'a [RoundDigest]) -> Self {
        let totals = (0..facts.plan.variants.len()).map(|variant| {
            let rounds = digests.iter().map(|digest| &digest.variants[variant]);
            let mut counts = Counts::default();
            rounds.clone().for_each(|round| counts.then(&round.counts));
            Totals { counts, launches: rounds.filter_map(|round| round.launch.as_ref()).collect() }
        });
        let mut machine = MachineUse::default();
        for more in digests.iter().map(|digest| &digest.machine) {
            machine.capacity_ns += more.capacity_ns;
            machine.busy_ns += more.busy_ns;
            machine.steal_ns += more.steal_ns;
            machine.own_cpu_ns += more.own_cpu_ns;
            machine.throttled_periods += more.throttled_periods;
            machine.thermal_throttles += more.thermal_throttles;
            machine.tcp_segments += more.tcp_segments;
            machine.tcp_retransmits += more.tcp_retransmits;
            machine.listen_drops += more.listen_drops;
            machine.ports_used = match (machine.ports_used, more.ports_used) {
                (Some(a), Some(b)) => Some(a.max(b)),
                (a, b) => a.or(b),
            };
        }
        let question = facts.question();
        let analysis = analyse(digests, &question);
        let (plan, totals) = (&facts.plan, totals.collect());
        Self { facts, plan, question, digests, totals, machine, analysis }
    }

    pub fn name(&self, variant: usize) -> &'a str {
        &self.plan.variants[variant].name
    }
}

fn head(evidence: &Evidence<'_>) -> Run {
    let Evidence { facts, plan, digests, analysis, .. } = evidence;
    let elapsed_ns: u64 = digests.iter().map(|digest| digest.elapsed_ns).sum();
    let rounds = digests.len() as u32;
    let needed = rounds_needed(analysis, plan.stop.precision).filter(|needed| *needed > rounds);
    let per_round = elapsed_ns as f64 / 1e9 / f64::from(rounds.max(1));
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
        tolerance: plan.stop.tolerance,
        load_by: load_by(evidence),
        seconds_needed: needed.map(|needed| f64::from(needed - rounds) * per_round),
    }
}

/// Clients in different places may have different interfaces to the kernel.
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
    let concerning = guards.iter().filter(|g| g.variant.as_deref() == Some(&variant.name));
    Variant {
        name: variant.name.clone(),
        baseline: index == evidence.question.baseline,
        place: variant.place.name(),
        client: variant.clients.name(),
        clients: counts.together.as_ref().map(ClientsFound::of),
        launches: totals.launches.iter().filter(|launch| launch.fresh).count() as u32,
        place_launches: places::place_launches(evidence, index),
        requests: counts.started,
        exposure: steady::exposure(evidence, index),
        errors: counts.errors.iter().map(|(kind, n, _)| (kind.clone(), *n)).collect(),
        status: counts.status.iter().map(|(status, n)| (status.to_string(), *n)).collect(),
        body_bytes_per_reply: (counts.completed > 0)
            .then(|| counts.body_bytes as f64 / counts.completed as f64),
        metrics: metrics.map(|(metric, value)| (metric.key().to_owned(), *value)).collect(),
        probe: totals.launches.iter().find_map(|launch| launch.probe.clone()),
        proofs: filters::proofs(&totals.launches),
        guards: concerning.map(|guard| guard.code.clone()).collect(),
    }
}
