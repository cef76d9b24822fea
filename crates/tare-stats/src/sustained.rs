//! Sustained load on all variants at once.
//!
//! Slices are short, and a server rests between them. A server that defers work, uses up burst
//! credit, or pauses now and then looks better in slices than under real load. A few launches
//! therefore get seconds of load on all variants at the same time: disturbances of the machine
//! affect them alike, and the cost of each is read from its own CPU time. See docs/method.md.

use tare_model::Metric;
use tare_model::samples::Launch;
use tare_model::sustained::{Bin, Sustained, WarmUp};

use crate::analysis::Question;
use crate::estimate::{Estimate, mean, median, t_quantile, variance};
use crate::round_digest::{Calm, RoundDigest, VariantRound};
use crate::weighted::{BETWEEN_PRIOR, EXPECTED, expected_between};

/// A measure of a request, computed from a bin.
type OfBin = fn(Bin) -> Option<f64>;

/// Measures of a server, computed from a bin of load.
trait Costs {
    fn cost(self) -> Option<f64>;
    fn yields(self) -> Option<f64>;
    fn rate(self) -> Option<f64>;
    fn served(self) -> Option<f64>;
    fn idle(self) -> f64;
}

impl Costs for Bin {
    fn cost(self) -> Option<f64> {
        positive(self.cpu_ns as f64 / self.answered as f64)
    }

    /// Replies per CPU time, to which a CPU-bound server's throughput is proportional.
    fn yields(self) -> Option<f64> {
        positive(self.answered as f64 / self.cpu_ns as f64)
    }

    /// Replies per time in which the server could run: its throughput if it were alone.
    fn rate(self) -> Option<f64> {
        positive(self.answered as f64 / self.ns.saturating_sub(self.delay_ns) as f64)
    }

    /// Replies per elapsed time.
    fn served(self) -> Option<f64> {
        positive(self.answered as f64 / self.ns as f64)
    }

    /// Share of the time in which the server could run that it did not use.
    fn idle(self) -> f64 {
        1.0 - self.cpu_ns as f64 / self.ns.saturating_sub(self.delay_ns).max(1) as f64
    }
}

fn positive(value: f64) -> Option<f64> {
    (value.is_finite() && value > 0.0).then_some(value)
}

fn sum(bins: &[Bin]) -> Bin {
    bins.iter().copied().fold(Bin::default(), Bin::plus)
}

/// Bins are merged into blocks of this length, because servers that share a CPU take turns on it.
pub(crate) const BLOCK_NS: u64 = 100_000_000;
/// A fall of costs by no more than this (as a logarithm) is not a warm-up.
const FALLS: f64 = 0.05;
/// Minimum number of blocks at the end that show a server's cost when warm.
const LAST: usize = 6;
/// Their time.
pub(crate) const LAST_NS: u64 = LAST as u64 * BLOCK_NS;

/// A sliding window over blocks, reduced to one number.
struct View {
    span: usize,
    of: fn(&[f64]) -> f64,
    /// If that number is high, the blocks up to this index in the window are high.
    until: usize,
    /// Smaller falls are ignored.
    falls: f64,
}

/// A view that a single disturbed block does not affect.
const CLOSE: View = View { span: 3, of: median, until: 1, falls: FALLS };
/// A view for data as uneven as the ratio of two servers' costs.
const WIDE: View = View { span: 12, of: median, until: 6, falls: FALLS };
/// A view of the cost while a bursting neighbour pauses, which is less even than the median.
const CHEAP: View = View { span: 16, of: octile, until: 13, falls: 2.0 * FALLS };

/// The first octile: an eighth of the values are smaller.
fn octile(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[values.len() / 8]
}

/// The cost of a request in the course of a load. Machines become faster and slower, but servers
/// that warm up only become cheaper: a fall no larger than the largest rise may be the machine's.
pub(crate) struct Course {
    /// Logarithms of costs, one for each view.
    costs: Vec<f64>,
    /// For each view, the load up to the last block that must be high if the view is high.
    ends: Vec<WarmUp>,
    all_ns: u64,
    /// Logarithm of the cost at the end.
    pub(crate) level: f64,
    /// The largest rise during the load.
    rise: f64,
    falls: f64,
}

