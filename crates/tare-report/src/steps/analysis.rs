//! Turns repetitions into a report on procedures.

use tare_model::steps::{Images, Procedure, Repetition, Timed};
use tare_stats::Estimate;
use tare_stats::estimate::sidak;
use tare_stats::verdict::Verdict;

use super::{SCHEMA, Skipped, StepsReport, StepsStep, StepsVariant};

/// Settings of the report, besides the procedures.
#[derive(Clone, Debug)]
pub struct StepsAsked {
    pub name: String,
    /// Procedures that were not carried out, and why.
    pub skipped: Vec<(String, String)>,
    pub tare_version: String,
    pub seed: u64,
    pub tolerance: f64,
    pub baseline: usize,
    pub interrupted: bool,
    pub failed: Option<String>,
}

const LEVEL: f64 = 0.95;

pub fn analyse(asked: StepsAsked, procedures: &[Procedure], done: Vec<Repetition>) -> StepsReport {
    let of = |variant: usize| -> Vec<&Repetition> {
        done.iter().filter(|one| one.variant as usize == variant).collect()
    };
    let base = of(asked.baseline);
    let level = sidak(LEVEL, procedures.len().saturating_sub(1));
    let variants = procedures.iter().enumerate().map(|(at, procedure)| {
        let mine = of(at);
        let mut variant = described(procedure, &mine);
        variant.baseline = at == asked.baseline;
        if !variant.baseline {
            // Only rounds in which both procedures were carried out count.
            let pairs = mine.iter().filter_map(|one| {
                let other = base.iter().find(|other| other.round == one.round)?;
                Some((total_s(one), total_s(other)))
            });
            let pairs: Vec<(f64, f64)> = pairs.collect();
            let of = |of: &dyn Fn(f64, f64) -> f64| {
                let values: Vec<f64> = pairs.iter().map(|(one, other)| of(*one, *other)).collect();
                Estimate::of_mean(&values, level)
            };
            variant.ratio = of(&|one, other| (one / other).ln()).map(Estimate::from_log);
            variant.difference_s = of(&|one, other| one - other);
            variant.change_percent =
                variant.ratio.map(|ratio| ratio.map(|ratio| (ratio - 1.0) * 100.0));
            variant.verdict =
                variant.change_percent.map(|change| Verdict::of_fixed(&change, asked.tolerance));
        }
        variant
    });
    let skipped = asked.skipped.into_iter().map(|(name, why)| Skipped { name, why });
    StepsReport {
        skipped: skipped.collect(),
        schema: SCHEMA.into(),
        variants: variants.collect(),
        name: asked.name,
        started_unix_ms: done.first().map_or(0, |first| first.started_unix_ms),
        tare_version: asked.tare_version,
        seed: asked.seed,
        tolerance: asked.tolerance,
        interrupted: asked.interrupted,
        failed: asked.failed,
        repetitions: done,
    }
}

