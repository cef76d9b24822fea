//! The machine: its description, and its counters over a round. Its modules handle control groups
//! ([`cgroup`]), the CPU time of everything ([`everything`]), processes ([`processes`]), installed
//! programs ([`programs`]) and how to install them ([`packages`]), short commands ([`commands`]), and
//! the commit of a repository ([`commit`]).

pub mod cgroup;
pub mod commands;
pub mod commit;
pub mod everything;
pub mod packages;
pub mod processes;
pub mod programs;

use std::fs;

use serde::{Deserialize, Serialize};
use tare_io::process::own_cpu_time;
use tare_io::system::allowed_cpus;
use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant};
use tare_model::samples::MachineUse;

use crate::machine::commit::commit_in;
use crate::machine::processes::TICKS_PER_S;

/// Description of the machine, kept with every run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    pub host: String,
    pub kernel: String,
    pub system: String,
    pub cpu_model: String,
    /// CPUs that this process may use.
    pub cpus: Vec<usize>,
    /// Their frequency governor, if known.
    pub governor: Option<String>,
    /// Whether it is a virtual machine.
    pub virtual_machine: bool,
    pub memory_bytes: u64,
    /// Commit of the repository in which the command was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

impl Machine {
    pub fn probe() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = read("/proc/meminfo");
        let memory_kb = memory.lines().next().and_then(|line| line.split_whitespace().nth(1));
        let system = read("/etc/os-release");
        let system = system.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        Self {
            host: read("/proc/sys/kernel/hostname"),
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease")),
            system: system.unwrap_or_default().trim_matches('"').to_owned(),
            cpu_model: field("model name").unwrap_or_default(),
            cpus: allowed_cpus(),
            governor: (!governor.is_empty()).then_some(governor),
            virtual_machine: field("flags").unwrap_or_default().contains(" hypervisor"),
            memory_bytes: memory_kb.and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) * 1024,
            commit: std::env::current_dir().ok().and_then(|folder| commit_in(&folder)),
        }
    }
}

/// Counters of the whole machine at one moment.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    at: Instant,
    busy_ns: u64,
    steal_ns: u64,
    own_cpu: DurationNs,
    throttled_periods: u64,
    thermal_throttles: u64,
    tcp_segments: u64,
    tcp_retransmits: u64,
    listen_drops: u64,
}

impl Counters {
    pub fn take() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let (busy_ticks, steal_ticks) = allowed_ticks(&stat);
        let tick_ns = 1_000_000_000 / TICKS_PER_S;
        let netstat = fs::read_to_string("/proc/net/netstat").unwrap_or_default();
        let snmp = fs::read_to_string("/proc/net/snmp").unwrap_or_default();
        Self {
            at: monotonic_now(),
            busy_ns: busy_ticks * tick_ns,
            steal_ns: steal_ticks * tick_ns,
            own_cpu: own_cpu_time(),
            throttled_periods: throttled_periods("self"),
            thermal_throttles: thermal_throttles(),
            tcp_segments: net_counter(&snmp, "Tcp:", "OutSegs"),
            tcp_retransmits: net_counter(&snmp, "Tcp:", "RetransSegs"),
            listen_drops: net_counter(&netstat, "TcpExt:", "ListenDrops"),
        }
    }

    /// Returns the use since `earlier`. The caller fills in the fields that are not counters of the
    /// machine.
    pub fn since(&self, earlier: &Self) -> MachineUse {
        let elapsed = self.at.since(earlier.at).as_ns();
        MachineUse {
            capacity_ns: elapsed * allowed_cpus().len() as u64,
            busy_ns: self.busy_ns.saturating_sub(earlier.busy_ns),
            steal_ns: self.steal_ns.saturating_sub(earlier.steal_ns),
            own_cpu_ns: self.own_cpu.as_ns() - earlier.own_cpu.as_ns(),
            throttled_periods: self.throttled_periods.saturating_sub(earlier.throttled_periods),
            thermal_throttles: self.thermal_throttles.saturating_sub(earlier.thermal_throttles),
            tcp_segments: self.tcp_segments.saturating_sub(earlier.tcp_segments),
            tcp_retransmits: self.tcp_retransmits.saturating_sub(earlier.tcp_retransmits),
            listen_drops: self.listen_drops.saturating_sub(earlier.listen_drops),
            ..MachineUse::default()
        }
    }
}

/// Returns the share of CPU time since boot that the hypervisor gave to others.
pub fn steal_share() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    let all: u64 = line.split_whitespace().skip(1).filter_map(|t| t.parse::<u64>().ok()).sum();
    cpu_ticks(line).1 as f64 / all.max(1) as f64
}

