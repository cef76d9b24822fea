//! The kinds of [`Probe`], one file each. A new one is a file here and a line in [`OF_PROCESSES`],
//! with a line in `tare_model::counters` for what it counts.

mod accounting;
mod faults;
mod link;
mod scheduler;
mod softirq;

use crate::meters::probe::Probe;
pub use accounting::Accounting;
pub use link::Link;
pub use scheduler::CpuTime;
pub use softirq::Softirq;

/// Attached wherever processes can be seen, beside the probe for CPU time.
pub const OF_PROCESSES: [fn() -> Box<dyn Probe>; 2] =
    [|| Box::new(scheduler::Scheduling), || Box::new(faults::Minor)];
