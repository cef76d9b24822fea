//! Control groups that tare creates, limits and enters.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tare_model::places::Limits;

use crate::journal::Journal;
use crate::journal::prefix::PREFIX;
use crate::journal::resources;
use crate::machine::processes;
use tare_model::Failure;

/// A control group of tare's own, in which one variant's server runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    /// The directory in which CPU time is accounted.
    path: PathBuf,
    version: Version,
    /// Version 1: the groups of other controllers that limit it.
    limiting: Vec<PathBuf>,
    /// Version 1: a group of version 2 that identifies sockets of its processes; version 2 uses
    /// `path`.
    sockets: Option<PathBuf>,
    /// Its name from the root of its hierarchy, as container runtimes want it.
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Version {
    V1,
    V2,
}

/// The files with the CPU time of all its processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpuFiles {
    V1 { total: PathBuf, user: PathBuf, system: PathBuf },
    V2 { stat: PathBuf },
}

/// The period of CPU quotas; the kernel's default.
const PERIOD_US: u64 = 100_000;

impl Cgroup {
    /// Makes a group below this process's own, or returns why it cannot.
    pub fn make(name: &str, journal: &Journal) -> Result<Result<Self, String>, Failure> {
        let cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let Some((parent, version)) = accounting_parent(&cgroups, &mounts) else {
            return Ok(Err("no control groups with CPU accounting are mounted".into()));
        };
        let path = parent.join(format!("{PREFIX}{name}"));
        journal.record_before_create(resources::Cgroup(path.clone()))?;
        if let Err(error) = fs::create_dir(&path) {
            return Ok(Err(format!("cannot make {}: {error}", path.display())));
        }
        // Version 2 admits no process where controllers are delegated further down.
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
        Ok(Ok(Self { path, version, limiting: Vec::new(), sockets: None, name }))
    }

    /// Limits all its processes together; fails if the kernel or the machine's setup does not allow
    /// it.
    pub fn limit(&mut self, limits: Limits, journal: &Journal) -> Result<(), Failure> {
        let quota = limits.cpus.map(|cpus| (cpus * PERIOD_US as f64).round() as u64);
        let mut settings = Vec::new();
        match self.version {
            Version::V1 => {
                if let Some(quota) = quota {
                    let group = self.sibling_for("cpu", journal)?;
                    settings.push((group.join("cpu.cfs_period_us"), PERIOD_US.to_string()));
                    settings.push((group.join("cpu.cfs_quota_us"), quota.to_string()));
                }
                if let Some(bytes) = limits.memory_bytes {
                    let group = self.sibling_for("memory", journal)?;
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
                Failure::environment(format!(
                    "cannot limit what a server uses: {}: {error}; limits need root and the \
                     controllers cpu and memory",
                    path.display()
                ))
            })?;
        }
        Ok(())
    }

    /// Version 2: enables the controllers in the parent, which must have no processes of its own.
    fn enable_v2(&self, limits: Limits) -> Result<(), Failure> {
        if limits == Limits::default() || self.path.join("cpu.max").exists() {
            return Ok(());
        }
        let parent = self.path.parent().unwrap_or(Path::new("/")).join("cgroup.subtree_control");
        fs::write(&parent, "+cpu +memory").map_err(|error| {
            Failure::environment(format!(
                "cannot limit what a server uses: {}: {error}; with control groups of version 2, \
                 limits need tare in a delegated group that has no other process (systemd-run \
                 --scope -p Delegate=yes)",
                parent.display()
            ))
        })
    }

    /// Version 1: returns the group of the same name under another controller, created if missing.
    fn sibling_for(&mut self, controller: &str, journal: &Journal) -> Result<PathBuf, Failure> {
        let cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let name = self.path.file_name().unwrap_or_default().to_owned();
        let parent = v1_parent(&cgroups, &mounts, controller).ok_or_else(|| {
            Failure::environment(format!(
                "cannot limit what a server uses: no control groups for {controller} are mounted"
            ))
        })?;
        let path = parent.join(name);
        if path != self.path && !self.limiting.contains(&path) {
            journal.record_before_create(resources::Cgroup(path.clone()))?;
            fs::create_dir(&path).map_err(|e| Failure::file("make", &path, e))?;
            self.limiting.push(path.clone());
        }
        Ok(path)
    }

