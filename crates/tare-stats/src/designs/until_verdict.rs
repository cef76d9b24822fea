//! Compares variants under one load until every verdict asked for is known; measures a single
//! variant until its values are.

use tare_io::DurationNs;
use tare_model::metric::Basis;
use tare_model::plan::PlanParts;
use tare_model::servers::ServerSpec;
use tare_model::sustained::Sustained;

use super::sweep;
use crate::analysis::{Comparison, Question, analyse};
use crate::design::{
    CellHistory, CellOrder, CycleCost, Design, Ended, Growth, History, RoundOrder, SurveyOrder,
    SustainedOrder,
};
use crate::estimate::median;
use crate::idle::matters;
use crate::round_digest::RoundDigest;
use crate::slicing::{Fit, SliceShape, longer_mean};
use crate::stopping::{CYCLES_MAX, Goal, Limit, cycles, is_look};
use crate::surveys::{Limits, Surveys};
use crate::sustained::{Agreement, takes_turns};
use crate::verdict::{ROUNDS_MIN, Verdict};

/// Questions to the guards, which are outside this crate.
pub trait Rules {
    /// Whether guards forbid every verdict, and more rounds would not change that.
    fn forbid_all(&self, plan: &PlanParts, rounds: &[RoundDigest]) -> bool;

    /// Whether replies differ in a way that forbids a verdict; the first round shows it.
    fn replies_differ(&self, plan: &PlanParts, rounds: &[RoundDigest]) -> bool;

    /// Whether more sustained load would give a verdict that noise withholds.
    fn want_sustained(&self, plan: &PlanParts, rounds: &[RoundDigest]) -> bool;
}

pub struct ComparisonDesign<'a> {
    plan: &'a PlanParts,
    rules: &'a dyn Rules,
    /// Whether to go on although guards forbid every verdict.
    allows_void: bool,
    /// Limits to decide; the run may end when all of them are.
    limits: Vec<Limit>,
    /// Index of its cell in the run.
    cell: usize,
    /// Number of rounds processed.
    taken: usize,
    /// Whether the next round must have sustained load.
    check_due: bool,
    /// Whether a round that should have had sustained load had none.
    checks_fail: bool,
    /// Whether the goal is reached: every verdict is precise, or all limits are decided.
    is_reached: bool,
    /// Whether all limits are decided.
    are_decided: bool,
    /// Whether one of them is exceeded.
    is_exceeded: bool,
    ended: Option<Ended>,
}

/// Most launches with sustained load while its result is unclear.
const CHECKS_MAX: u32 = 6;
/// The same limit beside other busy processes, where slices alone conclude nothing.
const CHECKS_IN_NOISE: u32 = 20;
/// Replies beyond a quantile: ten, and some slack for slow rounds.
const TAIL_REPLIES: f64 = 12.0;
const SUSTAINED: DurationNs = DurationNs::from_secs(3);
/// Length of a turn, if variants take turns.
const TURN: DurationNs = DurationNs::from_secs(1);

impl<'a> ComparisonDesign<'a> {
    pub fn new(plan: &'a PlanParts, rules: &'a dyn Rules, cell: usize) -> Self {
        Self {
            plan,
            rules,
            allows_void: false,
            limits: Limit::from_check(plan),
            cell,
            taken: 0,
            check_due: false,
            checks_fail: false,
            is_reached: false,
            are_decided: false,
            is_exceeded: false,
            ended: None,
        }
    }

    /// Ends once these are decided.
    #[must_use]
    pub fn deciding(mut self, limits: &[Limit]) -> Self {
        self.limits.extend_from_slice(limits);
        self
    }

    /// Goes on even if guards forbid every verdict.
    #[must_use]
    pub fn allowing_void(self, allows_void: bool) -> Self {
        Self { allows_void, ..self }
    }

    /// Processes new rounds.
    pub(super) fn take(&mut self, seen: &CellHistory<'_>) {
        let rounds = seen.rounds;
        if rounds.len() == self.taken || self.ended.is_some() {
            return;
        }
        self.taken = rounds.len();
        self.checks_fail |= self.check_due && self.checks(rounds) == 0;
        self.ended = self.reason_to_end(rounds);
        self.check_due = self.ended.is_none() && self.wants_check(rounds);
    }

