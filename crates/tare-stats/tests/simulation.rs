//! Does the method hold what its intervals promise? Launches and slices are simulated with a known
//! cost, run through the whole of digest, analysis and stopping rule, and counted.
//!
//! `TARE_SIMULATED_RUNS` sets how many runs each case gets: few here, many under `make bench`.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

use tare_io::Random;
use tare_model::Metric;
use tare_model::samples::{Counts, Round, Slice};
use tare_stats::stopping::{
    CYCLES_MIN, PILOT_CYCLES, PILOT_ROUNDS, Pilot, choose_cycles, is_look, precise_enough,
};
use tare_stats::weighted::mean_of;
use tare_stats::{Estimate, Question, RoundDigest, Verdict, analyse, digest};

/// What the machine does to measurements: as seen on two shared cores.
#[derive(Clone, Copy)]
struct World {
    /// Standard deviation of a launch's lasting effect, of each variant.
    launch_sd: f64,
    /// Of a slice.
    slice_sd: f64,
    /// Share of slices that lose much more.
    outliers: f64,
    /// A slow swing of the machine's speed that all variants share, over this many slices.
    swing: f64,
    /// A neighbour: when it makes slices scatter by [`WILD`].
    neighbour: Neighbour,
    /// Launches have heavy tails: Student's t of three degrees.
    heavy: bool,
    /// Not chosen.
    cycles: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Neighbour {
    Quiet,
    /// In the first rounds.
    Start,
    /// In three rounds of ten.
    Bursts,
    /// Slice by slice.
    Switching,
    /// Always, and only the variant suffers.
    OneVariant,
}

/// Standard deviation of a disturbed slice.
const WILD: f64 = 0.6;
const WILD_ROUNDS: u32 = 7;

const NOISY: World = World {
    launch_sd: 0.034,
    slice_sd: 0.08,
    outliers: 0.05,
    swing: 0.3,
    neighbour: Neighbour::Quiet,
    heavy: false,
    cycles: None,
};
/// Costs of a launch of both variants and of a cycle, in seconds.
const LAUNCH_COST: f64 = 0.06;
const CYCLE_COST: f64 = 0.05;

struct Outcome {
    rounds: u32,
    seconds: f64,
    covered: bool,
    verdict: Verdict,
}

fn normal(random: &mut Random) -> f64 {
    let angle = std::f64::consts::TAU * random.uniform();
    (2.0 * random.exponential()).sqrt() * angle.cos()
}

/// Of variance 1.
fn launch(heavy: bool, random: &mut Random) -> f64 {
    if !heavy {
        return normal(random);
    }
    let squares: f64 = (0..3).map(|_| normal(random).powi(2)).sum();
    normal(random) / (squares / 3.0).sqrt() / 3f64.sqrt()
}

fn simulate_round(world: World, cost: f64, index: u32, cycles: u32, random: &mut Random) -> Round {
    let launches = [0, 1].map(|_| world.launch_sd * launch(world.heavy, random));
    let burst = random.chance(0.3);
    let mut slices = Vec::new();
    for cycle in 0..cycles {
        let phase = f64::from(index * 10 + cycle) / 40.0;
        let weather = world.swing * phase.sin();
        for variant in 0..2u32 {
            let is_wild = match world.neighbour {
                Neighbour::Quiet => false,
                Neighbour::Start => index < WILD_ROUNDS,
                Neighbour::Bursts => burst,
                Neighbour::Switching => random.chance(0.3),
                Neighbour::OneVariant => variant == 1,
            };
            let slice_sd = if is_wild { WILD } else { world.slice_sd };
            let mut log = weather + launches[variant as usize] + slice_sd * normal(random);
            if random.chance(world.outliers) {
                log -= 0.3 + random.exponential() * 0.5;
            }
            if variant == 1 {
                log -= (1.0 + cost).ln();
            }
            // The scale is fine, so that counting adds no noise of its own.
            let good = (1e9 * log.exp()) as u64;
            let counts = Counts { window_ns: 20_000_000, good, ..Counts::default() };
            slices.push(Slice { variant, cycle, counts, ..Slice::default() });
        }
    }
    Round { index, cycles, slices, ..Round::default() }
}

/// One run, stopped by the rule.
fn run(world: World, cost: f64, precision: f64, rounds_max: u32, seed: u64) -> Outcome {
    let mut random = Random::stream(seed, "simulated run", 0);
    let metrics = vec![Metric::Throughput];
    let question = Question { baseline: 0, metrics, tolerance: precision, level: 0.95 };
    let mut digests: Vec<RoundDigest> = Vec::new();
    let mut cycles = world.cycles.unwrap_or(PILOT_CYCLES);
    let mut seconds = 0.0;
    loop {
        let index = digests.len() as u32;
        let round = simulate_round(world, cost, index, cycles, &mut random);
        seconds += LAUNCH_COST + f64::from(cycles) * CYCLE_COST;
        digests.push(digest(&round, 2, 0));
        let rounds = digests.len() as u32;
        if rounds >= PILOT_ROUNDS && world.cycles.is_none() {
            let pilot = Pilot::of(&digests, 0, &question.metrics, LAUNCH_COST, CYCLE_COST).unwrap();
            cycles = choose_cycles(&pilot, precision, 1e6, cycles).max(CYCLES_MIN);
        }
        if !is_look(rounds) && rounds < rounds_max {
            continue;
        }
        let analysis = analyse(&digests, &question);
        if precise_enough(&analysis, precision) || rounds >= rounds_max {
            let comparison = &analysis.comparisons[0];
            let truth = (1.0 - 1.0 / (1.0 + cost)) * 100.0;
            return Outcome {
                rounds,
                seconds,
                covered: comparison.overhead_percent.covers(truth),
                verdict: comparison.verdict,
            };
        }
    }
}

struct Summary {
    covered: f64,
    called: f64,
    rounds: f64,
    seconds: f64,
}

fn study(world: World, cost: f64, precision: f64, runs: u64) -> Summary {
    let outcomes: Vec<Outcome> =
        (0..runs).map(|seed| run(world, cost, precision, 600, seed)).collect();
    let share = |f: &dyn Fn(&Outcome) -> bool| {
        outcomes.iter().filter(|outcome| f(outcome)).count() as f64 / runs as f64
    };
    let mut rounds: Vec<f64> = outcomes.iter().map(|outcome| f64::from(outcome.rounds)).collect();
    rounds.sort_by(f64::total_cmp);
    let summary = Summary {
        covered: share(&|outcome| outcome.covered),
        called: share(&|outcome| matches!(outcome.verdict, Verdict::Slower | Verdict::Faster)),
        rounds: rounds[rounds.len() / 2],
        seconds: outcomes.iter().map(|outcome| outcome.seconds).sum::<f64>() / runs as f64,
    };
    println!(
        "| {:.1} %{} | {:?}{} | {:.1} % | ± {:.1} % | {:.1} % | {:.1} % | {:.0} | {:.0} |",
        world.launch_sd * 100.0,
        if world.heavy { ", heavy" } else { "" },
        world.neighbour,
        world.cycles.map_or(String::new(), |k| format!(", K = {k}")),
        cost * 100.0,
        precision * 100.0,
        summary.covered * 100.0,
        summary.called * 100.0,
        summary.rounds,
        summary.seconds,
    );
    summary
}

fn runs() -> u64 {
    std::env::var("TARE_SIMULATED_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(400)
}

#[test]
fn intervals_cover_and_identical_servers_are_not_called_different() {
    let runs = runs();
    // What chance alone may take off a share seen in so few runs: three standard errors.
    let slack = |share: f64| 3.0 * (share * (1.0 - share) / runs as f64).sqrt();
    println!(
        "| launch SD | neighbour | planted | precision | covered | called | rounds | seconds |"
    );
    println!("|---:|---|---:|---:|---:|---:|---:|---:|");
    let quiet = World { launch_sd: 0.01, slice_sd: 0.03, ..NOISY };
    let with = |neighbour| World { launch_sd: 0.02, neighbour, ..NOISY };
    let worlds = [
        NOISY,
        quiet,
        with(Neighbour::Start),
        with(Neighbour::Bursts),
        with(Neighbour::Switching),
        with(Neighbour::OneVariant),
        World { heavy: true, ..quiet },
        World { heavy: true, ..NOISY },
        World { cycles: Some(2), ..quiet },
        World { cycles: Some(2), ..with(Neighbour::Bursts) },
    ];
    for world in worlds {
        for cost in [0.0, 0.02, 0.05] {
            let found = study(world, cost, 0.02, runs);
            let floor = 0.935 - slack(0.935);
            assert!(found.covered >= floor, "{} covered for {cost}", found.covered);
            if cost == 0.0 {
                let ceiling = 0.05 + slack(0.05);
                assert!(found.called <= ceiling, "A/A called {} of runs", found.called);
            }
            if cost == 0.05 {
                let floor = 0.9 - slack(0.9);
                assert!(found.called >= floor, "5 % found in {} of runs", found.called);
            }
        }
    }
}

#[test]
fn a_percent_takes_four_times_the_rounds_of_two() {
    let runs = runs() / 8;
    println!(
        "| launch SD | neighbour | planted | precision | covered | called | rounds | seconds |"
    );
    println!("|---:|---|---:|---:|---:|---:|---:|---:|");
    let (coarse, fine) = (study(NOISY, 0.0, 0.02, runs), study(NOISY, 0.0, 0.01, runs));
    let ratio = fine.rounds / coarse.rounds;
    assert!((2.5..6.0).contains(&ratio), "{} and {} rounds", coarse.rounds, fine.rounds);
    let planted = study(NOISY, 0.03, 0.01, runs);
    assert!(planted.called >= 0.9, "3 % to ± 1 % found in {} of runs", planted.called);
}

#[test]
fn weights_narrow_what_a_neighbour_disturbs_and_cost_nothing_where_all_is_quiet() {
    let runs = runs() / 2;
    println!("| neighbour | rounds | plain | weighted | covered |");
    println!("|---|---:|---:|---:|---:|");
    for (neighbour, rounds, most) in [
        (Neighbour::Quiet, 20, 1.06),
        (Neighbour::Bursts, 20, 0.7),
        (Neighbour::Bursts, 60, 0.7),
        (Neighbour::Start, 20, 0.8),
    ] {
        let world = World { launch_sd: 0.02, outliers: 0.0, neighbour, ..NOISY };
        let (mut plain, mut weighted, mut covered) = (Vec::new(), Vec::new(), 0);
        for seed in 0..runs {
            let mut random = Random::stream(seed, "weights", 0);
            let seen = (0..rounds).map(|index| {
                let digest = digest(&simulate_round(world, 0.0, index, 10, &mut random), 2, 0);
                digest.variants[1].weighable(Metric::Throughput, 10).unwrap()
            });
            let seen: Vec<_> = seen.collect();
            let values: Vec<f64> = seen.iter().map(|round| round.value).collect();
            plain.push(Estimate::of_mean(&values, 0.95).unwrap().half_width());
            let found = mean_of(&seen, 0.95).unwrap().estimate;
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
