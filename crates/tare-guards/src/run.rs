//! Guards of a run: each examines one thing, and says it in one sentence.

use std::collections::BTreeSet;

use tare_model::load::Load;
use tare_model::net::Protocol;
use tare_model::plan::PlanParts;
use tare_model::samples::{CountMatch, Launch, Series};
use tare_model::variant::Variant;
use tare_stats::estimate::mean;
use tare_stats::shape::{ROUNDS_MIN, ROUNDS_MIN_SINGLE, trend, two_modes};
use tare_stats::stopping::max_time_needed;
use tare_stats::{RoundDigest, Verdict};

use crate::clients::ClientsSummary;
use crate::connections;
use crate::evidence::{Circumstances, Evidence};
use crate::filters;
use crate::places;
use crate::replies::{split_replies, unequal_reply};
use crate::steady;
use crate::traffic::{Traffic, traffic_doubts};
use crate::units::{count, counted, percent};
use crate::{Code, RunGuard, Severity, guard, in_order, why_void};

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
            Protocol::Http | Protocol::Messages { .. } => Self::Replies,
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
    filters::not_proven,
    unequal_reply,
    split_replies,
    steady::other_bodies,
    steady::not_steady,
    steady::deferred_work,
    steady::not_warm,
    steady::short_of_cpus,
    steady::not_saturated,
    steady::busy_while_idle,
    connections::uneven_workers,
    load_guards,
    count_mismatch,
    lost,
    chatty,
    throttled_server,
    places::emulated,
    places::kept,
    places::clients,
    filters::unexplained,
];

