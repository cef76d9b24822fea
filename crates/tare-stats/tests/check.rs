//! Checks of simulated changes: how often one within its limits is called worse, and how often a
//! cost that exceeds them is found.
//!
//! `TARE_SIMULATED_RUNS` sets the number of changes of each case.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

mod worlds;

use tare_io::{DurationNs, Random};
use tare_model::Metric;
use tare_model::check::{Check, CheckLimit};
use tare_model::counters::{Counter, Counters};
use tare_model::load::Load;
use tare_model::plan::{PlanParts, Slices, Stop};
use tare_model::samples::Round;
use tare_model::servers::ServerSpec;
use tare_model::variant::Variant;
use tare_stats::design::{CellHistory, Design, Ended, History};
use tare_stats::designs::CheckDesign;
use tare_stats::round_digest::{digest, weigh};
use tare_stats::stopping::{Finding, Limit, is_look};
use tare_stats::surveys::Surveys;
use tare_stats::{Question, RoundDigest, analyse};

use worlds::{CALM, NoRules, ROUGH, WORLDS, World, normal, runs, seconds, simulate_round, slack};

const LIMIT_PERCENT: f64 = 2.0;
const MAX_S: u64 = 180;
const SCREEN: DurationNs = DurationNs::from_secs(60);
const AT_RATE: [Metric; 4] =
    [Metric::ServerCpu, Metric::ServerCpuUser, Metric::ServerCpuSystem, Metric::ServerSwitches];

