//! The basis of a report: the load on launches, the CPUs of load and servers, and the check under
//! sustained load.

use tare_guards::Evidence;
use tare_model::sustained::Sustained;
use tare_stats::surveys::Surveys;
use tare_stats::sustained::Agreement;

use crate::format::{count, counted, percent};
use crate::run::words::{overhead_of, time};
use crate::run::{Bounds, Comparison, Exposure, Run, RunReport, SustainedCheck};

/// Returns the check under sustained load, if there was any.
pub(crate) fn check_of(comparison: &tare_stats::Comparison) -> Option<SustainedCheck> {
    let check = comparison.sustained?;
    Some(SustainedCheck {
        ratio: check.ratio,
        overhead_percent: check.ratio.map(|ratio| comparison.metric.overhead_percent(ratio)).into(),
        launches: check.ratio.n,
        ns: check.ns,
        agrees: match check.agreement {
            Agreement::Agrees => Some(true),
            Agreement::Disagrees => Some(false),
            Agreement::Unclear => None,
        },
    })
}

/// Returns the load on the launches of a variant: medians over launches.
pub(crate) fn exposure(evidence: &Evidence<'_>, variant: usize) -> Exposure {
    let median = |values: &mut dyn Iterator<Item = u64>| {
        let mut values: Vec<u64> = values.collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied().unwrap_or(0)
    };
    let rounds = || evidence.digests.iter().map(|digest| &digest.variants[variant]);
    let sustained = || evidence.loads(variant).filter_map(|load| load.sustained.as_ref());
    let length = |s: &Sustained| s.bins.iter().map(|bin| bin.ns).sum::<u64>();
    Exposure {
        warmup_ns: median(&mut evidence.loads(variant).map(|load| load.warmup.ns)),
        warm_after_ns: Surveys::from_rounds(evidence.digests)
            .found()
            .get(variant)
            .map(|warm| warm.ns),
        load_ns: median(&mut rounds().map(|round| round.counts.window_ns)),
        requests: median(&mut rounds().map(|round| round.counts.started)),
        sustained_launches: sustained().count() as u32,
        sustained_ns: sustained().map(length).min().unwrap_or(0),
    }
}

pub(crate) fn seconds(ns: u64) -> String {
    match ns as f64 / 1e9 {
        s if s < 10.0 => format!("{s:.2} s"),
        s => time(s),
    }
}

/// Describes the load on launches in one sentence.
pub fn exposure_sentence(report: &RunReport) -> String {
    let all = || report.variants.iter().map(|variant| &variant.exposure);
    let least = |of: fn(&Exposure) -> u64| all().map(of).min().unwrap_or(0);
    let range = |ns: Vec<u64>| {
        let (low, high) = (*ns.iter().min().unwrap_or(&0), *ns.iter().max().unwrap_or(&0));
        match high - low > 100_000_000 {
            true => format!("{} to {}", seconds(low), seconds(high)),
            false => seconds(high),
        }
    };
    let mut warmup = range(all().map(|exposure| exposure.warmup_ns).collect()) + " of warm-up";
    let warm: Vec<u64> = all().filter_map(|exposure| exposure.warm_after_ns).collect();
    if warm.iter().any(|ns| *ns > 100_000_000) {
        warmup += &format!(" (warm after {})", range(warm));
    }
    let load = seconds(least(|exposure| exposure.load_ns));
    let requests = count(least(|exposure| exposure.requests));
    let is_cold = report.plan.parts.slices.cold.is_some();
    let mut text = match is_cold {
        true => format!("each launch: its first {load} of load, {requests} requests, and no more"),
        false => {
            format!("each launch: {load} of load in slices, {requests} requests, after {warmup}")
        }
    };
    let sustained = all().map(|exposure| exposure.sustained_launches).min().unwrap_or(0);
    text += &match sustained {
        0 if is_cold => String::new(),
        0 => "; no sustained load: effects longer than a slice were not measured".to_owned(),
        n => {
            let ns = seconds(least(|exposure| exposure.sustained_ns));
            let launches = counted(n.into(), "launch", "launches");
            format!(
                "; {launches} had {ns} of sustained load: effects that occur less often were not measured"
            )
        }
    };
    let launches = report.variants.iter().map(|variant| variant.launches).min().unwrap_or(0);
    if launches > 0 {
        // An effect that occurs in this share of launches is missed in one run of twenty.
        let rare = 1.0 - 0.05f64.powf(1.0 / f64::from(launches));
        text += &format!("; launch effects rarer than {} may have been missed", percent(rare));
    }
    text
}

