//! Designs of measurement. A design decides what is measured next from the results so far. Designs
//! are pure: the code that carries out their orders handles servers, clocks and stores, and decides
//! nothing.
//!
//! A run has one cell or, in a sweep, several: loads that are measured on the same launches.

use tare_io::DurationNs;
use tare_model::sustained::WarmUp;

use crate::round_digest::RoundDigest;
use crate::slicing::{Fit, SliceShape};
use crate::stopping::cycles;
use crate::surveys::{Limits, Surveys};

pub trait Design {
    /// The next round; `None` when the run should end.
    fn next(&mut self, history: &History<'_>) -> Option<RoundOrder>;

    /// Why the design no longer measures a cell; `None` while it does.
    fn ended(&self, cell: usize) -> Option<Ended>;
}

/// Why a design ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The results are as precise as requested.
    Precision,
    /// All limits are decided.
    Gates,
    /// A limit of the check is exceeded, under this load or under the other.
    Exceeded,
    MaxTime,
    /// The check would not be decided within its time limit (`--screen`).
    Screen,
    /// The requested number of rounds is done.
    Rounds,
    /// Guards forbid every verdict.
    Void,
}

/// Results so far.
#[derive(Debug)]
pub struct History<'a> {
    pub cells: Vec<CellHistory<'a>>,
    /// How long launches took to warm up.
    pub surveys: &'a Surveys,
    /// Time left until the run must be over.
    pub left: DurationNs,
}

/// Results under one load.
#[derive(Clone, Copy, Debug)]
pub struct CellHistory<'a> {
    pub rounds: &'a [RoundDigest],
    /// The shape of its slices, once it is known.
    pub shape: Option<SliceShape>,
    /// Load that each variant needs to warm up, once that is known.
    pub warm: Option<&'a [WarmUp]>,
    /// Whether the cell failed or was cut off; nothing more is measured for it.
    pub is_over: bool,
}

/// A round: launches of all variants, and what is measured on them.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundOrder {
    /// Cells to measure; their order follows from the run's seed.
    pub cells: Vec<CellOrder>,
    /// Whether to watch servers before there is any load.
    pub watches_rest: bool,
    /// Load on all variants at once, from their first request until they are warm.
    pub survey: Option<SurveyOrder>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SurveyOrder {
    pub limits: Limits,
    pub first: DurationNs,
}

/// One load's part of a round.
#[derive(Clone, Debug, PartialEq)]
pub struct CellOrder {
    pub cell: usize,
    /// Requests per second to each variant, if not the load's own rate.
    pub rates: Vec<Option<f64>>,
    /// The shape of its slices; trials determine it if it is not set.
    pub shape: Option<SliceShape>,
    pub fit: Fit,
    /// Whether launches get their first load and nothing before it: no trial, no warm-up, no ramp.
    pub is_cold: bool,
    /// Slices of each variant.
    pub cycles: u32,
    /// Adds cycles if the first launch takes long to warm up, as long as no earlier round shows it.
    pub growth: Option<Growth>,
    /// The longest warm-up.
    pub warmup_max: DurationNs,
    /// Whether some more cycles are made by clients that sleep while they wait, if the others poll.
    pub has_sleepers: bool,
    /// Sustained load, after the slices.
    pub sustained: Option<SustainedOrder>,
}

/// How many cycles a launch is worth, given the length of its warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    pub cost: CycleCost,
    /// Time left for the run.
    pub left: DurationNs,
    /// How long the launch took to warm up.
    pub warm_ns: u64,
}

/// Time that one slice of every variant takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CycleCost {
    pub variants: usize,
    /// Mean factor by which slices are longer than their shape.
    pub longer: f64,
}

/// Time that commands, wake-ups and readings around a slice take, plus the idle time after it.
const SLICE_COST: DurationNs = DurationNs::from_ms(3);

impl CycleCost {
    pub fn seconds(&self, shape: &SliceShape) -> f64 {
        let slice =
            (shape.ramp + SLICE_COST).as_secs_f64() + shape.length.as_secs_f64() * self.longer;
        slice * self.variants as f64
    }
}

/// Clients that sleep make one further cycle for this many planned ones or fewer: about a sixth of
/// all.
const SLEEPERS_EACH: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SustainedOrder {
    pub length: DurationNs,
    /// Number of turns of each variant; if not set, all variants are loaded at once.
    pub turns: Option<u32>,
}

impl CellOrder {
    pub fn rate(&self, variant: usize) -> Option<f64> {
        self.rates.get(variant).copied().flatten()
    }

    /// Records how long the launches took to warm up.
    pub fn use_launches(&mut self, warm_ns: u64) {
        if let Some(growth) = &mut self.growth {
            growth.warm_ns = warm_ns;
        }
    }

    /// Number of further cycles with clients that sleep while they wait.
    pub fn by_sleepers(&self, cycles: u32) -> u32 {
        if self.has_sleepers { cycles.div_ceil(SLEEPERS_EACH) } else { 0 }
    }

    /// Number of slices of each variant, given their shape.
    pub fn cycles_of(&self, shape: &SliceShape) -> u32 {
        self.growth.as_ref().map_or(self.cycles, |growth| {
            let Growth { cost, left, warm_ns } = growth;
            let launch_s = *warm_ns as f64 / 1e9;
            self.cycles.max(cycles(launch_s, cost.seconds(shape), 0, left.as_secs_f64()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_follow_from_the_shape_that_trials_found() {
        let cost = CycleCost { variants: 5, longer: 1.0 };
        let growth = Growth { cost, left: DurationNs::from_secs(270), warm_ns: 0 };
        let mut order = CellOrder {
            cell: 0,
            rates: Vec::new(),
            shape: None,
            fit: Fit::default(),
            is_cold: false,
            cycles: 8,
            growth: Some(growth),
            warmup_max: DurationNs::from_secs(20),
            has_sleepers: false,
            sustained: None,
        };
        let shape = |ms: u64| SliceShape {
            length: DurationNs::from_ms(ms),
            ramp: DurationNs::from_ms(1),
            warmup: DurationNs::ZERO,
            requests: None,
        };
        assert_eq!(order.cycles_of(&shape(20)), 8);
        order.use_launches(18_000_000_000);
        // A launch takes as long as 150 cycles of 0.12 s, or as 11 of 1.7 s.
        assert_eq!(order.cycles_of(&shape(20)), 25);
        assert_eq!(order.cycles_of(&shape(335)), 8);
        // Five rounds must fit into the time.
        order.growth = Some(Growth { left: DurationNs::from_secs(100), ..growth });
        order.use_launches(18_000_000_000);
        assert_eq!(order.cycles_of(&shape(20)), 16);
        order.growth = None;
        assert_eq!(order.cycles_of(&shape(20)), 8);
    }
}
