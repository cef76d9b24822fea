//! The designs: variants compared under one load, or under each of several.

mod sweep;
mod until_verdict;

pub use sweep::SweepDesign;
pub use until_verdict::{ComparisonDesign, Rules};
