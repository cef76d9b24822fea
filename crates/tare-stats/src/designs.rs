//! The designs that there are: variants compared under one load, and under each of several.

mod comparison;
mod sweep;

pub use comparison::{ComparisonDesign, Rules};
pub use sweep::SweepDesign;
