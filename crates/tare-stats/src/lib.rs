//! The method: samples to estimates to verdicts. Pure: no clock, no I/O, no randomness.
//!
//! `tare_model::samples` is the data. [`digests`] reduces each round to one number for each variant
//! and metric; [`analysis`] turns rounds into estimates with intervals and verdicts; [`stopping`]
//! decides when to stop, [`slicing`] how long slices are, and [`designs`] what is measured next. The reasons are in docs/method.md.

#![forbid(unsafe_code)]

pub mod analysis;
pub mod change;
pub mod cycles;
pub mod design;
pub mod designs;
pub mod estimate;
pub mod idle;
pub mod neighbours;
pub mod parts;
pub mod round_digest;
pub mod shape;
pub mod sleepers;
pub mod slicing;
pub mod stopping;
pub mod surveys;
pub mod sustained;
pub mod verdict;
pub mod weighted;
pub mod welch;

pub use analysis::{Analysis, Comparison, Question, SingleValue, analyse};
pub use estimate::Estimate;
pub use round_digest::{RoundDigest, add_round, digests};
pub use verdict::{Severity, Verdict};
