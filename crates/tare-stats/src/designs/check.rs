//! A check of a change under several loads, on the same launches: it ends when one limit is
//! exceeded, when all are decided, or when they would not be decided within the time limit.

use tare_model::check::Check;
use tare_model::plan::PlanParts;

use super::sweep;
use super::until_verdict::{ComparisonDesign, Rules};
use crate::design::{Design, Ended, History, RoundOrder};
use crate::stopping::is_look;
use crate::verdict::ROUNDS_MIN;

pub struct CheckDesign<'a> {
    cells: Vec<ComparisonDesign<'a>>,
    check: &'a Check,
}

impl<'a> CheckDesign<'a> {
    /// Returns `None` for plans that belong to no check.
    pub fn new(plans: &[&'a PlanParts], rules: &'a dyn Rules) -> Option<Self> {
        let check = plans.first()?.check.as_ref()?;
        let cells = plans.iter().enumerate();
        let cells = cells.map(|(at, plan)| ComparisonDesign::new(plan, rules, at)).collect();
        Some(Self { cells, check })
    }

    fn end_all(&mut self, why: Ended) {
        self.cells.iter_mut().for_each(|cell| cell.end(why));
    }

    /// Whether some limit would not be decided if the time left were spent like the time so far.
    fn is_hopeless(&self, history: &History<'_>) -> bool {
        let rounds = history.cells.iter().flat_map(|seen| seen.rounds);
        let spent_ns: u64 = rounds.map(|round| round.elapsed_ns).sum();
        if spent_ns < self.check.screen.as_ns() {
            return false;
        }
        let times = 1.0 + history.left.as_ns() as f64 / spent_ns.max(1) as f64;
        let pairs = self.cells.iter().zip(&history.cells);
        let mut open = pairs.filter(|(cell, _)| cell.has_ended().is_none());
        open.any(|(cell, seen)| {
            let rounds = seen.rounds.len() as u32;
            rounds > ROUNDS_MIN && is_look(rounds) && !cell.could_be_decided(seen.rounds, times)
        })
    }
}

impl Design for CheckDesign<'_> {
    fn next(&mut self, history: &History<'_>) -> Option<RoundOrder> {
        self.cells.iter_mut().zip(&history.cells).for_each(|(cell, seen)| cell.take(seen));
        if self.cells.iter().any(ComparisonDesign::is_exceeded) {
            self.end_all(Ended::Exceeded);
        } else if self.is_hopeless(history) {
            self.end_all(Ended::Screen);
        }
        sweep::next(&mut self.cells, history)
    }

    fn ended(&self, cell: usize) -> Option<Ended> {
        self.cells.get(cell).and_then(ComparisonDesign::has_ended)
    }
}
