//! Runs: what `tare compare` and `tare run` share, from plan to report.
//!
//! A [`plan::Plan`] is everything resolved. The [`runner`] runs rounds, each a [`round`] of
//! launches, probes and slices in the order that the [`schedule`] gives, and hands every slice to
//! the store. A [`cell`] is one plan while it is measured; those of a sweep share launches.
//! [`finish`] makes the report from the store alone.

pub mod cell;
pub mod choices;
mod clients;
pub mod command;
pub mod filter_memory;
pub mod finish;
pub mod gate;
pub mod live;
pub mod outcome;
pub mod places;
pub mod plan;
mod proof;
mod round;
pub mod runner;
pub mod schedule;
mod slices;
mod sustained;
mod window;
