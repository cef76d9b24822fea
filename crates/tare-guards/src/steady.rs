//! Guards about whether slices reflect steady load, which is what users care about, and about the
//! conditions of each launch.

use tare_model::samples::LaunchLoad;
use tare_model::variant::Difference;
use tare_stats::estimate::{Estimate, mean, median};
use tare_stats::idle::Idle;
use tare_stats::neighbours::{WorkElsewhere, work_elsewhere as work_between};
use tare_stats::round_digest::RoundDigest;
use tare_stats::stopping::relative_half_width;
use tare_stats::sustained::{Agreement, Check, SATURATED, busy_share, still_changes};
use tare_stats::verdict::Verdict;

use crate::evidence::Evidence;
use crate::format::{count, duration, overhead, percent, signed};
use crate::machine::used_by_others;
use crate::{Code, LineWords, RunGuard, Severity, guard};

/// Share of rests that were cut short.
const RESTLESS: f64 = 0.2;
/// CPU time that a variant used outside its slices, as a share of that in them, beyond the share
/// that all variants have (a machine short of CPUs delays all). A larger tolerance allows more.
const DEFERRED: f64 = 0.02;
/// Above this share of deferred work, the guard may forbid a verdict.
const DEFERRED_VOID: f64 = 0.05;
/// Confidence level of that share.
const IDLE_LEVEL: f64 = 0.99;
/// Time that threads waited for a CPU, as a share of the CPU time they used, if there are more
/// threads than CPUs.
const WAITED: f64 = 0.5;

/// Reports sustained load that contradicts slices, so that neither is the answer, or that is too
/// imprecise to confirm them. Imprecision matters only for the metrics asked for, which got more
/// launches with sustained load.
pub(crate) fn not_steady(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let own = evidence.analysis.comparisons.iter().filter(|c| c.variant == variant);
    let mut guards = Vec::new();
    for comparison in own {
        guards.extend(unconfirmed_in_noise(evidence, comparison));
        let Some(check) = comparison.sustained else { continue };
        let both_say = match comparison.spans {
            Some(_) if comparison.verdict == Verdict::Faster => Some("faster"),
            Some(_) => Some("slower"),
            None => None,
        };
        let (code, severity, so) = match (check.agreement, comparison.asked) {
            (Agreement::Agrees, _) | (Agreement::Unclear, false) => continue,
            (Agreement::Unclear, true) => {
                (Code::Unconfirmed, Severity::Warn, "this may be chance; run more rounds to tell")
            }
            (Agreement::Disagrees, _) if both_say.is_some() => {
                (Code::NotSteady, Severity::Warn, "the size depends on how it is loaded")
            }
            (Agreement::Disagrees, asked) => (
                Code::NotSteady,
                if asked { Severity::Void } else { Severity::Warn },
                "its cost is not constant, so neither figure is a verdict",
            ),
        };
        let metric = comparison.metric;
        let in_slices = comparison.ratio.map(|ratio| metric.overhead_percent(ratio));
        let under_load = check.ratio.map(|ratio| metric.overhead_percent(ratio));
        let text = format!(
            "in slices its overhead in {} is {}, under sustained load {} ({}): {so}",
            metric.word(),
            overhead_of(&in_slices),
            overhead_of(&under_load),
            in_words(&check),
        );
        let mut found = guard(code, severity, Some(evidence.name(variant)), text);
        if let Some(word) = both_say {
            found[0].text += &format!("; both say {word}, and the interval spans both");
            let [slices, load] = [in_slices, under_load].map(|percent| signed(percent.point));
            let seen = format!("{slices} % in slices, {load} % under sustained load");
            found[0].line = LineWords { seen: Some(seen), cure: Some(DEPENDS.into()) };
        }
        guards.extend(found);
    }
    guards
}

/// Used as the cure when the size depends on how a variant is loaded.
const DEPENDS: &str = "the interval spans both";

