//! The runner on fake servers, under simulated time.

mod capacity;
mod fake;

use std::rc::Rc;

use tare_io::DurationNs;
use tare_model::Metric;
use tare_model::check::{Check, CheckLimit};
use tare_model::cold::Cold;
use tare_model::load::{Idle, Load};
use tare_model::plan::{Plan, PlanParts, ReconnectEach, Slices, Stop};
use tare_model::samples::Launch;
use tare_model::servers::{CommandSpec, ServerSpec};
use tare_model::variant::Variant;
use tare_stats::design::Design;
use tare_stats::stopping::Limit;
use tare_stats::{Question, RoundDigest, Verdict, analyse};
use tare_store::{Entry, RunId};

use crate::cell::Cell;
use crate::outcome::Stopped;
use crate::runner::{RunServices, Runner, Start};
use fake::{FakeLab, FakeWorld, InjectedFault, Logger, Phase, Planned, Server};
use tare_model::{Failure, Fault};

/// Returns a plan with two variants, rounds of two cycles and no sustained load.
fn short(rounds: u32) -> PlanParts {
    let variant = |name: &str, baseline: bool| Variant {
        baseline,
        ..Variant::new(name, "http://127.0.0.1:{port}/", command())
    };
    PlanParts {
        name: "test".into(),
        seed: 7,
        load: Load { connections: 1, ..Load::default() },
        stop: Stop {
            precision: 0.02,
            of_effect: 0.0,
            tolerance: 0.02,
            max_time: DurationNs::from_secs(120),
            metrics: vec![Metric::Throughput],
            rounds: Some(rounds),
            lost_rounds: 0,
        },
        slices: Slices {
            cycles: Some(2),
            window: Some(DurationNs::from_ms(20)),
            warmup: Some(DurationNs::from_ms(20)),
            no_sustained: true,
            ..Slices::default()
        },
        load_cpus: Vec::new(),
        server_cpus: vec![0],
        variants: vec![variant("a", true), variant("b", false)],
        skipped: Vec::new(),
        cell: Default::default(),
        check: None,
    }
}

/// The plan with only a precision set by the user.
fn by_default() -> PlanParts {
    let mut parts = short(1);
    parts.stop.rounds = None;
    parts.slices = Slices::default();
    parts
}

fn command() -> ServerSpec {
    ServerSpec::Command(CommandSpec {
        command: "serve {port}".into(),
        argv: Vec::new(),
        env: Default::default(),
        ready_within_ms: 5000,
        access_log: None,
    })
}

fn two() -> Vec<Server> {
    vec![Server::new("a", 20_000.0), Server::new("b", 20_000.0)]
}

fn plans(all: &[PlanParts]) -> Vec<Plan> {
    all.iter().map(|parts| Plan::try_from(parts.clone()).unwrap()).collect()
}

/// Runs these cells on the same launches.
fn run(world: &Rc<FakeWorld>, cells: &[PlanParts], start: Start) -> Vec<Stopped> {
    run_after(world, cells, start, Vec::new())
}

fn run_after(
    world: &Rc<FakeWorld>,
    cells: &[PlanParts],
    start: Start,
    digests: Vec<RoundDigest>,
) -> Vec<Stopped> {
    run_by(None, world, cells, start, digests)
}

/// Runs these cells by a test's own design, or else by the design of comparisons.
fn run_by(
    design: Option<Box<dyn Design>>,
    world: &Rc<FakeWorld>,
    cells: &[PlanParts],
    start: Start,
    digests: Vec<RoundDigest>,
) -> Vec<Stopped> {
    let plans = plans(cells);
    let cells = plans.iter().enumerate();
    let cells =
        cells.map(|(at, plan)| Cell::new(plan, RunId(at as i64 + 1), None, digests.clone()));
    let mut logger = Logger(world.clone());
    let services = RunServices {
        record: world.as_ref(),
        clock: world.as_ref(),
        observer: &mut logger,
        halt: world.halt(&plans[0].stop),
        allows_void: world.allows_void.get(),
        limits: world.limits.borrow().clone(),
    };
    let (cells, lab) = (cells.collect(), FakeLab(world.clone()));
    let runner = match design {
        Some(design) => Runner::by_design(design, cells, lab, services),
        None => Runner::new(cells, lab, services),
    };
    let stopped = runner.unwrap().run(start);
    assert_eq!(world.up(), Vec::<&str>::new(), "servers outlive the run");
    assert!(world.orphan_checks.get() > 0, "nobody looked for orphans");
    stopped
}

