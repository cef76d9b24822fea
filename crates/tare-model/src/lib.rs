//! Plain data about what is measured and what was found, shared by all other crates. No I/O, no
//! clock, and no probing of the machine.
//!
//! A [`plan`] has every default resolved: [`variant`]s with their [`servers`], [`places`] and
//! layers, and the [`load`] on them. A [`plan::Plan`] is always consistent. [`samples`] is what a
//! run measures and the store keeps; [`metric`] is the table of what is compared.

#![forbid(unsafe_code)]

pub mod calibration;
pub mod check;
pub mod clients;
pub mod cold;
pub mod counters;
mod counts;
pub mod distribution;
pub mod failure;
pub mod filters;
pub mod invalid;
pub mod layers;
pub mod load;
pub mod metric;
pub mod net;
pub mod places;
pub mod plain;
pub mod plan;
pub mod samples;
pub mod servers;
pub mod status;
pub mod steps;
pub mod sustained;
pub mod text;
pub mod url;
pub mod usage;
pub mod variant;

pub use distribution::Distribution;
pub use failure::{Failure, Fault};
pub use invalid::Invalid;
pub use metric::Metric;
