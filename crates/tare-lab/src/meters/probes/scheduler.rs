//! Counters of the scheduler for each thread: time on a CPU, time waiting for one, and switches onto
//! one.

use tare_model::counters::{Counter, Counters};

use crate::meters::probe::{Probe, Seen, Thread};

/// CPU time without a control group that accounts for it, divided into user and system in
/// proportion to the processes' ticks.
#[derive(Debug)]
pub struct CpuTime;

impl Probe for CpuTime {
    fn read(&self, seen: &Seen<'_>) -> Counters {
        let Some(cpu_ns) = self.cpu_ns(seen) else { return Counters::default() };
        let stats = seen.stats().iter().flatten();
        let (user, system) =
            stats.fold((0, 0), |(u, s), stat| (u + stat.user_ticks, s + stat.system_ticks));
        let user_share = user as f64 / (user + system).max(1) as f64;
        let user_ns = (cpu_ns as f64 * user_share) as u64;
        Counters::default()
            .with(Counter::Cpu, cpu_ns)
            .with(Counter::User, user_ns)
            .with(Counter::System, cpu_ns - user_ns)
    }

    fn cpu_ns(&self, seen: &Seen<'_>) -> Option<u64> {
        let threads = seen.threads().iter().flatten();
        threads.map(|thread| thread.cpu_ns).reduce(|sum, more| sum + more)
    }
}

/// How often threads were scheduled, and how long they waited for it.
#[derive(Debug)]
pub struct Scheduling;

impl Probe for Scheduling {
    fn read(&self, seen: &Seen<'_>) -> Counters {
        let threads: Option<Vec<Thread>> = seen.threads().iter().copied().collect();
        let all = threads.filter(|threads| !threads.is_empty());
        let sum = |of: fn(&Thread) -> u64| all.as_ref().map(|all| all.iter().map(of).sum::<u64>());
        Counters::default()
            .with(Counter::Switches, sum(|thread| thread.switches))
            .with(Counter::Waited, sum(|thread| thread.delay_ns))
    }
}