fn logged(world: &FakeWorld) -> Vec<String> {
    world.log.borrow().clone()
}

/// Returns what each launch used before any load, in percent of a CPU, by round and variant.
fn at_rest(world: &FakeWorld) -> Vec<Vec<Option<u64>>> {
    let entries = world.entries.borrow();
    let rounds = entries.iter().filter_map(|(_, entry)| match entry {
        Entry::RoundEnded { launches, .. } => Some(launches),
        _ => None,
    });
    let percent = |launch: &Launch| launch.load.at_rest.map(|rest| rest.cpu_ns * 100 / rest.ns);
    rounds.map(|launches| launches.iter().map(percent).collect()).collect()
}

#[test]
fn what_a_server_uses_at_rest_is_watched_where_it_matters() {
    let world = FakeWorld::new(two());
    run(&world, &[short(3)], Start::default());
    assert_eq!(at_rest(&world), vec![vec![None, None]; 3]);
    let world = FakeWorld::new(two());
    world.servers[1].at_rest.set(0.05);
    run(&world, &[short(3)], Start::default());
    let watched = vec![Some(0), Some(5)];
    assert_eq!(at_rest(&world), [vec![None, None], watched.clone(), watched]);
}

/// Returns the numbers of the rounds that a run began.
fn rounds_of(world: &FakeWorld, run: i64) -> Vec<u32> {
    let entries = world.entries.borrow();
    let began = entries.iter().filter_map(|(of, entry)| match entry {
        Entry::RoundBegan { number, .. } if of.0 == run => Some(*number),
        _ => None,
    });
    began.collect()
}

fn slices_of(world: &FakeWorld, run: i64) -> usize {
    let entries = world.entries.borrow();
    let is_slice = |entry: &Entry| matches!(entry, Entry::Slice { .. });
    entries.iter().filter(|(of, entry)| of.0 == run && is_slice(entry)).count()
}

#[test]
fn a_round_launches_measures_and_stops_in_the_order_of_its_seed() {
    let world = FakeWorld::new(two());
    assert_eq!(run(&world, &[short(1)], Start::default()), [Stopped::Rounds]);
    let launches = crate::schedule::launches(7, 0, 2);
    let name = |at: usize| ["a", "b"][launches[at].0];
    let mut expected = vec!["round 0".to_owned()];
    expected.extend([0, 1].map(|at| format!("launch {}", name(at))));
    expected.extend([0, 1].map(|at| format!("{} is up", name(at))));
    for (cycle, order) in crate::schedule::orders(7, "slice order", 0, 2, 2).into_iter().enumerate()
    {
        let slices = order.into_iter().map(|at| format!("cell 0, cycle {cycle}: {}", name(at.0)));
        expected.extend(slices);
    }
    expected.extend([0, 1].map(|at| format!("stop {}", name(at))));
    expected.extend(["1 rounds known", "end", "run 1 ended: rounds", "close"].map(str::to_owned));
    assert_eq!(logged(&world), expected);
}

#[test]
fn launches_are_proven_by_what_their_lanes_sent() {
    for (reconnect_each, opened) in [(None, 1), (Some(ReconnectEach::Slice), 2)] {
        let world = FakeWorld::new(two());
        let mut parts = short(2);
        parts.slices.reconnect_each = reconnect_each;
        run(&world, &[parts], Start::default());
        // Two launches of two variants open connections once each, or once for each of two cycles.
        assert_eq!(world.opened.get(), 2 * 2 * opened);
        let mut launches = 0;
        for (_, entry) in world.entries.borrow().iter() {
            let Entry::RoundEnded { launches: ended, .. } = entry else { continue };
            for launch in ended {
                // A warm-up, two slices and a ramp, at 20,000 requests per second.
                assert!(launch.requests_sent > 1200, "{launch:?}");
                assert_eq!(launch.proofs[0].text, launch.requests_sent.to_string());
                assert_eq!(launch.load.favoured.unwrap().share(), 1.0);
                launches += 1;
            }
        }
        assert_eq!(launches, 4);
    }
}

