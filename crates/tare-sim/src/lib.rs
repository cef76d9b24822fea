//! A simulated clock and network: the same engines, without real time and exactly repeatable.
//!
//! [`net`] is a [`tare_io::Reactor`] over a queue of events; [`world`] runs the load engine against
//! the target on it; [`lab`] needs neither, and simulates servers' habits to test the method. Only
//! tests use this crate.

#![forbid(unsafe_code)]

pub mod lab;
pub mod net;
pub mod world;
