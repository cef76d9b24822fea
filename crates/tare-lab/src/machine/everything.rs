//! CPU time of everything that ran on some CPUs, as exactly as the kernel counts it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use tare_io::Instant;
use tare_io::system::allowed_cpus;
use tare_io::time::monotonic_now;

use crate::machine::cgroup::{CpuFiles, root_cpu_files};
use crate::machine::processes::TICKS_PER_S;
use crate::meters::probe::{open, read_text};

/// Counters of everything on these CPUs. The files are opened once, so that a reading costs
/// microseconds.
#[derive(Debug)]
pub struct Everything {
    cpus: Vec<usize>,
    usage: Option<Usage>,
    stat: Option<File>,
}

/// The best file that this machine has.
#[derive(Debug)]
enum Usage {
    /// `cpuacct.usage_percpu` of the root control group (version 1): nanoseconds of each CPU.
    Group(File),
    /// `/proc/schedstat`: a line for each CPU. Its time is added when a thread leaves the CPU.
    Scheduler(File),
    /// `cpu.stat` of the root control group (version 2): microseconds of all CPUs together.
    Total(File),
}

impl Everything {
    /// Counts on these CPUs, or without any on all that this process may use.
    pub fn attach(cpus: &[usize]) -> Self {
        let cpus = if cpus.is_empty() { allowed_cpus() } else { cpus.to_vec() };
        let usage = Usage::attach(cpus.len());
        Self { usage, cpus, stat: open(Path::new("/proc/stat")) }
    }

    /// Returns the CPU time of everything; `None` if no file has it, as in most containers.
    pub fn cpu_ns(&self) -> Option<u64> {
        match self.usage.as_ref()? {
            Usage::Group(file) => sum_of_group(&read_all(file)?, &self.cpus),
            // The seventh number is the time for which threads ran.
            Usage::Scheduler(file) => sum_of_lines(&read_all(file)?, &self.cpus, 6),
            Usage::Total(file) => {
                let text = read_text(file)?;
                let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
                usage?.trim().parse::<u64>().ok()?.checked_mul(1000)
            }
        }
    }

    /// Returns the CPU time that the CPUs have given, or could have given.
    pub fn capacity_ns(&self) -> u64 {
        monotonic_now().since(Instant::ZERO).as_ns() * self.cpus.len() as u64
    }

    /// Returns the CPU time that the hypervisor gave to others, in whole ticks.
    pub fn steal_ns(&self) -> Option<u64> {
        // The CPUs' lines come first, and what follows is long.
        let mut text = vec![0; 256 * (self.cpus.iter().max()? + 2)];
        let n = self.stat.as_ref()?.read_at(&mut text, 0).ok()?;
        // cpu user nice system idle iowait irq softirq steal
        let ticks = sum_of_lines(&String::from_utf8_lossy(&text[..n]), &self.cpus, 7)?;
        Some(ticks * (1_000_000_000 / TICKS_PER_S))
    }
}

impl Usage {
    fn attach(cpus: usize) -> Option<Self> {
        let root = root_cpu_files();
        if let Some(CpuFiles::V1 { total, .. }) = &root {
            return open(&total.with_file_name("cpuacct.usage_percpu")).map(Self::Group);
        }
        if let Some(file) = open(Path::new("/proc/schedstat")) {
            return Some(Self::Scheduler(file));
        }
        // Others on CPUs that the run does not use would count, too.
        let are_all = std::thread::available_parallelism().is_ok_and(|all| all.get() == cpus);
        match root {
            Some(CpuFiles::V2 { stat }) if are_all => open(&stat).map(Self::Total),
            _ => None,
        }
    }
}

/// Most bytes of a file with a line or a number for each CPU.
const LENGTH_MAX: usize = 1 << 20;

fn read_all(file: &File) -> Option<String> {
    let mut text = vec![0; 4096];
    loop {
        let n = file.read_at(&mut text, 0).ok()?;
        if n < text.len() || n >= LENGTH_MAX {
            text.truncate(n);
            return String::from_utf8(text).ok();
        }
        text.resize(n * 4, 0);
    }
}

fn sum_of_group(text: &str, cpus: &[usize]) -> Option<u64> {
    let all: Vec<&str> = text.split_whitespace().collect();
    cpus.iter().map(|cpu| all.get(*cpu)?.parse::<u64>().ok()).sum()
}

/// Sums the number at this index of each CPU's line.
fn sum_of_lines(text: &str, cpus: &[usize], index: usize) -> Option<u64> {
    let of_line = |line: &str| {
        let mut fields = line.strip_prefix("cpu")?.split_whitespace();
        let cpu: usize = fields.next()?.parse().ok()?;
        cpus.contains(&cpu).then(|| fields.nth(index)?.parse::<u64>().ok()).flatten()
    };
    let found: Vec<u64> = text.lines().filter_map(of_line).collect();
    (found.len() == cpus.len()).then(|| found.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_io::process::own_cpu_time;

    #[test]
    fn the_times_of_these_cpus_are_summed() {
        assert_eq!(sum_of_group("5 70 900 \n", &[0, 2]), Some(905));
        assert_eq!(sum_of_group("5 70", &[2]), None);
        let text = "version 16\ntimestamp 1\ncpu0 1 0 2 3 4 5 600 7 8\ndomain0 MC 3 1 2\n\
                    cpu1 1 0 2 3 4 5 70 7 8\ncpu10 1 0 2 3 4 5 9 7 8\n";
        assert_eq!(sum_of_lines(text, &[0, 1], 6), Some(670));
        assert_eq!(sum_of_lines(text, &[1, 2], 6), None, "there is no such CPU");
    }

    #[test]
    fn what_this_process_uses_is_in_it() {
        let everything = Everything::attach(&[]);
        assert!(everything.steal_ns().is_some());
        let Some(before) = everything.cpu_ns() else { return };
        let own = own_cpu_time();
        while own_cpu_time().as_ns() < own.as_ns() + 50_000_000 {
            std::hint::black_box(0);
        }
        // The kernel adds what runs at each tick.
        let used = everything.cpu_ns().unwrap() - before;
        assert!(used > 30_000_000, "{used}");
    }
}