/// Any load before the first slice would have warmed the server.
#[test]
fn where_cold_servers_are_asked_a_launch_gets_its_first_load_and_no_more() {
    let ms = DurationNs::from_ms;
    for (cold, requests, window) in
        [(Cold::Requests(400), 400, ms(20)), (Cold::For(ms(30)), 600, ms(30))]
    {
        let world = FakeWorld::new(two());
        let mut parts = short(3);
        let (cycles, no_sustained) = (None, false);
        parts.slices = Slices { cold: Some(cold), cycles, no_sustained, ..Slices::default() };
        assert_eq!(run(&world, &[parts], Start::default()), [Stopped::Rounds]);
        assert_eq!(slices_of(&world, 1), 3 * 2, "one of each launch");
        assert!(!logged(&world).contains(&"sustained".to_owned()));
        for (_, entry) in world.entries.borrow().iter() {
            if let Entry::RoundEnded { launches, .. } = entry {
                let sent: Vec<u64> = launches.iter().map(|launch| launch.requests_sent).collect();
                assert_eq!(sent, [requests, requests], "{cold}");
            }
            if let Entry::Slice { slice, .. } = entry {
                let seen = (slice.counts.started, slice.counts.window_ns);
                assert_eq!(seen, (requests, window.as_ns()), "{cold}");
            }
        }
    }
}

#[test]
fn a_seed_gives_the_same_order_again_and_another_seed_another() {
    let of_seed = |seed: u64| {
        let world = FakeWorld::new(two());
        run(&world, &[PlanParts { seed, ..short(6) }], Start::default());
        logged(&world)
    };
    assert_eq!(of_seed(7), of_seed(7));
    assert_ne!(of_seed(7), of_seed(8));
}

#[test]
fn exclusive_variants_are_never_up_together() {
    let world = FakeWorld::new(two());
    let mut parts = short(2);
    parts.variants[1].exclusive = true;
    run(&world, &[parts], Start::default());
    let log = logged(&world);
    let changes = log.iter().filter(|text| text.starts_with("launch") || text.starts_with("stop"));
    let changes: Vec<&str> = changes.map(|text| text.split(' ').next().unwrap()).collect();
    // Each has trials once, before the two rounds.
    assert_eq!(changes.len(), 2 * 2 * 3, "{log:?}");
    assert!(changes.chunks(2).all(|pair| pair == ["launch", "stop"]), "{log:?}");
}

#[test]
fn a_start_is_timed_from_nothing_and_alone() {
    let world = FakeWorld::new(two());
    let mut parts = short(2);
    parts.stop.metrics = vec![Metric::Startup];
    run(&world, &[parts], Start::default());
    let log = logged(&world);
    let changes = log.iter().filter_map(|text| text.split(' ').next());
    let changes: Vec<&str> = changes.filter(|w| ["make", "launch", "stop"].contains(w)).collect();
    assert!(changes.chunks(3).all(|each| each == ["make", "launch", "stop"]), "{log:?}");
    let entries = world.entries.borrow();
    let launches = entries.iter().filter_map(|(_, entry)| match entry {
        Entry::RoundEnded { launches, .. } => Some(launches),
        _ => None,
    });
    for launch in launches.flatten() {
        // Ending the old place took 3 s, starting the new one 50 ms; only the latter counts.
        let place_ns = launch.startup_ns.unwrap() - launch.ready_ns;
        assert_eq!(place_ns, 50_000_000, "{launch:?}");
    }
}

#[test]
fn whatever_fails_ends_the_run_and_leaves_nothing_behind() {
    for phase in [Phase::Launch, Phase::Listen, Phase::Ask, Phase::Slice, Phase::Sustained] {
        let world = FakeWorld::new(two());
        let planned = Planned { phase, variant: 1, nth: 1, fault: InjectedFault::Fail };
        world.faults.borrow_mut().push(planned);
        let stopped = run(&world, &[by_default()], Start::default());
        let expected = format!("b: {phase:?} failed");
        let failed = matches!(&stopped[..], [Stopped::Failed(why)] if why.to_string() == expected);
        assert!(failed, "{phase:?}: {stopped:?}");
        let log = logged(&world);
        assert_eq!(log[log.len() - 2..], ["run 1 ended: failed", "close"], "{phase:?}");
    }
}

