//! Control groups as an agent in a pod sees them: its own container's, or all of its node's.

use std::fs;
use std::path::{Path, PathBuf};

use tare_io::DurationNs;
use tare_io::process::own_cpu_time;
use tare_model::counters::{Counter, Counters};

use crate::meters::probe::{Footprint, Probe, Seen};

/// One control group, of either version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    cpu: PathBuf,
    memory: Option<PathBuf>,
    /// The file that counts how often a quota throttled it.
    quota: Option<PathBuf>,
    is_v1: bool,
    /// Whether this process is in the group, so that its use must be subtracted.
    holds_us: bool,
}

/// The mount point of the node's control groups in the pod that reads them.
pub const GROUPS: &str = "/tare-cgroup";
const LOOKS: u32 = 20;
const OWN: &str = "/sys/fs/cgroup";
/// Version 1: possible names of the hierarchy that accounts for CPU time.
const ACCOUNTING: [&str; 3] = ["cpuacct", "cpu,cpuacct", "cpu"];

impl Group {
    /// Returns the group of the container that this process is in; `None` if it cannot be seen or
    /// there is no container.
    pub fn own() -> Option<Self> {
        // Processes may come and go between the two reads.
        (0..LOOKS).find_map(|_| Self::look())
    }

    fn look() -> Option<Self> {
        let found = open_group(Path::new(OWN), Path::new(""))?;
        // A machine's root group has this file too; a container's lists exactly the processes seen
        // here.
        let folder = found.cpu.parent()?;
        let inside = fs::read_to_string(folder.join("cgroup.procs")).ok()?;
        let inside: Vec<u32> = inside.lines().filter_map(|line| line.parse().ok()).collect();
        let all = crate::machine::processes::all();
        let holds_us = inside.contains(&std::process::id());
        (holds_us && all.iter().all(|pid| inside.contains(pid)))
            .then_some(Self { holds_us: true, ..found })
    }

    /// Finds the group of a pod, or of one of its containers, among all of the node's.
    pub fn of_pod(uid: &str, container: Option<&str>) -> Option<Self> {
        if !is_id(uid) || !container.is_none_or(is_id) {
            return None;
        }
        let root = Path::new(GROUPS);
        let hierarchies = ACCOUNTING.map(|name| root.join(name));
        let top = hierarchies.iter().find(|path| path.is_dir()).map_or(root, PathBuf::as_path);
        let mut left = FOLDERS_MAX;
        let mut found = find(top, uid, DEPTH_MAX, &mut left)?;
        if let Some(container) = container {
            found = child(&found, container)?;
        }
        open_group(root, found.strip_prefix(top).ok()?)
    }

    fn counters(&self) -> Option<Counters> {
        let server = if self.is_v1 { self.read_v1() } else { self.read_v2() };
        let own = if self.holds_us { own_cpu_time() } else { DurationNs::ZERO };
        server.map(|used| subtract_cpu(used, own.as_ns()))
    }

    fn read_v1(&self) -> Option<Counters> {
        let number = |name: &str| -> Option<u64> {
            let path = self.cpu.with_file_name(name);
            fs::read_to_string(path).ok()?.trim().parse().ok()
        };
        Some(
            Counters::default()
                .with(Counter::Cpu, number("cpuacct.usage")?)
                .with(Counter::User, number("cpuacct.usage_user").unwrap_or(0))
                .with(Counter::System, number("cpuacct.usage_sys").unwrap_or(0)),
        )
    }

    fn read_v2(&self) -> Option<Counters> {
        let text = fs::read_to_string(&self.cpu).ok()?;
        let us = |key: &str| Some(value(&text, key)? * 1000);
        Some(
            Counters::default()
                .with(Counter::Cpu, us("usage_usec")?)
                .with(Counter::User, us("user_usec").unwrap_or(0))
                .with(Counter::System, us("system_usec").unwrap_or(0)),
        )
    }

    /// Returns how many of its processes the kernel has killed for lack of memory.
    pub fn oom_kills(&self) -> u64 {
        let name = if self.is_v1 { "memory.oom_control" } else { "memory.events" };
        let path = self.memory.as_ref().map(|path| path.with_file_name(name));
        let text = path.and_then(|path| fs::read_to_string(path).ok());
        text.and_then(|text| value(&text, "oom_kill")).unwrap_or(0)
    }

    fn throttled(&self) -> u64 {
        let text = self.quota.as_ref().and_then(|path| fs::read_to_string(path).ok());
        text.and_then(|text| value(&text, "nr_throttled")).unwrap_or(0)
    }

    fn rss(&self) -> Option<u64> {
        let text = fs::read_to_string(self.memory.as_ref()?).ok()?;
        value(&text, if self.is_v1 { "total_rss" } else { "anon" })
    }
}

/// Groups that others made: a container's or a pod's.
impl Probe for Group {
    fn read(&self, _seen: &Seen<'_>) -> Counters {
        self.counters().unwrap_or_default()
    }

