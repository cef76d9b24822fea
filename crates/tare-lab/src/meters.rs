//! What a server uses: CPU time, switches, page faults, memory.
//!
//! Processes, a control group or a container go in, [`Reading`]s come out. A meter consists of
//! probes (`probe`; one file for each kind in `probes`). [`metering`] adds up the parts of a launch
//! wherever they run, and [`groups`] finds control groups from inside a pod.
//!
//! Timing model: meters are read between slices, when the server is idle. The kernel's sums are
//! then exact to the nanosecond. On most kernels their division into user and system is sampled by
//! the timer tick, and meaningful only over many slices.

pub mod groups;
pub mod metering;
pub(crate) mod probe;
pub(crate) mod probes;

use serde::{Deserialize, Serialize};
use tare_io::{DurationNs, Instant};
use tare_model::counters::{Counter, Counters};
use tare_model::samples::NUMBER_MAX;

use crate::executor::local::LocalServer;
use crate::machine::cgroup::Cgroup;
use crate::machine::processes;
use crate::meters::groups::Group;
pub use crate::meters::probe::Footprint;
use crate::meters::probe::{Probe, ProcessFiles, Seen};
use crate::meters::probes::{Accounting, CpuTime, OF_PROCESSES};

/// Reads what a running server uses. Its files are opened once, so that a reading costs
/// microseconds.
#[derive(Debug, Default)]
pub struct Meter {
    processes: ProcessFiles,
    /// The probe for CPU time; without it, no counters are returned.
    cpu: Option<Box<dyn Probe>>,
    others: Vec<Box<dyn Probe>>,
}

/// Counters since a server began. Only differences are meaningful.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeterReading {
    pub counters: Option<Counters>,
    /// Nanoseconds on a CPU, and nanoseconds ready but waiting for one, of each thread that existed
    /// when the meter was made. Both are 0 once the thread has ended.
    pub threads: Vec<[u64; 2]>,
}

impl MeterReading {
    /// Caps all numbers so that sums cannot overflow: an agent that others control may have sent
    /// them.
    #[must_use]
    pub fn bounded(self) -> Self {
        let counters = self.counters.map(|counters| counters.map(bounded));
        Self { counters, threads: bounded_threads(self.threads) }
    }
}

impl Footprint {
    #[must_use]
    pub fn bounded(self) -> Self {
        Self {
            rss_bytes: self.rss_bytes.map(bounded),
            throttled_periods: bounded(self.throttled_periods),
        }
    }
}

impl Reading {
    #[must_use]
    pub fn bounded(self) -> Self {
        Self {
            ns: bounded(self.ns),
            cpu_ns: bounded(self.cpu_ns),
            threads: bounded_threads(self.threads),
        }
    }
}

fn bounded(number: u64) -> u64 {
    number.min(NUMBER_MAX)
}

/// Most threads in one reading, so that the sum over all of them cannot overflow.
const THREADS_MAX: usize = 1000;

fn bounded_threads(mut threads: Vec<[u64; 2]>) -> Vec<[u64; 2]> {
    threads.truncate(THREADS_MAX);
    threads.iter_mut().flatten().for_each(|ns| *ns = bounded(*ns));
    threads
}

/// A reading taken under load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// Time since the instant at which the readings were to begin.
    pub ns: u64,
    pub cpu_ns: u64,
    pub threads: Vec<[u64; 2]>,
}

/// When servers count as idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quiet {
    /// Servers are idle when they used at most `cpu_ns` in a period of this length.
    pub time: DurationNs,
    /// The most CPU time that idle servers use in `time`.
    pub cpu_ns: u64,
    /// Interval between checks.
    pub look: DurationNs,
    /// The longest wait.
    pub limit: DurationNs,
}

/// Waits until a counter of CPU time stops growing; returns whether it did.
pub fn until_quiet(
    quiet: &Quiet,
    now: impl Fn() -> Instant,
    pause: impl Fn(DurationNs),
    used: impl Fn() -> u64,
) -> bool {
    let limit = now() + quiet.limit;
    let (mut last, mut since) = (used(), now());
    loop {
        pause(quiet.look);
        let (used, now) = (used(), now());
        if used > last.saturating_add(quiet.cpu_ns) {
            (last, since) = (used, now);
        } else if now.since(since) >= quiet.time {
            return true;
        }
        if now >= limit {
            return false;
        }
    }
}

