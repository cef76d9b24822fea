//! Checks that intervals hold their level. Launches and slices are simulated with a known cost,
//! measured as the design orders, and counted.
//!
//! `TARE_SIMULATED_RUNS` sets the number of runs of each case: few here, many under `make bench`.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

mod worlds;

use tare_io::{DurationNs, Random};
use tare_model::Metric;
use tare_model::load::Load;
use tare_model::plan::{PlanParts, Slices, Stop};
use tare_model::servers::ServerSpec;
use tare_model::variant::Variant;
use tare_stats::design::{CellHistory, Design, History};
use tare_stats::designs::ComparisonDesign;
use tare_stats::round_digest::{digest, weigh};
use tare_stats::stopping::is_look;
use tare_stats::surveys::Surveys;
use tare_stats::weighted::{Mean, Round as Weighable};
use tare_stats::{Estimate, Question, RoundDigest, Verdict, analyse, digests};

use worlds::{
    CALM, Neighbour, NoRules, ROUGH, WORLDS, World, beside, runs, seconds, simulate_round, slack,
};

/// Precision and tolerance.
const WITHIN: f64 = 0.02;
/// Time limit of a run in seconds, long enough for all.
const MAX_S: u64 = 900;

fn plan(world: World) -> PlanParts {
    let variant = |name: &str, baseline| Variant {
        baseline,
        ..Variant::new(name, "http://127.0.0.1:1/", ServerSpec::External)
    };
    PlanParts {
        name: "simulated".into(),
        seed: 0,
        load: Load::default(),
        stop: Stop {
            precision: WITHIN,
            of_effect: 0.1,
            tolerance: WITHIN,
            max_time: DurationNs::from_secs(MAX_S),
            metrics: vec![Metric::Throughput],
            rounds: None,
            lost_rounds: 0,
        },
        slices: Slices {
            window: Some(DurationNs::from_ms(20)),
            no_sustained: true,
            cycles: world.cycles,
            ..Slices::default()
        },
        load_cpus: Vec::new(),
        server_cpus: Vec::new(),
        variants: vec![variant("a", true), variant("b", false)],
        skipped: Vec::new(),
        cell: Default::default(),
        check: None,
    }
}

struct Outcome {
    rounds: u32,
    seconds: f64,
    covered: bool,
    verdict: Verdict,
}

/// Throughput lost, in percent, if a request costs this much more.
fn truth(cost: f64) -> f64 {
    (1.0 - 1.0 / (1.0 + cost)) * 100.0
}

/// Simulates a run with the design that real runs use.
fn run(world: World, cost: f64, seed: u64) -> Outcome {
    let mut random = Random::stream(seed, "simulated run", 0);
    let (plan, surveys) = (plan(world), Surveys::default());
    let mut design = ComparisonDesign::new(&plan, &NoRules, 0);
    let mut rounds: Vec<RoundDigest> = Vec::new();
    let mut spent = 0.0;
    loop {
        let left = DurationNs::from_ns(((MAX_S as f64 - spent).max(0.0) * 1e9) as u64);
        let seen = CellHistory { rounds: &rounds, shape: None, warm: None, is_over: false };
        let history = History { cells: vec![seen], surveys: &surveys, left };
        let Some(order) = design.next(&history) else { break };
        let cycles = order.cells[0].cycles;
        spent += seconds(world, cycles);
        let index = rounds.len() as u32;
        rounds.push(digest(&simulate_round(world, &[0.0, cost], index, cycles, &mut random), 2, 0));
        // The design looks at nothing in between.
        if is_look(index + 1) {
            weigh(&mut rounds);
        }
    }
    weigh(&mut rounds);
    let comparison = &analyse(&rounds, &Question::from_plan(&plan)).comparisons[0];
    Outcome {
        rounds: rounds.len() as u32,
        seconds: spent,
        covered: comparison.overhead_percent.covers(truth(cost)),
        verdict: comparison.verdict,
    }
}

/// Outcomes of many runs, as shares.
struct Summary {
    covered: f64,
    apart: f64,
    same: f64,
}

