//! Command-line arguments that several commands share.

pub mod load;
pub mod words;
