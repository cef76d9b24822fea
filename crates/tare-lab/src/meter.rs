//! What a server uses: CPU time, switches, memory.
//!
//! Timing model: read between slices, when the server has nothing to do, the kernel's sums are
//! exact to the nanosecond. Their division into user and system is sampled by the timer tick on
//! most kernels, and means something only over many slices.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tare_model::places::Limits;
use tare_model::samples::ServerUse;

use crate::agent::Agent;
use crate::error::LabError;
use crate::journal::{Journal, Made, PREFIX};
use crate::processes::{self, Stat};

/// A control group of tare's own, in which one variant's server runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// Where CPU time is accounted.
    path: PathBuf,
    version: Version,
    /// Version 1: the groups that limit it, of other controllers.
    limiting: Vec<PathBuf>,
    /// Its name from the root of its hierarchy, as container runtimes want it.
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// Of CPU quotas; the kernel's own default.
const PERIOD_US: u64 = 100_000;

impl Cgroup {
    /// Makes one below this process's own, or says why it cannot.
    pub fn make(name: &str, journal: &Journal) -> Result<Result<Self, String>, LabError> {
        let cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let Some((parent, version)) = accounting_parent(&cgroups, &mounts) else {
            return Ok(Err("no control groups with CPU accounting are mounted".into()));
        };
        let path = parent.join(format!("{PREFIX}{name}"));
        journal.about_to_make(Made::Cgroup(path.clone()))?;
        if let Err(error) = fs::create_dir(&path) {
            return Ok(Err(format!("cannot make {}: {error}", path.display())));
        }
        // Version 2 lets nobody in where controllers are delegated further down.
        let writable = File::options().write(true).open(path.join("cgroup.procs"));
        if let Err(error) = writable {
            return Ok(Err(format!("cannot enter {}: {error}", path.display())));
        }
        let own = match version {
            Version::V1 => own_group(&cgroups, "cpuacct"),
            Version::V2 => own_group(&cgroups, ""),
        };
        let own = own.unwrap_or_default();
        let name = format!("{}/{PREFIX}{name}", own.trim_end_matches('/'));
        Ok(Ok(Self { path, version, limiting: Vec::new(), name }))
    }

    /// Limits whoever is in it; an error in words where the kernel or the machine's set-up does
    /// not let us.
    pub fn limit(&mut self, limits: Limits, journal: &Journal) -> Result<(), LabError> {
        let quota = limits.cpus.map(|cpus| (cpus * PERIOD_US as f64).round() as u64);
        let mut settings = Vec::new();
        match self.version {
            Version::V1 => {
                if let Some(quota) = quota {
                    let group = self.beside("cpu", journal)?;
                    settings.push((group.join("cpu.cfs_period_us"), PERIOD_US.to_string()));
                    settings.push((group.join("cpu.cfs_quota_us"), quota.to_string()));
                }
                if let Some(bytes) = limits.memory_bytes {
                    let group = self.beside("memory", journal)?;
                    settings.push((group.join("memory.limit_in_bytes"), bytes.to_string()));
                }
            }
            Version::V2 => {
                self.enable_v2(limits)?;
                let cpu = quota.map(|quota| ("cpu.max", format!("{quota} {PERIOD_US}")));
                let memory = limits.memory_bytes.map(|bytes| ("memory.max", bytes.to_string()));
                let all = cpu.into_iter().chain(memory);
                settings.extend(all.map(|(file, value)| (self.path.join(file), value)));
            }
        }
        for (path, value) in settings {
            fs::write(&path, &value).map_err(|error| {
                LabError::Environment(format!(
                    "cannot limit what a server uses: {}: {error}; limits need root and the \
                     controllers cpu and memory",
                    path.display()
                ))
            })?;
        }
        Ok(())
    }

    /// Version 2: who has processes of its own may not hand controllers down.
    fn enable_v2(&self, limits: Limits) -> Result<(), LabError> {
        if limits == Limits::default() || self.path.join("cpu.max").exists() {
            return Ok(());
        }
        let parent = self.path.parent().unwrap_or(Path::new("/")).join("cgroup.subtree_control");
        fs::write(&parent, "+cpu +memory").map_err(|error| {
            LabError::Environment(format!(
                "cannot limit what a server uses: {}: {error}; with control groups of version 2, \
                 limits need tare in a delegated group that has no other process (systemd-run \
                 --scope -p Delegate=yes)",
                parent.display()
            ))
        })
    }