/// Reports sizes that depend on whether clients poll or sleep.
pub(crate) fn by_clients(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let own = evidence.analysis.comparisons.iter().filter(|c| c.variant == variant);
    let sizes = own.filter_map(|comparison| {
        let slept = comparison.apart()?;
        let percent = |ratio: Estimate| signed(comparison.metric.overhead_percent(ratio.point));
        Some((comparison, percent(comparison.ratio), percent(slept.ratio)))
    });
    // The metrics asked for come first.
    let (mut sizes, not_asked): (Vec<_>, Vec<_>) =
        sizes.partition(|(comparison, ..)| comparison.asked);
    sizes.extend(not_asked);
    let Some(((first, polled, slept), others)) = sizes.split_first() else { return Vec::new() };
    let of_metric =
        if first.asked { String::new() } else { format!(" in {}", first.metric.word()) };
    let line = LineWords {
        seen: Some(format!(
            "{polled} %{of_metric} with clients that poll, {slept} % with clients that sleep"
        )),
        cure: Some(DEPENDS.into()),
    };
    let more = others.iter().map(|(comparison, polled, slept)| {
        format!(" (in {} {polled} % and {slept} %)", comparison.metric.word())
    });
    let text = format!(
        "its overhead depends on its clients: in {} {polled} % with clients that poll and {slept} % \
         with clients that sleep{}; wrk's clients, like those of most tools, sleep while they wait, and the \
         server pays for waking them; the interval spans both (--idle poll or --idle sleep measures \
         one kind)",
        first.metric.word(),
        more.collect::<String>(),
    );
    let mut found = guard(Code::ByClients, Severity::Warn, Some(evidence.name(variant)), text);
    found[0].line = line;
    found
}

/// While other processes use CPUs in nearly all cycles, slices alone were wrong in one run of three:
/// a verdict needs sustained load that could have contradicted it.
fn unconfirmed_in_noise(
    evidence: &Evidence<'_>,
    comparison: &tare_stats::Comparison,
) -> Vec<RunGuard> {
    let Some(more_ns) = missing_in_noise(evidence, comparison) else { return Vec::new() };
    let Some(check) = comparison.sustained else { return Vec::new() };
    let text = format!(
        "other processes were busy, and sustained load is too imprecise to confirm its overhead in \
         {}: ± {} from {}; run about {} longer (--max-time), or use a machine that is not shared",
        comparison.metric.word(),
        percent(relative_half_width(&check.ratio)),
        in_words(&check),
        duration(more_ns)
    );
    guard(Code::Unconfirmed, Severity::Void, Some(evidence.name(comparison.variant)), text)
}

/// If at least this share of an estimate's weight comes from calm cycles, it is as good as on a quiet
/// machine.
const CALM_ENOUGH: f64 = 0.5;

/// Additional time, in ns, that a run beside busy processes needs until sustained load is precise
/// enough to confirm the verdict from slices; `None` if it needs none.
pub(crate) fn missing_in_noise(
    evidence: &Evidence<'_>,
    comparison: &tare_stats::Comparison,
) -> Option<u64> {
    let check = comparison.sustained?;
    let concludes = matches!(comparison.verdict, Verdict::Slower | Verdict::Faster | Verdict::Same);
    if !comparison.asked || !concludes {
        return None;
    }
    used_by_others(evidence).filter(|_| comparison.calm_share < CALM_ENOUGH)?;
    let effect = comparison.ratio.point.ln().abs().max(evidence.question.tolerance);
    let times = (relative_half_width(&check.ratio) / effect).powi(2);
    let more = (times - 1.0) * f64::from(check.ratio.n);
    let elapsed: u64 = evidence.digests.iter().map(|digest| digest.elapsed_ns).sum();
    let round_ns = elapsed / evidence.digests.len().max(1) as u64 + check.ns;
    (times > 1.0).then_some((more.ceil() * round_ns as f64) as u64)
}

fn overhead_of(percent: &Estimate) -> String {
    overhead(percent.point, percent.lower, percent.upper)
}

fn in_words(check: &Check) -> String {
    let n = check.ratio.n;
    let launches = if n == 1 { "launch" } else { "launches" };
    format!("{n} {launches} of {}", duration(check.ns))
}

