//! Probes, of which a meter consists. Each is attached once per launch and read at the edges of its
//! slices. The kinds are in `probes/`.

use std::cell::OnceCell;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tare_model::counters::{Counter, Counters};

use crate::machine::processes::{self, Stat};
use crate::machine::throttled_periods;

/// One source of counters.
pub trait Probe: fmt::Debug + Send + Sync {
    /// Reads the counters that it knows; none if it can no longer read them.
    fn read(&self, seen: &Seen<'_>) -> Counters;

    /// Returns CPU time only, if that is cheaper: between slices, the cost of a reading matters.
    fn cpu_ns(&self, seen: &Seen<'_>) -> Option<u64> {
        self.read(seen)[Counter::Cpu]
    }

    /// Returns the footprint, if it is not the sum over the processes.
    fn footprint(&self) -> Option<Footprint> {
        None
    }
}

/// Values that change slowly and take longer to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Footprint {
    /// Resident memory now; `None` if it cannot be read. A page that several processes share is
    /// counted once for each of them.
    pub rss_bytes: Option<u64>,
    /// Periods so far in which a quota throttled it.
    pub throttled_periods: u64,
}

/// Files in /proc of the processes that existed when a meter was made.
#[derive(Debug, Default)]
pub struct ProcessFiles {
    pids: Vec<u32>,
    /// One for each thread.
    schedstats: Vec<File>,
    /// One for each process.
    stats: Vec<File>,
}

impl ProcessFiles {
    pub fn new(pids: Vec<u32>) -> Self {
        let schedstats = pids.iter().flat_map(|pid| processes::schedstats(*pid));
        let stats = pids.iter().map(|pid| format!("/proc/{pid}/stat"));
        Self {
            schedstats: schedstats.filter_map(|path| File::open(path).ok()).collect(),
            stats: stats.filter_map(|path| File::open(path).ok()).collect(),
            pids,
        }
    }

    pub fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// Begins a reading. Each kind of file is read at most once, and only if a probe needs it.
    pub fn look(&self) -> Seen<'_> {
        Seen { processes: self, threads: OnceCell::new(), stats: OnceCell::new() }
    }

    pub fn footprint(&self) -> Footprint {
        // In a container the first process is the launcher, and the last is in the limited group.
        let ends = self.pids.first().into_iter().chain(self.pids.last());
        let throttled = ends.map(|pid| throttled_periods(&pid.to_string())).max();
        Footprint {
            rss_bytes: self.pids.iter().map(|pid| processes::rss_bytes(*pid)).sum(),
            throttled_periods: throttled.unwrap_or(0),
        }
    }
}

/// The state of processes in /proc at one moment.
pub struct Seen<'a> {
    processes: &'a ProcessFiles,
    threads: OnceCell<Vec<Option<Thread>>>,
    stats: OnceCell<Vec<Option<Stat>>>,
}

/// The scheduler's counters of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    pub cpu_ns: u64,
    /// Ready but waiting for a CPU.
    pub delay_ns: u64,
    pub switches: u64,
}

impl Seen<'_> {
    /// Returns the threads; `None` for one that has ended, as its count is lost.
    pub fn threads(&self) -> &[Option<Thread>] {
        self.threads.get_or_init(|| self.processes.schedstats.iter().map(read_schedstat).collect())
    }

    pub fn stats(&self) -> &[Option<Stat>] {
        let read = |file| Stat::parse(&read_text(file)?);
        self.stats.get_or_init(|| self.processes.stats.iter().map(read).collect())
    }
}

/// Reads a file from its start, whatever was read before.
pub(crate) fn read_text(file: &File) -> Option<String> {
    let mut buffer = [0; 1024];
    let n = file.read_at(&mut buffer, 0).ok()?;
    String::from_utf8(buffer[..n].to_vec()).ok()
}

pub(crate) fn read_number(file: &File) -> Option<u64> {
    read_text(file)?.trim().parse().ok()
}

pub(crate) fn open(path: &Path) -> Option<File> {
    File::open(path).ok()
}

pub(crate) fn read_schedstat(file: &File) -> Option<Thread> {
    let text = read_text(file)?;
    let mut numbers = text.split_whitespace().map(|text| text.parse().ok());
    let mut next = || numbers.next().flatten();
    Some(Thread { cpu_ns: next()?, delay_ns: next()?, switches: next()? })
}