#[test]
fn as_many_rounds_as_were_allowed_are_lost_and_one_more_ends_the_run() {
    // Each variant enters the phase `Listen` once per round.
    let die =
        |nth: u32| Planned { phase: Phase::Listen, variant: 1, nth, fault: InjectedFault::Die };
    let lost = |faults: &[u32], parts: PlanParts| {
        let world = FakeWorld::new(two());
        world.faults.borrow_mut().extend(faults.iter().copied().map(die));
        let stopped = run(&world, &[parts], Start::default());
        let entries = world.entries.borrow();
        let lost = entries.iter().filter_map(|(_, entry)| match entry {
            Entry::RoundLost { number, why, .. } => Some((*number, why.clone())),
            _ => None,
        });
        let ended = entries.iter().filter(|(_, entry)| matches!(entry, Entry::RoundEnded { .. }));
        (stopped, lost.collect::<Vec<_>>(), ended.count())
    };
    let why = "b: ended before it was ready (last error: connection refused)".to_owned();
    let mut parts = short(4);
    parts.stop.lost_rounds = 1;
    let (stopped, rounds, ended) = lost(&[2], parts.clone());
    assert_eq!(stopped, [Stopped::Rounds]);
    assert_eq!((rounds, ended), (vec![(1, why.clone())], 4));
    let (stopped, rounds, ended) = lost(&[2, 3], parts.clone());
    // No more rounds may be lost, so the end of the server itself is reported.
    let last = Failure::environment("b: ended before it was ready");
    assert_eq!(stopped, [Stopped::Failed(last)]);
    assert_eq!((rounds, ended), (vec![(1, why)], 1));
    // A failure before anything was measured is taken for a mistake and ends the run.
    let (stopped, rounds, _) = lost(&[1], parts);
    let first = Failure::environment("b: ended before it was ready");
    assert_eq!((stopped, rounds), (vec![Stopped::Failed(first)], vec![]));
}

#[test]
fn a_server_that_dies_is_named_whenever_that_is() {
    // Listening and probing happen once per round, so their second time is in the second round.
    let phases = [
        (Phase::Listen, 1, "ended before it was ready"),
        (Phase::Listen, 2, "ended before it was ready"),
        (Phase::Ask, 2, "ended before it was ready"),
        (Phase::Slice, 2, "the server ended under load, after "),
        (Phase::Slice, 3, "the server ended under load, after "),
        (Phase::Sustained, 1, "the server ended "),
    ];
    for (phase, nth, expected) in phases {
        for dying in [&[0][..], &[1], &[0, 1]] {
            let world = FakeWorld::new(two());
            let die = |variant: &usize| Planned {
                phase,
                variant: *variant,
                nth,
                fault: InjectedFault::Die,
            };
            world.faults.borrow_mut().extend(dying.iter().map(die));
            let parts = if phase == Phase::Sustained { by_default() } else { short(4) };
            let stopped = run(&world, &[parts], Start::default());
            let [Stopped::Failed(why)] = &stopped[..] else { panic!("{phase:?}: {stopped:?}") };
            let why = why.to_string();
            let named = dying.iter().any(|at| why.starts_with(["a: ", "b: "][*at]));
            assert!(named && why.contains(expected), "{phase:?} {nth} {dying:?}: {why}");
            if phase == Phase::Slice {
                assert!(why.ends_with(" requests (exit status: 9)"), "{why}");
            }
        }
    }
}

#[test]
fn an_interrupt_in_any_phase_ends_the_run_at_once() {
    let all = [Phase::Launch, Phase::Listen, Phase::Ask, Phase::Slice, Phase::Stop];
    for phase in all {
        let world = FakeWorld::new(two());
        let planned = Planned { phase, variant: 0, nth: 2, fault: InjectedFault::Interrupt };
        world.faults.borrow_mut().push(planned);
        assert_eq!(run(&world, &[short(4)], Start::default()), [Stopped::Interrupted]);
        let log = logged(&world);
        assert_eq!(log[log.len() - 2..], ["run 1 ended: interrupted", "close"], "{phase:?}");
        assert!(rounds_of(&world, 1).len() <= 2, "{phase:?}: it went on");
    }
}

