//! The cells of a sweep: those that differ in load only are measured on the same launches, the
//! others one after another.

use std::sync::atomic::Ordering;

use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant};
use tare_model::plan::Plan;
use tare_run::{Start, Stopped};
use tare_store::{RunEnd, RunRow};

use super::RunOptions;
use super::begin::{begin, carry_out, open_store, stop_on_interrupt};
use super::conclude::{SweptCell, conclude_sweep};
use super::measure::{Begun, Measured};
use super::stored::{document_of, plan_of};
use crate::failure::Failure;
use crate::load::outputs::Outputs;

pub fn run_sweep(cells: &[Plan], options: &RunOptions) -> Result<(), Failure> {
    let mut outputs = Outputs::create(&options.forms)?;
    let stop = stop_on_interrupt()?;
    let mut store = open_store(options)?;
    let rows: Result<Vec<RunRow>, Failure> =
        cells.iter().map(|cell| begin(cell, &mut store)).collect();
    let rows = rows?;
    drop(store);
    let groups = groups(cells);
    let began = monotonic_now();
    let mut swept: Vec<Option<SweptCell>> = cells.iter().map(|_| None).collect();
    for (at, group) in groups.iter().enumerate() {
        let mut store = open_store(options)?;
        if stop.load(Ordering::Relaxed) {
            let end = RunEnd { stopped_by: Stopped::Interrupted.word().into() };
            for cell in group {
                store.end_run(rows[*cell].id, &end)?;
                let row = store.find_run(&rows[*cell].id.to_string())?;
                let document = document_of(&store, &row, &plan_of(&row)?)?;
                let stopped = Stopped::Interrupted;
                swept[*cell] = Some(SweptCell { plan: &cells[*cell], document, stopped });
            }
            continue;
        }
        let left: usize = groups[at..].iter().map(Vec::len).sum();
        let start = Start { next_round: 0, elapsed_ns: spent(cells, began, group.len(), left) };
        let begun = group.iter().map(|cell| Begun::new(&cells[*cell], &rows[*cell])).collect();
        let done = carry_out(begun, store, start, options, &stop)?;
        let Measured { documents, stopped, written } = done;
        written?;
        for ((cell, document), stopped) in group.iter().zip(documents).zip(stopped) {
            swept[*cell] = Some(SweptCell { plan: &cells[*cell], document, stopped });
        }
    }
    conclude_sweep(swept.into_iter().flatten().collect(), options, &mut outputs)
}

/// How much of the time for all cells is over, or others' that are still to come: what is left is
/// divided by cells.
fn spent(cells: &[Plan], began: Instant, own: usize, left: usize) -> u64 {
    let all = cells.first().map_or(DurationNs::ZERO, |cell| cell.stop.max_time).as_ns();
    let open = all.saturating_sub(monotonic_now().since(began).as_ns());
    all - open * own as u64 / left.max(1) as u64
}

/// Cells by what they launch, in the order of their first.
fn groups(cells: &[Plan]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, cell) in cells.iter().enumerate() {
        match groups.iter_mut().find(|group| launch_the_same(&cells[group[0]], cell)) {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups
}

fn launch_the_same(one: &Plan, other: &Plan) -> bool {
    let launched = |plan: &Plan| -> Vec<_> {
        let all = plan.variants.iter();
        all.map(|v| (v.server.clone(), v.layers.clone(), v.place.clone())).collect()
    };
    launched(one) == launched(other)
}