    /// Returns the group of version 2 to which sockets of its processes belong, created if missing.
    pub fn socket_group(&mut self, journal: &Journal) -> Result<PathBuf, Failure> {
        if self.version == Version::V2 {
            return Ok(self.path.clone());
        }
        if let Some(path) = &self.sockets {
            return Ok(path.clone());
        }
        let cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let parent = own_group(&cgroups, "").zip(mount_of(&mounts, "cgroup2", None));
        let (own, mount) = parent.ok_or_else(|| {
            let text = "no control groups of version 2 are mounted, which BPF programs watch";
            Failure::environment(text)
        })?;
        let name = self.path.file_name().unwrap_or_default();
        let path = below(mount, &own).join(name);
        journal.record_before_create(resources::Cgroup(path.clone()))?;
        fs::create_dir(&path).map_err(|e| Failure::file("make", &path, e))?;
        self.sockets = Some(path.clone());
        Ok(path)
    }

    /// Returns the files to which a process writes its PID to enter the group.
    pub fn entrances(&self) -> Vec<PathBuf> {
        let all = std::iter::once(&self.path).chain(&self.limiting).chain(&self.sockets);
        all.map(|path| path.join("cgroup.procs")).collect()
    }

    pub fn cpu_files(&self) -> CpuFiles {
        cpu_files(&self.path, self.version)
    }

    /// Returns the processes in it and in the groups below it.
    pub fn processes(&self) -> Vec<u32> {
        processes::in_cgroup(&self.path)
    }

    /// Returns the path of a group of this name in every hierarchy: container runtimes create all
    /// of them.
    pub fn paths_in_all_hierarchies(&self, name: &str) -> Vec<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let lines = mounts.lines().filter_map(|line| line.split_once(" - "));
        let points = lines.filter(|(_, after)| after.starts_with("cgroup"));
        let points = points.filter_map(|(before, _)| before.split(' ').nth(4));
        points.map(|point| Path::new(point).join(name.trim_start_matches('/'))).collect()
    }
}

fn cpu_files(path: &Path, version: Version) -> CpuFiles {
    let file = |name: &str| path.join(name);
    match version {
        Version::V1 => CpuFiles::V1 {
            total: file("cpuacct.usage"),
            user: file("cpuacct.usage_user"),
            system: file("cpuacct.usage_sys"),
        },
        Version::V2 => CpuFiles::V2 { stat: file("cpu.stat") },
    }
}

/// Returns the files of the root group, which accounts for everything on the machine; `None` if
/// only a container's own group is visible.
pub fn root_cpu_files() -> Option<CpuFiles> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let (root, point, version) = match mount_of(&mounts, "cgroup", Some("cpuacct")) {
        Some((root, point)) => (root, point, Version::V1),
        None => {
            mount_of(&mounts, "cgroup2", None).map(|(root, point)| (root, point, Version::V2))?
        }
    };
    // A container may see its own group as "/".
    let is_root = match version {
        Version::V1 => point.join("release_agent").exists(),
        Version::V2 => !point.join("cgroup.type").exists(),
    };
    (root == "/" && is_root).then(|| cpu_files(&point, version))
}

/// Returns the directory of this process's own group in the hierarchy that accounts for CPU time.
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

/// Returns this process's group in a hierarchy.
fn own_group(cgroups: &str, controller: &str) -> Option<String> {
    cgroups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        controllers.split(',').any(|name| name == controller).then(|| path.to_owned())
    })
}

/// Returns the root and the mount point of the first mount that matches.
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

/// Maps a group to its path. Inside a container the mount shows only the part below its root.
fn below((root, point): (String, PathBuf), own: &str) -> PathBuf {
    let below = own.strip_prefix(root.trim_end_matches('/')).unwrap_or(own);
    point.join(below.trim_start_matches('/'))
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
}
