//! Servers in places: started, metered, stopped for sure. Knows no statistics and makes no load.
//!
//! [`servers`] says how each kind of server is started; [`launch`] starts it; [`meter`] reads
//! what it uses; [`filters`] puts a URL filter in nginx; [`journal`] remembers what was made, so
//! that it is removed also after `kill -9`; [`machine`] knows what the machine is and does.

#![forbid(unsafe_code)]

pub mod companion;
pub mod count;
mod drain;
pub mod error;
pub mod filters;
pub mod journal;
pub mod lab;
pub mod launch;
pub mod machine;
pub mod meter;
pub mod processes;
pub mod programs;
mod running;
pub mod servers;

pub use error::LabError;
pub use lab::{Lab, LabPlan};
pub use launch::{Event, Launched};
pub use servers::ServerSpec;
