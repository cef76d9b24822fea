//! One question while it is measured: its slices' shape, its rounds so far, and when it has enough.
//! A run has one; a sweep has one for each of its values, all on the same launches.

use tare_guards::run::{forbid_all, wants_sustained};
use tare_io::DurationNs;
use tare_model::found::Found;
use tare_model::metric::Basis;
use tare_model::net::Protocol;
use tare_model::plan::Plan;
use tare_model::samples::Round;
use tare_model::servers::ServerSpec;
use tare_model::sustained::WarmUp;
use tare_stats::idle::matters;
use tare_stats::stopping::{
    PILOT_CYCLES, PILOT_ROUNDS, Pilot, choose_cycles, fitting, is_look, precise_enough,
    rounds_missing, worth,
};
use tare_stats::surveys::Surveys;
use tare_stats::sustained::{Agreement, some_sleep};
use tare_stats::verdict::ROUNDS_MIN;
use tare_stats::{Comparison, Question, RoundDigest, analyse, digest};
use tare_store::RunId;

use crate::outcome::Stopped;
use crate::schedule::LONGER_MEAN;
use crate::window::{Window, edges};

pub struct Cell<'a> {
    pub plan: &'a Plan,
    /// Where its slices are kept.
    pub run: RunId,
    pub(crate) window: Option<Window>,
    /// What each variant needs until it is warm, and the launches that showed it.
    pub warm: Option<Vec<WarmUp>>,
    pub surveys: Surveys,
    /// The next round is to look at sustained load; and whether a round that was to did.
    pub check_due: bool,
    checks_fail: bool,
    /// A look found every interval as narrow as asked.
    is_precise: bool,
    pub digests: Vec<RoundDigest>,
    /// Its next round has so many.
    pub cycles: u32,
    /// Why it is measured no further.
    pub stopped: Option<Stopped>,
}

/// Launches that get sustained load: in any case, and where it is not clear what it says.
const CHECKS_MIN: u32 = 2;
const CHECKS_MAX: u32 = 6;
/// The same beside other busy processes, where slices alone conclude nothing.
const CHECKS_IN_NOISE: u32 = 20;
/// Rounds that tell what a launch costs now.
const RECENT: usize = 10;
/// Ten, and some room for slow rounds.
const TAIL_REPLIES: f64 = 12.0;
const TAIL_CYCLES_MAX: u32 = 1000;
/// Orders, wake-ups and readings around a slice, and the rest after it.
const SLICE_COST: DurationNs = DurationNs::from_ms(3);

impl<'a> Cell<'a> {
    /// `found` and `digests` are of the part of the run that is over.
    pub fn new(
        plan: &'a Plan,
        run: RunId,
        found: Option<&Found>,
        digests: Vec<RoundDigest>,
    ) -> Self {
        let window = found.map(|found| Window {
            length: found.window,
            ramp: found.ramp,
            warmup: found.warmup,
            requests: None,
            edges: edges(plan),
        });
        let warm = found.and_then(|found| found.warm.clone());
        let surveys = Surveys::of(&digests);
        Self {
            plan,
            run,
            window,
            warm,
            surveys,
            check_due: false,
            checks_fail: false,
            is_precise: false,
            digests,
            cycles: plan.slices.cycles().unwrap_or(PILOT_CYCLES),
            stopped: None,
        }
    }

    /// Takes a round in; `left` is the time that this cell may still take.
    pub fn take(&mut self, round: &Round, left: DurationNs) {
        let digest = digest(round, self.plan.variants.len(), self.plan.baseline());
        self.digests.push(digest);
        self.checks_fail |= self.check_due && self.checks() == 0;
        self.stopped = self.verdict_on_going_on();
        self.check_due = self.stopped.is_none() && self.wants_check();
        self.choose_cycles(left);
    }

    fn verdict_on_going_on(&mut self) -> Option<Stopped> {
        let rounds = self.digests.len() as u32;
        if rounds == PILOT_ROUNDS && forbid_all(self.plan, &self.digests) {
            return Some(Stopped::Void);
        }
        if self.plan.stop.rounds.is_some_and(|most| rounds >= most) {
            return Some(Stopped::Rounds);
        }
        if self.plan.stop.rounds.is_none() && is_look(rounds) {
            let analysis = analyse(&self.digests, &Question::of(self.plan));
            self.is_precise |= precise_enough(&analysis, self.plan.stop.precision);
        }
        (self.is_precise && !self.wants_check()).then_some(Stopped::Precision)
    }

    /// Whether sustained load is in turns, of which each variant has its own.
    pub fn checks_in_turns(&self) -> bool {
        some_sleep(&self.digests)
    }

    /// Whether its next launches are watched before they are loaded.
    pub fn watches_rest(&self) -> bool {
        matters(&self.digests)
    }

    /// Launches that had sustained load which can be compared with their slices.
    fn checks(&self) -> u32 {
        let in_turns = self.checks_in_turns();
        let had = |digest: &&RoundDigest| {
            let launches = digest.variants.iter().filter_map(|round| round.launch.as_ref());
            let mut loads = launches.filter_map(|launch| launch.load.sustained.as_ref());
            loads.any(|load| load.in_turns == in_turns)
        };
        self.digests.iter().filter(had).count() as u32
    }

