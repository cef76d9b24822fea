//! A design of measurement, as a value: what is measured next follows from what was seen. Designs
//! are pure. Who carries out their orders knows servers, clocks and stores, and decides nothing.
//!
//! A run has one load or, in a sweep, several that are measured on the same launches: its cells.

use tare_io::DurationNs;
use tare_model::sustained::WarmUp;

use crate::digest::RoundDigest;
use crate::slicing::{Fit, SliceShape};
use crate::stopping::used;
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
    pub grows: bool,
    /// What a cycle takes.
    pub cycle_seconds: f64,
    /// The longest warm-up.
    pub warmup_max: DurationNs,
    /// Load that does not let up, after the slices.
    pub sustained: Option<SustainedOrder>,
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

    /// Uses launches that took so long to be warm.
    pub fn use_launches(&mut self, warm_ns: u64) {
        if self.grows {
            self.cycles = self.cycles.max(used(warm_ns as f64 / 1e9, self.cycle_seconds));
        }
    }
}
