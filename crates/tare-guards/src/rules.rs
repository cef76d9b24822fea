//! Guards of a run: each examines one thing, and reports it in one sentence.

use tare_model::load::Load;
use tare_model::net::Protocol;
use tare_model::plan::{PlanParts, VariantId};
use tare_model::samples::{Counts, Series};
use tare_stats::RoundDigest;

use crate::clients_summary::ClientsSummary;
use crate::connections;
use crate::counts;
use crate::evidence::{Circumstances, Evidence};
use crate::filters;
use crate::machine;
use crate::places;
use crate::proofs;
use crate::replies::{split_replies, unequal_reply};
use crate::rounds;
use crate::steady;
use crate::traffic::{Traffic, traffic_doubts};
use crate::{RunGuard, guard, in_order, why_void};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadKind {
    /// Requests or messages that are answered.
    Replies,
    /// Messages without replies: the sender is a part of what is measured.
    Streams,
    /// System calls: the load's workers only wait.
    Calls,
}

impl LoadKind {
    pub(crate) fn by(load: &Load) -> Self {
        match load.protocol() {
            Protocol::Http | Protocol::Http2 { .. } | Protocol::Messages { .. } => Self::Replies,
            Protocol::Stream { .. } => Self::Streams,
            Protocol::Calls { .. } => Self::Calls,
        }
    }
}

/// Whether guards forbid a verdict on every variant, and more rounds would not change that.
pub fn forbid_all(plan: &PlanParts, digests: &[RoundDigest]) -> bool {
    let evidence = Evidence::new(plan, digests, Circumstances::default());
    let mut guards = run_guards(&evidence);
    guards.retain(|guard| !guard.code.may_pass());
    let baseline = evidence.question.baseline;
    let is_void = |variant: usize| {
        why_void(&guards, evidence.name(variant), Some(evidence.name(baseline))).is_some()
    };
    let mut others = (0..plan.variants.len()).filter(|variant| *variant != baseline);
    match plan.variants.len() {
        1 => is_void(baseline),
        _ => others.all(is_void),
    }
}

/// Whether a variant's replies to probes differ from the baseline's where they must not.
pub fn replies_differ(plan: &PlanParts, digests: &[RoundDigest]) -> bool {
    let evidence = Evidence::new(plan, digests, Circumstances::default());
    let mut guards = (0..plan.variants.len()).flat_map(|variant| unequal_reply(&evidence, variant));
    guards.any(|guard| guard.severity == tare_stats::Severity::Void)
}

/// Whether more sustained load would give a verdict that noise withholds, or show whether a change
/// seen in one launch is typical of the server.
pub fn wants_sustained(plan: &PlanParts, digests: &[RoundDigest]) -> bool {
    let evidence = Evidence::new(plan, digests, Circumstances::default());
    let mut asked = evidence.analysis.comparisons.iter().filter(|comparison| comparison.asked);
    (0..plan.variants.len()).any(|variant| steady::changed_once(&evidence, variant))
        || asked.any(|comparison| steady::missing_in_noise(&evidence, comparison).is_some())
}