#[test]
fn an_interrupt_under_sustained_load_is_no_failure() {
    let world = FakeWorld::new(two());
    let planned =
        Planned { phase: Phase::Sustained, variant: 1, nth: 1, fault: InjectedFault::Interrupt };
    world.faults.borrow_mut().push(planned);
    assert_eq!(run(&world, &[by_default()], Start::default()), [Stopped::Interrupted]);
    assert_eq!(slices_of(&world, 1), 0);
}

#[test]
fn a_resumed_run_goes_on_with_the_next_round_and_the_time_that_is_left() {
    let world = FakeWorld::new(two());
    let mut parts = short(9);
    parts.stop.rounds = None;
    parts.stop.precision = 1e-9;
    parts.stop.max_time = DurationNs::from_secs(60);
    world.spent.set(DurationNs::from_secs(57));
    let start = Start { next_round: 4 };
    assert_eq!(run(&world, &[parts], start), [Stopped::MaxTime]);
    assert_eq!(rounds_of(&world, 1).first(), Some(&4));
    let took = world.elapsed().as_secs_f64();
    assert!((2.8..=3.0).contains(&took), "{took} s");
}

#[test]
fn rounds_of_before_count_when_a_run_is_resumed() {
    let digests: Vec<RoundDigest> = {
        let world = FakeWorld::new(two());
        run(&world, &[short(4)], Start::default());
        digests_in(&world)
    };
    assert_eq!(digests.len(), 4);
    let world = FakeWorld::new(two());
    let start = Start { next_round: 4 };
    assert_eq!(run_after(&world, &[short(6)], start, digests), [Stopped::Rounds]);
    assert_eq!(rounds_of(&world, 1), [4, 5]);
}

/// Digests the rounds in the world's entries.
fn digests_in(world: &FakeWorld) -> Vec<RoundDigest> {
    let mut rounds: Vec<tare_model::samples::Round> = Vec::new();
    for (_, entry) in world.entries.borrow().iter() {
        match entry {
            Entry::RoundBegan { number, cycles, .. } => {
                let (index, cycles) = (*number, *cycles);
                rounds.push(tare_model::samples::Round { index, cycles, ..Default::default() });
            }
            Entry::Slice { slice, .. } => {
                let round = rounds.last_mut().unwrap();
                let is_planned = slice.cycle < round.cycles;
                let to = if is_planned { &mut round.slices } else { &mut round.by_sleepers };
                to.push(slice.as_ref().clone());
            }
            Entry::RoundEnded { elapsed_ns, launches, .. } => {
                let round = rounds.last_mut().unwrap();
                (round.elapsed_ns, round.launches) = (*elapsed_ns, launches.clone());
            }
            _ => {}
        }
    }
    tare_stats::digests(&rounds, 2, 0)
}

#[test]
fn some_cycles_are_made_by_clients_that_sleep_if_the_others_poll() {
    let by = |polls: bool, idle: Option<Idle>| {
        let world = FakeWorld::new(two());
        world.polls.set(polls);
        world.servers[1].waking.set(0.8);
        let mut parts = short(6);
        (parts.slices.cycles, parts.load.client.idle) = (Some(10), idle);
        run(&world, &[parts], Start::default());
        world
    };
    for (polls, idle) in [(false, None), (true, Some(Idle::Poll))] {
        assert_eq!(slices_of(&by(polls, idle), 1), 6 * 20, "{polls} {idle:?}");
    }
    let world = by(true, None);
    let digests = digests_in(&world);
    assert!(digests.iter().all(|digest| digest.cycles_by_sleepers == 2), "{digests:?}");
    let question = Question::from_plan(&short(6));
    let found = analyse(&digests, &question);
    let throughput = &found.comparisons[0];
    let slept = throughput.by_sleepers.unwrap();
    assert!((slept.ratio.point - 0.8).abs() < 0.001 && slept.differs, "{throughput:?}");
    assert!((throughput.ratio.point - 1.0).abs() < 0.001, "{throughput:?}");
    let stated = throughput.stated;
    assert!(stated.covers(1.0) && stated.covers(0.8), "{throughput:?}");
    assert_eq!(throughput.in_slices, Verdict::Same);
    assert_eq!(throughput.verdict, Verdict::Unresolved);
}

