//! A design of measurement, as a value: what is measured next follows from what was seen. Designs
//! are pure. Who carries out their orders knows servers, clocks and stores, and decides nothing.
//!
//! A run has one load or, in a sweep, several that are measured on the same launches: its cells.

use tare_io::DurationNs;
use tare_model::sustained::WarmUp;

use crate::digest::RoundDigest;
use crate::slicing::{Fit, SliceShape};
use crate::stopping::cycles;
use crate::surveys::{Limits, Surveys};

pub trait Design {
    /// The next round; `None` when there is enough, or no more can be had.
    fn next(&mut self, history: &History<'_>) -> Option<RoundOrder>;

    /// Why a cell is measured no further, where the design says so.
    fn ended(&self, cell: usize) -> Option<Ended>;
}

/// Why a design asks for no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// What was asked is known as precisely as asked.
    Precision,
    /// The limits that it was to decide are decided.
    Gates,
    MaxTime,
    /// As many rounds as the user asked for.
    Rounds,
    /// No verdict is allowed anyway.
    Void,
}

/// What was seen so far.
#[derive(Debug)]
pub struct History<'a> {
    pub cells: Vec<CellHistory<'a>>,
    /// How long launches took to be warm.
    pub surveys: &'a Surveys,
    /// Until the run must be over.
    pub left: DurationNs,
}

/// What was seen under one load.
#[derive(Clone, Copy, Debug)]
pub struct CellHistory<'a> {
    pub rounds: &'a [RoundDigest],
    /// The shape of its slices, once it is known.
    pub shape: Option<SliceShape>,
    /// What each variant needs until it is warm, once that is known.
    pub warm: Option<&'a [WarmUp]>,
    /// It failed, or was cut off: nothing more is to be asked of it.
    pub is_over: bool,
}

/// A round: launches of all variants, and what is measured on them.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundOrder {
    /// What is measured; in which order, the run's seed says.
    pub cells: Vec<CellOrder>,
    /// Servers are watched before there is any load.
    pub watches_rest: bool,
    /// All variants are loaded at once, from their first request on, until they are warm.
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
    /// Requests a second to each variant, where that is not what the load says.
    pub rates: Vec<Option<f64>>,
    /// How slices are cut: `shape`, or as trials show.
    pub shape: Option<SliceShape>,
    pub fit: Fit,
    /// Launches get their first load and nothing before it: no trial, no warm-up, no ramp.
    pub is_cold: bool,
    /// Slices of each variant.
    pub cycles: u32,
    /// A first launch that took long to be warm is used as long: no other rounds say otherwise.
    pub growth: Option<Growth>,
    /// The longest warm-up.
    pub warmup_max: DurationNs,
    /// Load that does not let up, after the slices.
    pub sustained: Option<SustainedOrder>,
}

/// What a launch's warm-up says of how many cycles it is worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    pub cost: CycleCost,
    /// The time that is left.
    pub left: DurationNs,
    /// How long the launch took to be warm.
    pub warm_ns: u64,
}

/// What a slice of every variant takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CycleCost {
    pub variants: usize,
    /// Slices are so many times as long as their shape says, on average.
    pub longer: f64,
}

/// Orders, wake-ups and readings around a slice, and the rest after it.
const SLICE_COST: DurationNs = DurationNs::from_ms(3);

impl CycleCost {
    pub fn seconds(&self, shape: &SliceShape) -> f64 {
        let slice =
            (shape.ramp + SLICE_COST).as_secs_f64() + shape.length.as_secs_f64() * self.longer;
        slice * self.variants as f64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SustainedOrder {
    pub length: DurationNs,
    /// In so many turns, of which each variant has its own; else on all at once.
    pub turns: Option<u32>,
}

impl CellOrder {
    pub fn rate(&self, variant: usize) -> Option<f64> {
        self.rates.get(variant).copied().flatten()
    }

    /// The launches took so long to be warm.
    pub fn use_launches(&mut self, warm_ns: u64) {
        if let Some(growth) = &mut self.growth {
            growth.warm_ns = warm_ns;
        }
    }

    /// Slices of each variant, of this shape.
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
        // Half of 18 s: of cycles of 0.12 s, and of 1.7 s, of which eight are worth it anyway.
        assert_eq!(order.cycles_of(&shape(20)), 75);
        assert_eq!(order.cycles_of(&shape(335)), 8);
        // Five rounds are to fit into the time.
        order.growth = Some(Growth { left: DurationNs::from_secs(100), ..growth });
        order.use_launches(18_000_000_000);
        assert_eq!(order.cycles_of(&shape(20)), 16);
        order.growth = None;
        assert_eq!(order.cycles_of(&shape(20)), 8);
    }
}
