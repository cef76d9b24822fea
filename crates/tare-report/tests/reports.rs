//! Reports as they appear on a terminal: each kind of outcome, to the byte.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

#[allow(dead_code)] // Other tests use the rest of it.
mod made_up;

use std::path::PathBuf;

use tare_model::samples::{Counts, Launch, Round, Series, Slice};
use tare_model::variant::Variant;
use tare_model::{Distribution, Metric};
use tare_report::formats::{Document, Form};
use tare_report::pair::PairDocument;
use tare_report::run::document::RunDocument;
use tare_report::run::from_rounds::RunFacts;
use tare_report::sweep::document::SweepDocument;
use tare_report::timeline::Timeline;
use tare_stats::digests;

use made_up::{facts, round, slice};

/// A comparison of two servers.
fn of_pair() -> RunFacts {
    let mut facts = facts();
    facts.plan.name = "plain vs. parse".into();
    facts.plan.skipped.clear();
    (facts.plan.load_cpus, facts.plan.server_cpus) = (vec![1], vec![0]);
    let names = ["plain", "parse"].into_iter();
    facts
        .plan
        .variants
        .iter_mut()
        .zip(names)
        .for_each(|(variant, name)| variant.name = name.into());
    facts
}

fn document_of(facts: &RunFacts, rounds: u32, change: impl Fn(&mut Round)) -> RunDocument {
    let mut timeline = Timeline::default();
    let rounds = (0..rounds).map(|index| {
        let mut round = round(index);
        for launch in &mut round.launches {
            launch.load.by = Some("io_uring, polling".into());
        }
        change(&mut round);
        timeline.add(&round, Metric::Throughput);
        round
    });
    let rounds: Vec<Round> = rounds.collect();
    let digests = digests(&rounds, facts.plan.variants.len(), 0);
    RunDocument::new(facts.clone(), digests, timeline)
}

/// The second server gives this many replies per hundred of the first.
fn gives(percent: u64) -> impl Fn(&mut Round) {
    move |round| {
        for launch in &mut round.launches {
            launch.load.sustained = launch.load.sustained.take().map(|mut sustained| {
                let share = if launch.variant == 0 { 100 } else { percent };
                sustained.bins.iter_mut().for_each(|bin| bin.answered = 1_316 * share / 100);
                sustained
            });
        }
        for slice in round.slices.iter_mut().filter(|slice| slice.variant == 1) {
            slow_down(slice, percent);
        }
    }
}

/// Sets this many replies per hundred of the first server, and latencies to match.
fn slow_down(slice: &mut Slice, percent: u64) {
    scale(&mut slice.counts, percent, 96);
    let good = slice.counts.good;
    let ns = 100_000_000 * 20 / good;
    let counts = vec![(ns, good - 200), (3 * ns, 200)];
    let latency = Distribution::new(counts, u128::from(ns * good));
    slice.latencies = vec![(Series::Headline, latency)];
}

fn scale(counts: &mut Counts, to: u64, from: u64) {
    counts.good = counts.good * to / from;
    (counts.completed, counts.started) = (counts.good, counts.good + 20);
    (counts.answered, counts.body_bytes) = (counts.good + 100, counts.good * 612);
    counts.status = vec![(200, counts.good)];
}

/// Launches that differ by a tenth.
fn rough(round: &mut Round) {
    gives(100)(round);
    let by = [100, 92, 108, 97, 105][round.index as usize % 5];
    for slice in round.slices.iter_mut().filter(|slice| slice.variant == 1) {
        scale(&mut slice.counts, by, 100);
    }
    round.launches.iter_mut().for_each(|launch| launch.load.sustained = None);
}

#[track_caller]
fn golden(name: &str, document: &dyn Document, columns_max: usize, lines_max: usize) {
    let got = document.render(Form::Text).unwrap();
    let path = format!("tests/testdata/reports/{name}.text");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &got).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(got, expected, "{}: set UPDATE_GOLDEN=1 where the change is meant", path.display());
    let widest = got.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= columns_max, "{name}: {widest} columns\n{got}");
    assert!(got.lines().count() <= lines_max, "{name}: {} lines\n{got}", got.lines().count());
}

