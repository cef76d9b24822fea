//! What meters are made of, a kind of [`Probe`] a file. A new one is a file here and a line in
//! [`OF_PROCESSES`]; what it counts is a line in `tare_model::counters`.

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

/// Attached to whatever has processes that are seen, beside what counts their CPU time.
pub const OF_PROCESSES: [fn() -> Box<dyn Probe>; 2] =
    [|| Box::new(scheduler::Switches), || Box::new(faults::Minor)];