impl Meter {
    /// Meters a server of this process. With a `container`, CPU time is the whole container's.
    pub fn of_server(server: &LocalServer, container: Option<&Group>) -> Self {
        let Some(pid) = server.pid() else { return Self::default() };
        let mut meter = Self::new(server.cgroup(), pid);
        if let Some(group) = container {
            meter.cpu = Some(Box::new(group.clone()));
        }
        meter
    }

    /// Meters the server whose first process is `leader`.
    pub fn new(cgroup: Option<&Cgroup>, leader: u32) -> Self {
        let pids = match cgroup {
            Some(cgroup) => cgroup.processes(),
            None => processes::tree(leader),
        };
        let accounting = cgroup.and_then(|cgroup| Accounting::attach(&cgroup.cpu_files()));
        let cpu: Box<dyn Probe> = match accounting {
            Some(accounting) => Box::new(accounting),
            None => Box::new(CpuTime),
        };
        let others = OF_PROCESSES.iter().map(|attach| attach()).collect();
        Self { processes: ProcessFiles::new(pids), cpu: Some(cpu), others }
    }

    /// Meters a pod of this node, or one container of it.
    pub fn of_pod(uid: &str, container: Option<&str>) -> Self {
        let group = Group::of_pod(uid, container);
        let cpu = group.map(|group| Box::new(group) as Box<dyn Probe>);
        Self { cpu, ..Self::default() }
    }

    pub fn read(&self) -> MeterReading {
        let seen = self.processes.look();
        let cpu = self.cpu.as_ref().map(|probe| probe.read(&seen));
        let counters = cpu
            .filter(|cpu| cpu[Counter::Cpu].is_some())
            .map(|cpu| self.others.iter().fold(cpu, |known, probe| known.or(probe.read(&seen))));
        MeterReading { counters, threads: times(&seen) }
    }

    /// Returns CPU time only: between slices, the cost of a reading matters.
    pub fn cpu_ns(&self) -> Option<u64> {
        self.cpu_of(&self.processes.look())
    }

    /// Returns the CPU time of all processes, and the times of each thread.
    pub fn cpu_and_threads(&self) -> (u64, Vec<[u64; 2]>) {
        let seen = self.processes.look();
        (self.cpu_of(&seen).unwrap_or(0), times(&seen))
    }

    fn cpu_of(&self, seen: &Seen<'_>) -> Option<u64> {
        self.cpu.as_ref()?.cpu_ns(seen)
    }

    pub fn pids(&self) -> &[u32] {
        self.processes.pids()
    }

    /// Returns memory, and the periods in which a quota throttled it.
    pub fn footprint(&self) -> Footprint {
        let own = self.cpu.as_ref().and_then(|probe| probe.footprint());
        own.unwrap_or_else(|| self.processes.footprint())
    }
}

/// Returns each thread's time on a CPU, and waiting for one.
fn times(seen: &Seen<'_>) -> Vec<[u64; 2]> {
    let threads = seen.threads().iter();
    threads.map(|thread| thread.map_or([0; 2], |t| [t.cpu_ns, t.delay_ns])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_group_processes_are_summed() {
        let mut child =
            std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let meter = Meter::new(None, child.id());
        let read = || meter.read().counters.unwrap();
        let before = read();
        while read().cpu_ns() < before.cpu_ns() + 1_000_000 {
            std::thread::yield_now();
        }
        let used = read().since(before);
        let parts = [Counter::User, Counter::System].map(|part| used[part].unwrap());
        assert_eq!(used.cpu_ns(), parts[0] + parts[1]);
        assert!(meter.footprint().rss_bytes.unwrap() > 0 && used[Counter::Switches].is_some());
        assert!(before[Counter::MinorFaults].unwrap() > 0, "a shell touched its memory");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(meter.read().counters, None);
    }
}