/// Rules that look at the whole run.
const OF_RUNS: &[fn(&Evidence<'_>) -> Vec<RunGuard>] =
    &[machine, network, few_rounds, lost_rounds, launches, shapes, pauses];

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

/// Log lines per request beyond the baseline's.
const CHATTY_LINES: f64 = 0.02;
/// Share of CPU time stolen, and CPUs used by others.
const STEAL_SHARE: f64 = 0.01;
const FOREIGN_CPUS: f64 = 0.15;
/// Share of the machine's CPU time. If others use more, threads that sleep get a CPU late: with
/// eight busy processes on two CPUs, a server twice as slow was repeatedly found to be a third
/// faster.
const CROWDED_SHARE: f64 = 0.75;
/// Share of retransmitted segments. A few are tail-loss probes for replies that were merely slow.
const RETRANSMITTED: f64 = 0.001;
const PORTS_USED: f64 = 0.8;

/// A small miscount is rare if at most one in this many launches has one.
const RARE_OF: usize = 10;

fn count_mismatch(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let launches = &evidence.totals[variant].launches;
    let compared = launches.iter().filter_map(|launch| {
        let served = launch.requests_served?;
        match launch.sent().compare(served) {
            CountMatch::Explained => None,
            CountMatch::Few(_) => Some((Severity::Warn, launch, served)),
            CountMatch::Mismatch => Some((Severity::Void, launch, served)),
        }
    });
    let wrong: Vec<(Severity, &&Launch, u64)> = compared.collect();
    let Some((severity, launch, served)) = wrong.iter().max_by_key(|(severity, ..)| *severity)
    else {
        return Vec::new();
    };
    // A miscount in most launches is no accident.
    let is_rare = wrong.len() <= (launches.len() / RARE_OF).max(1);
    let severity = if is_rare { *severity } else { Severity::Void };
    let why = match severity {
        Severity::Void => {
            "another client talks to it, or it is not the server that answers".to_owned()
        }
        _ => {
            let ended = counted(launch.requests_unsure, "request", "requests");
            format!("at most one in a thousand is unexplained; {ended} got no reply")
        }
    };
    let text = format!(
        "the server counted {} requests where {} were sent to it (in {} launches): {why}",
        count(*served),
        count(launch.requests_sent),
        wrong.len()
    );
    guard(Code::CountMismatch, severity, Some(evidence.name(variant)), text)
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
    let (load, plan) = (&evidence.plan.load, &evidence.plan.variants[variant]);
    let series = if load.is_open() { Series::FromSent } else { Series::Headline };
    let rounds = evidence.digests.iter().map(|digest| &digest.variants[variant]);
    let latencies = rounds.clone().filter_map(|round| round.latency(series));
    let sum_ns: u128 = latencies.map(|latency| latency.sum_ns()).sum();
    let room_ns: u64 = rounds.map(|round| round.littles_law_slack_ns).sum();
    let window_ns = counts.window_ns.max(1) as f64;
    let handshakes = plan.is_tls() && load.has_new_connections() && !plan.forbids_resumption();
    // In streams the workers are a part of what is measured; during calls they only wait.
    let replies = LoadKind::by(load) == LoadKind::Replies;
    Traffic {
        is_open: load.is_open(),
        rate_per_s: load.rate().unwrap_or_default(),
        connections: load.most_connections(),
        most_in_flight: load.most_in_flight(),
        workers: load.workers(),
        new_connections: load.has_new_connections(),
        resumes: handshakes.then_some(load.http().is_some_and(|http| http.tls.resume)),
        started: counts.started,
        completed: counts.completed,
        good: counts.good,
        // Lost datagrams are normal and not failures; they have a guard of their own.
        failed: (counts.failed + counts.cut).saturating_sub(counts.lost),
        cut: counts.cut,
        errors: counts.errors.clone(),
        status: counts.status.clone(),
        due: counts.due,
        // Random arrivals match the expected number only on average.
        chance: if load.is_poisson() { 3.0 / counts.due.unwrap_or(1.0).sqrt() } else { 0.0 },
        // Requests in flight at the start of the window balance those at its end. If the server
        // falls behind, fewer end than were due, even while connections still hold the difference.
        ended: counts.completed + counts.failed,
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

fn lag_p99(evidence: &Evidence<'_>, variant: usize) -> Option<u64> {
    let mut merged = tare_model::Distribution::default();
    for digest in evidence.digests {
        if let Some(lag) = digest.variants[variant].latency(Series::SendLag) {
            merged.merge(lag);
        }
    }
    merged.quantile(0.99)
}

/// Lost datagrams, as a share of all exchanges, or of all datagrams of a stream.
fn lost(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let counts = &evidence.totals[variant].counts;
    if counts.lost == 0 {
        return Vec::new();
    }
    let sent = match LoadKind::by(&evidence.plan.load) {
        LoadKind::Streams => counts.answered + counts.lost,
        _ => counts.started,
    };
    let share = percent(counts.lost as f64 / sent.max(1) as f64);
    let text = format!("{} datagrams ({share}) were lost", count(counts.lost));
    guard(Code::Lost, Severity::Warn, Some(evidence.name(variant)), text)
}

fn chatty(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let lines = |v: usize| {
        let launches = &evidence.totals[v].launches;
        let lines: u64 = launches.iter().map(|launch| launch.log_lines).sum();
        let sent: u64 = launches.iter().map(|launch| launch.requests_sent).sum();
        lines as f64 / sent.max(1) as f64
    };
    let (base, mine) = (lines(evidence.question.baseline), lines(variant));
    if mine <= base + CHATTY_LINES {
        return Vec::new();
    }
    let text = format!(
        "its server writes {mine:.2} lines of log a request, the baseline's {base:.2}: the writing \
         is in what is measured"
    );
    guard(Code::Chatty, Severity::Warn, Some(evidence.name(variant)), text)
}

fn throttled_server(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let launches = &evidence.totals[variant].launches;
    let of_server = launches.iter().map(|launch| ("server", launch.throttled_periods));
    let hops =
        launches.iter().flat_map(|launch| launch.parts.split_last().map_or(&[][..], |p| p.1));
    let of_hops = hops.map(|hop| (&*hop.name, hop.throttled_periods));
    let mut periods: Vec<(&str, u64)> = Vec::new();
    for (name, n) in of_server.chain(of_hops).filter(|(_, n)| *n > 0) {
        match periods.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += n,
            None => periods.push((name, n)),
        }
    }
    let found = periods.into_iter().flat_map(|(name, n)| {
        let text = format!("a CPU quota stopped its {name} in {} periods", count(n));
        guard(Code::Throttled, Severity::Warn, Some(evidence.name(variant)), text)
    });
    found.collect()
}

fn machine(evidence: &Evidence<'_>) -> Vec<RunGuard> {
    let machine = &evidence.machine;
    let capacity = machine.capacity_ns.max(1) as f64;
    let mut guards = Vec::new();
    let stolen = machine.steal_ns as f64 / capacity;
    if stolen > STEAL_SHARE {
        let text = format!("the hypervisor took {} of the CPU time for others", percent(stolen));
        guards.extend(guard(Code::Steal, Severity::Warn, None, text));
    }
    if machine.throttled_periods + machine.thermal_throttles > 0 {
        let text = format!(
            "a CPU quota stopped tare in {} periods, heat slowed CPUs {} times",
            count(machine.throttled_periods),
            count(machine.thermal_throttles)
        );
        guards.extend(guard(Code::Throttled, Severity::Warn, None, text));
    }
    if let Some(used) = used_by_others(evidence) {
        let cpus = machine_cpus(evidence);
        let text = format!("other processes used {used:.2} CPUs of {cpus:.0} meanwhile");
        if used > CROWDED_SHARE * cpus {
            let text = format!("{text}: who gets a CPU decides what is measured");
            guards.extend(guard(Code::Noisy, Severity::Void, None, text));
        } else {
            let text = format!("{text}: intervals are wider for it");
            guards.extend(guard(Code::Noisy, Severity::Warn, None, text));
        }
    }
    guards
}

/// CPUs that other processes used, if they are enough to matter.
pub(crate) fn used_by_others(evidence: &Evidence<'_>) -> Option<f64> {
    // The usage of servers that tare does not meter is unknown.
    if !evidence.plan.variants.iter().all(Variant::is_metered) {
        return None;
    }
    let machine = &evidence.machine;
    let launches = evidence.totals.iter().flat_map(|totals| &totals.launches);
    let servers: u64 = launches.map(|launch| launch.cpu_ns).sum();
    let foreign = machine.busy_ns.saturating_sub(machine.own_cpu_ns + servers) as f64;
    let used = foreign / machine.capacity_ns.max(1) as f64 * machine_cpus(evidence);
    (used > FOREIGN_CPUS).then_some(used)
}

/// CPUs that the capacity was counted for; during a run, the CPUs that it uses.
fn machine_cpus(evidence: &Evidence<'_>) -> f64 {
    let plan = evidence.plan;
    let own: BTreeSet<usize> = plan.load_cpus.iter().chain(&plan.server_cpus).copied().collect();
    evidence.circumstances.cpus.unwrap_or(own.len().max(1)) as f64
}

fn network(evidence: &Evidence<'_>) -> Vec<RunGuard> {
    let machine = &evidence.machine;
    let mut guards = Vec::new();
    let again = machine.tcp_retransmits as f64 / machine.tcp_segments.max(1) as f64;
    if again > RETRANSMITTED {
        let text = format!(
            "the kernel sent {} TCP segments ({}) again: the network lost them, or a queue was full",
            count(machine.tcp_retransmits),
            percent(again)
        );
        guards.extend(guard(Code::Retransmits, Severity::Warn, None, text));
    }
    if machine.listen_drops > 0 {
        let text = format!(
            "the kernel dropped {} connections that a server was too slow to accept (its backlog)",
            count(machine.listen_drops)
        );
        guards.extend(guard(Code::ListenDrops, Severity::Warn, None, text));
    }
    if let Some(used) = machine.ports_used.filter(|used| *used > PORTS_USED) {
        let text = format!(
            "{} of the local ports were in use; widen net.ipv4.ip_local_port_range, or add source \
             addresses (--bind)",
            percent(used)
        );
        guards.extend(guard(Code::Ports, Severity::Warn, None, text));
    }
    guards
}

fn few_rounds(evidence: &Evidence<'_>) -> Vec<RunGuard> {
    let rounds = evidence.analysis.rounds;
    if rounds >= tare_stats::verdict::ROUNDS_MIN {
        return Vec::new();
    }
    let text = format!(
        "only {rounds} rounds; a verdict needs at least {}",
        tare_stats::verdict::ROUNDS_MIN
    );
    let mut guards = guard(Code::FewRounds, Severity::Note, None, text);
    let elapsed_ns = evidence.digests.iter().map(|digest| digest.elapsed_ns).sum();
    let needed = max_time_needed(rounds, elapsed_ns, evidence.plan.stop.max_time);
    for guard in &mut guards {
        guard.line.cure = needed.map(|needed| format!("allow more time: --max-time {needed}"));
    }
    guards
}

/// A server that fails under load is not measured under load: the remaining rounds may flatter it.
fn lost_rounds(evidence: &Evidence<'_>) -> Vec<RunGuard> {
    let (lost, why) = &evidence.circumstances.lost;
    if *lost == 0 {
        return Vec::new();
    }
    let text = format!(
        "{} lost, and not counted: {}",
        counted(u64::from(*lost), "round was", "rounds were"),
        why.as_deref().unwrap_or("it is not known why")
    );
    guard(Code::LostRounds, Severity::Warn, None, text)
}

fn launches(evidence: &Evidence<'_>) -> Vec<RunGuard> {
    let up: Vec<&str> = evidence
        .plan
        .variants
        .iter()
        .filter(|variant| !variant.is_launched())
        .map(|variant| variant.name.as_str())
        .collect();
    let mut guards = Vec::new();
    if !up.is_empty() {
        let text = format!(
            "tare cannot restart {}: identical servers differ by several percent from launch to \
             launch, and this interval covers drift only; let tare start them (--launch \
             {}='command')",
            up.join(", "),
            up[0]
        );
        guards.extend(guard(Code::SingleLaunch, Severity::Note, None, text));
    }
    if evidence.plan.is_exclusive() {
        let text = "variants ran one at a time, as asked: what the machine did meanwhile is not \
                    cancelled";
        guards.extend(guard(Code::Exclusive, Severity::Note, None, text.into()));
    }
    guards
}

fn shapes(evidence: &Evidence<'_>) -> Vec<RunGuard> {
    let mut guards = drift(evidence);
    for comparison in evidence.analysis.comparisons.iter().filter(|c| c.asked) {
        let name = evidence.name(comparison.variant);
        let word = comparison.metric.word();
        let tolerance = evidence.question.tolerance;
        // Changes smaller than the tolerance do not matter.
        let third = comparison.rounds.len() / 3;
        let end = comparison.rounds.len() - third;
        let moved = mean(&comparison.rounds[end..]) - mean(&comparison.rounds[..third]);
        if let Some(z) = trend(&comparison.rounds, ROUNDS_MIN).filter(|_| moved.abs() > tolerance) {
            let way = if z > 0.0 { "rises" } else { "falls" };
            let text = format!(
                "its ratio of {word} {way} from round to round: it has not settled, and the \
                 interval is of a moving thing"
            );
            guards.extend(guard(Code::Unstable, Severity::Warn, Some(name), text));
        }
        let modes = two_modes(&comparison.rounds);
        if let Some(modes) = modes.filter(|modes| modes.high - modes.low > tolerance) {
            // Positive is worse, as in the table.
            let shown = |log: f64| {
                format!("{:+.1} % of overhead", comparison.metric.overhead_percent(log.exp()))
            };
            let text = format!(
                "its rounds are of two kinds in {word}: {} in {} of them, {} in the others; the \
                 mean is of neither",
                shown(modes.high),
                percent(modes.high_share),
                shown(modes.low)
            );
            guards.extend(guard(Code::Unstable, Severity::Warn, Some(name), text));
        }
    }
    guards
}

/// A single variant's value moves with the machine's speed, which no other variant cancels.
fn drift(evidence: &Evidence<'_>) -> Vec<RunGuard> {
    let moved = evidence.analysis.single.iter().flat_map(|own| {
        let rounds = evidence.digests.iter();
        let logs: Vec<f64> =
            rounds.filter_map(|digest| digest.variants[0].log_ratio(own.metric)).collect();
        let third = logs.len() / 3;
        let by = mean(&logs[logs.len() - third..]) - mean(&logs[..third]);
        let z =
            trend(&logs, ROUNDS_MIN_SINGLE).filter(|_| by.abs() > evidence.question.tolerance)?;
        let way = if z > 0.0 { "rises" } else { "falls" };
        let text = format!(
            "its {} {way} from round to round: the server has not settled, or the machine's speed \
             drifts, which only a second variant would cancel",
            own.metric.word()
        );
        Some(guard(Code::Unstable, Severity::Warn, Some(evidence.name(0)), text))
    });
    moved.flatten().collect()
}

fn pauses(evidence: &Evidence<'_>) -> Vec<RunGuard> {
    let pausing = evidence
        .analysis
        .comparisons
        .iter()
        .filter(|c| c.asked && c.pauses && c.verdict != Verdict::Void);
    let told = pausing.flat_map(|comparison| {
        let total = comparison.ratio_of_totals.unwrap_or(1.0);
        let metric = comparison.metric;
        let text = format!(
            "over all slices its {} is {:+.1} % of overhead, over the usual ones {:+.1} %: one of \
             the two pauses now and then, and that is not in the interval",
            metric.word(),
            metric.overhead_percent(total),
            comparison.overhead_percent.point
        );
        guard(Code::Pauses, Severity::Warn, Some(evidence.name(comparison.variant)), text)
    });
    let of_single = evidence.analysis.single.iter().filter(|own| own.pauses).flat_map(|own| {
        let total = own.of_totals.unwrap_or(own.value.point);
        let text = format!(
            "over all slices its {} is {:+.1} % of what it is over the usual ones: it pauses now and \
             then, and that is not in the interval",
            own.metric.word(),
            (total / own.value.point - 1.0) * 100.0
        );
        guard(Code::Pauses, Severity::Warn, Some(evidence.name(0)), text)
    });
    told.chain(of_single).collect()
}