    /// Its order for the next round; `left` is the time that the cell may still take.
    pub(super) fn order(
        &self,
        seen: &CellHistory<'_>,
        surveys: &Surveys,
        left: DurationNs,
    ) -> CellOrder {
        let fit = Fit::from_plan(self.plan);
        let cold = self.plan.slices.cold;
        CellOrder {
            cell: self.cell,
            rates: Vec::new(),
            shape: cold.map(SliceShape::from_cold_start).or(seen.shape),
            fit,
            is_cold: cold.is_some(),
            cycles: self.cycles(seen, surveys, left),
            growth: (seen.rounds.is_empty() && self.plan.slices.cycles().is_none())
                .then(|| Growth { cost: self.cycle_cost(), left, warm_ns: 0 }),
            warmup_max: self.plan.slices.warmup_max(self.plan.stop.max_time),
            has_sleepers: cold.is_none()
                && self.plan.variants.len() > 1
                && self.plan.load.client.idle.is_none(),
            sustained: self.sustained(seen.rounds),
        }
    }

    fn sustained(&self, rounds: &[RoundDigest]) -> Option<SustainedOrder> {
        let length = sustained_length(self.plan).filter(|_| self.check_due)?;
        let turns = || (length.as_ns() / TURN.as_ns()).max(1) as u32;
        Some(SustainedOrder { length, turns: takes_turns(rounds).then(turns) })
    }

    /// Expected time of its part of the next round, from earlier rounds.
    pub(super) fn round_time(
        &self,
        seen: &CellHistory<'_>,
        surveys: &Surveys,
        left: DurationNs,
    ) -> Option<DurationNs> {
        // A cold slice is as long as its requests take.
        if self.is_cold() {
            let elapsed = seen.rounds.iter().map(|round| round.elapsed_ns as f64 / 1e9);
            let elapsed: Vec<f64> = elapsed.collect();
            return (!elapsed.is_empty()).then(|| DurationNs::from_secs_f64(median(&elapsed)));
        }
        let launch_s = self.launch_seconds(seen, surveys)?;
        let order = self.order(seen, surveys, left);
        let has_slept = seen.rounds.last().is_some_and(|digest| digest.cycles_by_sleepers > 0);
        let by_sleepers = if has_slept { order.by_sleepers(order.cycles) } else { 0 };
        let cycles = order.cycles + by_sleepers;
        let slices_s = self.cycle_seconds(seen) * f64::from(cycles);
        let sustained_s = order.sustained.map_or(0.0, |sustained| {
            let turns = if sustained.turns.is_some() { self.plan.variants.len() } else { 1 };
            sustained.length.as_secs_f64() * turns as f64
        });
        Some(DurationNs::from_secs_f64(launch_s + slices_s + sustained_s))
    }

    /// Load on launches from their first request on, if it is not known how long they need.
    pub(super) fn survey(&self, seen: &CellHistory<'_>, surveys: &Surveys) -> Option<SurveyOrder> {
        let least = sustained_length(self.plan)?;
        // In a resumed run, the warm-up may be known without surveys.
        let is_known = surveys.slowest_ns().is_none() && seen.warm.is_some();
        if self.plan.slices.warmup.is_some() || is_known {
            return None;
        }
        let most = self.plan.slices.warmup_max(self.plan.stop.max_time);
        let limits = Limits { least_ns: least.as_ns(), most_ns: most.as_ns() };
        let first = DurationNs::from_ns(surveys.first_stretch(&limits)?);
        Some(SurveyOrder { limits, first })
    }

    /// Whether usage at rest must be measured: only if it was seen to matter.
    pub(super) fn watches_rest(&self, seen: &CellHistory<'_>) -> bool {
        matters(seen.rounds)
    }

    pub(super) fn is_cold(&self) -> bool {
        self.plan.slices.cold.is_some()
    }

    pub(super) fn is_open(&self) -> bool {
        self.plan.load.is_open()
    }

    pub(super) fn has_ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Whether some limit is exceeded, as far as sustained load shows; others may be undecided.
    pub(super) fn is_exceeded(&self) -> bool {
        self.is_exceeded && !self.check_due
    }

    /// Whether `times` as many rounds could decide all limits.
    pub(super) fn could_be_decided(&self, rounds: &[RoundDigest], times: f64) -> bool {
        let analysis = analyse(rounds, &Question::from_plan(self.plan));
        self.limits.iter().all(|limit| limit.could_be_decided(&analysis, times))
    }

    pub(super) fn end(&mut self, why: Ended) {
        self.ended.get_or_insert(why);
    }

