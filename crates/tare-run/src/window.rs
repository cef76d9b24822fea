//! How long slices are.

use tare_io::DurationNs;
use tare_load::{Edges, Stretch};
use tare_model::cold::Cold;
use tare_model::plan::{Plan, SLICE_LENGTHS};

use crate::schedule::{RAMP_JITTER, Shape};

/// The shape of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub length: DurationNs,
    pub ramp: DurationNs,
    pub warmup: DurationNs,
    /// It ends after so many.
    pub requests: Option<u64>,
    pub edges: Edges,
}

/// Several workers must count over the same time, which only the clock gives them.
pub fn edges(plan: &Plan) -> Edges {
    if plan.load.workers() == 1 { Edges::Replies } else { Edges::Clock }
}

impl Window {
    const SHORTEST: DurationNs = DurationNs::from_ms(20);
    pub const LONGEST: DurationNs = DurationNs::from_secs(1);
    /// Replies that a slice should hold.
    const REPLIES: f64 = 200.0;
    const SHORTEST_RAMP: DurationNs = DurationNs::from_ms(2);

    pub fn first(plan: &Plan) -> Self {
        let length = plan.slices.window.unwrap_or(Self::SHORTEST);
        let warmup = plan.slices.warmup.unwrap_or(length);
        Self { length, ramp: Self::SHORTEST_RAMP, warmup, requests: None, edges: edges(plan) }
    }

    /// Fits it to the slowest variant's replies a second, and the longest mean latency.
    pub fn fit(&mut self, slowest_per_s: f64, longest: DurationNs, plan: &Plan) {
        let ms = (Self::REPLIES / slowest_per_s.max(1e-3) * 1000.0).ceil();
        let needed = DurationNs::from_ms(ms as u64).clamp(Self::SHORTEST, Self::LONGEST);
        self.length = plan.slices.window.unwrap_or(needed);
        // The first replies come in step; two latencies later they do not.
        let ramp = DurationNs::from_ns(longest.as_ns() * 2);
        self.ramp = ramp.clamp(Self::SHORTEST_RAMP, Self::LONGEST);
        self.warmup = plan.slices.warmup.unwrap_or(self.length);
    }

    /// A launch's first load, from its first request on, but for those that saw that it was up and
    /// what it answers.
    pub fn of_cold(cold: Cold) -> Self {
        let (length, requests) = match cold {
            Cold::For(time) => (time, None),
            Cold::Requests(requests) => (*SLICE_LENGTHS.end(), Some(requests)),
        };
        // Edges on replies would leave out the first of them.
        let (ramp, warmup) = (DurationNs::ZERO, DurationNs::ZERO);
        Self { length, requests, ramp, warmup, edges: Edges::Clock }
    }

    /// What it is in one cycle; a length that the user chose stays.
    pub fn shaped(self, shape: &Shape, is_fixed: bool) -> Self {
        let most = self.length.as_ns() as f64 / RAMP_JITTER as f64;
        let longer = if is_fixed { 1.0 } else { shape.longer };
        let length = self.length.as_ns() as f64 * longer;
        Self {
            ramp: self.ramp + DurationNs::from_ns((most * shape.ramp) as u64),
            length: DurationNs::from_ns(length as u64).min(Self::LONGEST.max(self.length)),
            ..self
        }
    }

    /// Load for as long as a mean ramp.
    pub fn only_ramp(&self) -> Stretch {
        let jitter = self.length.as_ns() / RAMP_JITTER / 2;
        Stretch {
            ramp: DurationNs::ZERO,
            window: self.ramp + DurationNs::from_ns(jitter),
            edges: Edges::Clock,
            ..self.stretch()
        }
    }

    pub fn stretch(&self) -> Stretch {
        Stretch {
            ramp: self.ramp,
            window: self.length,
            requests: self.requests,
            edges: self.edges,
            ..Stretch::NONE
        }
    }

    pub fn warmup(&self) -> Stretch {
        Stretch { window: self.warmup, ..self.stretch() }
    }
}
