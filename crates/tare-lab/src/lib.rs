//! Servers in places: started, metered, loaded, stopped for sure. Knows no statistics.
//!
//! - [`lab`] is what a run has: the places of each variant, and handles on what runs there.
//! - [`launch`] is one start of one variant: its server, its layers, what each is started with.
//! - [`executor`] starts, meters, probes and loads, in this process or at the end of an [`agent`]'s
//!   stream.
//! - [`servers`], [`places`], [`layers`] and [`filters`] have a kind a file.
//! - [`meters`] count what servers use; [`network`] looks at connections; [`machine`] at the rest.
//! - [`journal`] remembers what was made, so that it is removed also after `kill -9`.
//! - [`world`] is what the runner sees of all this.

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
