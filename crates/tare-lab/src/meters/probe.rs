//! What a meter is made of: a probe is attached once for each launch, and read at the edges of its
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
    /// What it has counted so far, by the counters that it knows; none where it sees nothing any
    /// more.
    fn read(&self, seen: &Seen<'_>) -> Counters;

    /// CPU time alone, where that takes less: what a look at it costs matters between slices.
    fn cpu_ns(&self, seen: &Seen<'_>) -> Option<u64> {
        self.read(seen)[Counter::Cpu]
    }

    /// What changes slowly, where it is not that of the processes.
    fn footprint(&self) -> Option<Footprint> {
        None
    }
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

/// What /proc has of processes: of those that there were when a meter was made.
#[derive(Debug, Default)]
pub struct ProcessFiles {
    pids: Vec<u32>,
    /// One a thread.
    schedstats: Vec<File>,
    /// One a process.
    stats: Vec<File>,
}

impl ProcessFiles {
    pub fn of(pids: Vec<u32>) -> Self {
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

    /// A reading of them: what several probes look at is read once, and what none does never.
    pub fn look(&self) -> Seen<'_> {
        Seen { processes: self, threads: OnceCell::new(), stats: OnceCell::new() }
    }

    pub fn footprint(&self) -> Footprint {
        // The first process is a container's launcher; the last is in the limited group.
        let ends = self.pids.first().into_iter().chain(self.pids.last());
        let throttled = ends.map(|pid| throttled_periods(&pid.to_string())).max();
        Footprint {
            rss_bytes: self.pids.iter().map(|pid| processes::rss_bytes(*pid)).sum(),
            throttled_periods: throttled.unwrap_or(0),
        }
    }
}

/// What /proc says of processes at one moment.
pub struct Seen<'a> {
    processes: &'a ProcessFiles,
    threads: OnceCell<Vec<Option<Thread>>>,
    stats: OnceCell<Vec<Option<Stat>>>,
}

/// What the scheduler says of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    pub cpu_ns: u64,
    /// Ready, and waiting for a CPU.
    pub delay_ns: u64,
    pub switches: u64,
}

impl Seen<'_> {
    /// `None` for one that has ended, and took its count with it.
    pub fn threads(&self) -> &[Option<Thread>] {
        self.threads.get_or_init(|| self.processes.schedstats.iter().map(read_schedstat).collect())
    }

    pub fn stats(&self) -> &[Option<Stat>] {
        let read = |file| Stat::parse(&read_text(file)?);
        self.stats.get_or_init(|| self.processes.stats.iter().map(read).collect())
    }
}

/// From its start, however far it was read before.
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