fn sweep() -> Vec<PlanParts> {
    let with = |connections: u32| {
        let mut parts = short(3);
        parts.load.connections = connections;
        parts.cell = [("connections".to_owned(), connections.to_string())].into();
        parts
    };
    vec![with(1), with(10)]
}

#[test]
fn cells_of_a_sweep_share_launches() {
    let world = FakeWorld::new(two());
    assert_eq!(run(&world, &sweep(), Start::default()), [Stopped::Rounds, Stopped::Rounds]);
    let launches = logged(&world).iter().filter(|text| text.starts_with("launch")).count();
    assert_eq!(launches, 2 * 3);
    for run in [1, 2] {
        assert_eq!((rounds_of(&world, run).len(), slices_of(&world, run)), (3, 3 * 2 * 2));
    }
}

/// A check of two loads, on servers with these rates; returns why it stopped, and its rounds.
fn check(per_s: [f64; 3], screen_s: u64) -> (Vec<Stopped>, [usize; 2]) {
    let names = ["base", "base again", "head"];
    let servers = names.into_iter().zip(per_s).map(|(name, per_s)| Server::new(name, per_s));
    let world = FakeWorld::new(servers.collect());
    let with = |connections: u32| {
        let mut parts = short(1);
        parts.stop.rounds = None;
        parts.load.connections = connections;
        parts.variants = names
            .map(|name| Variant {
                baseline: name == "base",
                ..Variant::new(name, "http://127.0.0.1:{port}/", command())
            })
            .to_vec();
        let limits = vec![CheckLimit { metric: Metric::Throughput, percent: 2.0 }];
        let (head, again) = ("head".into(), "base again".into());
        let screen = DurationNs::from_secs(screen_s);
        parts.check = Some(Check { head, again, limits, runs: 2, screen });
        parts
    };
    let stopped = run(&world, &[with(1), with(10)], Start::default());
    (stopped, [1, 2].map(|run| rounds_of(&world, run).len()))
}

#[test]
fn a_check_ends_with_its_limits_or_when_they_would_not_be_decided() {
    let (stopped, kept) = check([20_000.0; 3], 60);
    assert_eq!(stopped, [Stopped::Gates, Stopped::Gates]);
    let (stopped, exceeded) = check([20_000.0, 20_000.0, 15_000.0], 60);
    assert_eq!(stopped, [Stopped::Gates, Stopped::Gates]);
    assert!(exceeded[0] < kept[0] && exceeded[0] == exceeded[1], "{exceeded:?} and {kept:?}");
    // At the limit, nothing is decided.
    let (stopped, rounds) = check([20_000.0, 20_000.0, 19_600.0], 5);
    assert_eq!(stopped, [Stopped::Screen, Stopped::Screen], "{rounds:?}");
    let (stopped, _) = check([20_000.0, 20_000.0, 19_600.0], 500);
    assert_eq!(stopped, [Stopped::MaxTime, Stopped::MaxTime]);
}

#[test]
fn a_cell_that_fails_leaves_the_others_theirs() {
    let world = FakeWorld::new(two());
    // Each variant's first lane has a warm-up, two slices and a ramp.
    let planned = Planned { phase: Phase::Slice, variant: 0, nth: 5, fault: InjectedFault::Fail };
    world.faults.borrow_mut().push(planned);
    let stopped = run(&world, &sweep(), Start::default());
    let failed = stopped.iter().filter(|stopped| matches!(stopped, Stopped::Failed(_))).count();
    assert_eq!((failed, stopped.contains(&Stopped::Rounds)), (1, true), "{stopped:?}");
}

