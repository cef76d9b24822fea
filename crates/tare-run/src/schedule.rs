//! The order of launches and slices: values computed from the seed before the round.

use tare_io::Random;
use tare_load::LaneId;
use tare_model::plan::VariantId;
use tare_stats::slicing::LONGER_MAX;

/// The index of a cell in its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CellId(pub usize);

/// Returns the order in which variants are launched in a round.
pub fn launches(seed: u64, round: u32, variants: usize) -> Vec<VariantId> {
    let mut random = Random::stream(seed, "launch order", u64::from(round));
    shuffled(&mut random, variants).into_iter().map(VariantId).collect()
}

/// Returns the order of lanes in each cycle of a round; each variant that is up has one lane.
pub fn cycles(seed: u64, round: u32, lanes: usize, cycles: u32) -> Vec<Vec<LaneId>> {
    let mut random = Random::stream(seed, "slice order", u64::from(round));
    let mut cycle = || shuffled(&mut random, lanes).into_iter().map(LaneId).collect();
    (0..cycles).map(|_| cycle()).collect()
}

/// Returns the order of a sweep's cells in a round.
pub fn turns(seed: u64, round: u32, cells: usize) -> Vec<usize> {
    shuffled(&mut Random::stream(seed, "cell order", u64::from(round)), cells)
}

/// Returns a cell's own seed for [`cycles`]; the first cell's is the run's.
pub fn seed_of(seed: u64, cell: CellId) -> u64 {
    match cell.0 {
        0 => seed,
        cell => Random::stream(seed, "cell", cell as u64).next_u64(),
    }
}

/// How a cycle's slices differ from the run's. All variants of a cycle have the same shape.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How much longer the ramp is than the shortest one: from 0 to 1, in units of the window
    /// divided by [`RAMP_JITTER`].
    pub ramp: f64,
    /// Length of the window in units of the shortest one, from 1 to [`LONGER_MAX`].
    pub longer: f64,
}

/// Returns the shapes of a round's cycles. A server of even pace replies in step with the start of
/// load. Windows that always opened at the same moment would always cut that pace at the same
/// place, and count one reply too many or too few in each slice.
pub fn shapes(seed: u64, round: u32, cycles: u32) -> Vec<Shape> {
    let mut random = Random::stream(seed, "ramp", u64::from(round));
    let mut draw = || Shape { ramp: random.uniform(), longer: LONGER_MAX.powf(random.uniform()) };
    (0..cycles).map(|_| draw()).collect()
}

/// Ramps differ by up to the window divided by this: ten replies, as windows hold 200.
pub const RAMP_JITTER: u64 = 20;

/// A Fisher-Yates shuffle.
fn shuffled(random: &mut Random, n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    for at in (1..n).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cycle_holds_every_variant_once_and_repeats_with_its_seed() {
        for round in 0..50 {
            let order = cycles(7, round, 5, 8);
            assert_eq!(order.len(), 8);
            for cycle in &order {
                let mut sorted = cycle.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, [0, 1, 2, 3, 4].map(LaneId));
            }
            assert_eq!(order, cycles(7, round, 5, 8));
            assert_ne!(order, cycles(8, round, 5, 8));
        }
    }

    #[test]
    fn places_are_taken_evenly() {
        let mut first = [0u32; 3];
        let mut follows = [[0u32; 3]; 3];
        for round in 0..1000 {
            for cycle in cycles(1, round, 3, 3) {
                first[cycle[0].0] += 1;
                follows[cycle[0].0][cycle[1].0] += 1;
            }
            assert_eq!(launches(1, round, 3).len(), 3);
        }
        assert!(first.iter().all(|n| (900..1100).contains(n)), "{first:?}");
        for (one, row) in follows.iter().enumerate() {
            for (other, n) in row.iter().enumerate() {
                assert!(one == other || (430..570).contains(n), "{follows:?}");
            }
        }
    }
}
