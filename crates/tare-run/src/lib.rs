//! Runs a plan: rounds of launches and slices, until there is enough.
//!
//! The [`runner`] runs rounds, each a [`round`] of launches, probes and slices in the order that
//! the [`schedule`] gives, and hands every slice to the [`record`]. A [`cell`] is one plan while it
//! is measured; those of a sweep share launches. What the runner needs of the world is in
//! `tare_lab::world`; time is a [`clock`]. An [`observer`] hears what happens meanwhile.

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
