//! Runs the cells of a sweep: cells that differ only in load share launches, others run one after
//! another.

use tare_io::DurationNs;
use tare_io::time::monotonic_now;
use tare_lab::Halt;
use tare_model::Failure;
use tare_model::plan::Plan;
use tare_model::variant::Variant;
use tare_report::run::document::RunDocument;
use tare_results::{document_of, plan_of};
use tare_run::{Start, Stopped};
use tare_store::{RunEnd, RunRow, Store};

use super::RunOptions;
use super::begin::{begin, carry_out, open_store, stop_on_interrupt};
use super::conclude::{SweptCell, conclude_sweep};
use super::measure::{Begun, StoredRuns};
use crate::load::interrupt;
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
    let began = options.began;
    let max_time = cells.first().map_or(DurationNs::ZERO, |cell| cell.stop.max_time);
    let mut swept: Vec<Option<SweptCell>> = cells.iter().map(|_| None).collect();
    let mut failed = None;
    for (at, group) in groups.iter().enumerate() {
        let left: usize = groups[at..].iter().map(Vec::len).sum();
        let share = share(max_time, monotonic_now().since(began), group.len(), left);
        let ended = match &failed {
            Some(failure) => Some(Stopped::Failed(Failure::clone(failure))),
            None if interrupt::was_interrupted() => Some(Stopped::Interrupted),
            None if share == DurationNs::ZERO => Some(Stopped::MaxTime),
            None => None,
        };
        if let Some(stopped) = ended {
            for cell in group {
                let document = end_unmeasured(&rows[*cell], &stopped, options)?;
                let stopped = stopped.clone();
                swept[*cell] = Some(SweptCell { plan: &cells[*cell], document, stopped });
            }
            continue;
        }
        let halt = Halt::at(monotonic_now() + share, stop.clone(), interrupt::was_interrupted)?;
        let begun = group.iter().map(|cell| Begun::new(&cells[*cell], &rows[*cell])).collect();
        let store = open_store(options)?;
        let StoredRuns { documents, stopped, written } =
            carry_out(begun, store, Start::default(), options, &halt)?;
        // If the store fails, report what was measured and end the remaining cells.
        failed = written.err();
        for ((cell, document), stopped) in group.iter().zip(documents).zip(stopped) {
            let stopped = failed.clone().map_or(stopped, Stopped::Failed);
            swept[*cell] = Some(SweptCell { plan: &cells[*cell], document, stopped });
        }
    }
    conclude_sweep(swept.into_iter().flatten().collect(), options, &mut outputs)
}

/// Checks what depends on more than one cell.
pub fn check(cells: &[Plan]) -> Result<(), Failure> {
    let shared = groups(cells).into_iter().find(|group| group.len() > 1);
    match shared.filter(|group| cells[group[0]].slices.cold.is_some()) {
        None => Ok(()),
        Some(_) => Err(Failure::usage(
            "cold: a sweep's values share launches, which are cold for one only; what servers are \
             can be swept",
        )),
    }
}

/// Ends the run of a cell that is not measured; returns its empty report.
fn end_unmeasured(
    row: &RunRow,
    stopped: &Stopped,
    options: &RunOptions,
) -> Result<RunDocument, Failure> {
    let mut store = Store::open(&options.store)?;
    store.end_run(row.id, &RunEnd { stopped_by: stopped.word().into() })?;
    let row = store.find_run(&row.id.to_string())?;
    document_of(&store, &row, &plan_of(&row)?)
}

/// Returns the time for `own` cells: the remaining time, divided evenly among the cells left.
fn share(max_time: DurationNs, spent: DurationNs, own: usize, left: usize) -> DurationNs {
    let open = u128::from(max_time.as_ns().saturating_sub(spent.as_ns()));
    let share = open * own as u128 / left.max(1) as u128;
    DurationNs::from_ns(u64::try_from(share).unwrap_or(u64::MAX))
}

/// Groups cells by what they launch, in the order of their first cells.
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
    let mut pairs = one.variants.iter().zip(&other.variants);
    pairs.all(|(one, other)| launched(one) == launched(other))
}

/// Returns the parts of a variant that a launch depends on: all but its path and headers.
fn launched(variant: &Variant) -> Variant {
    let path =
        variant.url.find("://").and_then(|at| variant.url[at + 3..].find('/').map(|n| at + 3 + n));
    let url = match path {
        // The proof of a filter depends on the requested path.
        Some(path) if variant.filter().is_none() => variant.url[..path].to_owned(),
        _ => variant.url.clone(),
    };
    Variant { url, headers: Vec::new(), ..variant.clone() }
}

#[cfg(test)]
mod tests {
    use tare_model::servers::ServerSpec;

    use super::*;

    #[test]
    fn launches_differ_by_what_is_started_and_where_it_listens() {
        let of = |url: &str| Variant::new("a", url, ServerSpec::External);
        let one = launched(&of("http://h:1/x"));
        assert_eq!(one, launched(&of("http://h:1/yyy?z")), "another path is another load");
        assert_eq!(one, launched(&Variant { headers: vec!["A: b".into()], ..of("http://h:1/") }));
        assert_ne!(one, launched(&of("http://h:2/x")));
        let socket = Some("/run/a.sock".into());
        assert_ne!(one, launched(&Variant { unix_socket: socket, ..of("http://h:1/x") }));
    }

    #[test]
    fn time_is_divided_among_the_cells_that_are_left() {
        let s = DurationNs::from_secs;
        assert_eq!(share(s(120), s(0), 1, 4), s(30));
        assert_eq!(share(s(120), s(60), 2, 3), s(40));
        assert_eq!(share(s(120), s(120), 1, 1), DurationNs::ZERO);
        assert_eq!(share(s(120), s(500), 1, 1), DurationNs::ZERO);
        let for_ever = DurationNs::from_ns(u64::MAX);
        assert_eq!(share(for_ever, s(0), 1000, 1000), for_ever);
    }
}
