//! Carries out procedures, which are variants like servers: each from a state that was checked to
//! be clean, in random order within a round, for a given number of repetitions.
//!
//! [`shell`] runs commands, [`wait`] waits for conditions, [`images`] counts the images that nodes
//! pull, [`runner`] runs the steps in order.

#![forbid(unsafe_code)]

mod images;
mod runner;
mod shell;
mod wait;

pub use runner::{Observer, Order, StepsError, carry_out, unmet_need};
