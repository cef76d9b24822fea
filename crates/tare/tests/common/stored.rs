//! Runs of made-up rounds in a desk's store, with reports that depend on no machine.

use std::sync::Arc;

use tare_model::Distribution;
use tare_model::plan::PlanParts;
use tare_model::samples::{Round, Slice};
use tare_store::{Entry, NewRun, RunEnd, Store, Writer};

use super::made_up::{facts, round};
use super::runs::Desk;

/// A plan of two variants, `base` and `new`, and their rounds.
pub struct Stored {
    pub plan: PlanParts,
    pub rounds: u32,
    change: Box<dyn Fn(&mut Round)>,
}

impl Stored {
    /// Twenty rounds in which the second variant answers this percentage of what the first does.
    pub fn answering(percent: u64) -> Self {
        let mut plan = facts().plan;
        plan.skipped.clear();
        for (variant, name) in plan.variants.iter_mut().zip(["base", "new"]) {
            variant.name = name.into();
        }
        let change = Box::new(move |round: &mut Round| {
            let (mut theirs, mut ours): (Vec<&mut Slice>, Vec<&mut Slice>) =
                round.slices.iter_mut().partition(|slice| slice.variant == 0);
            for (ours, theirs) in ours.iter_mut().zip(&mut theirs) {
                let good = theirs.counts.good;
                answer(theirs, good);
                answer(ours, good * percent / 100);
            }
            // Sustained load gives the same ratio.
            let loads = round.launches.iter_mut().map(|launch| &mut launch.load);
            let sustained = loads.filter_map(|load| load.sustained.as_mut());
            for (variant, sustained) in sustained.enumerate() {
                let percent = if variant == 0 { 100 } else { percent };
                sustained.bins.iter_mut().for_each(|bin| bin.answered = 1_300 * percent / 100);
            }
        });
        Self { plan, rounds: 20, change }
    }

    /// Stores it as a run of `tare` would be.
    pub fn write(self, desk: &Desk) {
        let mut store = Store::open(&desk.folder.file("tare/tare.db")).unwrap();
        let names = self.plan.variants.iter().map(|variant| variant.name.clone());
        let run = store
            .begin_run(&NewRun {
                command: "tare run made-up.toml".into(),
                name: self.plan.name.clone(),
                seed: self.plan.seed,
                tare_version: env!("CARGO_PKG_VERSION").into(),
                started_unix_ms: 1_795_239_600_000,
                plan: serde_json::to_string(&self.plan).unwrap(),
                machine: serde_json::json!({ "cpus": [0, 1] }).to_string(),
                variants: names.collect(),
            })
            .unwrap();
        let writer = Writer::start(store).unwrap();
        let write = |entry| writer.write(run, entry).unwrap();
        for number in 0..self.rounds {
            let mut round = round(number);
            (self.change)(&mut round);
            let Round { cycles, started_unix_ms, elapsed_ns, machine, launches, .. } = round;
            write(Entry::RoundBegan { number, cycles, started_unix_ms });
            for slice in round.slices {
                write(Entry::Slice { round: number, slice: Arc::new(slice) });
            }
            write(Entry::RoundEnded { number, elapsed_ns, machine, launches });
        }
        write(Entry::RunEnded(RunEnd { stopped_by: "precision".into() }));
        writer.finish().unwrap();
    }
}

/// Sets this many replies in a window of 100 ms, with the CPU time unchanged.
fn answer(slice: &mut Slice, good: u64) {
    let counts = &mut slice.counts;
    counts.started = good + counts.drained;
    (counts.completed, counts.good, counts.answered) = (good, good, good + 100);
    counts.body_bytes = good * 612;
    counts.status = vec![(200, good)];
    let ns = 100_000_000 * 20 / good;
    slice.latencies[0].1 = Distribution::new(vec![(ns, good)], u128::from(ns * good));
}