impl Course {
    /// Takes logarithms of costs, one per block; `None` if the load is too short.
    fn from_blocks(blocks: &[Bin], logs: &[f64], view: &View) -> Option<Self> {
        if logs.len() < 2 * view.span - 1 {
            return None;
        }
        let level = (view.of)(&logs[logs.len().saturating_sub(LAST.max(view.span))..]);
        let costs: Vec<f64> = logs.windows(view.span).map(view.of).collect();
        // Chance causes rises too, but fewer in means of several costs.
        let (mut lowest, mut rise) = (f64::INFINITY, 0.0_f64);
        for cost in costs.windows(CLOSE.span).map(mean) {
            lowest = lowest.min(cost);
            rise = rise.max(cost - lowest);
        }
        let ends = blocks.iter().scan(WarmUp::default(), |end, block| {
            end.ns += block.ns;
            end.requests += block.answered;
            Some(*end)
        });
        let ends = ends.skip(view.until).take(costs.len()).collect();
        Some(Self { costs, ends, all_ns: sum(blocks).ns, level, rise, falls: view.falls })
    }

    /// Measures cost in CPU time if the server is metered, else in elapsed time.
    pub(crate) fn from_launch(load: &Sustained) -> Option<Self> {
        let blocks = blocks(&[load]).remove(0);
        Self::from_blocks(&blocks, &logs(&blocks, cost_of(load))?, &CLOSE)
    }

    /// Compares one server with others; `None` if the ratio did not fall, or if at least half of
    /// its fall came from a rise of the others' costs.
    fn from_ratios(blocks: &[Bin], own: &[f64], ratios: &[f64], view: &View) -> Option<Self> {
        let ratio = Self::from_blocks(blocks, ratios, view)?;
        let end = ratio.last_above()? + view.until + 1;
        let fall = |logs: &[f64]| octile(&logs[..end]) - octile(&logs[end..]);
        let fell = fall(ratios);
        (fell > 0.0 && fall(own) > fell / 2.0).then_some(ratio)
    }

    fn is_above(&self, cost: f64, by: f64) -> bool {
        cost - self.level > self.rise + by
    }

    /// The last view in which a request costs more than at the end.
    fn last_above(&self) -> Option<usize> {
        self.costs.iter().rposition(|cost| self.is_above(*cost, self.falls))
    }

    /// The load until a request costs as little as at the end.
    fn warm_up(&self) -> WarmUp {
        self.last_above().map_or(WarmUp::default(), |at| self.ends[at])
    }

    /// Whether a request still cost more by `by` when `ns` of the load were left.
    fn fell_within(&self, ns: u64, by: f64) -> bool {
        let at = self.ends.partition_point(|end| end.ns + ns <= self.all_ns);
        self.costs.get(at).is_some_and(|cost| self.is_above(*cost, by))
    }
}

/// Cost series of servers loaded at the same time, in which warm-ups are found. Each server has a
/// series of its CPU time per request, of its elapsed time, which includes waits, of its low CPU
/// times, which a neighbour's bursts hardly affect, and of its CPU time relative to the others', in
/// which bursts cancel.
pub struct Courses(Vec<Vec<Course>>);

impl Courses {
    pub fn from_loads(loads: &[&Sustained]) -> Self {
        let joint = blocks(loads);
        let of_one = |(one, load): (usize, &&Sustained)| {
            let own = blocks(&[load]).remove(0);
            let of = |cost, view| Course::from_blocks(&own, &logs(&own, cost)?, view);
            let cost = cost_of(load);
            let alone = [of(Bin::cost, &CLOSE), of(time, &CLOSE), of(cost, &CHEAP)];
            alone.into_iter().flatten().chain(against_others(&joint, one, cost)).collect()
        };
        Self(loads.iter().enumerate().map(of_one).collect())
    }

    /// Returns how much load each server got before its requests cost as little as at the end.
    pub fn warm_ups(&self) -> Vec<WarmUp> {
        let of_one = |courses: &Vec<Course>| {
            courses.iter().map(Course::warm_up).max_by_key(|warm| warm.ns).unwrap_or_default()
        };
        self.0.iter().map(of_one).collect()
    }

    /// Warm-up time of the slowest server.
    pub fn slowest_ns(&self) -> u64 {
        self.warm_ups().iter().map(|warm| warm.ns).max().unwrap_or(0)
    }

    /// Whether each server still cost more by `by` when `ns` of its load were left.
    pub(crate) fn fell_within(&self, ns: u64, by: f64) -> Vec<bool> {
        self.0.iter().map(|courses| courses.iter().any(|one| one.fell_within(ns, by))).collect()
    }
}