#[test]
fn the_time_limit_ends_a_run_that_does_not_become_precise() {
    let world = FakeWorld::new(two());
    let mut parts = by_default();
    parts.stop.precision = 1e-9;
    parts.stop.max_time = DurationNs::from_secs(30);
    assert_eq!(run(&world, &[parts], Start::default()), [Stopped::MaxTime]);
    let took = world.elapsed().as_secs_f64();
    assert!((29.0..=30.0).contains(&took), "{took} s: no round is begun that would be cut off");
}

fn hangs(phase: Phase, nth: u32) -> Rc<FakeWorld> {
    let world = FakeWorld::new(two());
    world.faults.borrow_mut().push(Planned { phase, variant: 1, nth, fault: InjectedFault::Hang });
    world
}

#[test]
fn a_reply_that_never_comes_ends_a_run_at_its_time_with_the_rounds_it_has() {
    for (phase, nth) in [(Phase::Slice, 10), (Phase::Listen, 3), (Phase::Ask, 3)] {
        let world = hangs(phase, nth);
        let mut parts = short(9);
        parts.stop.max_time = DurationNs::from_secs(20);
        assert_eq!(run(&world, &[parts], Start::default()), [Stopped::MaxTime], "{phase:?}");
        assert!(!digests_in(&world).is_empty(), "{phase:?}");
        let took = world.elapsed();
        // The slice that hangs still ends, and each stop takes 10 ms.
        assert!(took <= DurationNs::from_ms(20_050), "{phase:?}: {took}");
    }
}

#[test]
fn a_run_without_a_round_says_what_had_no_reply() {
    for (phase, what) in
        [(Phase::Slice, "b: 1 of 1401 requests had no reply"), (Phase::Ask, "b: not ready in time")]
    {
        let world = hangs(phase, 2);
        let mut parts = short(9);
        parts.stop.max_time = DurationNs::from_secs(20);
        if phase == Phase::Ask {
            world.faults.borrow_mut()[0].nth = 1;
        }
        let why = format!("no round was finished within --max-time 20s: {what}");
        let failed = Stopped::Failed(Failure::target(why));
        assert_eq!(run(&world, &[parts], Start::default()), [failed], "{phase:?}");
    }
}

#[test]
fn sustained_load_that_the_deadline_cuts_off_does_not_cost_its_round() {
    let world = hangs(Phase::Sustained, 1);
    let mut parts = short(9);
    parts.stop.max_time = DurationNs::from_secs(40);
    // The warm-up is given, so that the first sustained load is the check of the third round.
    parts.slices.no_sustained = false;
    assert_eq!(run(&world, &[parts], Start::default()), [Stopped::MaxTime]);
    let rounds = digests_in(&world);
    assert_eq!(rounds.len(), 3);
    let launch = rounds[2].variants[1].launch.as_ref().unwrap();
    assert_eq!((launch.load.sustained.as_ref(), rounds[2].cycles), (None, 2));
}

#[test]
fn a_run_ends_once_its_gates_are_decided() {
    let limit =
        |percent: f64| Limit { variant: Some(1), metric: Metric::Throughput, above: true, percent };
    let run_with = |percent: f64| {
        let world = FakeWorld::new(vec![Server::new("a", 20_000.0), Server::new("b", 19_800.0)]);
        world.limits.borrow_mut().push(limit(percent));
        let mut parts = by_default();
        parts.stop.precision = 1e-9;
        let stopped = run(&world, &[parts], Start::default());
        (stopped, rounds_of(&world, 1).len(), world.elapsed())
    };
    // The variant is 1 % slower: three launches decide either limit, at any precision.
    for percent in [-30.0, 30.0] {
        let (stopped, rounds, took) = run_with(percent);
        assert_eq!((stopped.as_slice(), rounds), (&[Stopped::Gates][..], 3), "{percent} %");
        assert!(took < DurationNs::from_secs(20), "{took}");
    }
    // A limit equal to the truth is never decided.
    assert_eq!(run_with(1.0).0, [Stopped::MaxTime]);
}

#[test]
fn servers_of_even_pace_are_known_after_the_first_look() {
    let world = FakeWorld::new(two());
    assert_eq!(run(&world, &[by_default()], Start::default()), [Stopped::Precision]);
    let log = logged(&world);
    assert_eq!(log.iter().filter(|text| *text == "sustained").count(), 1, "{log:?}");
    assert!(world.elapsed() < DurationNs::from_secs(10), "{}", world.elapsed());
}

