//! Starts, meters, loads and stops servers in places. Contains no statistics.
//!
//! - [`lab`] holds what a run has: the places of each variant, and handles on what runs there.
//! - [`launch`] is one start of one variant: its server, its layers, and what each is started with.
//! - [`executor`] starts, meters, probes and loads, in this process or on behalf of an [`agent`].
//! - [`servers`], [`places`], [`layers`] and [`filters`] have one file for each kind.
//! - [`meters`] measure what servers use; [`network`] inspects connections, [`machine`] the rest.
//! - [`journal`] records what was created, so that it is removed even after `kill -9`.
//! - [`world`] is the interface between the runner and all this.

#![forbid(unsafe_code)]

pub mod agent;
mod event;
pub mod executor;
pub mod filters;
mod halt;
pub mod journal;
pub mod lab;
pub mod launch;
pub mod layers;
pub mod machine;
pub mod meters;
pub mod network;
pub mod places;
pub mod servers;
pub mod world;

pub use event::Event;
pub use halt::{Halt, HaltReason};
pub use lab::{Lab, LabPlan};
pub use launch::Launched;