fn against_others(blocks: &[Vec<Bin>], one: usize, cost: OfBin) -> Vec<Course> {
    let mut all: Vec<Option<Vec<f64>>> = blocks.iter().map(|blocks| logs(blocks, cost)).collect();
    let own = all.remove(one);
    // Some of the other servers may not be metered.
    let others: Vec<Vec<f64>> = all.into_iter().flatten().collect();
    let Some(own) = own.filter(|_| !others.is_empty()) else { return Vec::new() };
    let of_others = |at: usize| mean(&others.iter().map(|other| other[at]).collect::<Vec<_>>());
    let ratios: Vec<f64> = (0..own.len()).map(|at| own[at] - of_others(at)).collect();
    let of = |view| Course::from_ratios(&blocks[one], &own, &ratios, view);
    [&CLOSE, &WIDE].into_iter().filter_map(of).collect()
}

fn logs(blocks: &[Bin], cost: OfBin) -> Option<Vec<f64>> {
    blocks.iter().map(|block| Some(cost(*block)?.ln())).collect()
}

fn time(bin: Bin) -> Option<f64> {
    positive(bin.ns as f64 / bin.answered as f64)
}

/// CPU time if the server is metered, else elapsed time.
fn cost_of(load: &Sustained) -> OfBin {
    if sum(&load.bins).cpu_ns == 0 { time } else { Bin::cost }
}

/// Merges the loads' bins into blocks of the same times, up to the end of the shortest load. A
/// block goes on until all servers have replied in it: a server that stalls is then expensive, but
/// still has a cost.
fn blocks(loads: &[&Sustained]) -> Vec<Vec<Bin>> {
    let ns = loads.iter().map(|load| sum(&load.bins).ns).min().unwrap_or(0);
    let mut blocks: Vec<Vec<Bin>> = vec![Vec::new(); loads.len()];
    let mut open = vec![Bin::default(); loads.len()];
    let mut left: Vec<(u64, &[Bin])> = loads.iter().map(|load| (0, &load.bins[..])).collect();
    // A bin belongs to the block that contains its middle.
    let mut take = |open: &mut [Bin], until: u64| {
        for (open, (began, bins)) in open.iter_mut().zip(&mut left) {
            while let [bin, rest @ ..] = *bins
                && *began + bin.ns / 2 < until
            {
                (*open, *began, *bins) = (open.plus(*bin), *began + bin.ns, rest);
            }
        }
    };
    let mut until = BLOCK_NS;
    while until <= ns {
        take(&mut open, until);
        until += BLOCK_NS;
        if open.iter().all(|open| open.answered > 0) {
            blocks.iter_mut().zip(&mut open).for_each(|(all, open)| all.push(std::mem::take(open)));
        }
    }
    // The remainder is added to the last block.
    take(&mut open, ns);
    let ends = blocks.iter_mut().zip(open);
    ends.filter_map(|(all, open)| Some((all.last_mut()?, open))).for_each(|(last, open)| {
        *last = last.plus(open);
    });
    blocks
}

/// The bins after a warm-up of this length.
fn after(load: &Sustained, warm_ns: u64) -> &[Bin] {
    let mut ns = 0;
    let from = load.bins.iter().position(|bin| {
        let is_after = ns >= warm_ns;
        ns += bin.ns;
        is_after
    });
    &load.bins[from.unwrap_or(load.bins.len())..]
}

/// Standard deviation from the median absolute deviation, which outliers do not affect.
fn spread(values: &[f64]) -> f64 {
    let middle = median(values);
    let away: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    1.483 * median(&away)
}

/// Below this share of a CPU, a server in a closed loop waits for its clients.
pub const SATURATED: f64 = 0.75;

/// The share of a CPU that a server used in its calm slices (median of rounds); `None` if there are
/// none, or if it is not metered, or paced by a rate.
pub fn busy_share(digests: &[RoundDigest], variant: usize) -> Option<f64> {
    of_calm(digests, variant, Calm::busy_share)
}

/// The median over rounds without a fixed rate.
fn of_calm(
    digests: &[RoundDigest],
    variant: usize,
    of: impl Fn(&Calm) -> Option<f64>,
) -> Option<f64> {
    let rounds = digests.iter().map(|digest| &digest.variants[variant]);
    let closed = rounds.filter(|round| round.counts.due.is_none());
    let values: Vec<f64> = closed.filter_map(|round| of(&round.calm)).collect();
    (!values.is_empty()).then(|| median(&values))
}