#[test]
fn servers_that_sleep_between_requests_are_checked_in_turns() {
    let servers = two();
    servers.iter().for_each(|server| server.busy.set(0.4));
    let names: Vec<&str> = servers.iter().map(|server| server.name).collect();
    let world = FakeWorld::new(servers);
    assert_eq!(run(&world, &[by_default()], Start::default()), [Stopped::Precision]);
    let log = logged(&world);
    let count = |wanted: &str| log.iter().filter(|text| *text == wanted).count();
    // Warm-ups are still found under load on both at once.
    assert_eq!(count("sustained"), 1, "{log:?}");
    // One launch, with three turns of both.
    for name in names {
        assert_eq!(count(&format!("sustained, {name} alone")), 3, "{log:?}");
    }
}

#[test]
fn a_run_that_can_have_no_verdict_ends_early() {
    let mut servers = two();
    servers[1].body = "another";
    let world = FakeWorld::new(servers);
    let stopped = run(&world, &[by_default()], Start::default());
    let [Stopped::Failed(Failure { fault: Fault::Void, text: why })] = stopped.as_slice() else {
        panic!("{stopped:?}")
    };
    assert!(why.starts_with("b against a is void: replies differ: 4 bytes in both"), "{why}");
    assert!(why.ends_with("make them equal, or run with --may-differ body"), "{why}");
    assert_eq!(slices_of(&world, 1), 0, "no load is needed to see it");
    let mut declared = by_default();
    declared.variants[1].may_differ = vec![tare_model::variant::Difference::Body];
    let mut servers = two();
    servers[1].body = "another";
    let world = FakeWorld::new(servers);
    assert_eq!(run(&world, &[declared], Start::default()), [Stopped::Precision]);
}

#[test]
fn one_variant_that_can_be_compared_keeps_a_run_going() {
    let mut servers = two();
    servers[1].body = "another";
    servers.push(Server::new("c", 20_000.0));
    let world = FakeWorld::new(servers);
    let mut parts = short(3);
    let third = Variant { name: "c".into(), ..parts.variants[1].clone() };
    parts.variants.push(third);
    assert_eq!(run(&world, &[parts], Start::default()), [Stopped::Rounds]);
}

#[test]
fn void_variants_are_measured_where_that_is_allowed() {
    let mut servers = two();
    servers[1].body = "another";
    let world = FakeWorld::new(servers);
    world.allows_void.set(true);
    assert_eq!(run(&world, &[short(5)], Start::default()), [Stopped::Rounds], "to the end");
}

#[test]
fn a_status_that_is_not_good_ends_the_run_at_the_probe() {
    let mut servers = two();
    servers[1].status = 404;
    let world = FakeWorld::new(servers);
    let stopped = run(&world, &[by_default()], Start::default());
    let why = "b: GET / is answered with status 404, which is not good; if it is meant to be, say \
               --expect-status 404";
    assert_eq!(stopped, [Stopped::Failed(Failure::target(why))]);
    assert_eq!(slices_of(&world, 1), 0);
}

#[test]
fn servers_that_answer_nothing_good_are_a_failure_of_theirs() {
    let mut servers = two();
    servers.iter_mut().for_each(|server| server.per_s.set(1e-9));
    let world = FakeWorld::new(servers);
    let stopped = run(&world, &[short(2)], Start::default());
    let text = "not one good reply from any variant: connection refused";
    let failed = matches!(&stopped[..], [Stopped::Failed(why)] if why.to_string() == text);
    assert!(failed, "{stopped:?}");
}

/// The warm-up and the slices of a launch use the same connections.
#[test]
fn load_that_does_not_let_up_and_slices_have_the_same_connections() {
    let world = FakeWorld::new(two());
    assert_eq!(run(&world, &[by_default()], Start::default()), [Stopped::Precision]);
    let log = logged(&world);
    let count = |what: &str| log.iter().filter(|text| text.starts_with(what)).count();
    assert_eq!(count("sustained"), 1, "{log:?}");
    assert_eq!(world.opened.get() as usize, count("launch"), "{log:?}");
}
