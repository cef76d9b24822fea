//! CPU time that the kernel spends on arriving packets and other interrupts, and charges to no
//! process. Kernels built with `CONFIG_IRQ_TIME_ACCOUNTING` count interrupts, and the threads of
//! soft interrupts (ksoftirqd), separately from processes. Other kernels count only those threads
//! separately: they charge an interrupt to the process that it interrupts or, on an idle CPU, to
//! nothing.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tare_io::system::process_cpus;
use tare_model::counters::{Counter, Counters};

use crate::machine::processes::TICKS_PER_S;
use crate::meters::probe::{Probe, Seen, open, read_schedstat};

#[derive(Debug)]
pub enum Softirq {
    /// The ksoftirqd threads, one for each CPU.
    Threads(Vec<File>),
    /// All interrupts, from the lines of these CPUs in /proc/stat; they are in its first `length`
    /// bytes.
    Apart { stat: File, cpus: Vec<usize>, length: usize },
}

impl Softirq {
    /// Attaches to the CPUs that process `pid` may use; `None` if the ksoftirqd threads are not
    /// visible, as in a container.
    pub fn attach(pid: u32) -> Option<Self> {
        static THREADS: OnceLock<Vec<(usize, PathBuf)>> = OnceLock::new();
        static ARE_APART: OnceLock<bool> = OnceLock::new();
        let cpus = process_cpus(pid);
        if *ARE_APART.get_or_init(|| kernel_config().is_some_and(|c| are_apart(&c))) {
            let (stat, length) = (open(Path::new("/proc/stat"))?, 256 * (cpus.iter().max()? + 2));
            return Some(Self::Apart { stat, cpus, length });
        }
        let threads = THREADS.get_or_init(|| threads(Path::new("/proc")));
        let of_cpus = threads.iter().filter(|(cpu, _)| cpus.contains(cpu));
        let threads: Vec<File> = of_cpus.filter_map(|(_, path)| open(path)).collect();
        (!threads.is_empty()).then_some(Self::Threads(threads))
    }

    fn ns(&self) -> Option<u64> {
        match self {
            Self::Threads(files) => files.iter().map(|f| Some(read_schedstat(f)?.cpu_ns)).sum(),
            Self::Apart { stat, cpus, length } => {
                let mut buffer = vec![0; *length];
                let n = stat.read_at(&mut buffer, 0).ok()?;
                let text = String::from_utf8_lossy(&buffer[..n]);
                Some(ticks(&text, cpus) * (1_000_000_000 / TICKS_PER_S))
            }
        }
    }
}

impl Probe for Softirq {
    fn read(&self, _seen: &Seen<'_>) -> Counters {
        Counters::default().with(Counter::Softirq, self.ns())
    }
}

/// Sums the ticks of hard and soft interrupts on these CPUs.
fn ticks(stat: &str, cpus: &[usize]) -> u64 {
    let of_line = |line: &str| {
        let mut fields = line.strip_prefix("cpu")?.split_whitespace();
        let cpu: usize = fields.next()?.parse().ok()?;
        // user nice system idle iowait irq softirq
        let both = fields.skip(5).take(2).filter_map(|field| field.parse::<u64>().ok());
        cpus.contains(&cpu).then(|| both.sum::<u64>())
    };
    stat.lines().filter_map(of_line).sum()
}

/// Returns the CPU and `schedstat` path of each ksoftirqd thread. A process of that name that is
/// not a child of kthreadd (PID 2) is ignored.
fn threads(proc: &Path) -> Vec<(usize, PathBuf)> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let of_entry = |entry: fs::DirEntry| {
        let folder = entry.path();
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        let (name, rest) = stat.split_once(" (ksoftirqd/")?.1.split_once(") ")?;
        let is_kernels = rest.split_whitespace().nth(1) == Some("2");
        is_kernels.then_some((name.parse().ok()?, folder.join("schedstat")))
    };
    entries.filter_map(of_entry).collect()
}

/// Returns this kernel's build configuration, if it is readable.
fn kernel_config() -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    fs::read_to_string(format!("/boot/config-{}", release.trim())).ok().or_else(|| {
        let mut text = String::new();
        let file = File::open("/proc/config.gz").ok()?;
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).ok()?;
        Some(text)
    })
}

fn are_apart(config: &str) -> bool {
    config.lines().any(|line| line == "CONFIG_IRQ_TIME_ACCOUNTING=y")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kernels_own_threads_are_read() {
        let folder = std::env::temp_dir().join(format!("tare-softirq-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let process = |pid: &str, stat: &str| {
            fs::create_dir(folder.join(pid)).unwrap();
            fs::write(folder.join(pid).join("stat"), stat).unwrap();
        };
        process("15", "15 (ksoftirqd/0) S 2 0 0 0 -1");
        process("22", "22 (ksoftirqd/1) S 2 0 0 0 -1");
        process("900", "900 (ksoftirqd/1) S 1 900 900 0 -1");
        process("901", "901 (nginx) S 2 900 900 0 -1");
        let mut found = threads(&folder);
        found.sort_unstable();
        fs::remove_dir_all(&folder).unwrap();
        let at = |pid: &str| folder.join(pid).join("schedstat");
        assert_eq!(found, [(0, at("15")), (1, at("22"))]);
    }

    #[test]
    fn interrupts_are_those_of_the_servers_cpus() {
        let stat = "cpu  9 9 9 9 9 30 40 0 0 0\ncpu0 1 1 1 1 1 10 20 5 0 0\n\
                    cpu1 1 1 1 1 1 3 4 5 0 0\ncpu10 1 1 1 1 1 100 100 5 0 0\nintr 5 6 7\n";
        assert_eq!((ticks(stat, &[1]), ticks(stat, &[0, 1]), ticks(stat, &[2])), (7, 37, 0));
    }

    #[test]
    fn a_kernel_says_whether_interrupts_are_apart() {
        assert!(are_apart("CONFIG_X=y\nCONFIG_IRQ_TIME_ACCOUNTING=y\n"));
        assert!(!are_apart(
            "# CONFIG_IRQ_TIME_ACCOUNTING is not set\nCONFIG_HAVE_IRQ_TIME_ACCOUNTING=y\n"
        ));
    }
}
