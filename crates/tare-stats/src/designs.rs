//! The designs: variants compared under one load, or under each of several.

mod comparison;
mod sweep;

pub use comparison::{ComparisonDesign, Rules};
pub use sweep::SweepDesign;
