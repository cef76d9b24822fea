//! A plan of two variants, and made-up rounds of it.

#![allow(dead_code)] // Each test binary uses a part.

use tare_io::DurationNs;
use tare_model::counters::{Counter, Counters};
use tare_model::load::{Client, Load};
use tare_model::plan::{PlanParts, Slices, Stop};
use tare_model::samples::{
    Counts, Launch, LaunchLoad, LaunchPart, MachineUse, Probe, Round, Series, Slice,
};
use tare_model::servers::{ServerSpec, TargetSpec};
use tare_model::sustained::{Bin, Sustained, WarmUp};
use tare_model::variant::{Skipped, Variant};
use tare_model::{Distribution, Metric};
use tare_stats::{RoundDigest, digests};

pub fn plan() -> PlanParts {
    let target = ServerSpec::Target(TargetSpec::default());
    let variant = |name: &str, baseline| Variant {
        baseline,
        ..Variant::new(name, "http://127.0.0.1:{port}/", target.clone())
    };
    PlanParts {
        name: "What does |it| cost?".into(),
        seed: 42,
        load: Load {
            connections: 20,
            client: Client { threads: Some(1), ..Client::default() },
            ..Load::default()
        },
        stop: Stop {
            precision: 0.02,
            of_effect: 0.0,
            tolerance: 0.02,
            max_time: DurationNs::from_secs(60),
            metrics: vec![Metric::Throughput],
            rounds: None,
            lost_rounds: 0,
        },
        slices: Slices::default(),
        load_cpus: Vec::new(),
        server_cpus: Vec::new(),
        variants: vec![variant("none", true), variant("=<b>filter</b>", false)],
        skipped: vec![Skipped { name: "tdx".into(), reason: "TDX is not enabled here".into() }],
        cell: Default::default(),
        check: None,
    }
}

/// 10,000 replies in 100 ms on 20 connections; the second variant gives 4 % less.
pub fn slice(variant: u32, cycle: u32, round: u32) -> Slice {
    let wobble = u64::from((round * 7 + cycle * 3 + variant) % 11) * 10;
    let good = if variant == 0 { 10_000 } else { 9_600 } + wobble;
    let ns = 100_000_000 * 20 / good;
    let latency = Distribution::new(
        vec![(ns, good - 200), (ns * 3, 200)],
        u128::from(ns * (good - 200) + ns * 200),
    );
    Slice {
        variant,
        cycle,
        position: variant,
        counts: Counts {
            window_ns: 100_000_000,
            started: good + 20,
            completed: good,
            good,
            drained: 20,
            answered: good + 100,
            body_bytes: good * 612,
            client_cpu_ns: 60_000_000,
            client_busiest: 0.6,
            status: vec![(200, good)],
            ..Counts::default()
        },
        used: Some(
            Counters::default()
                .with(Counter::Cpu, 95_000_000)
                .with(Counter::User, 30_000_000)
                .with(Counter::System, 65_000_000)
                .with(Counter::Switches, 300)
                .with(Counter::Capacity, 200_000_000)
                .with(Counter::Others, 100_000)
                .into(),
        ),
        latencies: vec![(Series::Headline, latency)],
    }
}

/// Three seconds of load on both, on one CPU, at the same cost as in slices.
pub fn sustained(variant: u32) -> Sustained {
    let answered = if variant == 0 { 1_316 } else { 1_263 };
    let bin = Bin { ns: 25_000_000, answered, cpu_ns: 12_500_000, delay_ns: 12_500_000 };
    Sustained { bins: vec![bin; 120], one_thread: true, ..Sustained::default() }
}

pub fn part(name: &str, place: &str, rss_bytes: u64) -> LaunchPart {
    let (name, place, rss_bytes) = (name.into(), place.into(), Some(rss_bytes));
    LaunchPart { name, place, rss_bytes, ..LaunchPart::default() }
}

pub fn round(index: u32) -> Round {
    let launch = |variant: u32| Launch {
        variant,
        fresh: true,
        requests_sent: 30_360,
        requests_served: Some(30_360),
        rss_bytes: Some(11_000_000),
        layers_rss_bytes: None,
        parts: vec![part("server", "host", 11_000_000)],
        cpu_ns: 285_000_000,
        probe: Some(Probe {
            status: 200,
            body_bytes: 612,
            body_sha256: "ab".into(),
            body_stable: true,
            header_names: vec!["server".into()],
            connection_kept: true,
            reply_segments: Some(1),
            tls: None,
            ..Probe::default()
        }),
        load: LaunchLoad {
            warmup: WarmUp { ns: 20_000_000, requests: 2_000 },
            rests: 3,
            cpus: 1,
            busy_threads: 1,
            sustained: index.is_multiple_of(10).then(|| sustained(variant)),
            ..LaunchLoad::default()
        },
        ..Launch::default()
    };
    Round {
        index,
        cycles: 3,
        started_unix_ms: 5,
        elapsed_ns: 700_000_000,
        machine: MachineUse {
            capacity_ns: 1_300_000_000,
            busy_ns: 1_000_000_000,
            own_cpu_ns: 400_000_000,
            tcp_segments: 100_000,
            ..MachineUse::default()
        },
        launches: vec![launch(0), launch(1)],
        slices: (0..3).flat_map(|cycle| (0..2).map(move |v| slice(v, cycle, index))).collect(),
        by_sleepers: Vec::new(),
    }
}

/// Neighbours used half of one CPU in every slice.
pub fn disturbed_throughout(round: &mut Round) {
    for slice in &mut round.slices {
        slice.counts.client_waited_ns = slice.counts.window_ns / 2;
        let used = slice.used.get_or_insert_default();
        used.all = used.all.with(Counter::Others, slice.counts.window_ns / 2);
    }
}

pub fn rounds(change: impl Fn(&mut Round)) -> Vec<RoundDigest> {
    rounds_of(&plan(), 24, change)
}

pub fn rounds_of(plan: &PlanParts, n: u32, change: impl Fn(&mut Round)) -> Vec<RoundDigest> {
    let changed = |index| {
        let mut round = round(index);
        change(&mut round);
        round
    };
    let rounds: Vec<Round> = (0..n).map(changed).collect();
    digests(&rounds, plan.variants.len(), 0)
}