    fn reason_to_end(&mut self, all: &[RoundDigest]) -> Option<Ended> {
        let rounds = all.len() as u32;
        if rounds == ROUNDS_MIN && !self.allows_void && self.rules.forbid_all(self.plan, all) {
            return Some(Ended::Void);
        }
        if self.plan.check.is_some() && rounds == 1 && self.rules.replies_differ(self.plan, all) {
            return Some(Ended::Void);
        }
        if self.plan.stop.rounds.is_some_and(|most| rounds >= most) {
            return Some(Ended::Rounds);
        }
        // A goal that was reached is checked again until the run ends, which may be later.
        if self.plan.stop.rounds.is_none()
            && (self.is_reached || self.is_exceeded || is_look(rounds))
        {
            let analysis = analyse(all, &Question::from_plan(self.plan));
            let is_precise = Goal::from_plan(self.plan).is_reached(&analysis);
            self.are_decided = !self.limits.is_empty()
                && self.limits.iter().all(|limit| limit.is_decided(&analysis));
            self.is_exceeded = self.limits.iter().any(|limit| limit.is_exceeded(&analysis));
            // A check is about its limits, however precise the intervals are.
            self.is_reached = self.are_decided || is_precise && self.plan.check.is_none();
        }
        let why = if self.are_decided { Ended::Gates } else { Ended::Precision };
        (self.is_reached && !self.wants_check(all)).then_some(why)
    }

    /// Rounds with sustained load that can be compared with their slices.
    fn checks(&self, rounds: &[RoundDigest]) -> u32 {
        let in_turns = takes_turns(rounds);
        let had = |digest: &&RoundDigest| {
            let launches = digest.variants.iter().filter_map(|round| round.launch.as_ref());
            let mut loads = launches.filter_map(|launch| launch.load.sustained.as_ref());
            loads.any(|load| load.in_turns == in_turns)
        };
        rounds.iter().filter(had).count() as u32
    }

    /// Whether more sustained load would decide what slices cannot. The first comes from the
    /// survey; more follows if it neither confirms nor contradicts what slices conclude.
    fn wants_check(&self, all: &[RoundDigest]) -> bool {
        let is_metered = self.plan.variants.iter().any(|v| v.server != ServerSpec::External);
        let compares = self.plan.variants.len() > 1;
        if !compares || sustained_length(self.plan).is_none() || self.checks_fail || !is_metered {
            return false;
        }
        let (rounds, checks) = (all.len() as u32, self.checks(all));
        if checks == 0 || rounds < ROUNDS_MIN {
            return checks == 0 && rounds + 1 >= ROUNDS_MIN;
        }
        let unclear = |comparison: &Comparison| {
            let is_limited = self.limits.iter().any(|limit| limit.is_about(comparison));
            let concludes =
                is_limited || comparison.asked && comparison.in_slices != Verdict::Unresolved;
            let check = comparison.sustained.as_ref().filter(|_| concludes);
            check.is_some_and(|check| check.agreement == Agreement::Unclear)
        };
        let is_unclear = || {
            let analysis = analyse(all, &Question::from_plan(self.plan));
            analysis.comparisons.iter().any(unclear)
        };
        // If the number of rounds is fixed, any of them may be the last.
        let concludes = self.is_reached
            || self.is_exceeded && self.plan.check.is_some()
            || self.plan.stop.rounds.is_some();
        let is_worth_it = concludes || !checks_are_expensive(all);
        (checks < CHECKS_MAX && is_worth_it && is_unclear())
            || (concludes && checks < CHECKS_IN_NOISE && self.rules.want_sustained(self.plan, all))
    }

    /// Cycles of the next round, from the launch times of earlier rounds; before those, from the
    /// warm-up of another cell or a lost round.
    fn cycles(&self, seen: &CellHistory<'_>, surveys: &Surveys, left: DurationNs) -> u32 {
        if let Some(fixed) = self.plan.slices.cycles() {
            return fixed;
        }
        let warm = || surveys.slowest_ns().unwrap_or(0) as f64 / 1e9;
        let launch_s = self.launch_seconds(seen, surveys).unwrap_or_else(warm);
        let rounds = seen.rounds.len() as u32;
        let chosen = cycles(launch_s, self.cycle_seconds(seen), rounds, left.as_secs_f64());
        chosen.max(self.cycles_for_tails(seen.rounds))
    }

