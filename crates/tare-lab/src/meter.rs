//! What a server uses: CPU time, switches, memory.
//!
//! Timing model: read between slices, when the server has nothing to do, the kernel's sums are
//! exact to the nanosecond. Their division into user and system is sampled by the timer tick on
//! most kernels, and means something only over many slices.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tare_stats::samples::ServerUse;

use crate::error::LabError;
use crate::journal::{Journal, Made, PREFIX, cgroup_processes};
use crate::processes::{self, Stat};

/// A control group of tare's own, in which one variant's server runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    path: PathBuf,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

impl Cgroup {
    /// Makes one below this process's own, or says why it cannot.
    pub fn make(name: &str, journal: &mut Journal) -> Result<Result<Self, String>, LabError> {
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
        Ok(Ok(Self { path, version }))
    }

    /// Where a process writes its number to enter.
    pub fn entrance(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    pub fn processes(&self) -> Vec<u32> {
        cgroup_processes(&self.path)
    }
}

/// The directory of this process's own group in the hierarchy that accounts for CPU time.
fn accounting_parent(cgroups: &str, mounts: &str) -> Option<(PathBuf, Version)> {
    let own = |wanted: &str| {
        cgroups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            controllers.split(',').any(|name| name == wanted).then(|| path.to_owned())
        })
    };
    let mount = |kind: &str, option: Option<&str>| {
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
    };
    let join = |(root, point): (String, PathBuf), own: String| {
        // Inside a container the mount shows only the part below its root.
        let below = own.strip_prefix(root.trim_end_matches('/')).unwrap_or(&own);
        point.join(below.trim_start_matches('/'))
    };
    if let (Some(mount), Some(own)) = (mount("cgroup", Some("cpuacct")), own("cpuacct")) {
        return Some((join(mount, own), Version::V1));
    }
    Some((join(mount("cgroup2", None)?, own("")?), Version::V2))
}

/// Reads what a running server uses. Its files are opened once: a reading costs microseconds.
#[derive(Debug)]
pub struct Meter {
    source: Source,
    /// One a thread.
    schedstats: Vec<File>,
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
        }
    }

    /// Since the server's group began (differences count).
    pub fn read(&self) -> Option<ServerUse> {
        let threads: Vec<[u64; 3]> = self.schedstats.iter().filter_map(read_schedstat).collect();
        // A thread that has ended takes its count with it.
        let complete = threads.len() == self.schedstats.len() && !threads.is_empty();
        let switches = complete.then(|| threads.iter().map(|t| t[2]).sum());
        match &self.source {
            Source::V1 { total, user, system } => Some(ServerUse {
                cpu_ns: read_number(total)?,
                user_ns: read_number(user)?,
                system_ns: read_number(system)?,
                switches,
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
                Some(ServerUse { cpu_ns, user_ns, system_ns: cpu_ns - user_ns, switches })
            }
        }
    }

    /// Resident memory now. Pages that processes share count for each.
    pub fn rss_bytes(&self) -> Option<u64> {
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