/// The plans of a check of five metrics: one in a closed loop, four at a rate.
fn plans(world: World) -> [PlanParts; 2] {
    let variant = |name: &str, baseline| Variant {
        baseline,
        ..Variant::new(name, "http://127.0.0.1:1/", ServerSpec::External)
    };
    let plan = |metrics: &[Metric]| PlanParts {
        name: "simulated".into(),
        seed: 0,
        load: Load::default(),
        stop: Stop {
            precision: LIMIT_PERCENT / 100.0,
            of_effect: 0.0,
            tolerance: LIMIT_PERCENT / 100.0,
            max_time: DurationNs::from_secs(MAX_S),
            metrics: metrics.to_vec(),
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
        variants: vec![variant("base", true), variant("base again", false), variant("head", false)],
        skipped: Vec::new(),
        cell: Default::default(),
        check: Some(Check {
            head: "head".into(),
            again: "base again".into(),
            limits: metrics
                .iter()
                .map(|metric| CheckLimit { metric: *metric, percent: LIMIT_PERCENT })
                .collect(),
            runs: 2,
            screen: SCREEN,
        }),
    };
    [plan(&[Metric::Throughput]), plan(&AT_RATE)]
}

/// Gives a round CPU time per request, of several kinds, of which the last variant needs more by these
/// shares. Stalls of a machine take no CPU time.
fn at_rate(world: World, costs: &[f64], round: &mut Round, random: &mut Random) {
    // The excess of a launch is partly common to all counters.
    let launch = |variant: usize, random: &mut Random| -> Vec<f64> {
        let common = world.launch_sd * normal(random);
        let own = costs.iter().map(|cost| {
            let cost = if variant == 2 { (1.0 + cost).ln() } else { 0.0 };
            cost + 0.7 * common + 0.7 * world.launch_sd * normal(random)
        });
        own.collect()
    };
    let launches: Vec<Vec<f64>> = (0..3).map(|variant| launch(variant, random)).collect();
    for slice in &mut round.slices {
        (slice.counts.good, slice.counts.answered) = (1000, 1000);
        let waited = slice.used.as_ref().and_then(|used| used.all[Counter::Waited]);
        let mut used = Counters::default().with(Counter::Waited, waited);
        let counters = [Counter::Cpu, Counter::User, Counter::System, Counter::Switches];
        for (counter, excess) in counters.into_iter().zip(&launches[slice.variant as usize]) {
            let noise = excess + world.slice_sd * normal(random);
            used = used.with(counter, (1e10 * noise.exp()) as u64);
        }
        slice.used = Some(used.into());
    }
}

struct Outcome {
    finding: Finding,
    ended: Option<Ended>,
    seconds: f64,
}

/// Simulates the check of a change that costs this much in throughput, and in each of the metrics at a
/// rate.
fn check(world: World, costs: [f64; 5], seed: u64) -> Outcome {
    let mut random = Random::stream(seed, "simulated check", 0);
    let (plans, surveys) = (plans(world), Surveys::default());
    let mut design = CheckDesign::new(&[&plans[0], &plans[1]], &NoRules).unwrap();
    let mut cells: [Vec<RoundDigest>; 2] = Default::default();
    let mut spent = 0.0;
    for index in 0.. {
        let left = DurationNs::from_ns(((MAX_S as f64 - spent).max(0.0) * 1e9) as u64);
        let seen = |rounds| CellHistory { rounds, shape: None, warm: None, is_over: false };
        let history =
            History { cells: cells.each_ref().map(|c| seen(c)).into(), surveys: &surveys, left };
        let Some(order) = design.next(&history) else { break };
        for own in order.cells {
            let mut round =
                simulate_round(world, &[0.0, 0.0, costs[0]], index, own.cycles, &mut random);
            // Three variants take half as long again as two.
            round.elapsed_ns = (seconds(world, own.cycles) * 1.5e9) as u64;
            spent += round.elapsed_ns as f64 / 1e9;
            if own.cell == 1 {
                at_rate(world, &costs[1..], &mut round, &mut random);
            }
            let rounds = &mut cells[own.cell];
            rounds.push(digest(&round, 3, 0));
            if is_look(rounds.len() as u32) {
                weigh(rounds);
            }
        }
    }
    let found = plans.iter().zip(&mut cells).flat_map(|(plan, rounds)| {
        weigh(rounds);
        let analysis = analyse(rounds, &Question::from_plan(plan));
        let find = |limit: Limit| {
            let own = analysis.comparisons.iter().find(|c| limit.is_about(c));
            own.map_or(Finding::Undecided, |own| limit.find(own))
        };
        Limit::from_check(plan).into_iter().map(find).collect::<Vec<_>>()
    });
    let found: Vec<Finding> = found.collect();
    assert_eq!(found.len(), 5);
    let finding = match found.as_slice() {
        found if found.contains(&Finding::Exceeded) => Finding::Exceeded,
        found if found.contains(&Finding::Undecided) => Finding::Undecided,
        _ => Finding::Kept,
    };
    Outcome { finding, ended: design.ended(0), seconds: spent }
}

/// Shares of checks that end with each finding, and the median of their time.
struct Summary {
    exceeded: f64,
    kept: f64,
    seconds: f64,
}

fn study(world: World, costs: [f64; 5], runs: u64) -> Summary {
    let all: Vec<Outcome> = (0..runs).map(|seed| check(world, costs, seed)).collect();
    let share = |finding: Finding| {
        all.iter().filter(|outcome| outcome.finding == finding).count() as f64 / runs as f64
    };
    let mut seconds: Vec<f64> = all.iter().map(|outcome| outcome.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    let summary = Summary {
        exceeded: share(Finding::Exceeded),
        kept: share(Finding::Kept),
        seconds: seconds[seconds.len() / 2],
    };
    let screened = all.iter().filter(|outcome| outcome.ended == Some(Ended::Screen)).count();
    println!(
        "| {} | {:?} % | {:.1} % | {:.1} % | {:.1} % | {:.0} |",
        world.name,
        costs.map(|cost| (cost * 1000.0).round() / 10.0),
        summary.exceeded * 100.0,
        summary.kept * 100.0,
        screened as f64 / runs as f64 * 100.0,
        summary.seconds,
    );
    summary
}

#[test]
fn changes_within_their_limits_are_not_called_worse_and_others_are_found() {
    let runs = runs() / 10;
    let is_thorough = std::env::var_os("TARE_SIMULATED_RUNS").is_some();
    println!("| launches | cost | worse | not worse | ended by --screen | seconds |");
    println!("|---|---:|---:|---:|---:|---:|");
    let ceiling = |share: f64| share + slack(share, runs);
    for (nth, world) in WORLDS.into_iter().enumerate() {
        let name = world.name;
        // No cost at all; at the limit in all metrics, and in one alone.
        let limit = LIMIT_PERCENT / 100.0;
        let mut all = vec![[0.0; 5], [limit; 5], [0.0, limit, 0.0, 0.0, 0.0]];
        if !is_thorough {
            // Simulation is slow: each world has one of the two cases at the limit.
            all.remove(1 + nth % 2);
        }
        for costs in all {
            let found = study(world, costs, runs);
            assert!(
                found.exceeded <= ceiling(0.01),
                "{name}: {costs:?} worse in {}",
                found.exceeded
            );
            if costs != [0.0; 5] {
                assert!(found.kept <= ceiling(0.05), "{name}: {costs:?} passed in {}", found.kept);
            }
        }
        if is_thorough || nth % 4 == 0 {
            let found = study(world, [0.10; 5], runs);
            assert!(found.kept <= ceiling(0.01), "{name}: 10 % passed in {}", found.kept);
        }
    }
    for (world, kept) in [(CALM, 0.95), (ROUGH, 0.7)] {
        let none = study(world, [0.0; 5], runs);
        let name = world.name;
        assert!(none.kept >= kept - slack(kept, runs), "{name}: {} kept", none.kept);
        let five = study(world, [0.05; 5], runs);
        assert!(five.exceeded >= 0.95 - slack(0.95, runs), "{name}: {} found", five.exceeded);
        let ten = study(world, [0.10; 5], runs);
        assert!(ten.exceeded >= 0.99 && ten.seconds < 60.0, "{}", world.name);
    }
}