/// Whether variants get sustained load one after another. If some server sleeps between requests,
/// others would run in its pauses and costs would differ; and clients in places of their own would
/// compete for CPUs, as they never do in slices.
pub fn takes_turns(digests: &[RoundDigest]) -> bool {
    let launches = digests.iter().flat_map(|digest| &digest.variants);
    let mut loads = launches.filter_map(|round| Some(&round.launch.as_ref()?.load));
    let variants = digests.first().map_or(0, |digest| digest.variants.len());
    let sleeps = |v: usize| {
        let is_idle = busy_share(digests, v).is_some_and(|busy| busy < SATURATED);
        is_idle || of_calm(digests, v, Calm::wakes_per_request).is_some_and(|wakes| wakes > WAKES)
    };
    loads.any(|load| load.by_another) || (0..variants).any(sleeps)
}

/// A server that is scheduled more often than this for each request sleeps between requests,
/// however briefly.
const WAKES: f64 = 0.5;

/// The ratio of two variants in one launch.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LaunchRatio {
    /// Log ratio of the whole launch.
    log_ratio: f64,
    /// Variance of `log_ratio`, from its scatter between blocks.
    noise: f64,
    ns: u64,
}

/// Number of blocks of bins; their ratios show how precisely a launch's ratio is known.
const BLOCKS: usize = 8;
/// Share of a launch's load that must be left after the warm-up, if that is not [`LAST_NS`].
const LEFT_MIN: f64 = 0.3;

/// The bins of both variants after a warm-up of this length, if enough are left.
fn warm_parts<'a>(
    base: &'a Sustained,
    mine: &'a Sustained,
    warm_ns: u64,
) -> Option<(&'a [Bin], &'a [Bin])> {
    let (base, own) = (after(base, warm_ns), after(mine, warm_ns));
    let n = base.len().min(own.len());
    let left = sum(&own[..n]).ns as f64;
    let is_enough = n > 0 && left >= (LAST_NS as f64).min(sum(&mine.bins).ns as f64 * LEFT_MIN);
    is_enough.then(|| (&base[..n], &own[..n]))
}

fn launch_ratio(
    base: &Sustained,
    mine: &Sustained,
    warm_ns: u64,
    of: impl Fn(Bin) -> Option<f64> + Copy,
) -> Option<LaunchRatio> {
    let (base, own) = warm_parts(base, mine, warm_ns)?;
    let n = base.len();
    let ratio = |range: std::ops::Range<usize>| {
        Some((of(sum(&own[range.clone()]))? / of(sum(&base[range]))?).ln())
    };
    let log_ratio = ratio(0..n)?;
    let size = n.div_ceil(BLOCKS);
    let blocks = (0..n).step_by(size).filter_map(|at| ratio(at..(at + size).min(n)));
    let blocks: Vec<f64> = blocks.collect();
    if blocks.len() < 2 {
        return None;
    }
    // A pause in one block of eight is not noise: launches show how often pauses come. If work
    // comes in bursts, in every second block, the spread is too large and the variance limits it.
    let noise = spread(&blocks).powi(2).min(variance(&blocks)) / blocks.len() as f64;
    Some(LaunchRatio { log_ratio, noise, ns: sum(own).ns })
}

/// Change (as a logarithm) of a variant's cost relative to the baseline's in the second half of a
/// load after the warm-up; `None` if it did not change. Effects of the machine on both cancel.
pub fn still_changes(base: &Sustained, mine: &Sustained, warm_ns: u64) -> Option<f64> {
    let (base, mine) = warm_parts(base, mine, warm_ns)?;
    let pairs = base.iter().zip(mine);
    // Bins in which one of them stalled cannot be compared.
    let ratios: Vec<f64> =
        pairs.filter_map(|(base, mine)| Some((mine.cost()? / base.cost()?).ln())).collect();
    if ratios.len() < RATIOS_MIN {
        return None;
    }
    let (early, late) = ratios[ratios.len() / 2..].split_at(ratios.len() / 4);
    let change = median(late) - median(early);
    let error = |part: &[f64]| spread(part) * 1.25 / (part.len() as f64).sqrt();
    // One launch proves nothing: guards require a second one with the same change.
    let seen = change.abs() > CHANGES.max(CHANGES_SIGMAS * error(early).hypot(error(late)));
    seen.then_some(change)
}

/// Minimum number of bins in which costs are compared.
const RATIOS_MIN: usize = 20;
/// Minimum change (as a logarithm).
const CHANGES: f64 = 0.03;
/// Number of standard errors beyond which a change is no accident.
const CHANGES_SIGMAS: f64 = 3.0;

/// Whether sustained load agrees with slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    Agrees,
    /// The two differ by more than the tolerance, possibly by chance; more launches would decide.
    Unclear,
    Disagrees,
}

/// Result of sustained load for one comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Check {
    /// Ratio of the variant's value to the baseline's, with its own interval; `n` counts launches.
    pub ratio: Estimate,
    pub agreement: Agreement,
    /// Shortest load of any launch.
    pub ns: u64,
}

