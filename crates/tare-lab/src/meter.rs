//! What a server uses: CPU time, switches, memory.
//!
//! Timing model: read between slices, when the server has nothing to do, the kernel's sums are
//! exact to the nanosecond. Their division into user and system is sampled by the timer tick on
//! most kernels, and means something only over many slices.

use std::fmt::Debug;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use tare_model::samples::ServerUse;

use crate::cgroup::{Cgroup, CpuFiles};
use crate::processes::{self, Stat};

/// Whoever can see a server that this process cannot: its place's agent.
pub trait FarMeter: Debug + Send + Sync {
    fn used(&self) -> Option<ServerUse>;
    fn rss_bytes(&self) -> Option<u64>;

    /// Periods in which a quota held it up, ever.
    fn throttled_periods(&self) -> u64 {
        0
    }
}

/// Reads what a running server uses. Its files are opened once: a reading costs microseconds.
#[derive(Debug)]
pub struct Meter {
    source: Source,
    /// One a thread.
    schedstats: Vec<File>,
    pids: Vec<u32>,
    /// The counters of its place's link: received and sent.
    packets: Vec<File>,
    /// Processes between it and its client, which are part of what is paid for.
    others: Vec<Meter>,
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
    /// Another reads them.
    Far(Arc<dyn FarMeter>),
}

