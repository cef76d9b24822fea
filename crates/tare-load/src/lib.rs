//! Makes load and measures it.
//!
//! `Pacer` (when) × `Source` (what) × connection lifetime × `Tally` (results), driven by
//! one state machine, the [`engine::Engine`], over any [`tare_io::Reactor`]. A new mode is a new
//! policy, never a new loop.

#![forbid(unsafe_code)]

mod bodies;
pub mod codec;
pub mod engine;
mod engine_with_reactor;
mod error;
pub mod failure;
pub mod histogram;
mod load_plan;
pub mod measured;
pub mod pacer;
pub mod probe;
pub mod protocol;
pub mod request;
pub mod resolve;
pub mod run;
pub mod session;
pub mod source;
pub mod tally;
pub mod tls;

pub use engine::{Edges, EngineConfig, IntervalSink, Lifetime, Stretch, WaitPolicy};
pub use error::LoadError;
pub use failure::{FailureKind, RequestFailure};
pub use histogram::Histogram;
pub use load_plan::{LaneId, LoadPlan, MakeSource, Part};
pub use resolve::resolve;
pub use run::{LoadResult, NoObserver, Observer, Progress, run};
pub use tally::Tally;
