//! Variants compared under each of several loads, on the same launches.

use tare_io::DurationNs;
use tare_model::plan::PlanParts;

use super::until_verdict::{ComparisonDesign, Rules};
use crate::design::{Design, Ended, History, RoundOrder};
use crate::stopping::Limit;

pub struct SweepDesign<'a> {
    cells: Vec<ComparisonDesign<'a>>,
}

impl<'a> SweepDesign<'a> {
    /// Each cell ends once these limits are decided, if there are any.
    pub fn new(
        plans: impl Iterator<Item = &'a PlanParts>,
        rules: &'a dyn Rules,
        limits: &[Limit],
        allows_void: bool,
    ) -> Self {
        let cell = |(at, plan)| {
            let design = ComparisonDesign::new(plan, rules, at).deciding(limits);
            design.allowing_void(allows_void)
        };
        let cells = plans.enumerate().map(cell);
        Self { cells: cells.collect() }
    }
}

impl Design for SweepDesign<'_> {
    fn next(&mut self, history: &History<'_>) -> Option<RoundOrder> {
        next(&mut self.cells, history)
    }

    fn ended(&self, cell: usize) -> Option<Ended> {
        self.cells.get(cell).and_then(ComparisonDesign::has_ended)
    }
}

/// Merges the orders of all cells. Time that one cell does not need goes to the others.
pub(super) fn next(
    cells: &mut [ComparisonDesign<'_>],
    history: &History<'_>,
) -> Option<RoundOrder> {
    let has_closed = cells.iter().any(|cell| !cell.is_open());
    let mut active = Vec::new();
    for (cell, seen) in cells.iter_mut().zip(&history.cells) {
        cell.take(seen);
        if cell.has_ended().is_none() && !seen.is_over {
            active.push((cell, seen));
        }
    }
    let share = DurationNs::from_ns(history.left.as_ns() / active.len().max(1) as u64);
    // A round that would be cut off is not begun.
    let times =
        active.iter().filter_map(|(cell, seen)| cell.round_time(seen, history.surveys, share));
    let next = times.fold(DurationNs::ZERO, |sum, time| sum + time);
    if history.left == DurationNs::ZERO || next > history.left {
        active.drain(..).for_each(|(cell, _)| cell.end(Ended::MaxTime));
    }
    let (first, seen) = active.first()?;
    // A rate that one variant sustains may be too high when all of them run at once.
    let may_survey = !(first.is_open() && has_closed);
    let survey = first.survey(seen, history.surveys).filter(|_| may_survey);
    let is_cold = active.iter().any(|(cell, _)| cell.is_cold());
    let watches_rest = !is_cold && active.iter().any(|(cell, seen)| cell.watches_rest(seen));
    let orders = active.iter_mut().map(|(cell, seen)| cell.order(seen, history.surveys, share));
    Some(RoundOrder { cells: orders.collect(), watches_rest, survey })
}