fn described(procedure: &Procedure, mine: &[&Repetition]) -> StepsVariant {
    let dependencies = procedure.dependencies();
    let ways: Vec<(f64, Vec<bool>)> =
        mine.iter().map(|one| longest_way(&one.steps, &dependencies)).collect();
    let estimate = |of: &dyn Fn(&Repetition) -> f64| {
        let values: Vec<f64> = mine.iter().map(|one| of(one)).collect();
        Estimate::of_mean(&values, LEVEL)
    };
    // There is an estimate only if every repetition has the value.
    let of_images = |of: &dyn Fn(&Images) -> Option<f64>| {
        let values: Option<Vec<f64>> =
            mine.iter().map(|one| one.images.as_ref().and_then(of)).collect();
        Estimate::of_mean(&values?, LEVEL)
    };
    let sum = |wanted: &dyn Fn(usize, &Timed) -> bool| {
        estimate(&|one| {
            let steps = one.steps.iter().enumerate();
            steps.filter(|(at, step)| wanted(*at, step)).map(|(_, step)| s(step.took_ns)).sum()
        })
    };
    let waits = |at: usize| procedure.steps[at].is_waiting();
    let recorded = mine.first().map_or(0.0, |one| {
        one.steps.iter().filter(|step| step.recorded).map(|step| s(step.took_ns)).sum()
    });
    let critical: Vec<f64> = ways.iter().map(|(way, _)| *way).collect();
    let steps = procedure.steps.iter().enumerate().map(|(at, step)| {
        let of = |of: &dyn Fn(&Timed) -> f64| -> Vec<f64> {
            let mut all: Vec<f64> = mine.iter().map(|one| of(&one.steps[at])).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let took = of(&|timed| s(timed.took_ns));
        let on_way = ways.iter().filter(|(_, on_way)| on_way[at]).count();
        StepsStep {
            name: step.name.clone(),
            kind: step.kind().word().to_owned(),
            waiting: step.is_waiting(),
            manual: step.manual,
            started_s: median(&of(&|timed| s(timed.started_ns))),
            took_s: median(&took),
            shortest_s: took.first().copied().unwrap_or(0.0),
            longest_s: took.last().copied().unwrap_or(0.0),
            retries: mine.iter().map(|one| one.steps[at].tries.saturating_sub(1)).sum(),
            critical: on_way as f64 / ways.len().max(1) as f64,
        }
    });
    StepsVariant {
        name: procedure.name.clone(),
        baseline: false,
        units: procedure.units(),
        repetitions: mine.len() as u32,
        total_s: estimate(&total_s),
        doing_s: sum(&|at, step| !waits(at) && !step.recorded),
        waiting_s: sum(&|at, _| waits(at)),
        recorded_s: recorded,
        critical_s: Estimate::of_mean(&critical, LEVEL),
        cpu_s: estimate(&|one| s(one.cpu_ns)),
        objects: estimate(&|one| one.steps.iter().map(|step| f64::from(step.objects)).sum()),
        images: of_images(&|images| Some(f64::from(images.used))),
        pulled: of_images(&|images| Some(f64::from(images.pulled))),
        pulled_bytes: of_images(&|images| images.pulled_bytes.map(|n| n as f64)),
        ratio: None,
        difference_s: None,
        change_percent: None,
        verdict: None,
        steps: steps.collect(),
    }
}

fn s(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Returns the total time, with recorded times of people.
fn total_s(one: &Repetition) -> f64 {
    let measured = one.steps.iter().filter(|step| !step.recorded);
    let end = measured.map(|step| step.started_ns + step.took_ns).max().unwrap_or(0);
    let recorded: u64 =
        one.steps.iter().filter(|step| step.recorded).map(|step| step.took_ns).sum();
    // A total of zero would have no ratio.
    s(end + recorded).max(1e-9)
}

/// Returns the length of the critical path, and which steps are on it.
fn longest_way(steps: &[Timed], dependencies: &[Vec<usize>]) -> (f64, Vec<bool>) {
    let mut ends: Vec<f64> = Vec::with_capacity(steps.len());
    let mut from: Vec<Option<usize>> = Vec::with_capacity(steps.len());
    for (step, needs) in steps.iter().zip(dependencies) {
        // Steps depend only on earlier steps; this was checked when the file was read.
        let latest = needs.iter().copied().max_by(|a, b| ends[*a].total_cmp(&ends[*b]));
        ends.push(latest.map_or(0.0, |at| ends[at]) + s(step.took_ns));
        from.push(latest);
    }
    let mut on_way = vec![false; steps.len()];
    let last = (0..ends.len()).max_by(|a, b| ends[*a].total_cmp(&ends[*b]));
    let mut at = last;
    while let Some(step) = at {
        on_way[step] = true;
        at = from[step];
    }
    (last.map_or(0.0, |at| ends[at]), on_way)
}

fn median(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    match n {
        0 => 0.0,
        _ if n % 2 == 1 => sorted[n / 2],
        _ => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use tare_model::steps::{Step, StepKind};

    use super::*;

    fn timed(started_s: f64, took_s: f64) -> Timed {
        let ns = |s: f64| (s * 1e9) as u64;
        Timed { started_ns: ns(started_s), took_ns: ns(took_s), tries: 1, ..Timed::default() }
    }

    fn procedure(name: &str) -> Procedure {
        let step = |name: &str, after: Option<Vec<String>>| Step {
            name: name.into(),
            run: Some("true".into()),
            after,
            ..Step::default()
        };
        let verify =
            Step { kind: Some(StepKind::Verify), ..step("c", Some(vec!["a".into(), "b".into()])) };
        Procedure {
            name: name.into(),
            needs: None,
            env: Default::default(),
            reset: None,
            images_of: Vec::new(),
            steps: vec![step("a", None), step("b", Some(Vec::new())), verify],
        }
    }

    fn repetition(variant: u32, round: u32, a: f64, b: f64, c: f64) -> Repetition {
        let steps = vec![timed(0.0, a), timed(a, b), timed(a + b, c)];
        let cpu_ns = 2_000_000_000;
        Repetition { variant, round, started_unix_ms: 1, steps, cpu_ns, images: None }
    }

    fn asked() -> StepsAsked {
        StepsAsked {
            name: "x".into(),
            skipped: Vec::new(),
            tare_version: "0".into(),
            seed: 1,
            tolerance: 0.05,
            baseline: 0,
            interrupted: false,
            failed: None,
        }
    }

    #[test]
    fn the_longest_way_is_what_could_not_be_done_beside() {
        let done = (0..6).map(|round| repetition(0, round, 2.0, 3.0, 1.0)).collect();
        let report = analyse(asked(), &[procedure("p")], done);
        let variant = &report.variants[0];
        let point = |of: Option<Estimate>| of.unwrap().point;
        assert!((point(variant.total_s) - 6.0).abs() < 1e-9);
        assert!((point(variant.critical_s) - 4.0).abs() < 1e-9);
        let on_way: Vec<f64> = variant.steps.iter().map(|step| step.critical).collect();
        assert_eq!(on_way, [0.0, 1.0, 1.0]);
        assert!(variant.verdict.is_none() && variant.baseline);
    }

    #[test]
    fn differences_are_of_pairs_and_drift_is_not_in_them() {
        let both = |round: u32| {
            // The machine becomes slower; the second procedure always takes half again as long.
            let slow = 1.0 + f64::from(round);
            let jitter = if round.is_multiple_of(2) { 1.01 } else { 0.99 };
            [
                repetition(0, round, slow, slow, slow),
                repetition(1, round, 1.5 * slow * jitter, 1.5 * slow, 1.5 * slow),
            ]
        };
        let done: Vec<Repetition> = (0..8).flat_map(both).collect();
        let report = analyse(asked(), &[procedure("p"), procedure("q")], done.clone());
        let change = report.variants[1].change_percent.unwrap();
        assert!(change.covers(50.0) && change.half_width() < 2.0, "{change:?}");
        assert_eq!(report.variants[1].verdict, Some(Verdict::Slower));
        // The differences are half of 3, 6, … 24 s: 6.75 s on average.
        assert!((report.variants[1].difference_s.unwrap().point - 6.75).abs() < 0.1);
        let few = analyse(asked(), &[procedure("p"), procedure("q")], done[..4].to_vec());
        assert_eq!(few.variants[1].verdict, Some(Verdict::Unresolved), "two are too few");
        assert_eq!(few.variants[1].repetitions, 2);
    }

    #[test]
    fn what_persons_took_elsewhere_is_in_the_total_and_apart() {
        let mut one = repetition(0, 0, 1.0, 1.0, 1.0);
        one.steps[1] = Timed { recorded: true, took_ns: 90_000_000_000, ..timed(1.0, 0.0) };
        one.steps[2] = timed(1.0, 1.0);
        assert!((total_s(&one) - 92.0).abs() < 1e-9);
        let report =
            analyse(asked(), &[procedure("p")], vec![one.clone(), Repetition { round: 1, ..one }]);
        let variant = &report.variants[0];
        assert!((variant.recorded_s - 90.0).abs() < 1e-9);
        assert!((variant.doing_s.unwrap().point - 2.0).abs() < 1e-9);
    }
}