fn study(world: World, cost: f64, runs: u64) -> Summary {
    let outcomes: Vec<Outcome> = (0..runs).map(|seed| run(world, cost, seed)).collect();
    let share = |f: &dyn Fn(&Outcome) -> bool| {
        outcomes.iter().filter(|outcome| f(outcome)).count() as f64 / runs as f64
    };
    let middle = |of: &dyn Fn(&Outcome) -> f64| {
        let mut values: Vec<f64> = outcomes.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let summary = Summary {
        covered: share(&|outcome| outcome.covered),
        apart: share(&|outcome| matches!(outcome.verdict, Verdict::Slower | Verdict::Faster)),
        same: share(&|outcome| outcome.verdict == Verdict::Same),
    };
    println!(
        "| {} | {:.1} % | {:.1} % | {:.1} % | {:.1} % | {:.0} | {:.0} |",
        world.name,
        truth(cost),
        summary.covered * 100.0,
        summary.apart * 100.0,
        summary.same * 100.0,
        middle(&|outcome| f64::from(outcome.rounds)),
        middle(&|outcome| outcome.seconds),
    );
    summary
}

#[test]
fn intervals_cover_where_runs_end_and_verdicts_are_right() {
    let runs = runs();
    println!("| launches | overhead | covered | slower or faster | same | rounds | seconds |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for world in WORLDS {
        // No cost; slightly more than the tolerance; and two that no run should miss.
        for cost in [0.0, 0.0225, 0.05, 0.7] {
            let found = study(world, cost, runs);
            let (name, floor) = (world.name, 0.95 - slack(0.95, runs));
            assert!(found.covered >= floor, "{name}: {} covered for {cost}", found.covered);
            if cost == 0.0 {
                let ceiling = 0.01 + slack(0.01, runs);
                assert!(found.apart <= ceiling, "{name}: twins apart in {}", found.apart);
            } else {
                let ceiling = 0.02 + slack(0.02, runs);
                assert!(found.same <= ceiling, "{name}: {cost} the same in {}", found.same);
            }
            if cost >= 0.05 {
                assert!(found.apart >= 0.95, "{name}: {cost} found in {}", found.apart);
            }
        }
    }
}

/// Rounds of a single variant.
fn single(world: World, seed: u64, rounds: u32) -> Vec<RoundDigest> {
    let mut random = Random::stream(seed, "alone", 0);
    let round = |index| {
        let mut round = simulate_round(world, &[0.0, 0.0], index, 8, &mut random);
        round.slices.retain(|slice| slice.variant == 0);
        round
    };
    digests(&(0..rounds).map(round).collect::<Vec<_>>(), 1, 0)
}

#[test]
fn a_single_variant_is_measured_until_its_value_is_known() {
    let runs = runs() / 2;
    println!("| launches | covered | rounds |\n|---|---:|---:|");
    // A single variant does not cancel the machine's swing.
    let steady = |world: World| World { swing: 0.0, cycles: Some(8), ..world };
    for world in [CALM, ROUGH, World { name: "rough, heavy tails", heavy: true, ..ROUGH }] {
        let world = steady(world);
        let mut plan = plan(world);
        plan.variants.truncate(1);
        let logs = single(world, u64::MAX, 20_000);
        let logs = logs.iter().filter_map(|d| d.variants[0].log_ratio(Metric::Throughput));
        let truth = (logs.sum::<f64>() / 20_000.0).exp();
        let (mut covered, mut lengths) = (0, Vec::new());
        for seed in 0..runs {
            let all = single(world, seed, 300);
            let surveys = Surveys::default();
            let mut design = ComparisonDesign::new(&plan, &NoRules, 0);
            let left = DurationNs::from_secs(MAX_S);
            let seen = |rounds| {
                let seen = CellHistory { rounds, shape: None, warm: None, is_over: false };
                History { cells: vec![seen], surveys: &surveys, left }
            };
            let ends = (1..=all.len()).find(|n| design.next(&seen(&all[..*n])).is_none());
            let ends = ends.unwrap_or(all.len());
            let analysis = analyse(&all[..ends], &Question::from_plan(&plan));
            let [value] = analysis.single[..] else { panic!("{analysis:?}") };
            assert!(analysis.comparisons.is_empty());
            covered += u64::from(value.value.covers(truth));
            lengths.push(ends);
        }
        lengths.sort_unstable();
        let (share, middle) = (covered as f64 / runs as f64, lengths[lengths.len() / 2]);
        println!("| {} | {:.1} % | {middle} |", world.name, share * 100.0);
        assert!(share >= 0.95 - slack(0.95, runs), "{}: {share}", world.name);
        assert!((3..150).contains(&middle), "{}: {middle} rounds", world.name);
    }
}

#[test]
fn intervals_of_any_number_of_launches_cover() {
    let runs = runs();
    println!("| launches | number | covered | half width |\n|---|---:|---:|---:|");
    for world in WORLDS {
        for rounds in [3, 4, 6, 10, 30, 100, 200] {
            let few = runs.min(60_000 / rounds);
            let (mut covered, mut halves) = (0, Vec::new());
            for seed in 0..few {
                let mut random = Random::stream(seed, "launches", rounds);
                let seen = (0..rounds as u32)
                    .map(|index| simulate_round(world, &[0.0, 0.05], index, 8, &mut random));
                let seen = digests(&seen.collect::<Vec<_>>(), 2, 0);
                let analysis = analyse(&seen, &Question::from_plan(&plan(world)));
                let bounds = &analysis.comparisons[0].overhead_percent;
                covered += u64::from(bounds.covers(truth(0.05)));
                halves.push(bounds.half_width());
            }
            halves.sort_by(f64::total_cmp);
            let (share, half) = (covered as f64 / few as f64, halves[halves.len() / 2]);
            println!("| {} | {rounds} | {:.1} % | ± {half:.1} % |", world.name, share * 100.0);
            assert!(share >= 0.95 - slack(0.95, few), "{}: {share} of {rounds}", world.name);
        }
    }
}

#[test]
fn weights_narrow_what_a_neighbour_disturbs_and_cost_nothing_where_all_is_quiet() {
    let runs = runs() / 2;
    println!("| neighbour | rounds | plain | weighted | covered |");
    println!("|---|---:|---:|---:|---:|");
    for (neighbour, measured, rounds, most) in [
        (Neighbour::Quiet, false, 20, 1.06),
        (Neighbour::Quiet, true, 20, 1.06),
        (Neighbour::Bursts, false, 20, 0.7),
        (Neighbour::Bursts, false, 60, 0.7),
        (Neighbour::Start, false, 20, 0.8),
        (Neighbour::Switching, true, 20, 0.7),
        (Neighbour::OneVariant, false, 20, 1.06),
        (Neighbour::OneVariant, true, 20, 1.06),
    ] {
        let world = World { measured, ..beside("", neighbour) };
        let (mut plain, mut weighted, mut covered) = (Vec::new(), Vec::new(), 0);
        for seed in 0..runs {
            let rounds_in = |world: World| -> Vec<Weighable> {
                let mut random = Random::stream(seed, "weights", 0);
                let all =
                    (0..rounds).map(|at| simulate_round(world, &[0.0, 0.0], at, 10, &mut random));
                let all = digests(&all.collect::<Vec<_>>(), 2, 0);
                let weighable =
                    |round: &RoundDigest| round.variants[1].weighable(Metric::Throughput);
                all.iter().filter_map(weighable).collect()
            };
            let unmeasured = rounds_in(World { measured: false, ..world });
            let values: Vec<f64> = unmeasured.iter().map(|round| round.value).collect();
            plain.push(Estimate::of_mean(&values, 0.95).unwrap().half_width());
            let seen = rounds_in(world);
            let found = Mean::from_rounds(&seen).unwrap().interval(0.95);
            weighted.push(found.half_width());
            covered += u64::from(found.covers(0.0));
        }
        let median = |values: &mut Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let (plain, weighted) = (median(&mut plain), median(&mut weighted));
        let covered = covered as f64 / runs as f64;
        println!(
            "| {neighbour:?} | {rounds} | ± {:.1} % | ± {:.1} % | {:.1} % |",
            plain * 100.0,
            weighted * 100.0,
            covered * 100.0
        );
        assert!(weighted <= plain * most, "{neighbour:?}: {plain} and {weighted}");
        assert!(covered >= 0.92, "{neighbour:?}: {covered}");
    }
}