/// Most lines in the report of a pair.
const PAIR: usize = 12;

#[test]
fn a_pair_is_read_from_the_top() {
    let facts = of_pair();
    let told = |name: &str, rounds: u32, change: &dyn Fn(&mut Round)| {
        golden(name, &document_of(&facts, rounds, change), 80, PAIR);
    };
    told("same", 24, &gives(100));
    told("slower", 24, &gives(64));
    told("faster", 24, &gives(130));
    told("times", 24, &gives(9));
    told("noisy", 24, &|round| {
        gives(64)(round);
        round.machine.own_cpu_ns = 0;
    });
    told("void", 24, &|round| {
        gives(64)(round);
        round.launches[1].probe.as_mut().unwrap().body_bytes = 615;
    });
    told("not-warm", 24, &|round| {
        gives(64)(round);
        round.launches[1].load.not_warm = true;
    });
}

#[test]
fn an_interrupted_run_says_so() {
    let mut facts = of_pair();
    facts.stopped_by = "interrupted".into();
    golden("interrupted", &document_of(&facts, 2, gives(64)), 80, PAIR);
    facts.stopped_by = "max-time".into();
    golden("unresolved", &document_of(&facts, 5, rough), 80, PAIR);
    facts.plan.stop.metrics = vec![Metric::Throughput, Metric::ServerCpu];
    golden("two-metrics", &document_of(&facts, 24, gives(64)), 80, PAIR);
}

#[test]
fn ten_variants_are_grouped_by_their_verdict() {
    let mut facts = of_pair();
    facts.plan.name = "What does a URL filter cost in nginx?".into();
    let names =
        ["none", "identity", "library", "shm", "mpk", "ebpf", "rlbox", "lua", "wasm", "wasm2c"];
    let shares = [100, 100, 100, 99, 97, 93, 88, 80, 64, 30];
    let variant = facts.plan.variants[1].clone();
    let named =
        |name: &str| Variant { name: name.into(), baseline: name == "none", ..variant.clone() };
    facts.plan.variants = names.map(named).to_vec();
    let document = document_of(&facts, 24, |round| {
        let index = round.index;
        let slices = (0..3).flat_map(|cycle| (0..10).map(move |v| slice(v, cycle, index)));
        round.slices = slices.collect();
        for slice in round.slices.iter_mut().filter(|slice| slice.variant > 0) {
            slow_down(slice, shares[slice.variant as usize]);
        }
        let launch = |variant| Launch { variant, ..round.launches[0].clone() };
        round.launches = (0..10).map(launch).collect();
        round.launches.iter_mut().for_each(|launch| launch.load.sustained = None);
    });
    golden("ten", &document, 80, 30);
}

#[test]
fn sweeps_and_pairs_of_runs() {
    let cell = |(id, connections, share): (i64, u32, u64)| {
        let mut facts = of_pair();
        facts.id = id;
        facts.plan.load.connections = connections;
        facts.plan.name = format!("Does it scale? (connections {connections})");
        if connections == 16 {
            facts.stopped_by = "void".into();
        }
        let values = [("connections".to_owned(), connections.to_string())];
        let document = document_of(&facts, 24, |round| {
            gives(share)(round);
            round.machine.own_cpu_ns /= if connections == 64 { 8 } else { 1 };
        });
        (values.into(), document)
    };
    let cells = [(7, 16, 96), (8, 32, 90), (9, 64, 81), (10, 128, 64)].map(cell);
    golden("sweep", &SweepDocument::new(cells.to_vec(), Vec::new()), 80, 29);
    let facts = of_pair();
    let later =
        RunFacts { id: 9, started_unix_ms: facts.started_unix_ms + 86_400_000, ..facts.clone() };
    let before = document_of(&facts, 24, gives(90));
    let after = document_of(&later, 24, gives(81));
    let pair = PairDocument::new(&before, &after, &[Metric::Throughput]).unwrap();
    golden("runs", &pair, 80, PAIR);
}
