//! Rules about the machine and its network: steal, throttling, neighbours, retransmits, ports.

use std::collections::BTreeSet;

use tare_model::variant::Variant;

use crate::evidence::Evidence;
use crate::format::{count, percent};
use crate::{Code, RunGuard, Severity, guard};

/// Share of CPU time stolen by the hypervisor.
const STEAL_SHARE: f64 = 0.01;
/// CPUs used by other processes.
const FOREIGN_CPUS: f64 = 0.15;
/// Share of the machine's CPU time. If other processes use more, threads that sleep get a CPU late:
/// with eight busy processes on two CPUs, a server twice as slow was repeatedly found to be a third
/// faster.
const CROWDED_SHARE: f64 = 0.75;
/// Share of retransmitted segments. A few are tail-loss probes for replies that were merely slow.
const RETRANSMITTED: f64 = 0.001;
const PORTS_USED: f64 = 0.8;

pub(crate) fn throttled_server(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
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

pub(crate) fn machine(evidence: &Evidence<'_>) -> Vec<RunGuard> {
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
        let text = format!("other processes used {used:.2} of {cpus:.0} CPUs during the run");
        if used > CROWDED_SHARE * cpus {
            let text = format!("{text}: the result depends on which process gets a CPU");
            guards.extend(guard(Code::Noisy, Severity::Void, None, text));
        } else {
            let text = format!("{text}: this widens the intervals");
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

/// Number of CPUs from which the capacity was computed; during a run, the number that the run uses.
fn machine_cpus(evidence: &Evidence<'_>) -> f64 {
    let plan = evidence.plan;
    let own: BTreeSet<usize> = plan.load_cpus.iter().chain(&plan.server_cpus).copied().collect();
    evidence.circumstances.cpus.unwrap_or(own.len().max(1)) as f64
}

pub(crate) fn network(evidence: &Evidence<'_>) -> Vec<RunGuard> {
    let machine = &evidence.machine;
    let mut guards = Vec::new();
    let again = machine.tcp_retransmits as f64 / machine.tcp_segments.max(1) as f64;
    if again > RETRANSMITTED {
        let text = format!(
            "the kernel retransmitted {} TCP segments ({}): the network lost them, or a queue was full",
            count(machine.tcp_retransmits),
            percent(again)
        );
        guards.extend(guard(Code::Retransmits, Severity::Warn, None, text));
    }
    if machine.listen_drops > 0 {
        let text = format!(
            "the kernel dropped {} connections: a server accepted too slowly (backlog full)",
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