/// Sums the busy and the stolen ticks of the CPUs that this process may use.
fn allowed_ticks(stat: &str) -> (u64, u64) {
    let cpus = allowed_cpus();
    let lines = stat.lines().filter(|line| {
        let name = line.split_whitespace().next().and_then(|name| name.strip_prefix("cpu"));
        name.and_then(|n| n.parse().ok()).is_some_and(|cpu: usize| cpus.contains(&cpu))
    });
    lines.map(cpu_ticks).fold((0, 0), |(busy, steal), (b, s)| (busy + b, steal + s))
}

/// Reads a line of `/proc/stat`; returns busy ticks and stolen ticks.
fn cpu_ticks(line: &str) -> (u64, u64) {
    let ticks: Vec<u64> =
        line.split_whitespace().skip(1).filter_map(|text| text.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal
    let at = |index: usize| ticks.get(index).copied().unwrap_or(0);
    (at(0) + at(1) + at(2) + at(5) + at(6), at(7))
}

/// Reads a counter from `/proc/net/snmp` or `netstat`: names on one line, values on the next.
fn net_counter(text: &str, table: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.starts_with(table));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let found = names.split_whitespace().zip(values.split_whitespace()).find(|(n, _)| *n == name);
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// Counts the periods in which a CPU quota throttled a process (`self` or a PID), in its control
/// group and all groups above it.
pub fn throttled_periods(process: &str) -> u64 {
    let cgroups = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
    let mut sum = 0;
    for line in cgroups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let root = match controllers {
            "" => "/sys/fs/cgroup",
            list if list.split(',').any(|name| name == "cpu") => "/sys/fs/cgroup/cpu",
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        loop {
            let stat = fs::read_to_string(format!("{root}{path}/cpu.stat")).unwrap_or_default();
            let count = stat.lines().find_map(|line| line.strip_prefix("nr_throttled "));
            sum += count.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            match path.rsplit_once('/') {
                Some((parent, _)) if !parent.is_empty() => path = parent,
                _ => break,
            }
        }
    }
    sum
}

/// Sums how often CPUs were slowed because they were hot.
fn thermal_throttles() -> u64 {
    let of = |cpu: &usize| {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle");
        let text = fs::read_to_string(format!("{folder}/core_throttle_count")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    allowed_cpus().iter().filter_map(of).sum()
}

/// Returns the share of local ports in use, connections in TIME_WAIT included.
pub fn ports_used() -> Option<f64> {
    let (low, high) = local_ports()?;
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let text: String = tables.iter().filter_map(|path| fs::read_to_string(path).ok()).collect();
    let used = ports_of(&text).into_iter().filter(|port| (low..=high).contains(port)).count();
    Some(used as f64 / f64::from(high - low + 1))
}

/// Returns the distinct local ports in a table of sockets.
fn ports_of(table: &str) -> std::collections::BTreeSet<u32> {
    let port = |line: &str| {
        let local = line.split_whitespace().nth(1)?;
        u32::from_str_radix(local.rsplit_once(':')?.1, 16).ok()
    };
    table.lines().filter_map(port).collect()
}

/// Returns the range of local ports.
pub fn local_ports() -> Option<(u32, u32)> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut numbers = text.split_whitespace().map(|text| text.parse::<u32>().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found() {
        assert_eq!(cpu_ticks("cpu0  10 1 5 100 7 2 3 4 0 0"), (21, 4));
        let netstat = "TcpExt: A ListenDrops B\nTcpExt: 1 42 3\nIpExt: A\nIpExt: 9\n";
        assert_eq!(net_counter(netstat, "TcpExt:", "ListenDrops"), 42);
        assert_eq!(net_counter(netstat, "TcpExt:", "Nothing"), 0);
    }

    #[test]
    fn ports_are_counted_once() {
        let table = "  sl  local_address rem_address   st\n\
                     0: 0100007F:1F90 00000000:0000 0A 00000000:00000000\n\
                     1: 0100007F:C001 0100007F:1F90 06 00000000:00000000\n\
                     2: 0100007F:C001 0200007F:1F90 06 00000000:00000000\n";
        assert_eq!(ports_of(table).into_iter().collect::<Vec<_>>(), [0x1f90, 0xc001]);
        assert!(ports_used().is_some_and(|share| (0.0..1.0).contains(&share)));
    }

    #[test]
    fn this_machine_is_known() {
        let machine = Machine::probe();
        assert!(!machine.cpus.is_empty() && machine.memory_bytes > 0, "{machine:?}");
        assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
        let first = Counters::take();
        let used = Counters::take().since(&first);
        assert!(used.capacity_ns > 0);
        assert!(local_ports().is_some_and(|(low, high)| low < high));
    }
}
