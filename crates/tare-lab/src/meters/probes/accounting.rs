//! CPU time of a control group of tare's, as the kernel accounts for it, including processes that
//! have come and gone.

use std::fs::File;

use tare_model::counters::{Counter, Counters};

use crate::machine::cgroup::CpuFiles;
use crate::meters::probe::{Probe, Seen, open, read_number, read_text};

#[derive(Debug)]
pub enum Accounting {
    V1 { total: File, user: File, system: File },
    V2 { stat: File },
}

impl Accounting {
    pub fn attach(files: &CpuFiles) -> Option<Self> {
        Some(match files {
            CpuFiles::V1 { total, user, system } => {
                Self::V1 { total: open(total)?, user: open(user)?, system: open(system)? }
            }
            CpuFiles::V2 { stat } => Self::V2 { stat: open(stat)? },
        })
    }

    fn times(&self) -> Option<[u64; 3]> {
        match self {
            Self::V1 { total, user, system } => {
                Some([read_number(total)?, read_number(user)?, read_number(system)?])
            }
            Self::V2 { stat } => {
                let text = read_text(stat)?;
                let ns = |key: &str| -> Option<u64> {
                    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
                    Some(value.trim().parse::<u64>().ok()? * 1000)
                };
                Some([ns("usage_usec ")?, ns("user_usec ")?, ns("system_usec ")?])
            }
        }
    }
}

impl Probe for Accounting {
    fn read(&self, _seen: &Seen<'_>) -> Counters {
        let Some([cpu, user, system]) = self.times() else { return Counters::default() };
        Counters::default()
            .with(Counter::Cpu, cpu)
            .with(Counter::User, user)
            .with(Counter::System, system)
    }

    fn cpu_ns(&self, _seen: &Seen<'_>) -> Option<u64> {
        match self {
            Self::V1 { total, .. } => read_number(total),
            Self::V2 { .. } => self.times().map(|[cpu, ..]| cpu),
        }
    }
}
