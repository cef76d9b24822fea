//! wrk's and wrk2's outside over tare's engine: their output shapes, and their Lua scripts.

#![forbid(unsafe_code)]

pub mod format;
pub mod objects;
pub mod script;
pub mod statistics;
pub mod units;