/// Confidence required to say that slices and sustained load disagree. If the true difference
/// equals the tolerance, one check in a hundred disagrees by chance; if it is zero, practically
/// none.
const DISAGREES_LEVEL: f64 = 0.98;
/// Confidence required to say that slices and sustained load differ at all. With many variants each
/// gets little CPU time, and ratios then scatter by more than any tolerance.
const DIFFERS_LEVEL: f64 = 0.9;
/// This level after one launch, which shows little: a second one costs less than a wrong verdict.
const DIFFERS_AT_FIRST_LEVEL: f64 = 0.8;
/// Servers that share a CPU evict each other's data from its caches, which may explain this share
/// of an effect.
const CACHE_EFFECT_SHARE: f64 = 0.15;

/// Compares the slices' ratio with the sustained load of the rounds that have any. `None` if there
/// are none, or if it says nothing about this metric.
pub fn check(
    digests: &[RoundDigest],
    metric: Metric,
    [baseline, variant]: [usize; 2],
    slices: &Estimate,
    question: &Question,
) -> Option<Check> {
    let in_turns = takes_turns(digests);
    let pair = |digest| pair(digest, [baseline, variant], in_turns);
    let of = match metric {
        Metric::ServerCpu => Bin::cost,
        Metric::Throughput if in_turns => alone_of(digests, [baseline, variant]),
        Metric::Throughput => rate_of(digests, [baseline, variant])?,
        _ => return None,
    };
    let see_one = |digest| {
        let (base, mine) = pair(digest)?;
        launch_ratio(base.1, mine.1, digest.warm_ns(), of)
    };
    let seen: Vec<LaunchRatio> = digests.iter().filter_map(see_one).collect();
    if seen.is_empty() {
        return None;
    }
    let shifts = shifts(digests, pair);
    let are_apart = shifts.iter().all(|shift| shift.abs() > APART);
    let point = mean(&seen.iter().map(|seen| seen.log_ratio).collect::<Vec<_>>());
    let noise = mean(&seen.iter().map(|seen| seen.noise).collect::<Vec<_>>());
    let n = seen.len() as f64;
    // The variance of one launch, from the expected one and the observed one. Even if launches
    // hardly differ in slices, one launch under sustained load proves nothing against them.
    let expected = between(digests, metric, variant).max(BETWEEN_PRIOR) + noise;
    let differ = variance(&seen.iter().map(|seen| seen.log_ratio).collect::<Vec<_>>());
    let of_one = (EXPECTED * expected + (n - 1.0) * differ) / (EXPECTED + n - 1.0);
    let error = (of_one / n).sqrt();
    let degrees = EXPECTED + n - 1.0;
    let level = question.level;
    let half = t_quantile(degrees, level) * error;
    let log = Estimate { point, lower: point - half, upper: point + half, level, n: n as u32 };
    let of_slices = slices.point.ln();
    // A half width is at least two standard errors.
    let error_of_slices = (slices.upper.ln() - slices.lower.ln()) / 4.0;
    let apart = (point - of_slices).abs();
    let allowed = question.tolerance + CACHE_EFFECT_SHARE * of_slices.abs();
    let error_of_both = error.hypot(error_of_slices);
    let sure = allowed + t_quantile(degrees, DISAGREES_LEVEL) * error_of_both;
    let differs_level = if seen.len() == 1 { DIFFERS_AT_FIRST_LEVEL } else { DIFFERS_LEVEL };
    let agreement = if apart <= allowed.max(t_quantile(degrees, differs_level) * error_of_both) {
        Agreement::Agrees
    } else if apart > sure && !are_apart {
        Agreement::Disagrees
    } else {
        Agreement::Unclear
    };
    let ns = seen.iter().map(|seen| seen.ns).min()?;
    Some(Check { ratio: log.from_log(), agreement, ns })
}

fn sustained(round: &VariantRound, in_turns: bool) -> Option<&Sustained> {
    let load = round.launch.as_ref().and_then(|launch: &Launch| launch.load.sustained.as_ref());
    load.filter(|load| load.in_turns == in_turns)
}

/// If both servers cost this much more or less (as a logarithm) than in slices, sharing a CPU may
/// have changed them: a server that polls uses all CPU time that it gets. Their difference is then
/// unclear.
const APART: f64 = 0.2;

/// A variant's part of a round, and its sustained load in it.
type Loaded<'a> = (&'a VariantRound, &'a Sustained);

