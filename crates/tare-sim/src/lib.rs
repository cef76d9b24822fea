//! A clock and a network that are simulated: the same engines, in no time, exactly repeatable.
//!
//! [`net`] is a [`tare_io::Reactor`] over a queue of events; [`world`] runs the load engine against
//! the target on it. For tests only.

#![forbid(unsafe_code)]

pub mod net;
pub mod world;
