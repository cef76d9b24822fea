//! Command-line arguments that several commands share.

pub mod help;
pub mod load;
pub mod words;