/// Work that a variant defers until others are measured is missing from its cost, and is in theirs.
pub(crate) fn deferred_work(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let all: Vec<Vec<Idle>> =
        (0..evidence.plan.variants.len()).map(|v| Idle::per_round(evidence.digests, v)).collect();
    let total = |variant: &usize| all[*variant].iter().copied().fold(Idle::default(), Idle::plus);
    let least = (0..all.len()).min_by(|a, b| total(a).share().total_cmp(&total(b).share()));
    let least = &all[least.unwrap_or(variant)];
    // Launches must agree: a single disturbed launch says nothing about its server.
    let beyond = all[variant].iter().zip(least).map(|(mine, its)| mine.share() - its.share());
    let beyond: Vec<f64> = beyond.collect();
    let tolerance = evidence.question.tolerance;
    let Some(beyond) = Estimate::of_mean(&beyond, IDLE_LEVEL).filter(|beyond| beyond.n > 2) else {
        return Vec::new();
    };
    if beyond.lower <= tolerance.max(DEFERRED) {
        return Vec::new();
    }
    // A place's own kernel has timers, and uses CPU time even when idle.
    let has_kernel = evidence.plan.variants[variant].place.facts().has_own_kernel();
    let is_much = beyond.lower > tolerance.max(DEFERRED_VOID) && !has_kernel;
    let is_void = is_much && could_overturn(evidence, variant, beyond.upper);
    let severity = if is_void { Severity::Void } else { Severity::Warn };
    let all = total(&variant);
    let text = format!(
        "while others were measured, it used {} of the CPU time it used in its own slices: {}; \
         including this, a request takes {} of CPU time, not {}",
        percent(all.share()),
        match has_kernel {
            true => "its place has its own kernel, or it deferred work",
            false => "it deferred work",
        },
        duration((all.cpu + all.put_off()) / all.replies_charged.max(1)),
        duration(all.cpu / all.replies_charged.max(1)),
    );
    let text = match is_much && !is_void {
        true => text + "; the verdict stands, but the overhead excludes this",
        false => text,
    };
    guard(Code::DeferredWork, severity, Some(evidence.name(variant)), text)
}

/// Work that other processes do for a variant, such as a logging daemon, is missing from its CPU
/// time.
pub(crate) fn work_elsewhere(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let baseline = evidence.question.baseline;
    let compares = variant != baseline;
    let others = (0..evidence.plan.variants.len()).filter(|v| *v != variant);
    // The baseline is compared with every other variant.
    let mut against = others.filter(|other| compares == (*other == baseline));
    let found = against.find_map(|other| work_between(evidence.digests, variant, other));
    let Some(WorkElsewhere { ns_per_request, share }) = found else { return Vec::new() };
    let than = if compares { "the baseline" } else { "another variant" };
    let text = format!(
        "other processes used {} of CPU time a request more while it was measured than while \
         {than} was ({} of its own): a logging daemon, threads of the kernel, or the like; its CPU \
         time leaves that out",
        duration(ns_per_request as u64),
        percent(share)
    );
    guard(Code::WorkElsewhere, Severity::Warn, Some(evidence.name(variant)), text)
}

/// Whether a verdict could change if this variant's requests cost more by that share; an unresolved
/// verdict always can.
fn could_overturn(evidence: &Evidence<'_>, variant: usize, share: f64) -> bool {
    let baseline = evidence.question.baseline;
    let asked = evidence.analysis.comparisons.iter().filter(|comparison| comparison.asked);
    let mut own = asked.filter(|comparison| [comparison.variant, baseline].contains(&variant));
    own.any(|comparison| {
        let metric = comparison.metric;
        let of = |factor: f64| {
            let moved = |ratio: Estimate| Estimate {
                n: u32::MAX,
                ..ratio.map(|ratio| metric.overhead_percent(ratio * factor))
            };
            let (ratio, surer) = (moved(comparison.stated), moved(comparison.stated_strict));
            Verdict::from_overhead(&ratio, &surer, evidence.question.tolerance)
        };
        // A higher cost means less throughput.
        let divides = metric.more_is_better() != (variant == baseline);
        let factor = if divides { 1.0 / (1.0 + share) } else { 1.0 + share };
        of(1.0) == Verdict::Unresolved || of(factor) != of(1.0)
    })
}

