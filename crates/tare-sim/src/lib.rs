//! A clock and a network that are simulated: the same engines, in no time, exactly repeatable.
//!
//! [`net`] is a [`tare_io::Reactor`] over a queue of events; [`world`] runs the load engine against
//! the target on it; [`lab`] is for servers' habits and the method, without either. For tests only.

#![forbid(unsafe_code)]

pub mod lab;
pub mod net;
pub mod world;
