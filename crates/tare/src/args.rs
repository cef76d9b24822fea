//! What was typed: flags that several commands share.

pub mod load;
pub mod words;
