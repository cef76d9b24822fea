//! Makes load and measures it.
//!
//! `Pacer` (when) × `Source` (what) × connection lifetime × `Tally` (what came of it), driven by
//! one state machine, the [`engine::Engine`], over any [`tare_io::Reactor`]. A new mode is a new
//! policy, never a new loop.

#![forbid(unsafe_code)]

mod bodies;
mod deadlines;
pub mod engine;
pub mod failure;
pub mod histogram;
pub mod http1;
pub mod measured;
pub mod net;
pub mod order;
pub mod pacer;
pub mod plan;
pub mod probe;
pub mod request;
pub mod run;
pub mod session;
pub mod source;
pub mod tally;
pub mod tls;
mod worker;

pub use engine::{Edges, EngineConfig, IntervalSink, Lifetime, Stretch, WaitPolicy};
pub use failure::{Failure, FailureKind};
pub use histogram::Histogram;
pub use run::{
    LoadError, LoadPlan, LoadResult, NoObserver, Observer, PlannedSource, Progress, run,
};
pub use tally::Tally;
