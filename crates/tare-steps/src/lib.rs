//! Carries out procedures, which are variants like servers: each from a state that was shown to be
//! clean, in random order within a round, until each was done so many times.
//!
//! [`shell`] runs what a step says, [`wait`] waits for what it names, [`images`] counts what nodes
//! pull, [`runner`] orders them.

#![forbid(unsafe_code)]

mod images;
mod runner;
mod shell;
mod wait;

pub use runner::{Observer, Order, StepsError, carry_out, lacks};
