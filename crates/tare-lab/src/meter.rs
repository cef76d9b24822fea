//! What a server uses: CPU time, switches, page faults, memory.
//!
//! Timing model: read between slices, when the server has nothing to do, the kernel's sums are
//! exact to the nanosecond. Their division into user and system is sampled by the timer tick on
//! most kernels, and means something only over many slices.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tare_io::{DurationNs, Instant};
use tare_model::counters::{Counter, Counters};
use tare_model::samples::NUMBER_MAX;

use crate::cgroup::{Cgroup, CpuFiles};
use crate::groups::Group;
use crate::local::LocalServer;
use crate::machine::throttled_periods;
use crate::processes::{self, Stat};

/// Reads what a running server uses. Its files are opened once: a reading costs microseconds.
#[derive(Debug)]
pub struct Meter {
    source: Source,
    /// One a thread.
    schedstats: Vec<File>,
    /// One a process.
    stats: Vec<File>,
    pids: Vec<u32>,
}

#[derive(Debug)]
enum Source {
    V1 {
        total: File,
        user: File,
        system: File,
    },
    V2 {
        stat: File,
    },
    /// Sums over processes: those that were there when the meter was made.
    Processes,
    /// A group that another made: a container's, a pod's.
    Group(Group),
    /// It is not to be seen.
    Nothing,
}

/// Counters since a server began; differences count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Used {
    pub counters: Option<Counters>,
    /// Nanoseconds on a CPU, and ready and waiting for one, for each thread that was there when its
    /// counters were opened. Zeros where it has ended.
    pub threads: Vec<[u64; 2]>,
}

impl Used {
    /// As much as sums can hold: it may be told by an agent in another's hands.
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

/// Threads that are told of; the sum of what they used can be had.
const THREADS_MAX: usize = 1000;

fn bounded_threads(mut threads: Vec<[u64; 2]>) -> Vec<[u64; 2]> {
    threads.truncate(THREADS_MAX);
    threads.iter_mut().flatten().for_each(|ns| *ns = bounded(*ns));
    threads
}

/// What changes slowly, and takes longer to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Footprint {
    /// Resident memory now; `None` where it cannot be read. Pages that processes share count for
    /// each.
    pub rss_bytes: Option<u64>,
    /// Periods in which a quota held it up, ever.
    pub throttled_periods: u64,
}

/// One of the readings that are taken under load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// Since the instant from which on they were to be taken.
    pub ns: u64,
    pub cpu_ns: u64,
    pub threads: Vec<[u64; 2]>,
}

/// When servers stand still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quiet {
    /// They stand still when for so long …
    pub time: DurationNs,
    /// … they used no more CPU time than this.
    pub cpu_ns: u64,
    /// How often that is looked at, and for how long at most.
    pub look: DurationNs,
    pub limit: DurationNs,
}