    /// Version 1: the group of the same name under another controller.
    fn beside(&mut self, controller: &str, journal: &Journal) -> Result<PathBuf, LabError> {
        let cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let name = self.path.file_name().unwrap_or_default().to_owned();
        let parent = v1_parent(&cgroups, &mounts, controller).ok_or_else(|| {
            LabError::Environment(format!(
                "cannot limit what a server uses: no control groups for {controller} are mounted"
            ))
        })?;
        let path = parent.join(name);
        if path != self.path && !self.limiting.contains(&path) {
            journal.about_to_make(Made::Cgroup(path.clone()))?;
            fs::create_dir(&path).map_err(|e| LabError::file("make", &path, e))?;
            self.limiting.push(path.clone());
        }
        Ok(path)
    }

    /// Where a process writes its number to enter.
    pub fn entrances(&self) -> Vec<PathBuf> {
        let all = std::iter::once(&self.path).chain(&self.limiting);
        all.map(|path| path.join("cgroup.procs")).collect()
    }

    /// In it, and in those below it.
    pub fn processes(&self) -> Vec<u32> {
        processes::of_cgroup(&self.path)
    }

    /// Where a group of this name would be in every hierarchy: container runtimes make all of them.
    pub fn everywhere(&self, name: &str) -> Vec<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let lines = mounts.lines().filter_map(|line| line.split_once(" - "));
        let points = lines.filter(|(_, after)| after.starts_with("cgroup"));
        let points = points.filter_map(|(before, _)| before.split(' ').nth(4));
        points.map(|point| Path::new(point).join(name.trim_start_matches('/'))).collect()
    }
}

/// The directory of this process's own group in the hierarchy that accounts for CPU time.
fn accounting_parent(cgroups: &str, mounts: &str) -> Option<(PathBuf, Version)> {
    if let Some(parent) = v1_parent(cgroups, mounts, "cpuacct") {
        return Some((parent, Version::V1));
    }
    let own = own_group(cgroups, "")?;
    Some((below(mount_of(mounts, "cgroup2", None)?, &own), Version::V2))
}

fn v1_parent(cgroups: &str, mounts: &str, controller: &str) -> Option<PathBuf> {
    let own = own_group(cgroups, controller)?;
    Some(below(mount_of(mounts, "cgroup", Some(controller))?, &own))
}

/// This process's group in a hierarchy.
fn own_group(cgroups: &str, controller: &str) -> Option<String> {
    cgroups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        controllers.split(',').any(|name| name == controller).then(|| path.to_owned())
    })
}

/// The root and the place of a mount.
fn mount_of(mounts: &str, kind: &str, option: Option<&str>) -> Option<(String, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let is_kind = after.next()? == kind;
        let options = after.nth(1).unwrap_or_default();
        let has = option.is_none_or(|wanted| options.split(',').any(|name| name == wanted));
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        (is_kind && has).then(|| (root.to_owned(), PathBuf::from(point)))
    })
}

/// Inside a container the mount shows only the part below its root.
fn below((root, point): (String, PathBuf), own: &str) -> PathBuf {
    let below = own.strip_prefix(root.trim_end_matches('/')).unwrap_or(own);
    point.join(below.trim_start_matches('/'))
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
    /// The place's agent reads them.
    Agent(Arc<Agent>),
}

impl Meter {
    /// Of the server whose first process is `leader`.
    pub fn new(cgroup: Option<&Cgroup>, leader: u32) -> Self {
        let pids = match cgroup {
            Some(cgroup) => cgroup.processes(),
            None => processes::tree(leader),
        };
        let open = |path: &Path| File::open(path).ok();
        let source = cgroup.and_then(|cgroup| match cgroup.version {
            Version::V1 => Some(Source::V1 {
                total: open(&cgroup.path.join("cpuacct.usage"))?,
                user: open(&cgroup.path.join("cpuacct.usage_user"))?,
                system: open(&cgroup.path.join("cpuacct.usage_sys"))?,
            }),
            Version::V2 => Some(Source::V2 { stat: open(&cgroup.path.join("cpu.stat"))? }),
        });
        let schedstats = pids.iter().flat_map(|pid| processes::schedstats(*pid));
        Self {
            source: source.unwrap_or(Source::Processes),
            schedstats: schedstats.filter_map(|path| open(&path)).collect(),
            pids,
            packets: Vec::new(),
        }
    }

