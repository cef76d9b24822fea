//! Page faults of processes.

use tare_model::counters::{Counter, Counters};

use crate::meters::probe::{Probe, Seen};

/// Faults that needed no disk read.
#[derive(Debug)]
pub struct Minor;

impl Probe for Minor {
    fn read(&self, seen: &Seen<'_>) -> Counters {
        let of = |stat: &Option<crate::machine::processes::Stat>| Some(stat.as_ref()?.minor_faults);
        let all: Option<Vec<u64>> = seen.stats().iter().map(of).collect();
        let all = all.filter(|all| !all.is_empty());
        Counters::default().with(Counter::MinorFaults, all.map(|all| all.iter().sum::<u64>()))
    }
}