/// Describes what the time went into, and what neighbours took.
pub fn time_sentence(report: &RunReport) -> Option<String> {
    let run = &report.run;
    if run.rounds == 0 {
        return None;
    }
    let spent = seconds(run.elapsed_ms * 1_000_000);
    let share = percent(run.slices_share);
    let neighbours = run.neighbours().map(|text| format!("; meanwhile {text}"));
    Some(format!("slices took {share} of {spent}{}", neighbours.unwrap_or_default()))
}

impl Run {
    /// Describes what neighbours took; `None` if that is unknown.
    pub fn neighbours(&self) -> Option<String> {
        let others = self.neighbours_cpu_share;
        let others = others.map(|s| format!("other processes used {} of the CPUs", percent(s)));
        let calm = self.calm_cycles_share;
        let calm = calm.map(|s| format!("{} of the cycles were undisturbed", percent(s)));
        others.into_iter().chain(calm).reduce(|others, calm| format!("{others}; {calm}"))
    }
}

/// Describes the CPUs of servers and load, if known, and how the load is made.
pub fn placed(report: &RunReport) -> Option<String> {
    let by = report.run.load_by.as_deref();
    let Some([load, servers]) = cpus(report) else {
        return by.map(|by| format!("load by {by}"));
    };
    let by = by.map_or(String::new(), |by| format!(" by {by}"));
    Some(format!("servers on {servers}, load on {load}{by}"))
}

/// Like [`placed`], in pieces and without remarks in parentheses.
pub(crate) fn placed_in_short(report: &RunReport) -> Vec<String> {
    let by = report.run.load_by.as_deref().map(without_asides);
    let Some([load, servers]) = cpus(report) else {
        return by.map(|by| format!("load by {by}")).into_iter().collect();
    };
    let by = by.map_or(String::new(), |by| format!(" ({by})"));
    vec![format!("servers on {servers}"), format!("load on {load}{by}")]
}

fn cpus(report: &RunReport) -> Option<[String; 2]> {
    let in_words = |list: &[usize]| {
        format!("{} {}", if list.len() == 1 { "CPU" } else { "CPUs" }, ranges(list))
    };
    let (load, servers) = (&report.plan.parts.load_cpus, &report.plan.parts.server_cpus);
    let is_known = !load.is_empty() && !servers.is_empty();
    is_known.then(|| [in_words(load), in_words(servers)])
}

/// Removes parentheses, in which the engine gives reasons for how it makes the load.
fn without_asides(text: &str) -> String {
    let mut depth = 0;
    let mut kept = String::new();
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            c if depth <= 0 => kept.push(c),
            _ => {}
        }
    }
    kept.replace(" ,", ",").replace(" ;", ";").trim_end().to_owned()
}

/// Formats a list of CPUs: `0-3,8`.
fn ranges(list: &[usize]) -> String {
    let mut sorted = list.to_vec();
    sorted.sort_unstable();
    let parts = sorted.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [only] => only.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    parts.collect::<Vec<_>>().join(",")
}

/// Width, in tolerances, above which an interval confirms nothing.
const WIDE: f64 = 8.0;

/// Result of comparing sustained load with slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confirmation {
    Confirmed,
    /// Both agree on the direction, but not on the size.
    SameSide,
    /// Sustained load does not disagree, but is too imprecise to confirm anything.
    Imprecise,
    Contradicted,
}

/// Returns `None` if no sustained load checked this comparison.
pub(crate) fn confirmation(comparison: &Comparison, tolerance: f64) -> Option<Confirmation> {
    let check = comparison.sustained.as_ref()?;
    let Bounds { lower, upper, .. } = check.overhead_percent;
    if comparison.in_slices_percent.is_some() {
        return Some(Confirmation::SameSide);
    }
    let is_known = upper - lower <= WIDE * tolerance * 100.0;
    Some(match check.agrees {
        Some(false) => Confirmation::Contradicted,
        Some(true) if is_known => Confirmation::Confirmed,
        _ => Confirmation::Imprecise,
    })
}

/// Describes the check under sustained load, with figures.
pub(crate) fn confirmed(comparison: &Comparison, tolerance: f64) -> Option<String> {
    let check = comparison.sustained.as_ref()?;
    let shown = overhead_of(comparison.metric, &check.overhead_percent);
    let more = match confirmation(comparison, tolerance)? {
        Confirmation::Confirmed => "confirmed",
        Confirmation::SameSide => "of the same direction",
        Confirmation::Imprecise => "too coarse to tell",
        Confirmation::Contradicted => "which contradicts it",
    };
    let launches = counted(check.launches.into(), "launch", "launches");
    let each = seconds(check.ns);
    Some(format!("under sustained load {shown} by {launches} of {each}, {more}"))
}