    /// Of a server that only its place's agent can see.
    pub fn of_agent(agent: Arc<Agent>) -> Self {
        let (schedstats, pids, packets) = (Vec::new(), Vec::new(), Vec::new());
        Self { source: Source::Agent(agent), schedstats, pids, packets }
    }

    /// Counts the packets of that link, too.
    #[must_use]
    pub fn with_link(mut self, link: Option<&str>) -> Self {
        let folder = link.map(|link| Path::new("/sys/class/net").join(link).join("statistics"));
        let files = folder.iter().flat_map(|f| [f.join("rx_packets"), f.join("tx_packets")]);
        self.packets = files.filter_map(|path| File::open(path).ok()).collect();
        self
    }

    /// Since the server's group began (differences count).
    pub fn read(&self) -> Option<ServerUse> {
        let counters: Option<Vec<u64>> = self.packets.iter().map(read_number).collect();
        let packets = counters.filter(|found| found.len() == 2).map(|found| found.iter().sum());
        Some(ServerUse { packets, ..self.read_processes()? })
    }

    fn read_processes(&self) -> Option<ServerUse> {
        if let Source::Agent(agent) = &self.source {
            return agent.used().and_then(|used| used.server);
        }
        let threads: Vec<[u64; 3]> = self.schedstats.iter().filter_map(read_schedstat).collect();
        // A thread that has ended takes its count with it.
        let complete = threads.len() == self.schedstats.len() && !threads.is_empty();
        let switches = complete.then(|| threads.iter().map(|t| t[2]).sum());
        match &self.source {
            Source::Agent(_) => None,
            Source::V1 { total, user, system } => Some(ServerUse {
                cpu_ns: read_number(total)?,
                user_ns: read_number(user)?,
                system_ns: read_number(system)?,
                switches,
                packets: None,
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
                Some(ServerUse { cpu_ns, user_ns, system_ns, switches, packets: None })
            }
        }
    }

    /// CPU time alone, read in a few microseconds; `None` where only an agent can see it.
    pub fn cpu_ns(&self) -> Option<u64> {
        match &self.source {
            Source::Agent(_) => None,
            Source::V1 { total, .. } => read_number(total),
            Source::V2 { .. } | Source::Processes => self.read_processes().map(|used| used.cpu_ns),
        }
    }

    /// Of each thread that was there when the meter was made: nanoseconds on a CPU, and ready and
    /// waiting for one. Zeros where it has ended.
    pub fn threads(&self) -> Vec<[u64; 2]> {
        let of = |file: &File| read_schedstat(file).map_or([0, 0], |[cpu, delay, _]| [cpu, delay]);
        self.schedstats.iter().map(of).collect()
    }

    /// Resident memory now. Pages that processes share count for each.
    pub fn rss_bytes(&self) -> Option<u64> {
        if let Source::Agent(agent) = &self.source {
            return agent.used().and_then(|used| used.rss_bytes);
        }
        self.pids.iter().map(|pid| processes::rss_bytes(*pid)).sum()
    }

    pub fn pids(&self) -> &[u32] {
        &self.pids
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
    fn the_accounting_hierarchy_is_found() {
        let v1 = "3:cpuset:/\n2:cpu,cpuacct:/docker/x\n0::/\n";
        let mounts = "30 25 0:26 /docker/x /sys/fs/cgroup/cpuacct rw,relatime shared:1 - cgroup cgroup rw,cpu,cpuacct\n\
                      31 25 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let found = accounting_parent(v1, mounts);
        assert_eq!(found, Some(("/sys/fs/cgroup/cpuacct".into(), Version::V1)));
        let v2 = "0::/user.slice/a\n";
        let mounts = "31 25 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        let found = accounting_parent(v2, mounts);
        assert_eq!(found, Some(("/sys/fs/cgroup/user.slice/a".into(), Version::V2)));
        assert_eq!(accounting_parent("", ""), None);
    }

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