/// Waits until a counter of CPU time stands still; whether it does.
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
    /// Meters a server of this process; where both are in a container, all that is in there.
    pub fn of_server(server: &LocalServer, container: Option<&Group>) -> Self {
        let Some(pid) = server.pid() else { return Self::of_nothing() };
        let meter = Self::new(server.cgroup(), pid);
        match container {
            Some(group) => Self { source: Source::Group(group.clone()), ..meter },
            None => meter,
        }
    }

    /// Meters the server whose first process is `leader`.
    pub fn new(cgroup: Option<&Cgroup>, leader: u32) -> Self {
        let pids = match cgroup {
            Some(cgroup) => cgroup.processes(),
            None => processes::tree(leader),
        };
        let open = |path: &Path| File::open(path).ok();
        let source = cgroup.and_then(|cgroup| match cgroup.cpu_files() {
            CpuFiles::V1 { total, user, system } => Some(Source::V1 {
                total: open(&total)?,
                user: open(&user)?,
                system: open(&system)?,
            }),
            CpuFiles::V2 { stat } => Some(Source::V2 { stat: open(&stat)? }),
        });
        let schedstats = pids.iter().flat_map(|pid| processes::schedstats(*pid));
        let stats = pids.iter().map(|pid| format!("/proc/{pid}/stat"));
        Self {
            source: source.unwrap_or(Source::Processes),
            schedstats: schedstats.filter_map(|path| open(&path)).collect(),
            stats: stats.filter_map(|path| open(Path::new(&path))).collect(),
            pids,
        }
    }

    /// Meters a pod of this node, or one container of it.
    pub fn of_pod(uid: &str, container: Option<&str>) -> Self {
        match Group::of_pod(uid, container) {
            Some(group) => Self { source: Source::Group(group), ..Self::of_nothing() },
            None => Self::of_nothing(),
        }
    }

    fn of_nothing() -> Self {
        Self {
            source: Source::Nothing,
            schedstats: Vec::new(),
            stats: Vec::new(),
            pids: Vec::new(),
        }
    }

    pub fn read(&self) -> Used {
        let threads = self.read_threads();
        let is_seen = !threads.is_empty();
        // A thread that has ended takes its count with it.
        let complete = is_seen && threads.iter().all(Option::is_some);
        let switches = complete.then(|| threads.iter().flatten().map(|t| t[2]).sum::<u64>());
        let faults = if is_seen { self.minor_faults() } else { None };
        let counters = self.cpu_times(&threads).map(|times| {
            times.with(Counter::Switches, switches).with(Counter::MinorFaults, faults)
        });
        Used { counters, threads: times(&threads) }
    }

    /// CPU time alone: what a look at it costs matters between slices.
    pub fn cpu_ns(&self) -> Option<u64> {
        match &self.source {
            Source::V1 { total, .. } => read_number(total),
            Source::Processes => self.cpu_times(&self.read_threads()).map(|used| used.cpu_ns()),
            _ => self.cpu_times(&[]).map(|used| used.cpu_ns()),
        }
    }

    /// CPU time of all, and of each thread.
    pub fn cpu_and_threads(&self) -> (u64, Vec<[u64; 2]>) {
        let threads = self.read_threads();
        let cpu_ns = match &self.source {
            Source::V1 { total, .. } => read_number(total),
            _ => self.cpu_times(&threads).map(|used| used.cpu_ns()),
        };
        (cpu_ns.unwrap_or(0), times(&threads))
    }

    pub fn pids(&self) -> &[u32] {
        &self.pids
    }

    fn read_threads(&self) -> Vec<Option<[u64; 3]>> {
        self.schedstats.iter().map(read_schedstat).collect()
    }

    fn cpu_times(&self, threads: &[Option<[u64; 3]>]) -> Option<Counters> {
        match &self.source {
            Source::Nothing => None,
            Source::Group(group) => group.server(),
            Source::V1 { total, user, system } => Some(
                Counters::default()
                    .with(Counter::Cpu, read_number(total)?)
                    .with(Counter::User, read_number(user)?)
                    .with(Counter::System, read_number(system)?),
            ),
            Source::V2 { stat } => {
                let text = read_text(stat)?;
                let us = |key: &str| -> Option<u64> {
                    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
                    Some(value.trim().parse::<u64>().ok()? * 1000)
                };
                Some(
                    Counters::default()
                        .with(Counter::Cpu, us("usage_usec ")?)
                        .with(Counter::User, us("user_usec ")?)
                        .with(Counter::System, us("system_usec ")?),
                )
            }
            Source::Processes => {
                if threads.iter().all(Option::is_none) {
                    return None;
                }
                let cpu_ns: u64 = threads.iter().flatten().map(|t| t[0]).sum();
                let stats = self.stats.iter().filter_map(read_stat);
                let (user, system) =
                    stats.fold((0, 0), |(u, s), stat| (u + stat.user_ticks, s + stat.system_ticks));
                let user_share = user as f64 / (user + system).max(1) as f64;
                let user_ns = (cpu_ns as f64 * user_share) as u64;
                Some(
                    Counters::default()
                        .with(Counter::Cpu, cpu_ns)
                        .with(Counter::User, user_ns)
                        .with(Counter::System, cpu_ns - user_ns),
                )
            }
        }
    }

    fn minor_faults(&self) -> Option<u64> {
        self.stats.iter().map(|stat| Some(read_stat(stat)?.minor_faults)).sum()
    }

    /// Memory, and periods in which a quota held it up.
    pub fn footprint(&self) -> Footprint {
        match &self.source {
            Source::Group(group) => {
                let (rss_bytes, throttled_periods) = group.footprint();
                Footprint { rss_bytes, throttled_periods }
            }
            _ => {
                // The first process is a container's launcher; the last is in the limited group.
                let ends = self.pids.first().into_iter().chain(self.pids.last());
                let throttled = ends.map(|pid| throttled_periods(&pid.to_string())).max();
                Footprint {
                    rss_bytes: self.pids.iter().map(|pid| processes::rss_bytes(*pid)).sum(),
                    throttled_periods: throttled.unwrap_or(0),
                }
            }
        }
    }
}

/// On a CPU, and waiting for one.
fn times(threads: &[Option<[u64; 3]>]) -> Vec<[u64; 2]> {
    threads.iter().map(|thread| thread.map_or([0; 2], |[cpu, delay, _]| [cpu, delay])).collect()
}

fn read_text(file: &File) -> Option<String> {
    let mut buffer = [0; 1024];
    let n = file.read_at(&mut buffer, 0).ok()?;
    String::from_utf8(buffer[..n].to_vec()).ok()
}

fn read_number(file: &File) -> Option<u64> {
    read_text(file)?.trim().parse().ok()
}

fn read_stat(file: &File) -> Option<Stat> {
    Stat::parse(&read_text(file)?)
}

fn read_schedstat(file: &File) -> Option<[u64; 3]> {
    let text = read_text(file)?;
    let mut numbers = text.split_whitespace().map(|text| text.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
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