/// Rules that look at one variant.
const OF_VARIANTS: &[fn(&Evidence<'_>, usize) -> Vec<RunGuard>] = &[
    proofs::not_proven,
    unequal_reply,
    split_replies,
    steady::other_bodies,
    steady::not_steady,
    steady::by_clients,
    steady::deferred_work,
    steady::work_elsewhere,
    steady::not_warm,
    steady::short_of_cpus,
    steady::not_saturated,
    steady::busy_while_idle,
    connections::uneven_workers,
    load_guards,
    counts::count_mismatch,
    counts::lost,
    counts::chatty,
    machine::throttled_server,
    places::emulated,
    places::kept,
    places::clients,
    filters::unexplained,
];

/// Rules that look at the whole run.
const OF_RUNS: &[fn(&Evidence<'_>) -> Vec<RunGuard>] = &[
    machine::machine,
    machine::network,
    rounds::few_rounds,
    rounds::lost_rounds,
    rounds::launches,
    rounds::shapes,
    rounds::pauses,
];

/// The guards that a run trips, the most severe first.
pub fn run_guards(evidence: &Evidence<'_>) -> Vec<RunGuard> {
    let variants = 0..evidence.plan.variants.len();
    let mut guards: Vec<RunGuard> = variants
        .flat_map(|variant| OF_VARIANTS.iter().flat_map(move |rule| rule(evidence, variant)))
        .collect();
    guards.extend(OF_RUNS.iter().flat_map(|rule| rule(evidence)));
    in_order(&mut guards);
    guards
}

/// Rules that apply to any load.
fn load_guards(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let own = traffic_doubts(&traffic(evidence, variant)).into_iter();
    let name = evidence.name(variant);
    own.flat_map(|doubt| guard(doubt.code, doubt.severity, Some(name), doubt.text)).collect()
}

fn traffic(evidence: &Evidence<'_>, variant: usize) -> Traffic {
    let counts = &evidence.totals[variant].counts;
    let launches = &evidence.totals[variant].launches;
    let (load, plan) =
        (&evidence.plan.load_of(VariantId(variant)), &evidence.plan.variants[variant]);
    let series = if load.is_open() { Series::FromSent } else { Series::Headline };
    let rounds = evidence.digests.iter().map(|digest| &digest.variants[variant]);
    let latencies = rounds.clone().filter_map(|round| round.latency(series));
    let sum_ns: u128 = latencies.map(|latency| latency.sum_ns()).sum();
    let room_ns: u64 = rounds.map(|round| round.littles_law_slack_ns).sum();
    let window_ns = counts.window_ns.max(1) as f64;
    let in_time = counts_of_rate(evidence, variant);
    let handshakes = plan.is_tls() && load.has_new_connections() && !plan.forbids_resumption();
    // In streams the workers are a part of what is measured; during calls they only wait.
    let replies = LoadKind::by(load) == LoadKind::Replies;
    Traffic {
        is_open: load.is_open(),
        rate_per_s: load.rate().unwrap_or_default(),
        connections: load.most_connections(),
        streams: load.streams(),
        most_in_flight: load.most_in_flight(),
        workers: load.workers(),
        new_connections: load.has_new_connections(),
        resumes: handshakes.then_some(load.http().is_some_and(|http| http.tls.resume)),
        started: counts.started,
        completed: counts.completed,
        good: counts.good,
        // Lost datagrams are normal and not failures; they have a guard of their own.
        failed: (counts.failed + counts.cut).saturating_sub(counts.lost),
        retried: counts.refused,
        cut: counts.cut,
        errors: counts.errors.clone(),
        status: counts.status.clone(),
        due: in_time.due,
        // Random arrivals match the expected number only on average.
        chance: if load.is_poisson() { 3.0 / in_time.due.unwrap_or(1.0).sqrt() } else { 0.0 },
        baseline_met: baseline_met(evidence),
        // Requests in flight at the start of the window balance those at its end. If the server
        // falls behind, fewer end than were due, even while connections still hold the difference.
        ended: in_time.completed + in_time.failed,
        mean_in_flight: sum_ns as f64 / window_ns,
        littles_law_slack: room_ns as f64 / window_ns,
        closed_by_server: launches.iter().map(|launch| launch.closed_by_server).sum(),
        requests: launches.iter().map(|launch| launch.requests_sent).sum(),
        ack_delayed: counts.held,
        first_handshakes: u64::from(load.most_connections()) * launches.len() as u64,
        handshakes_full: counts.handshakes_full,
        handshakes_resumed: counts.handshakes_resumed,
        busiest_worker: if replies { counts.client_busiest } else { 0.0 },
        clients: counts.together.as_ref().filter(|_| replies).map(ClientsSummary::new),
        lag_ns_p99: lag_p99(evidence, variant).filter(|_| replies),
        waited: counts.waited,
    }
}

/// Requests due in calm slices that show whether the server keeps up with the rate.
const CALM_DUE: f64 = 1000.0;

/// The counts that show whether a variant keeps up with the rate. Requests that neighbours delayed
/// are not the server's fault.
fn counts_of_rate(evidence: &Evidence<'_>, variant: usize) -> Counts {
    let mut calm = Counts::default();
    for digest in evidence.digests {
        calm.accumulate(&digest.variants[variant].calm.counts);
    }
    if calm.due >= Some(CALM_DUE) { calm } else { evidence.totals[variant].counts.clone() }
}

fn baseline_met(evidence: &Evidence<'_>) -> Option<f64> {
    let counts = counts_of_rate(evidence, evidence.question.baseline);
    let is_about_use = evidence.question.metrics.iter().all(|metric| metric.is_use());
    let due = counts.due.filter(|due| is_about_use && *due > 0.0)?;
    Some((counts.completed + counts.failed) as f64 / due)
}

fn lag_p99(evidence: &Evidence<'_>, variant: usize) -> Option<u64> {
    let mut merged = tare_model::Distribution::default();
    for digest in evidence.digests {
        if let Some(lag) = digest.variants[variant].latency(Series::SendLag) {
            merged.merge(lag);
        }
    }
    merged.quantile(0.99)
}
