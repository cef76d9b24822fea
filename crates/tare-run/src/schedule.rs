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

/// One slice of every variant.
#[derive(Debug)]
pub struct Cycle {
    pub number: u32,
    /// The order of lanes; each variant that is up has one.
    pub lanes: Vec<LaneId>,
    pub shape: Shape,
    /// Whether its load is made by clients that sleep while they wait.
    pub by_sleepers: bool,
}

/// Returns the cycles of a round in their order: those planned, and among them, evenly spread, some
/// with clients that sleep, numbered after the planned ones.
pub fn round(seed: u64, index: u32, lanes: usize, cycles: u32, by_sleepers: u32) -> Vec<Cycle> {
    let numbered = |first: u32, n: u32, by_sleepers: bool, streams: [&'static str; 2]| {
        let orders = orders(seed, streams[0], index, lanes, n);
        let shapes = shapes(seed, streams[1], index, n);
        orders.into_iter().zip(shapes).zip(first..).map(move |((lanes, shape), number)| Cycle {
            number,
            lanes,
            shape,
            by_sleepers,
        })
    };
    let planned = numbered(0, cycles, false, ["slice order", "ramp"]);
    let others = numbered(cycles, by_sleepers, true, ["sleepers' order", "sleepers' ramp"]);
    // Each stands before the planned cycle in the middle of its block.
    let before = |number: u32| (2 * (number - cycles) + 1) * cycles / (2 * by_sleepers);
    let mut all: Vec<Cycle> = others.chain(planned).collect();
    all.sort_by_key(|cycle| if cycle.by_sleepers { before(cycle.number) } else { cycle.number });
    all
}

/// Returns the order of lanes in each cycle.
pub fn orders(
    seed: u64,
    stream: &'static str,
    round: u32,
    lanes: usize,
    cycles: u32,
) -> Vec<Vec<LaneId>> {
    let mut random = Random::stream(seed, stream, u64::from(round));
    let mut cycle = || shuffled(&mut random, lanes).into_iter().map(LaneId).collect();
    (0..cycles).map(|_| cycle()).collect()
}

/// Returns the order of a sweep's cells in a round.
pub fn turns(seed: u64, round: u32, cells: usize) -> Vec<usize> {
    shuffled(&mut Random::stream(seed, "cell order", u64::from(round)), cells)
}

/// Returns a cell's own seed for [`round`]; the first cell's is the run's.
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
fn shapes(seed: u64, stream: &'static str, round: u32, cycles: u32) -> Vec<Shape> {
    let mut random = Random::stream(seed, stream, u64::from(round));
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
            let lanes = |seed| -> Vec<Vec<LaneId>> {
                super::round(seed, round, 5, 8, 2).into_iter().map(|cycle| cycle.lanes).collect()
            };
            let order = lanes(7);
            assert_eq!(order.len(), 10);
            for cycle in &order {
                let mut sorted = cycle.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, [0, 1, 2, 3, 4].map(LaneId));
            }
            assert_eq!(order, lanes(7));
            assert_ne!(order, lanes(8));
        }
    }

    #[test]
    fn cycles_by_sleepers_stand_among_the_others_and_are_numbered_after_them() {
        let all = |cycles, by_sleepers| -> Vec<(u32, bool)> {
            let all = round(1, 0, 2, cycles, by_sleepers);
            all.iter().map(|cycle| (cycle.number, cycle.by_sleepers)).collect()
        };
        let numbers = |cycles, by_sleepers| -> Vec<u32> {
            all(cycles, by_sleepers).into_iter().map(|(number, _)| number).collect()
        };
        assert_eq!(numbers(8, 2), [0, 1, 8, 2, 3, 4, 5, 9, 6, 7]);
        assert_eq!(numbers(5, 1), [0, 1, 5, 2, 3, 4]);
        assert_eq!(numbers(1, 1), [1, 0]);
        assert_eq!(numbers(3, 0), [0, 1, 2]);
        assert!(all(12, 3).iter().all(|(number, by_sleepers)| (*number >= 12) == *by_sleepers));
    }

    #[test]
    fn places_are_taken_evenly() {
        let mut first = [0u32; 3];
        let mut follows = [[0u32; 3]; 3];
        for round in 0..1000 {
            for Cycle { lanes, .. } in super::round(1, round, 3, 3, 0) {
                first[lanes[0].0] += 1;
                follows[lanes[0].0][lanes[1].0] += 1;
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
