//! Simulated launches and slices with a known cost, on machines of several kinds.

#![allow(dead_code)] // Each test uses a part of it.

use tare_io::Random;
use tare_model::counters::{Counter, Counters};
use tare_model::plan::PlanParts;
use tare_model::samples::{Counts, Round, Slice};
use tare_stats::RoundDigest;
use tare_stats::designs::Rules;

/// Effects of a machine on measurements, as seen on two shared cores.
#[derive(Clone, Copy)]
pub struct World {
    pub name: &'static str,
    /// Standard deviation of a launch's effect on all its slices, for each variant.
    pub launch_sd: f64,
    /// Standard deviation of a slice.
    pub slice_sd: f64,
    /// When a neighbour makes slices scatter by [`WILD`].
    pub neighbour: Neighbour,
    /// Whether what the neighbour took from each slice is measured.
    pub measured: bool,
    /// Whether launches have heavy tails: Student's t with three degrees of freedom.
    pub heavy: bool,
    /// The share of launches that are a fifth slower.
    pub bad: f64,
    /// Seconds that a launch takes.
    pub launch_s: f64,
    /// Overrides the design's number of cycles.
    pub cycles: Option<u32>,
    /// Amplitude of the machine's slow drift in speed, which all variants share.
    pub swing: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Neighbour {
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
/// The share of slices that lose much more than others.
const OUTLIERS: f64 = 0.05;

pub const CALM: World = World {
    name: "calm",
    launch_sd: 0.01,
    slice_sd: 0.03,
    neighbour: Neighbour::Quiet,
    measured: false,
    heavy: false,
    bad: 0.0,
    launch_s: 0.06,
    cycles: None,
    swing: 0.3,
};
pub const ROUGH: World = World { name: "rough", launch_sd: 0.034, slice_sd: 0.08, ..CALM };
pub const fn beside(name: &'static str, neighbour: Neighbour) -> World {
    World { name, neighbour, launch_sd: 0.02, ..ROUGH }
}
pub const WORLDS: [World; 15] = [
    World { name: "even", launch_sd: 0.003, ..CALM },
    CALM,
    World { name: "between", launch_sd: 0.02, slice_sd: 0.05, ..CALM },
    ROUGH,
    World { name: "wild", launch_sd: 0.12, ..ROUGH },
    World { name: "calm, heavy tails", heavy: true, ..CALM },
    World { name: "rough, heavy tails", heavy: true, ..ROUGH },
    World { name: "calm, one bad launch in 15", bad: 1.0 / 15.0, ..CALM },
    World { name: "calm, launches of 3 s", launch_s: 3.0, ..CALM },
    World { name: "rough, launches of 3 s", launch_s: 3.0, ..ROUGH },
    World { name: "calm, two cycles", cycles: Some(2), ..CALM },
    beside("neighbour in the first 7 rounds", Neighbour::Start),
    beside("neighbour in 3 rounds of 10", Neighbour::Bursts),
    beside("neighbour in 3 slices of 10", Neighbour::Switching),
    World {
        measured: true,
        ..beside("neighbour in 3 slices of 10, measured", Neighbour::Switching)
    },
];
pub fn normal(random: &mut Random) -> f64 {
    let angle = std::f64::consts::TAU * random.uniform();
    (2.0 * random.exponential()).sqrt() * angle.cos()
}

/// A launch's effect on the logarithm of its server's throughput.
fn launch(world: World, random: &mut Random) -> f64 {
    let mut own = world.launch_sd * normal(random);
    if world.heavy {
        let squares: f64 = (0..3).map(|_| normal(random).powi(2)).sum();
        own /= (squares / 3.0).sqrt() * 3f64.sqrt();
    }
    own - if random.chance(world.bad) { 0.2 } else { 0.0 }
}

/// Simulates a round. Each variant has a share here, by which its requests cost more than the
/// baseline's.
pub fn simulate_round(
    world: World,
    costs: &[f64],
    index: u32,
    cycles: u32,
    random: &mut Random,
) -> Round {
    let launches: Vec<f64> = costs.iter().map(|_| launch(world, random)).collect();
    let burst = random.chance(0.3);
    let mut slices = Vec::new();
    for cycle in 0..cycles {
        let phase = f64::from(index * 10 + cycle) / 40.0;
        let weather = world.swing * phase.sin();
        for (variant, cost) in (0..).zip(costs) {
            let is_wild = match world.neighbour {
                Neighbour::Quiet => false,
                Neighbour::Start => index < WILD_ROUNDS,
                Neighbour::Bursts => burst,
                Neighbour::Switching => random.chance(0.3),
                Neighbour::OneVariant => variant == 1,
            };
            let slice_sd = if is_wild { WILD } else { world.slice_sd };
            let mut log = weather + launches[variant as usize] + slice_sd * normal(random);
            if random.chance(OUTLIERS) {
                log -= 0.3 + random.exponential() * 0.5;
            }
            log -= (1.0 + cost).ln();
            // The scale is fine, so that counting adds no noise of its own.
            let good = (1e9 * log.exp()) as u64;
            let counts = Counts { window_ns: 20_000_000, good, ..Counts::default() };
            let waited_ns = if is_wild { 10_000_000 } else { random.below(100_000) };
            let used = Counters::default().with(Counter::Waited, waited_ns);
            let used = world.measured.then(|| used.into());
            slices.push(Slice { variant, cycle, counts, used, ..Slice::default() });
        }
    }
    let elapsed_ns = (seconds(world, cycles) * 1e9) as u64;
    Round { index, cycles, slices, elapsed_ns, ..Round::default() }
}

/// Duration of a round.
pub fn seconds(world: World, cycles: u32) -> f64 {
    world.launch_s + f64::from(cycles) * CYCLE_S
}

/// Time of a 20 ms slice on both variants, with overhead.
const CYCLE_S: f64 = 0.05;

pub struct NoRules;

impl Rules for NoRules {
    fn replies_differ(&self, _: &PlanParts, _: &[RoundDigest]) -> bool {
        false
    }

    fn forbid_all(&self, _: &PlanParts, _: &[RoundDigest]) -> bool {
        false
    }

    fn want_sustained(&self, _: &PlanParts, _: &[RoundDigest]) -> bool {
        false
    }
}

pub fn runs() -> u64 {
    std::env::var("TARE_SIMULATED_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(300)
}

/// Three standard errors of a share in this many runs: how much chance alone may change it.
pub fn slack(share: f64, runs: u64) -> f64 {
    3.0 * (share * (1.0 - share) / runs as f64).sqrt()
}
