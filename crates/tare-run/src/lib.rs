//! Runs a plan: rounds of launches and slices, until there is enough.
//!
//! The [`runner`] runs rounds, each a [`round`] of launches, probes and slices in the order that
//! the [`schedule`] gives, and hands every slice to the [`record`]. A [`cell`] is one plan while it
//! is measured; those of a sweep share launches. What the runner needs of the world is in [`lab`];
//! [`real`] is this machine. An [`observer`] hears what happens meanwhile.

#![forbid(unsafe_code)]

pub mod cell;
mod error;
pub mod lab;
mod launches;
pub mod observer;
mod outcome;
pub mod real;
pub mod record;
mod round;
pub mod runner;
pub mod schedule;
mod slices;
mod sustained;
#[cfg(test)]
mod tests;
mod window;

pub use cell::Cell;
pub use error::RunError;
pub use outcome::Stopped;
pub use runner::{Runner, Start};
