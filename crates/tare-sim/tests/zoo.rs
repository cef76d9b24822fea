//! The simulated zoo: servers with a cost that depends on when they are asked, measured by the
//! method on a simulated CPU. No run may end with a wrong verdict, or an interval that misses the
//! truth, without the guard that explains it. The animals are those of `bench/zoo`, which tests the
//! program in the same way.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

use serde::Deserialize;
use tare_guards::Rulebook;
use tare_io::DurationNs;
use tare_model::Metric;
use tare_model::load::Load;
use tare_model::plan::{PlanParts, Slices, Stop};
use tare_model::samples::{Launch, Probe, Round};
use tare_model::servers::{ServerSpec, TargetSpec};
use tare_model::sustained::{Sustained, WarmUp};
use tare_model::variant::Variant;
use tare_report::run::RunReport;
use tare_report::run::from_rounds::{RunFacts, build};
use tare_sim::lab::{Kind, Lab, Noise, Odd};
use tare_stats::design::{CellHistory, Design, History, RoundOrder, SurveyOrder};
use tare_stats::designs::ComparisonDesign;
use tare_stats::slicing::SliceShape;
use tare_stats::surveys::{SurveyState, Surveys};
use tare_stats::{RoundDigest, Severity, Verdict, add_round};
use tare_target::effort::Habit;

const BASE: DurationNs = DurationNs::from_us(20);
const CONNECTIONS: u64 = 20;
const TOLERANCE: f64 = 0.02;
/// The shape of slices when replies are quick.
const SHAPE: SliceShape = SliceShape {
    length: DurationNs::from_ms(20),
    ramp: DurationNs::from_ms(2),
    warmup: DurationNs::from_ms(20),
    requests: None,
};

#[derive(Deserialize)]
struct Animal {
    name: String,
    a: String,
    b: String,
    truth: Option<Truth>,
    guards: Vec<String>,
    must_guard: bool,
    /// Whether at least one of its runs must have a verdict, even if guards fire.
    #[serde(default)]
    decides: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Truth {
    More {
        more_us: f64,
        #[serde(default)]
        base_us: f64,
        one_in: Option<f64>,
    },
    Away {
        away_ms: f64,
        every_ms: f64,
        burns: bool,
    },
    Periodic {
        every_ms: f64,
        slow_ms: f64,
        slow_us: f64,
    },
}

impl Truth {
    /// Returns the overhead in throughput, and in CPU time per request.
    fn percent(&self) -> [f64; 2] {
        let own = BASE.as_ns() as f64 / 1000.0;
        match *self {
            Self::More { more_us, base_us, one_in } => {
                let log = (more_us / (own + base_us)).ln_1p() / one_in.unwrap_or(1.0);
                [(1.0 - (-log).exp()) * 100.0, log.exp_m1() * 100.0]
            }
            Self::Away { away_ms, every_ms, burns } => {
                let cpu = if burns { away_ms / (every_ms - away_ms) * 100.0 } else { 0.0 };
                [away_ms / every_ms * 100.0, cpu]
            }
            Self::Periodic { every_ms, slow_ms, slow_us } => {
                let replies = slow_ms / (own + slow_us) + (every_ms - slow_ms) / own;
                let share = replies * own / every_ms;
                [(1.0 - share) * 100.0, (1.0 / share - 1.0) * 100.0]
            }
        }
    }
}

/// Parses flags of `tare target`; `None` for a server that is not simulated here.
fn kind(flags: &str) -> Option<Kind> {
    let mut kind = Kind { base: BASE, habits: Vec::new(), odd: Odd::None };
    let words: Vec<&str> = flags.split_whitespace().collect();
    for pair in words.chunks(2) {
        let (name, value) = (pair[0].trim_start_matches("--"), pair[1]);
        match name {
            "busy" => kind.base = DurationNs::parse(value).unwrap(),
            "odd-rate" => kind.odd = Odd::Rate(value.parse().unwrap()),
            "odd-connections" => kind.odd = Odd::Connections(value.parse().unwrap()),
            "change-after" => kind.odd = Odd::After(value.parse().unwrap()),
            // A stall delays replies without using CPU time, which is not simulated here.
            "stall" | "every" => return None,
            _ => kind.habits.push(Habit::parse(name, value).unwrap()),
        }
    }
    Some(kind)
}

fn facts() -> RunFacts {
    let target = ServerSpec::Target(TargetSpec::default());
    let variant = |name: &str, baseline| Variant {
        baseline,
        ..Variant::new(name, "http://127.0.0.1:{port}/", target.clone())
    };
    let connections = CONNECTIONS as u32;
    let plan = PlanParts {
        name: "simulated".into(),
        seed: 0,
        load: Load { connections, ..Load::default() },
        stop: Stop {
            precision: TOLERANCE,
            of_effect: 0.1,
            tolerance: TOLERANCE,
            max_time: DurationNs::from_secs(120),
            metrics: vec![Metric::Throughput],
            rounds: None,
            lost_rounds: 0,
        },
        slices: Slices::default(),
        load_cpus: Vec::new(),
        server_cpus: Vec::new(),
        variants: vec![variant("a", true), variant("b", false)],
        skipped: Vec::new(),
        cell: Default::default(),
        check: None,
    };
    RunFacts {
        id: 0,
        tare_version: String::new(),
        started_unix_ms: 0,
        command: String::new(),
        stopped_by: String::new(),
        machine: serde_json::Value::Null,
        plan,
        found: None,
        lost: (0, None),
    }
}

/// A run, as `tare compare a b` makes it.
struct Run {
    kinds: [Kind; 2],
    noise: Noise,
    seed: u64,
    facts: RunFacts,
    surveys: Surveys,
    digests: Vec<RoundDigest>,
}

impl Run {
    fn new(kinds: [Kind; 2], noise: Noise, seed: u64) -> Self {
        let (surveys, digests) = (Surveys::default(), Vec::new());
        Self { kinds, noise, seed, facts: facts(), surveys, digests }
    }