    /// Whether more of it would tell what slices cannot. The first is the survey's, the second
    /// comes half-way to the first look, others where it is not clear whether they agree.
    fn wants_check(&self) -> bool {
        let is_metered = self.plan.variants.iter().any(|v| v.server != ServerSpec::External);
        if sustained_length(self.plan).is_none() || self.checks_fail || !is_metered {
            return false;
        }
        let (rounds, checks) = (self.digests.len() as u32, self.checks());
        if checks < CHECKS_MIN || rounds + 1 < ROUNDS_MIN {
            return checks < CHECKS_MIN && rounds + 1 >= ROUNDS_MIN / 2;
        }
        let unclear = |comparison: &Comparison| {
            let check = comparison.sustained.as_ref();
            comparison.asked && check.is_some_and(|check| check.agreement == Agreement::Unclear)
        };
        let analysis = analyse(&self.digests, &Question::of(self.plan));
        let is_unclear = checks < CHECKS_MAX && analysis.comparisons.iter().any(unclear);
        is_unclear || (checks < CHECKS_IN_NOISE && wants_sustained(self.plan, &self.digests))
    }

    /// Cycles of the next round, by what earlier rounds say.
    pub fn choose_cycles(&mut self, left: DurationNs) {
        if let Some(fixed) = self.plan.slices.cycles() {
            self.cycles = fixed;
            return;
        }
        let Some(launch_cost) = self.launch_seconds() else { return };
        let (rounds, left) = (self.digests.len() as u32, left.as_secs_f64());
        let cycle_cost = self.cycle_seconds();
        if rounds < PILOT_ROUNDS {
            let worth = worth(launch_cost, cycle_cost);
            let fit = fitting(launch_cost, cycle_cost, rounds_missing(rounds), left);
            self.cycles = PILOT_CYCLES.max(worth.min(fit.unwrap_or(worth)));
            return;
        }
        let (baseline, metrics) = (self.plan.baseline(), &self.plan.stop.metrics);
        let pilot = Pilot::of(&self.digests, baseline, metrics, launch_cost, cycle_cost);
        let precision = self.plan.stop.precision;
        let now = self.digests.last().map_or(self.cycles, |digest| digest.cycles);
        let chosen = pilot.map_or(now, |pilot| choose_cycles(&pilot, precision, left, now));
        self.cycles = chosen.max(self.cycles_for_tails());
    }

    /// What a round takes beside its slices: launches, probes, connections, and what servers need
    /// until they are warm, but no load that was there to look at them. Of the last rounds the
    /// median.
    fn launch_seconds(&self) -> Option<f64> {
        let warm_ns = self.surveys.slowest_ns().unwrap_or(0);
        let of = |digest: &RoundDigest| {
            let launches = digest.variants.iter().filter_map(|round| round.launch.as_ref());
            let loads = launches.filter_map(|launch| launch.load.sustained.as_ref());
            let of_load = loads.map(|load| {
                let ns: u64 = load.bins.iter().map(|bin| bin.ns).sum();
                ns - if load.cold { ns.min(warm_ns) } else { 0 }
            });
            let beside = digest.elapsed_ns.saturating_sub(of_load.max().unwrap_or(0));
            beside as f64 / 1e9 - self.cycle_seconds() * f64::from(digest.cycles)
        };
        let mut recent: Vec<f64> = self.digests.iter().rev().take(RECENT).map(of).collect();
        recent.sort_by(f64::total_cmp);
        recent.get(recent.len() / 2).map(|seconds| seconds.max(0.0))
    }

    /// A first launch that took so long to be warm is used as long as those that follow.
    pub fn use_first(&mut self, warm_ns: u64) {
        if self.digests.is_empty() && self.plan.slices.cycles().is_none() {
            self.cycles = self.cycles.max(worth(warm_ns as f64 / 1e9, self.cycle_seconds()));
        }
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
        let longer = if self.plan.slices.window.is_some() { 1.0 } else { LONGER_MEAN };
        let slice = (window.ramp + SLICE_COST).as_secs_f64() + window.length.as_secs_f64() * longer;
        slice * self.plan.variants.len() as f64
    }
}

const SUSTAINED: DurationNs = DurationNs::from_secs(3);

/// How long sustained load is, where there is any: only where a verdict can be had, and all
/// variants can be loaded at once.
pub(crate) fn sustained_length(plan: &Plan) -> Option<DurationNs> {
    let length = plan.slices.sustained.unwrap_or(SUSTAINED);
    let has_verdict = plan.stop.rounds.is_none_or(|rounds| rounds >= ROUNDS_MIN);
    let is_http = plan.load.protocol() == Protocol::Http;
    // A pause that comes as often as that is then in it, wherever it falls.
    let length = DurationNs::from_ns(length.as_ns() + length.as_ns() / 10);
    let is_unwanted = plan.slices.no_sustained || plan.slices.cold.is_some();
    let wanted = !is_unwanted && has_verdict && is_http && !plan.is_exclusive();
    wanted.then_some(length)
}