pub(crate) fn busy_while_idle(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let rests: u32 = evidence.loads(variant).map(|load| load.rests).sum();
    let cut: u32 = evidence.loads(variant).map(|load| load.rests_cut).sum();
    let share = f64::from(cut) / f64::from(rests.max(1));
    if share <= RESTLESS {
        return Vec::new();
    }
    let text = format!(
        "after {} of its slices, some server was not idle within 20 ms: others were measured while \
         it worked",
        percent(share)
    );
    guard(Code::BusyWhileIdle, Severity::Warn, Some(evidence.name(variant)), text)
}

/// Reports a variant if its cost was still falling at the end of the longest warm-up, if later
/// launches did not come down to the first one's cost, or if its cost still changed relative to the
/// baseline's under sustained load.
pub(crate) fn not_warm(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let Some((severity, text)) = still_warming(evidence, variant)
        .or_else(|| behind(evidence, variant))
        .or_else(|| still_changing(evidence, variant))
    else {
        return Vec::new();
    };
    guard(Code::NotWarm, severity, Some(evidence.name(variant)), text)
}

fn still_warming(evidence: &Evidence<'_>, variant: usize) -> Option<(Severity, String)> {
    let load = evidence.loads(variant).find(|load| load.not_warm)?;
    let text = format!(
        "its cost was still falling after {} of load, the longest warm-up (--warmup-max)",
        duration(load.warmup.ns)
    );
    Some((Severity::Void, text))
}

/// Median excess cost (as a logarithm) of launches over the first one, beyond that of all variants.
const BEHIND: f64 = 0.15;
/// Lower bound of the mean of this excess cost.
const BEHIND_SURE: f64 = 0.05;

fn behind(evidence: &Evidence<'_>, variant: usize) -> Option<(Severity, String)> {
    let behind: Vec<f64> = evidence.loads(variant).filter_map(|load| load.behind).collect();
    let mean = Estimate::of_mean(&behind, IDLE_LEVEL)?;
    if median(&behind) <= BEHIND || mean.lower <= BEHIND_SURE {
        return None;
    }
    let more = median(&behind).exp_m1();
    // When warm, the variant would cost less by this factor.
    let is_void = could_overturn(evidence, variant, (-median(&behind)).exp_m1());
    let text = format!(
        "when measured, its launches still used {} more CPU time per request than its first launch \
         after warming up, beyond what all variants have in common (median of {} launches): they \
         were not warm (--warmup-max)",
        percent(more),
        behind.len()
    );
    Some((if is_void { Severity::Void } else { Severity::Warn }, text))
}

fn still_changing(evidence: &Evidence<'_>, variant: usize) -> Option<(Severity, String)> {
    let changes = changes(evidence, variant);
    let found: Vec<f64> = changes.iter().filter_map(|change| *change).collect();
    let same_way = found.iter().all(|c| *c > 0.0) || found.iter().all(|c| *c < 0.0);
    if found.len() < 2 || found.len() * 2 <= changes.len() || !same_way {
        return None;
    }
    let text = format!(
        "its cost relative to the baseline's still changed by {} at the end of {} of {} launches' \
         sustained load: it was not warm yet, or never settles (--warmup-max, --sustained)",
        percent(mean(&found).abs()),
        found.len(),
        changes.len()
    );
    // Where it would settle is unknown: twice the observed change is considered possible.
    let is_void = could_overturn(evidence, variant, (2.0 * mean(&found)).exp_m1());
    Some((if is_void { Severity::Void } else { Severity::Warn }, text))
}

/// Change of its cost against the baseline's at the end of each launch's sustained load; `None`
/// where it was steady.
fn changes(evidence: &Evidence<'_>, variant: usize) -> Vec<Option<f64>> {
    let baseline = evidence.question.baseline;
    let of_one = |digest: &RoundDigest| {
        let sustained = |v: usize| digest.variants[v].launch.as_ref()?.load.sustained.as_ref();
        let (base, mine) = (sustained(baseline)?, sustained(variant)?);
        Some(still_changes(base, mine, digest.warm_ns()))
    };
    evidence.digests.iter().filter_map(of_one).collect()
}

/// Whether one launch showed a change, among at most two with sustained load: another would help.
pub(crate) fn changed_once(evidence: &Evidence<'_>, variant: usize) -> bool {
    let changes = changes(evidence, variant);
    changes.len() <= 2 && changes.iter().flatten().count() == 1
}

