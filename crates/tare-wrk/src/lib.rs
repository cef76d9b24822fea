//! The interface of wrk and wrk2 on top of tare's engine: their output format and Lua scripts.

#![forbid(unsafe_code)]

pub mod format;
pub mod objects;
pub mod script;
pub mod statistics;
pub mod units;
