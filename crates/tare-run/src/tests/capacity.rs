//! A design other than comparisons: it finds the highest rate that each variant can keep. A missed
//! rate is a result here, and voids nothing.

use tare_io::DurationNs;
use tare_stats::design::{CellOrder, Ended, History, RoundOrder};
use tare_stats::slicing::Fit;

use super::*;

/// Doubles rates until one is missed, then bisects on a logarithmic scale.
struct CapacityDesign {
    rates: Vec<Bounds>,
    /// Rounds that it has processed.
    taken: usize,
    precision: f64,
    ended: Option<Ended>,
}

/// The rates that one variant kept and missed.
#[derive(Clone, Copy)]
struct Bounds {
    kept: f64,
    missed: Option<f64>,
}

const FIRST: f64 = 1000.0;

impl Bounds {
    fn asked(self) -> f64 {
        match self.missed {
            None => (self.kept * 2.0).max(FIRST),
            Some(missed) => (self.kept.max(1.0) * missed).sqrt(),
        }
    }
}

impl Design for CapacityDesign {
    fn next(&mut self, history: &History<'_>) -> Option<RoundOrder> {
        let rounds = history.cells[0].rounds;
        for round in &rounds[self.taken..] {
            for (bounds, seen) in self.rates.iter_mut().zip(&round.variants) {
                let asked = bounds.asked();
                let due = seen.counts.due.unwrap_or(f64::INFINITY);
                // A slice rounds to whole requests.
                match seen.counts.completed as f64 + f64::from(round.cycles) >= due {
                    true => bounds.kept = asked,
                    false => bounds.missed = Some(asked),
                }
            }
        }
        self.taken = rounds.len();
        let is_known = |bounds: &Bounds| {
            bounds.missed.is_some_and(|missed| missed / bounds.kept <= 1.0 + self.precision)
        };
        self.ended = match (self.rates.iter().all(is_known), history.left) {
            (true, _) => Some(Ended::Precision),
            (false, DurationNs::ZERO) => Some(Ended::MaxTime),
            (false, _) => None,
        };
        self.ended.is_none().then(|| RoundOrder {
            cells: vec![CellOrder {
                cell: 0,
                rates: self.rates.iter().map(|bounds| Some(bounds.asked())).collect(),
                shape: history.cells[0].shape,
                fit: Fit { length: Some(DurationNs::from_secs(1)), ..Fit::default() },
                is_cold: false,
                cycles: 3,
                growth: None,
                warmup_max: DurationNs::from_secs(1),
                has_sleepers: false,
                sustained: None,
            }],
            watches_rest: false,
            survey: None,
        })
    }

    fn ended(&self, _: usize) -> Option<Ended> {
        self.ended
    }
}

/// Searches on servers with these capacities; returns the bounds, why the search ended, and its
/// rounds.
fn search(per_s: [f64; 2], max_time: DurationNs) -> (Vec<(f64, f64)>, Stopped, usize) {
    let world = FakeWorld::new(vec![Server::new("a", per_s[0]), Server::new("b", per_s[1])]);
    let mut parts = short(1);
    parts.stop.max_time = max_time;
    parts.load.set_rate(FIRST);
    let rates = vec![Bounds { kept: 0.0, missed: None }; 2];
    let design = CapacityDesign { rates, taken: 0, precision: 0.02, ended: None };
    let design = Rc::new(std::cell::RefCell::new(design));
    let shared = Box::new(Shared(design.clone()));
    let stopped = run_by(Some(shared), &world, &[parts], Start::default(), Vec::new()).remove(0);
    let found = design.borrow();
    let found = found.rates.iter().map(|b| (b.kept, b.missed.unwrap_or(f64::INFINITY)));
    (found.collect(), stopped, rounds_of(&world, 1).len())
}

/// Shares a design with the test, which reads it after the run.
struct Shared(Rc<std::cell::RefCell<CapacityDesign>>);

impl Design for Shared {
    fn next(&mut self, history: &History<'_>) -> Option<RoundOrder> {
        self.0.borrow_mut().next(history)
    }

    fn ended(&self, cell: usize) -> Option<Ended> {
        self.0.borrow().ended(cell)
    }
}

#[test]
fn a_search_for_capacity_finds_the_limit_of_each_variant() {
    let truth = [20_000.0, 730.0];
    let (found, stopped, rounds) = search(truth, DurationNs::from_secs(120));
    assert_eq!(stopped, Stopped::Precision);
    for ((kept, missed), truth) in found.iter().zip(truth) {
        assert!(*kept <= truth + 1.0 && *missed > truth, "{kept} to {missed}: {truth}");
        assert!(missed / kept <= 1.02, "{kept} to {missed}");
    }
    assert!((8..=20).contains(&rounds), "{rounds} rounds");
}

#[test]
fn a_search_for_capacity_ends_with_its_time() {
    let (found, stopped, _) = search([1e12, 730.0], DurationNs::from_secs(20));
    assert_eq!((stopped, found[0].1), (Stopped::MaxTime, f64::INFINITY));
    assert!(found[1].1 < 2000.0, "{found:?}");
}