    /// Median time that rounds take outside their slices: launches, probes, connections and
    /// warm-up, but not sustained load for checks.
    fn launch_seconds(&self, seen: &CellHistory<'_>, surveys: &Surveys) -> Option<f64> {
        let warm_ns = surveys.slowest_ns().unwrap_or(0);
        let cycle_seconds = self.cycle_seconds(seen);
        let of = |digest: &RoundDigest| {
            let warm_ns = |load: &Sustained| if load.cold { warm_ns } else { 0 };
            let beside = digest.elapsed_ns.saturating_sub(looks_ns(digest, warm_ns));
            let cycles = digest.cycles + digest.cycles_by_sleepers;
            beside as f64 / 1e9 - cycle_seconds * f64::from(cycles)
        };
        let seconds: Vec<f64> = seen.rounds.iter().map(of).collect();
        (!seconds.is_empty()).then(|| median(&seconds).max(0.0))
    }

    /// Cycles needed for quantiles: ten replies beyond each in every round, also of the slowest
    /// variant.
    fn cycles_for_tails(&self, rounds: &[RoundDigest]) -> u32 {
        let beyond = self.plan.stop.metrics.iter().filter_map(|metric| match metric.basis() {
            Basis::Quantile(_, quantile) => Some(1.0 - quantile.max(1.0 - quantile)),
            _ => None,
        });
        let rarest = beyond.fold(1.0, f64::min);
        let per_cycle = rounds.iter().flat_map(|digest| {
            let cycles = f64::from(digest.cycles.max(1));
            digest.variants.iter().map(move |variant| variant.counts.good as f64 / cycles)
        });
        let fewest = per_cycle.fold(f64::INFINITY, f64::min).max(1.0);
        if rarest == 1.0 || !fewest.is_finite() {
            return 0;
        }
        ((TAIL_REPLIES / rarest / fewest).ceil() as u32).min(CYCLES_MAX)
    }

    /// Time of one slice of every variant.
    fn cycle_seconds(&self, seen: &CellHistory<'_>) -> f64 {
        let cold = self.plan.slices.cold.map(SliceShape::from_cold_start);
        let shape = cold.or(seen.shape).unwrap_or_else(|| Fit::from_plan(self.plan).first());
        self.cycle_cost().seconds(&shape)
    }

    fn cycle_cost(&self) -> CycleCost {
        let longer = if self.plan.slices.window.is_some() { 1.0 } else { longer_mean() };
        CycleCost { variants: self.plan.variants.len(), longer }
    }
}

impl Design for ComparisonDesign<'_> {
    fn next(&mut self, history: &History<'_>) -> Option<RoundOrder> {
        sweep::next(std::slice::from_mut(self), history)
    }

    fn ended(&self, _: usize) -> Option<Ended> {
        self.ended
    }
}

/// Whether checks under sustained load took most of the time, which slices need to become precise:
/// ten variants in turns take half a minute for one check.
fn checks_are_expensive(rounds: &[RoundDigest]) -> bool {
    // The first load of a launch is its warm-up.
    let warm_ns = |load: &Sustained| if load.cold { u64::MAX } else { 0 };
    let looks: u64 = rounds.iter().map(|digest| looks_ns(digest, warm_ns)).sum();
    let all: u64 = rounds.iter().map(|digest| digest.elapsed_ns).sum();
    looks > all / 2
}

/// Time of a round's sustained load beyond the warm-up.
fn looks_ns(digest: &RoundDigest, warm_ns: impl Fn(&Sustained) -> u64) -> u64 {
    let launches = digest.variants.iter().filter_map(|round| round.launch.as_ref());
    let loads = launches.filter_map(|launch| launch.load.sustained.as_ref());
    // Load on all at once takes as long as on one.
    loads.fold(0, |all, load| {
        let ns: u64 = load.bins.iter().map(|bin| bin.ns).sum();
        let ns = ns.saturating_sub(warm_ns(load));
        if load.in_turns { all + ns } else { all.max(ns) }
    })
}

/// Length of sustained load; `None` if no verdict is possible, or not all variants can be loaded at
/// once.
fn sustained_length(plan: &PlanParts) -> Option<DurationNs> {
    let length = plan.slices.sustained.unwrap_or(SUSTAINED);
    let has_verdict = plan.stop.rounds.is_none_or(|rounds| rounds >= ROUNDS_MIN);
    // Slightly longer, so that a pause with this period always falls into it.
    let length = DurationNs::from_ns(length.as_ns() + length.as_ns() / 10);
    let is_unwanted = plan.slices.no_sustained || plan.slices.cold.is_some();
    let wanted =
        !is_unwanted && has_verdict && plan.load.protocol().is_served() && !plan.is_exclusive();
    wanted.then_some(length)
}