    fn footprint(&self) -> Option<Footprint> {
        Some(Footprint { rss_bytes: self.rss(), throttled_periods: self.throttled() })
    }
}

/// Returns whether a text looks like an ID of a cluster or runtime. Such a text contains no path.
fn is_id(text: &str) -> bool {
    text.len() >= ID_CHARS_MIN && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

const ID_CHARS_MIN: usize = 8;
/// A node's tree has levels for the kubelet, for QoS classes and for pods.
const DEPTH_MAX: u32 = 6;
const FOLDERS_MAX: u32 = 50_000;

/// Opens the group of that name below the hierarchies at `root`.
fn open_group(root: &Path, name: &Path) -> Option<Group> {
    let v1 = ACCOUNTING.iter().find_map(|hierarchy| {
        let cpu = root.join(hierarchy).join(name).join("cpuacct.usage");
        let memory = root.join("memory").join(name).join("memory.stat");
        let quotas = ["cpu", "cpu,cpuacct"].map(|h| root.join(h).join(name).join("cpu.stat"));
        cpu.is_file().then(|| Group {
            cpu,
            memory: memory.is_file().then_some(memory),
            quota: quotas.into_iter().find(|path| path.is_file()),
            is_v1: true,
            holds_us: false,
        })
    });
    v1.or_else(|| {
        let folder = root.join(name);
        let cpu = folder.join("cpu.stat");
        let counts =
            fs::read_to_string(&cpu).is_ok_and(|text| value(&text, "usage_usec").is_some());
        counts.then(|| Group {
            quota: Some(cpu.clone()),
            cpu,
            memory: Some(folder.join("memory.stat")),
            is_v1: false,
            holds_us: false,
        })
    })
}

/// Finds the folder named after the pod's UID, as the kubelet (`pod1f…-…`) or systemd
/// (`…-pod1f…_….slice`) writes it.
fn find(folder: &Path, uid: &str, depth: u32, left: &mut u32) -> Option<PathBuf> {
    let underscored = uid.replace('-', "_");
    let mut below = Vec::new();
    for entry in fs::read_dir(folder).ok()?.flatten() {
        *left = left.checked_sub(1)?;
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.contains("pod") && (name.contains(uid) || name.contains(&underscored)) {
            return Some(entry.path());
        }
        below.push(entry.path());
    }
    let depth = depth.checked_sub(1)?;
    below.iter().find_map(|path| find(path, uid, depth, left))
}

/// Finds a container's folder in its pod's, as the kubelet (`1f…`) or systemd (`…-1f….scope`)
/// writes it.
fn child(folder: &Path, id: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten().take(FOLDERS_MAX as usize);
    let mut named = entries.filter(|entry| entry.file_name().to_string_lossy().contains(id));
    named.find(|entry| entry.path().is_dir()).map(|entry| entry.path())
}

/// Reads the value from a line `key value`.
fn value(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

/// Subtracts `ns` of CPU time; user and system time shrink in proportion.
fn subtract_cpu(used: Counters, ns: u64) -> Counters {
    let share = ns as f64 / used.cpu_ns().max(1) as f64;
    let part = |of: u64| of.saturating_sub((of as f64 * share) as u64);
    used.with(Counter::Cpu, used.cpu_ns().saturating_sub(ns))
        .with(Counter::User, used[Counter::User].map(part))
        .with(Counter::System, used[Counter::System].map(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_found_by_either_way_of_writing_their_uid() {
        let root = std::env::temp_dir().join(format!("tare-groups-{}", std::process::id()));
        let kubelet = root.join("kubepods/burstable/pod12345678-aa");
        let systemd = root.join("kubepods.slice/kubepods-podabcdef01_bb.slice");
        fs::create_dir_all(kubelet.join("container")).unwrap();
        fs::create_dir_all(&systemd).unwrap();
        let found = |uid: &str, left: u32| find(&root, uid, DEPTH_MAX, &mut { left });
        assert_eq!(found("12345678-aa", 100), Some(kubelet));
        assert_eq!(found("abcdef01-bb", 100).as_ref(), Some(&systemd));
        assert_eq!(found("99999999-cc", 100), None);
        assert_eq!(found("12345678-aa", 1), None, "an endless tree is left");
        let scope = systemd.join("cri-containerd-fedcba98.scope");
        fs::create_dir_all(&scope).unwrap();
        assert_eq!(child(&systemd, "fedcba98"), Some(scope));
        assert_eq!(child(&systemd, "00000000"), None);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(Group::of_pod("../..", None), None);
        assert_eq!(Group::of_pod("12345678-aa", Some("../../..")), None);
    }

    #[test]
    fn what_the_agent_itself_used_is_taken_out() {
        let counts = [(Counter::Cpu, 100), (Counter::User, 60), (Counter::System, 40)];
        let used = counts.iter().fold(Counters::default(), |all, (c, n)| all.with(*c, *n));
        let left = subtract_cpu(used, 50);
        assert_eq!(counts.map(|(counter, _)| left[counter]), [50, 30, 20].map(Some));
    }
}