fn pair(digest: &RoundDigest, of: [usize; 2], in_turns: bool) -> Option<(Loaded<'_>, Loaded<'_>)> {
    let [base, mine] = of.map(|variant| {
        let round = &digest.variants[variant];
        Some((round, sustained(round, in_turns)?))
    });
    base.zip(mine)
}

/// Mean log ratio of each variant's cost under sustained load to that in the same launches' slices.
fn shifts<'a>(
    digests: &'a [RoundDigest],
    pair: impl Fn(&'a RoundDigest) -> Option<(Loaded<'a>, Loaded<'a>)>,
) -> [f64; 2] {
    let shift = |round: &VariantRound, warm: &[Bin]| {
        let in_slices = round.used.as_ref()?.cpu_ns() as f64 / round.replies_charged as f64;
        Some((sum(warm).cost()? / positive(in_slices)?).ln())
    };
    let of_both = digests.iter().filter_map(|digest| {
        let (base, mine) = pair(digest)?;
        let warm = warm_parts(base.1, mine.1, digest.warm_ns())?;
        Some((shift(base.0, warm.0)?, shift(mine.0, warm.1)?))
    });
    let (base, mine): (Vec<f64>, Vec<f64>) = of_both.unzip();
    [base, mine].map(|shifts| if shifts.is_empty() { 0.0 } else { mean(&shifts) })
}

/// If both servers are idle for this much more of the time than in slices, something else limits
/// them, such as their clients' CPUs. If only one is, it stalls by itself.
const MORE_IDLE: f64 = 0.10;
/// A server that uses at least this share of its CPUs is CPU-bound.
const CPU_BOUND: f64 = 0.85;

/// Measure of capacity for servers that were loaded in turns: replies per time, excluding waits for
/// a CPU if one thread does the work. Many threads mostly wait for each other.
fn alone_of(digests: &[RoundDigest], pair: [usize; 2]) -> OfBin {
    let loads = |variant: usize| {
        digests.iter().filter_map(move |digest| sustained(&digest.variants[variant], true))
    };
    match pair.into_iter().flat_map(loads).all(|load| load.one_thread) {
        true => Bin::rate,
        false => Bin::served,
    }
}

/// Measure of capacity for servers that were loaded at once: replies per time in which they could
/// run or, if that is not known and they are CPU-bound, per CPU time.
fn rate_of(digests: &[RoundDigest], pair: [usize; 2]) -> Option<OfBin> {
    let (mut by_rate, mut is_bound, mut more_idle) = (true, true, f64::INFINITY);
    for variant in pair {
        let rounds = digests.iter().map(|digest| &digest.variants[variant]);
        let (mut all, mut cpus) = (Bin::default(), 1.0);
        let mut one_thread = true;
        for round in rounds {
            if let Some(sustained) = sustained(round, false) {
                all = all.plus(sum(&sustained.bins));
                one_thread &= sustained.one_thread;
            }
            cpus = round.launch.as_ref().map_or(1.0, |launch| f64::from(launch.load.cpus.max(1)));
        }
        let mut rounds = digests.iter().map(|digest| &digest.variants[variant]);
        let is_closed = rounds.any(|round| round.used.is_some() && round.counts.due.is_none());
        if !is_closed || all.cpu_ns == 0 {
            return None;
        }
        // Without a calm slice, it is taken to use all that it gets.
        let busy = busy_share(digests, variant).unwrap_or(1.0);
        by_rate &= one_thread;
        more_idle = more_idle.min(all.idle() - (1.0 - busy).max(0.0));
        is_bound &= busy >= CPU_BOUND * if one_thread { 1.0 } else { cpus };
    }
    match (by_rate && more_idle <= MORE_IDLE, is_bound) {
        (true, _) => Some(Bin::rate),
        (false, true) => Some(Bin::yields),
        (false, false) => None,
    }
}