impl Meter {
    /// Of the server whose first process is `leader`.
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
        Self {
            source: source.unwrap_or(Source::Processes),
            schedstats: schedstats.filter_map(|path| open(&path)).collect(),
            pids,
            packets: Vec::new(),
            others: Vec::new(),
        }
    }

    /// Of a server that only another can see.
    pub fn far(by: Arc<dyn FarMeter>) -> Self {
        let (schedstats, pids, packets) = (Vec::new(), Vec::new(), Vec::new());
        Self { source: Source::Far(by), schedstats, pids, packets, others: Vec::new() }
    }

    /// Counts the packets of that link, too.
    #[must_use]
    pub fn with_link(mut self, link: Option<&str>) -> Self {
        let folder = link.map(|link| Path::new("/sys/class/net").join(link).join("statistics"));
        let files = folder.iter().flat_map(|f| [f.join("rx_packets"), f.join("tx_packets")]);
        self.packets = files.filter_map(|path| File::open(path).ok()).collect();
        self
    }

    /// Of both.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.others.push(other);
        self
    }

    /// Since the server's group began (differences count).
    pub fn read(&self) -> Option<ServerUse> {
        let counters: Option<Vec<u64>> = self.packets.iter().map(read_number).collect();
        let packets = counters.filter(|found| found.len() == 2).map(|found| found.iter().sum());
        let own = ServerUse { packets, ..self.read_processes()? };
        let mut sum = own;
        for other in &self.others {
            let used = other.read()?;
            let layers_ns = Some(sum.layers_ns.unwrap_or(0) + used.cpu_ns);
            // A hop has no link of its own.
            sum = ServerUse { packets: own.packets, layers_ns, ..sum.plus(used) };
        }
        Some(sum)
    }

    fn read_processes(&self) -> Option<ServerUse> {
        if let Source::Far(far) = &self.source {
            return far.used();
        }
        let threads: Vec<[u64; 3]> = self.schedstats.iter().filter_map(read_schedstat).collect();
        // A thread that has ended takes its count with it.
        let complete = threads.len() == self.schedstats.len() && !threads.is_empty();
        let switches = complete.then(|| threads.iter().map(|t| t[2]).sum());
        match &self.source {
            Source::Far(_) => None,
            Source::V1 { total, user, system } => Some(ServerUse {
                cpu_ns: read_number(total)?,
                user_ns: read_number(user)?,
                system_ns: read_number(system)?,
                switches,
                packets: None,
                layers_ns: None,
            }),
            Source::V2 { stat } => {
                let text = read_text(stat)?;
                let us = |key: &str| -> Option<u64> {
                    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
                    Some(value.trim().parse::<u64>().ok()? * 1000)
                };
                Some(ServerUse {
                    cpu_ns: us("usage_usec ")?,
                    user_ns: us("user_usec ")?,
                    system_ns: us("system_usec ")?,
                    switches,
                    packets: None,
                    layers_ns: None,
                })
            }
            Source::Processes => {
                if threads.is_empty() {
                    return None;
                }
                let cpu_ns = threads.iter().map(|t| t[0]).sum();
                let stats = self.pids.iter().filter_map(|pid| Stat::of(*pid));
                let (user, system) =
                    stats.fold((0, 0), |(u, s), stat| (u + stat.user_ticks, s + stat.system_ticks));
                let user_share = user as f64 / (user + system).max(1) as f64;
                let user_ns = (cpu_ns as f64 * user_share) as u64;
                let system_ns = cpu_ns - user_ns;
                let (packets, layers_ns) = (None, None);
                Some(ServerUse { cpu_ns, user_ns, system_ns, switches, packets, layers_ns })
            }
        }
    }

    /// CPU time alone, read in a few microseconds; `None` where only another can see it.
    pub fn cpu_ns(&self) -> Option<u64> {
        let others: Option<u64> = self.others.iter().map(Self::cpu_ns).sum();
        Some(self.own_cpu_ns()? + others?)
    }

    fn own_cpu_ns(&self) -> Option<u64> {
        match &self.source {
            Source::Far(_) => None,
            Source::V1 { total, .. } => read_number(total),
            Source::V2 { .. } | Source::Processes => self.read_processes().map(|used| used.cpu_ns),
        }
    }

    /// Of each thread that was there when the meter was made: nanoseconds on a CPU, and ready and
    /// waiting for one. Zeros where it has ended.
    pub fn threads(&self) -> Vec<[u64; 2]> {
        let of = |file: &File| read_schedstat(file).map_or([0, 0], |[cpu, delay, _]| [cpu, delay]);
        if matches!(self.source, Source::Far(_)) {
            // Its hops' threads alone would stand for all.
            return Vec::new();
        }
        let others = self.others.iter().flat_map(Self::threads);
        self.schedstats.iter().map(of).chain(others).collect()
    }

    /// Resident memory now. Pages that processes share count for each.
    pub fn rss_bytes(&self) -> Option<u64> {
        let own: Option<u64> = match &self.source {
            Source::Far(far) => far.rss_bytes(),
            _ => self.pids.iter().map(|pid| processes::rss_bytes(*pid)).sum(),
        };
        let others: Option<u64> = self.others.iter().map(Self::rss_bytes).sum();
        Some(own? + others?)
    }

    /// The part of it that others hold, where there are such.
    pub fn others_rss_bytes(&self) -> Option<u64> {
        if self.others.is_empty() {
            return None;
        }
        self.others.iter().map(Self::rss_bytes).sum()
    }

    /// Periods in which a quota held it up, as another tells; `None` where it is read here.
    pub fn far_throttled_periods(&self) -> Option<u64> {
        match &self.source {
            Source::Far(far) => Some(far.throttled_periods()),
            _ => None,
        }
    }

    pub fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// Of the others, too.
    pub fn all_pids(&self) -> Vec<u32> {
        let others = self.others.iter().flat_map(Self::all_pids);
        self.pids.iter().copied().chain(others).collect()
    }
}

fn read_text(file: &File) -> Option<String> {
    let mut buffer = [0; 1024];
    let n = file.read_at(&mut buffer, 0).ok()?;
    String::from_utf8(buffer[..n].to_vec()).ok()
}

fn read_number(file: &File) -> Option<u64> {
    read_text(file)?.trim().parse().ok()
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
        let before = meter.read().unwrap();
        while meter.read().unwrap().cpu_ns < before.cpu_ns + 1_000_000 {
            std::thread::yield_now();
        }
        let used = meter.read().unwrap().since(before);
        assert_eq!(used.cpu_ns, used.user_ns + used.system_ns);
        assert!(meter.rss_bytes().unwrap() > 0 && used.switches.is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(meter.read(), None);
    }
}