/// Reports a variant with more busy threads than CPUs for them, and with long waits for a CPU.
pub(crate) fn short_of_cpus(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let launches: Vec<&LaunchLoad> = evidence.loads(variant).filter(|load| load.cpus > 0).collect();
    let Some(cpus) = launches.first().map(|load| load.cpus) else { return Vec::new() };
    let threads: Vec<f64> = launches.iter().map(|load| f64::from(load.busy_threads)).collect();
    let threads = mean(&threads);
    let rounds = evidence.digests.iter().map(|digest| &digest.variants[variant]);
    let in_slices = rounds.filter_map(|round| Some((round.used.as_ref()?.cpu_ns(), &round.slept)));
    let used: u64 = in_slices.map(|(used, slept)| used + slept.cpu_ns).sum();
    let waited: u64 = launches.iter().map(|load| load.delay_ns).sum();
    let share = waited as f64 / used.max(1) as f64;
    // A server that sleeps has enough CPUs.
    if threads < f64::from(cpus) + 0.5 || share <= WAITED || sleeps(evidence, variant).is_some() {
        return Vec::new();
    }
    let text = format!(
        "{threads:.0} of its threads are busy, but may use only {}; together they waited for a CPU \
         {share:.1} times as long as they ran: more workers cannot be faster here; give servers \
         more CPUs with --server-cpus",
        cpus_of(cpus as usize)
    );
    guard(Code::ShortOfCpus, Severity::Warn, Some(evidence.name(variant)), text)
}

/// The share of a CPU that it used, if it sleeps between requests.
fn sleeps(evidence: &Evidence<'_>, variant: usize) -> Option<f64> {
    let limits = evidence.plan.variants[variant].place.facts().limits();
    let most = limits.cpus.unwrap_or(1.0).min(1.0);
    // If a hop is throttled by its quota, the others wait for it, however little all use together.
    let parts = evidence.totals[variant].launches.iter().flat_map(|launch| &launch.parts);
    if parts.map(|part| part.throttled_periods).sum::<u64>() > 0 {
        return None;
    }
    busy_share(evidence.digests, variant).filter(|busy| *busy < SATURATED * most)
}

/// A server that sleeps between requests pays for wake-ups, and that cost depends on how long load
/// lasts.
pub(crate) fn not_saturated(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let load = &evidence.plan.load;
    if load.is_open() || !load.protocol().is_served() || evidence.plan.slices.cold.is_some() {
        return Vec::new();
    }
    let Some(busy) = sleeps(evidence, variant) else { return Vec::new() };
    let text = format!(
        "it used {} of a CPU in its slices, and slept between requests: these numbers include the \
         cost of waking it, which may differ under longer load; use more connections (-c)",
        percent(busy)
    );
    guard(Code::NotSaturated, Severity::Warn, Some(evidence.name(variant)), text)
}

fn cpus_of(cpus: usize) -> String {
    match cpus {
        1 => "1 CPU".into(),
        n => format!("{n} CPUs"),
    }
}

/// Whether it answers its probe like the baseline, but other requests differently.
pub(crate) fn other_bodies(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let facts = &evidence.plan.variants[variant];
    if facts.may_differ_in(Difference::Body) {
        return Vec::new();
    }
    let probes = evidence.totals[variant].launches.iter().filter_map(|l| l.probe.as_ref());
    let known: Vec<_> = probes.clone().map(|probe| probe.body_sha256.as_str()).collect();
    let bodies = &evidence.totals[variant].counts.bodies;
    let all: u64 = bodies.iter().map(|(_, n)| n).sum();
    let other = bodies.iter().filter(|(hash, _)| !known.contains(&hash.as_str()));
    let other: u64 = other.map(|(_, n)| n).sum();
    // A body that changes from reply to reply is recognised by its size only.
    let is_stable = known.windows(2).all(|pair| pair[0] == pair[1])
        && probes.clone().all(|probe| probe.body_stable);
    if other == 0 || !is_stable || known.is_empty() {
        return Vec::new();
    }
    let text = format!(
        "of {} replies sampled under load, {} ({}) had a different body from its probe; if that is \
         intended, allow it with --may-differ body",
        count(all),
        count(other),
        percent(other as f64 / all.max(1) as f64)
    );
    guard(Code::UnequalReply, Severity::Void, Some(&facts.name), text)
}