/// The variance between launches of a log ratio, as seen in the rounds' slices.
fn between(digests: &[RoundDigest], metric: Metric, variant: usize) -> f64 {
    let of = |digest: &RoundDigest| {
        let round = &digest.variants[variant];
        let within = round.variances[metric as usize].unwrap_or(0.0);
        Some((round.log_ratio(metric)?, within))
    };
    let (ratios, within): (Vec<f64>, Vec<f64>) = digests.iter().filter_map(of).unzip();
    let n = ratios.len();
    let seen = if n < 2 { 0.0 } else { (variance(&ratios) - mean(&within)).max(0.0) };
    expected_between(seen, n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::tests::normal;
    use tare_io::Random;
    use tare_model::samples::{LaunchLoad, Round};

    /// Bins of 25 ms in which half a CPU serves requests of this cost in µs, with noise.
    fn load(noise: f64, seed: u64, cost_us: impl Fn(f64) -> f64) -> Sustained {
        let mut random = Random::stream(seed, "sustained", 0);
        let mut draw = |at: usize| {
            let cost = cost_us(at as f64 * 0.025) * (noise * normal(&mut random)).exp();
            let cpu_ns = 12_500_000;
            let answered = (f64::from(cpu_ns) / 1000.0 / cost) as u64;
            Bin { ns: 25_000_000, answered, cpu_ns: cpu_ns as u64, delay_ns: 12_500_000 }
        };
        let bins = (0..132).map(&mut draw).collect();
        Sustained { cold: true, bins, one_thread: true, ..Sustained::default() }
    }

    fn slowest_ns(loads: &[&Sustained]) -> u64 {
        Courses::from_loads(loads).slowest_ns()
    }

    #[test]
    fn clients_of_their_own_are_loaded_in_turns() {
        let round = |by_another: bool| {
            let load = LaunchLoad { by_another, ..LaunchLoad::default() };
            let launch = |variant| Launch { variant, load: load.clone(), ..Launch::default() };
            let round = Round { launches: vec![launch(0), launch(1)], ..Round::default() };
            crate::round_digest::digest(&round, 2, 0)
        };
        assert!(takes_turns(&[round(false), round(true)]) && !takes_turns(&[round(false)]));
    }

    #[test]
    fn warm_ups_are_found_where_there_are_any() {
        let warm_ms = |noise: f64, cost: &dyn Fn(f64) -> f64| -> Vec<u64> {
            let found = (0..40).map(|seed| slowest_ns(&[&load(noise, seed, cost)]) / 1_000_000);
            let mut found: Vec<u64> = found.collect();
            found.sort_unstable();
            found
        };
        for noise in [0.01, 0.1] {
            let none = warm_ms(noise, &|_| 20.0);
            assert!(none[37] == 0 && none[39] < 1000, "{noise}: {none:?}");
            let step = warm_ms(noise, &|t| if t < 2.0 { 24.0 } else { 20.0 });
            // A step of a fifth, with bins that differ by a tenth, sometimes seems to end early.
            let late = if noise < 0.05 { 0 } else { 8 };
            assert!(step[late] >= 1800 && step[39] <= 2600, "{noise}: {step:?}");
            assert!(step[0] >= 900, "{noise}: {step:?}");
            let tiers = |t| {
                if t < 0.3 {
                    60.0
                } else if t < 1.0 {
                    25.0
                } else {
                    20.0
                }
            };
            let tiers = warm_ms(noise, &tiers);
            assert!(tiers[late / 4] >= 900 && tiers[39] <= 1200, "{noise}: {tiers:?}");
            let dearer = warm_ms(noise, &|t| if t < 1.0 { 20.0 } else { 24.0 });
            assert!(dearer[37] <= 100, "what becomes dearer does not warm up: {dearer:?}");
        }
    }

    #[test]
    fn a_slow_fall_is_found_where_bins_are_uneven() {
        let warm_ms = |by: f64, seed| {
            let mut load = load(0.05, seed, |t| 50.0 - by * t);
            // Two servers taking turns on a CPU: every second bin gets most of it.
            for (at, bin) in load.bins.iter_mut().enumerate() {
                let share = if at % 2 == 0 { 1.4 } else { 0.6 };
                bin.answered = (bin.answered as f64 * share) as u64;
            }
            slowest_ns(&[&load]) / 1_000_000
        };
        let found = |by: f64| (0..40).filter(|seed| warm_ms(by, *seed) > 1500).count();
        assert_eq!([5.0, 0.0, -5.0].map(found), [40, 0, 0]);
    }

    /// A neighbour bursts every second, which makes requests a third more expensive.
    fn bursts(t: f64) -> f64 {
        if (t * 2.0) as u64 % 2 == 1 { 1.3 } else { 1.0 }
    }

    fn warms(t: f64, until: f64) -> f64 {
        if t < until { 1.2 } else { 1.0 }
    }

    fn found_ms(loads: &[&Sustained]) -> Vec<u64> {
        Courses::from_loads(loads).warm_ups().iter().map(|warm| warm.ns / 1_000_000).collect()
    }

    #[test]
    fn a_warm_up_is_found_beside_bursts_that_are_larger() {
        for seed in 0..40 {
            let cold = |n: u64| load(0.02, 4 * seed + n, |t| 20.0 * bursts(t) * warms(t, 1.0));
            let warm = load(0.02, 4 * seed + 3, |t| 20.0 * bursts(t));
            let found = found_ms(&[&cold(0), &warm]);
            assert!((900..=1200).contains(&found[0]) && found[1] == 0, "{seed}: {found:?}");
            // Two of three are cold.
            let found = found_ms(&[&cold(0), &warm, &cold(1)]);
            let are_found = [found[0], found[2]].iter().all(|ms| (500..=1200).contains(ms));
            assert!(are_found && found[1] == 0, "{seed}: {found:?}");
        }
    }

    #[test]
    fn a_warm_up_of_both_is_found_beside_bursts() {
        for seed in 0..40 {
            let cold = |n: u64| load(0.02, 2 * seed + n, |t| 20.0 * bursts(t) * warms(t, 1.9));
            let found = found_ms(&[&cold(0), &cold(1)]);
            assert!(found.iter().all(|ms| (1700..=2500).contains(ms)), "{seed}: {found:?}");
        }
    }

    #[test]
    fn what_others_rise_by_is_no_warm_up() {
        for seed in 0..40 {
            let steady = load(0.02, 2 * seed, |t| 20.0 * bursts(t));
            let tires = load(0.02, 2 * seed + 1, |t| 20.0 * bursts(t) * warms(3.0 - t, 1.5));
            assert_eq!(found_ms(&[&steady, &tires]), [0, 0], "{seed}");
        }
    }

    #[test]
    fn bins_that_differ_in_length_are_compared_at_the_same_time() {
        for seed in 0..40 {
            let cold = load(0.02, 2 * seed, |t| 20.0 * bursts(t) * warms(t, 1.0));
            let mut warm = load(0.02, 2 * seed + 1, |t| 20.0 * bursts(t));
            // A late client missed the ends of four bins, and of another one later.
            for at in [30, 31, 32, 33, 60] {
                let next = warm.bins.remove(at);
                warm.bins[at] = warm.bins[at].plus(next);
            }
            let found = found_ms(&[&cold, &warm]);
            assert!((900..=1200).contains(&found[0]) && found[1] == 0, "{seed}: {found:?}");
        }
    }

    #[test]
    fn one_who_never_replies_hides_nobody_else() {
        let cold = load(0.01, 0, |t| 20.0 * warms(t, 1.0));
        let mut silent = load(0.01, 1, |_| 20.0);
        silent.bins.iter_mut().for_each(|bin| bin.answered = 0);
        assert_eq!(found_ms(&[&cold, &silent]), [1000, 0]);
        assert_eq!(found_ms(&[&Sustained::default(), &silent]), [0, 0]);
    }

    #[test]
    fn noise_is_no_warm_up() {
        for (seconds, noise) in [(3, 0.05), (6, 0.1), (20, 0.2)] {
            let one = |seed| {
                let mut all = load(noise, seed, |_| 20.0);
                for more in 1..seconds / 3 {
                    all.bins.extend(load(noise, 1000 * more + seed, |_| 20.0).bins);
                }
                all
            };
            let warm = |seed: &u64| slowest_ns(&[&one(2 * seed), &one(2 * seed + 1)]) > 0;
            let found = (0..200).filter(warm).count();
            assert!(found <= 6, "{seconds} s, {noise}: {found} of 200");
        }
    }

    #[test]
    fn what_both_do_is_no_change_and_what_one_does_is() {
        let steady = |seed| load(0.03, seed, |_| 20.0);
        let tiring = |seed| load(0.03, seed, |t| 20.0 + 3.0 * t);
        let count = |a: &dyn Fn(u64) -> Sustained, b: &dyn Fn(u64) -> Sustained| {
            (0..100).filter(|n| still_changes(&a(2 * n), &b(2 * n + 1), 0).is_some()).count()
        };
        assert!(count(&steady, &steady) <= 1 && count(&tiring, &tiring) <= 1);
        assert!(count(&steady, &tiring) >= 80);
    }

    #[test]
    fn capacity_is_what_it_gives_in_the_time_that_it_can_run() {
        let bin = Bin { ns: 1000, answered: 10, cpu_ns: 400, delay_ns: 500 };
        assert_eq!((bin.rate(), bin.cost(), bin.yields()), (Some(0.02), Some(40.0), Some(0.025)));
        assert!((bin.idle() - 0.2).abs() < 1e-12);
        let mixed =
            launch_ratio(&load(0.0, 0, |_| 20.0), &load(0.0, 0, |_| 25.0), 0, Bin::rate).unwrap();
        assert!((mixed.log_ratio + 0.223).abs() < 0.001 && mixed.noise < 1e-6, "{mixed:?}");
    }
}
