//! One question while it is measured: its slices' shape, its rounds so far, and when it has enough.
//! A run has one; a sweep has one for each of its values, all on the same launches.

use tare_io::DurationNs;
use tare_stats::metric::Basis;
use tare_stats::samples::Round;
use tare_stats::stopping::{
    PILOT_CYCLES, PILOT_ROUNDS, Pilot, choose_cycles, is_choice, is_look, precise_enough,
};
use tare_stats::{RoundDigest, analyse, digest};
use tare_store::RunId;

use super::outcome::Stopped;
use super::plan::Plan;
use super::window::{Window, edges};

pub struct Cell<'a> {
    pub plan: &'a Plan,
    /// Where its slices are kept.
    pub run: RunId,
    pub window: Option<Window>,
    pub digests: Vec<RoundDigest>,
    /// Of its next round.
    pub cycles: u32,
    /// Why it is measured no further.
    pub stopped: Option<Stopped>,
}

/// Ten, and some room for slow rounds.
const TAIL_REPLIES: f64 = 12.0;
const TAIL_CYCLES_MAX: u32 = 1000;
/// Orders, wake-ups and readings around a slice.
const SLICE_COST: DurationNs = DurationNs::from_ms(1);

impl<'a> Cell<'a> {
    pub fn new(plan: &'a Plan, run: RunId, digests: Vec<RoundDigest>) -> Self {
        let window = plan.slices.found.map(|found| Window {
            length: found.window,
            ramp: found.ramp,
            warmup: found.warmup,
            edges: edges(plan),
        });
        Self { plan, run, window, digests, cycles: PILOT_CYCLES, stopped: None }
    }

    /// Takes a round in; `left` is the time that this cell may still take.
    pub fn take(&mut self, round: &Round, left: DurationNs) {
        let digest = digest(round, self.plan.variants.len(), self.plan.baseline());
        self.digests.push(digest);
        self.stopped = self.verdict_on_going_on();
        self.choose_cycles(false, left);
    }

    fn verdict_on_going_on(&self) -> Option<Stopped> {
        let rounds = self.digests.len() as u32;
        if rounds == PILOT_ROUNDS && super::finish::all_void(self.plan, &self.digests) {
            return Some(Stopped::Void);
        }
        if self.plan.stop.rounds.is_some_and(|most| rounds >= most) {
            return Some(Stopped::Rounds);
        }
        if self.plan.stop.rounds.is_none() && is_look(rounds) {
            let analysis = analyse(&self.digests, &self.plan.question());
            if precise_enough(&analysis, self.plan.stop.precision) {
                return Some(Stopped::Precision);
            }
        }
        None
    }

    /// Cycles of the next round; at the beginning, what earlier rounds say.
    pub fn choose_cycles(&mut self, at_the_beginning: bool, left: DurationNs) {
        if let Some(fixed) = self.plan.slices.cycles {
            self.cycles = fixed;
            return;
        }
        let rounds = self.digests.len() as u32;
        let due = if at_the_beginning { rounds >= PILOT_ROUNDS } else { is_choice(rounds) };
        if !due {
            return;
        }
        let slices: f64 =
            self.digests.iter().map(|digest| self.cycle_seconds() * f64::from(digest.cycles)).sum();
        let total: f64 = self.digests.iter().map(|digest| digest.elapsed_ns as f64 / 1e9).sum();
        let launch_cost = ((total - slices) / f64::from(rounds)).max(0.0);
        let (baseline, metrics) = (self.plan.baseline(), &self.plan.stop.metrics);
        let pilot = Pilot::of(&self.digests, baseline, metrics, launch_cost, self.cycle_seconds());
        let (precision, left) = (self.plan.stop.precision, left.as_secs_f64());
        let chosen = pilot.map_or(self.cycles, |pilot| choose_cycles(&pilot, precision, left));
        self.cycles = chosen.max(self.cycles_for_tails());
    }

    /// A quantile needs ten replies beyond it in each round, of the slowest variant too.
    fn cycles_for_tails(&self) -> u32 {
        let beyond = self.plan.stop.metrics.iter().filter_map(|metric| match metric.basis() {
            Basis::Quantile(_, quantile) => Some(1.0 - quantile.max(1.0 - quantile)),
            _ => None,
        });
        let rarest = beyond.fold(1.0, f64::min);
        let per_cycle = self.digests.iter().flat_map(|digest| {
            let cycles = f64::from(digest.cycles.max(1));
            digest.variants.iter().map(move |variant| variant.counts.good as f64 / cycles)
        });
        let fewest = per_cycle.fold(f64::INFINITY, f64::min).max(1.0);
        if rarest == 1.0 || !fewest.is_finite() {
            return 0;
        }
        ((TAIL_REPLIES / rarest / fewest).ceil() as u32).min(TAIL_CYCLES_MAX)
    }

    /// What one slice of every variant takes.
    fn cycle_seconds(&self) -> f64 {
        let window = self.window.unwrap_or_else(|| Window::first(self.plan));
        let slice = (window.length + window.ramp + SLICE_COST).as_secs_f64();
        slice * self.plan.variants.len() as f64
    }
}
