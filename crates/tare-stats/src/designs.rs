//! The designs: variants compared under one load, or under each of several; and a check of a change.

mod check;
mod sweep;
mod until_verdict;

pub use check::CheckDesign;
pub use sweep::SweepDesign;
pub use until_verdict::{ComparisonDesign, Rules};
