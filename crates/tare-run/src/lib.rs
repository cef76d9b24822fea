//! Runs a plan: rounds of launches and slices, until its design ends it.
//!
//! The [`runner`] runs rounds, each a [`round`] of launches, probes and slices in the order that
//! the [`schedule`] gives, and hands every slice to the [`record`]. A [`cell`] is one plan while it
//! is measured; the cells of a sweep share launches. The runner's interface to servers is
//! `tare_lab::world`; time is a [`clock`]. An [`observer`] receives events.

#![forbid(unsafe_code)]

pub mod cell;
pub mod clock;
mod launches;
pub mod observer;
mod once;
mod outcome;
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
pub use once::{Once, load_from};
pub use outcome::Stopped;
pub use runner::{Runner, Start};
