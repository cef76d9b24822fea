//! Reads processes from /proc.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What `/proc/PID/stat` holds about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub parent: u32,
    pub group: u32,
    pub session: u32,
    pub minor_faults: u64,
    pub user_ticks: u64,
    pub system_ticks: u64,
    /// Start time since boot.
    pub started_ticks: u64,
    pub zombie: bool,
}

impl Stat {
    pub fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses a line of `stat`. The name, in parentheses, may itself contain parentheses.
    pub fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            zombie: fields.first() == Some(&"Z"),
            parent: number(1)? as u32,
            group: number(2)? as u32,
            session: number(3)? as u32,
            minor_faults: number(7)?,
            user_ticks: number(11)?,
            system_ticks: number(12)?,
            started_ticks: number(19)?,
        })
    }
}

/// Ticks per second in /proc on Linux.
pub const TICKS_PER_S: u64 = 100;

/// Identifies a process beyond its end: the kernel reuses its PID, but not with the same start
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pub pid: u32,
    /// Start time since boot.
    pub started_ticks: u64,
    pub session: u32,
}

impl ProcessIdentity {
    pub fn read(pid: u32) -> Option<Self> {
        let Stat { started_ticks, session, .. } = Stat::read(pid)?;
        Some(Self { pid, started_ticks, session })
    }

    /// Returns whether `stat` describes this process, and not a later one with its PID.
    pub fn matches(&self, stat: &Stat) -> bool {
        stat.started_ticks == self.started_ticks
    }
}

/// Returns the PIDs of all processes.
pub fn all() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the live processes of a process group.
pub fn in_group(group: u32) -> Vec<u32> {
    let alive =
        |pid: &u32| Stat::read(*pid).is_some_and(|stat| stat.group == group && !stat.zombie);
    all().into_iter().filter(alive).collect()
}

/// Returns the processes in a control group and in the groups below it.
pub fn in_cgroup(path: &Path) -> Vec<u32> {
    let text = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    let mut all: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    all.extend(groups_below(path).iter().flat_map(|below| in_cgroup(below)));
    all
}

pub fn groups_below(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

/// Returns the children of all threads of a process, zombies included.
pub fn children(pid: u32) -> Vec<u32> {
    all().into_iter().filter(|child| Stat::read(*child).is_some_and(|s| s.parent == pid)).collect()
}

/// Returns `pid` and its descendants, as far as main threads started them.
pub fn tree(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut at = 0;
    while at < found.len() {
        let path = format!("/proc/{0}/task/{0}/children", found[at]);
        let children = fs::read_to_string(path).unwrap_or_default();
        found.extend(children.split_whitespace().filter_map(|text| text.parse::<u32>().ok()));
        at += 1;
    }
    found
}

/// Returns the `schedstat` file of each thread of a process. It holds nanoseconds running,
/// nanoseconds waiting and the number of time slices.
pub fn schedstats(pid: u32) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path().join("schedstat")).collect()
}

/// Returns the name and CPU time of each of its threads.
pub fn threads_cpu_ns(pid: u32) -> Vec<(String, u64)> {
    let of = |path: PathBuf| {
        let name = fs::read_to_string(path.with_file_name("comm")).ok()?;
        let times = fs::read_to_string(&path).ok()?;
        let ns = times.split_whitespace().next()?.parse().ok()?;
        Some((name.trim_end().to_owned(), ns))
    };
    schedstats(pid).into_iter().filter_map(of).collect()
}

pub fn rss_bytes(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * PAGE_BYTES)
}

const PAGE_BYTES: u64 = 4096;

/// Returns the entries of a process's initial environment, unless it has overwritten them.
pub fn environment(pid: u32) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let entries = bytes.split(|byte| *byte == 0);
    entries.map(|entry| String::from_utf8_lossy(entry).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_do_not_shift_fields() {
        let text = "42 (a) b) ) S 7 9 9 0 -1 4194560 1 2 3 4 50 60 0 0 20 0 1 0 777 8 9";
        let expected = Stat {
            parent: 7,
            group: 9,
            session: 9,
            minor_faults: 1,
            user_ticks: 50,
            system_ticks: 60,
            started_ticks: 777,
            zombie: false,
        };
        assert_eq!(Stat::parse(text), Some(expected));
        assert_eq!(Stat::parse("nonsense"), None);
        assert!(Stat::read(std::process::id()).is_some());
        assert!(rss_bytes(std::process::id()).unwrap() > 100_000);
    }
}