    fn report(mut self) -> RunReport {
        let plan = self.facts.plan.clone();
        let mut design = ComparisonDesign::new(&plan, &Rulebook, 0);
        let mut spent_ns = 0;
        loop {
            let warm = self.surveys.slowest_ns().map(|_| self.surveys.warm());
            let (rounds, warm) = (&self.digests[..], warm.as_deref());
            let cell = CellHistory { rounds, shape: Some(SHAPE), warm, is_over: false };
            let left = DurationNs::from_ns(plan.stop.max_time.as_ns().saturating_sub(spent_ns));
            let history = History { cells: vec![cell], surveys: &self.surveys, left };
            let Some(order) = design.next(&history) else { break };
            let round = self.round(order);
            spent_ns += round.elapsed_ns;
            add_round(&mut self.digests, &round, 2, 0);
        }
        build(&self.facts, &self.digests)
    }

    fn round(&mut self, order: RoundOrder) -> Round {
        let index = self.digests.len() as u32;
        let mut lab = Lab::new(&self.kinds, self.noise, CONNECTIONS, self.seed, index);
        let mut cell = order.cells.into_iter().next().unwrap();
        let at_rest = order.watches_rest.then(|| lab.watch_rest());
        let mut sustained: Vec<Option<Sustained>> = vec![None, None];
        let mut given = vec![WarmUp::default(); 2];
        let mut standing = vec![SurveyState::default(); 2];
        if let Some(SurveyOrder { limits, first }) = order.survey {
            let mut next = Some(first.as_ns());
            let mut seen: Vec<Sustained> = Vec::new();
            while let Some(ns) = next {
                let more = lab.together(DurationNs::from_ns(ns), true);
                match seen.is_empty() {
                    true => seen = more,
                    false => seen.iter_mut().zip(more).for_each(|(s, m)| s.bins.extend(m.bins)),
                }
                next = self.surveys.further(&seen.iter().collect::<Vec<_>>(), &limits);
            }
            for (given, seen) in given.iter_mut().zip(&seen) {
                given.ns = seen.bins.iter().map(|bin| bin.ns).sum();
                given.requests = seen.bins.iter().map(|bin| bin.answered).sum();
            }
            standing = self.surveys.add(&seen.iter().collect::<Vec<_>>(), &limits);
            sustained = seen.into_iter().map(Some).collect();
            cell.use_launches(self.surveys.slowest_ns().unwrap_or(0));
        }
        let is_surveyed = sustained[0].is_some();
        let warm = self.surveys.warm();
        let mut round = lab.measure(index, cell.cycles, &warm, &given, &sustained);
        if let Some(check) = cell.sustained.filter(|_| !is_surveyed) {
            sustained = lab.together(check.length, false).into_iter().map(Some).collect();
        }
        let seen = sustained.into_iter().zip(standing);
        for (launch, (sustained, SurveyState { is_moving, behind })) in
            round.launches.iter_mut().zip(seen)
        {
            launch.load.sustained = sustained;
            (launch.load.not_warm, launch.load.behind) = (is_moving, behind);
            launch.load.at_rest = at_rest.as_ref().map(|all| all[launch.variant as usize]);
            probed(launch);
        }
        round
    }
}

fn probed(launch: &mut Launch) {
    launch.probe = Some(Probe {
        status: 200,
        body_bytes: 612,
        body_sha256: "same".into(),
        body_stable: true,
        connection_kept: true,
        ..Probe::default()
    });
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    Right,
    Guarded,
    Wrong,
}

/// Classifies a report as `bench/zoo` does.
fn judge(animal: &Animal, report: &RunReport) -> (Outcome, String) {
    let expected = |code: &str| animal.guards.iter().any(|guard| guard == code);
    let guards: Vec<&str> = report.guards.iter().map(|guard| guard.code.word()).collect();
    let spoke = guards.iter().any(|code| expected(code));
    // A verdict is open if sustained load could not confirm it and nothing else voids it.
    let voids = report.guards.iter().filter(|guard| guard.severity == Severity::Void);
    let is_open = |word: &str| word == "unconfirmed" || expected(word);
    let is_open = voids.map(|guard| guard.code.word()).all(is_open);
    let or_wrong = if spoke { Outcome::Guarded } else { Outcome::Wrong };
    let mut outcome = if animal.must_guard { or_wrong } else { Outcome::Right };
    let mut words = format!("guards {guards:?}");
    let truths = animal.truth.as_ref().map(Truth::percent);
    for (at, metric) in [Metric::Throughput, Metric::ServerCpu].into_iter().enumerate() {
        let Some(comparison) = report.comparisons.iter().find(|c| c.metric == metric) else {
            outcome = outcome.max(or_wrong);
            continue;
        };
        let bounds = &comparison.overhead_percent;
        let verdict = comparison.verdict;
        let truth = truths.map(|truths| truths[at]);
        words += &format!(
            "; {} {} {:.2} to {:.2}, truth {truth:.2?}",
            metric.key(),
            verdict.word(),
            bounds.lower,
            bounds.upper
        );
        let Some(truth) = truth else { continue };
        let slack = TOLERANCE * 10.0;
        let misses = truth < bounds.lower - slack || truth > bounds.upper + slack;
        let lies = match verdict {
            Verdict::Slower => truth < -slack,
            Verdict::Faster => truth > slack,
            Verdict::Same => truth.abs() > TOLERANCE * 100.0 + slack,
            _ => false,
        };
        if verdict == Verdict::Void && is_open {
            outcome = outcome.max(Outcome::Guarded);
        } else if verdict == Verdict::Void || misses || lies {
            outcome = outcome.max(or_wrong);
        }
    }
    (outcome, words)
}

/// Intervals of 95 % miss now and then without a fault of any guard.
const MISSES: f64 = 0.06;

/// Increase of the logarithm of a request's cost while a neighbour bursts.
const BURSTS: [f64; 2] = [0.0, 0.15];

#[test]
fn no_animal_is_believed_without_its_guard() {
    let runs: u64 =
        std::env::var("TARE_SIMULATED_ZOO").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let only = std::env::var("TARE_ANIMAL").unwrap_or_default();
    let animals: Vec<Animal> =
        serde_json::from_str(include_str!("../../../bench/zoo.json")).unwrap();
    assert!(animals.len() >= 20);
    let mut wrong = Vec::new();
    println!("| animal | bursts | right | guarded | wrong |\n|---|---:|---:|---:|---:|");
    let animals = animals.iter().filter(|animal| animal.name.contains(&only));
    for (animal, bursts) in animals.flat_map(|animal| BURSTS.map(|bursts| (animal, bursts))) {
        let (Some(a), Some(b)) = (kind(&animal.a), kind(&animal.b)) else {
            println!(
                "| {} | | not simulated: its replies wait, it does not work | | |",
                animal.name
            );
            continue;
        };
        let (mut outcomes, mut decided) = ([0u64; 3], false);
        let mut first = String::new();
        for seed in 0..runs {
            let noise = Noise { bursts, ..Noise::quiet(0.01, 0.04) };
            let run = Run::new([a.clone(), b.clone()], noise, seed);
            let report = run.report();
            let (outcome, words) = judge(animal, &report);
            outcomes[outcome as usize] += 1;
            let verdicts = report.comparisons.iter().filter(|c| c.asked).map(|c| c.verdict);
            decided |=
                verdicts.into_iter().any(|v| !matches!(v, Verdict::Void | Verdict::Unresolved));
            if outcome == Outcome::Wrong && first.is_empty() {
                first = format!("seed {seed}: {words}");
            }
        }
        let [right, guarded, bad] = outcomes;
        println!("| {} | {bursts} | {right} | {guarded} | {bad} |", animal.name);
        let allowed = MISSES * runs as f64 + 3.0 * (MISSES * runs as f64).sqrt();
        // The few runs of the default always have the same seeds.
        if bad as f64 > if runs < 20 { 0.0 } else { allowed } {
            wrong.push(format!("{}, bursts {bursts}: {bad} of {runs}; {first}", animal.name));
        } else if !decided && animal.decides {
            wrong.push(format!("{}, bursts {bursts}: no verdict in {runs}", animal.name));
        } else if !first.is_empty() {
            println!("  {first}");
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Both servers warm up in steps at 2, 6 and 15 s; one takes 10 µs more per request.
#[test]
fn servers_that_warm_in_steps_are_measured_warm_or_said_not_to_be() {
    let steps = "--warm-for 2s:20us --warm-for 6s:10us --warm-for 15s:5us";
    let run = |most_s: u64| {
        let kinds = [kind(steps).unwrap(), kind(&format!("--busy 30us {steps}")).unwrap()];
        let mut run = Run::new(kinds, Noise::quiet(0.01, 0.04), 7);
        run.facts.plan.slices.warmup_max = Some(DurationNs::from_secs(most_s));
        run.facts.plan.stop.rounds = Some(4);
        let report = run.report();
        let cpu = report.comparisons.iter().find(|c| c.metric == Metric::ServerCpu).unwrap();
        let bounds = &cpu.overhead_percent;
        let guard = report.guards.iter().find(|guard| guard.code == "not-warm");
        let warm_ns = report.variants[0].exposure.warm_after_ns;
        (bounds.lower <= 50.0 && 50.0 <= bounds.upper, guard.map(|g| g.text.clone()), warm_ns)
    };
    let (covers, guard, warm_ns) = run(20);
    assert!(covers && guard.is_none(), "{guard:?}");
    assert!(warm_ns.is_some_and(|ns| ns.abs_diff(15_000_000_000) < 300_000_000), "{warm_ns:?}");
    let (_, guard, _) = run(7);
    let text = guard.expect("a warm-up of 7 s ends too early");
    assert!(text.contains("its cost was still falling"), "{text}");
}

/// A supervisor's heartbeat costs the same whatever is requested; deferred work does not.
#[test]
fn a_heartbeat_is_no_work_put_off() {
    let run = |b: &str| {
        let kinds = [kind("").unwrap(), kind(b).unwrap()];
        let mut run = Run::new(kinds, Noise::quiet(0.01, 0.04), 11);
        run.facts.plan.stop.rounds = Some(20);
        let report = run.report();
        report.guards.into_iter().find(|guard| guard.code == "deferred-work").map(|g| g.text)
    };
    assert_eq!(run("--pause-every 50ms:2500us"), None);
    let both = run("--pause-every 50ms:2500us --defer 4us:3ms");
    assert!(both.is_some_and(|text| text.contains("it deferred work")));
}

/// Identical servers with launches that differ by 2 %: guards stay silent, and the interval of
/// sustained load covers the truth.
#[test]
fn guards_do_not_cry_wolf_and_sustained_load_covers() {
    let runs: u64 =
        std::env::var("TARE_SIMULATED_ZOO").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let (mut alarms, mut unconfirmed, mut checked, mut covered) = (0, 0, 0, 0);
    for seed in 0..runs {
        let twin = kind("").unwrap();
        let noise = Noise::quiet(0.02, 0.08);
        let report = Run::new([twin.clone(), twin], noise, 1000 + seed).report();
        let spoke = |code: &str| report.guards.iter().any(|guard| guard.code == code);
        alarms += u64::from(["not-steady", "deferred-work", "not-warm"].into_iter().any(spoke));
        unconfirmed += u64::from(spoke("unconfirmed"));
        let found =
            report.comparisons.iter().filter(|c| c.asked).find_map(|c| c.sustained.as_ref());
        let Some(found) = found else { continue };
        checked += 1;
        covered += u64::from(found.ratio.covers(1.0));
    }
    println!(
        "{runs} runs: {alarms} alarms, {unconfirmed} unconfirmed, {covered} of {checked} covered"
    );
    let most = |share: f64| (share * runs as f64 + 3.0 * (share * runs as f64).sqrt()) as u64;
    assert!(alarms <= most(0.01) && unconfirmed <= most(0.05), "{alarms} {unconfirmed}");
    assert_eq!(checked, runs);
    assert!(covered + most(0.05) >= checked, "{covered} of {checked}");
}
