//! Servers in places: started, metered, loaded, stopped for sure. Knows no statistics.
//!
//! An [`executor`] does all of that, in this process or at the end of an [`agent`]'s stream; a
//! [`site`] is where one is asked, and [`requests`] is what it can be asked. [`servers`] says how
//! each kind of server is started, [`places`] where; [`filters`] puts a URL filter in nginx;
//! [`journal`] remembers what was made, so that it is removed also after `kill -9`; [`machine`]
//! knows what the machine is and does. [`world`] is what a run sees of all this.

#![forbid(unsafe_code)]

pub mod agent;
pub mod certificates;
pub mod cgroup;
pub mod clock;
pub mod commands;
pub mod companion;
pub mod context;
pub mod count;
mod drain;
mod ending;
pub mod error;
mod event;
pub mod executor;
pub mod filters;
pub mod groups;
mod halt;
mod hop;
mod injected;
mod instance;
pub mod intercept;
pub mod journal;
pub mod lab;
pub mod launch;
pub mod launch_spec;
pub mod layers;
mod listening;
pub mod load;
pub mod local;
pub mod log_file;
pub mod machine;
pub mod meter;
pub mod metering;
mod orphans;
pub mod ours;
mod peers;
pub mod places;
mod probe;
mod probes;
pub mod processes;
pub mod programs;
pub mod requests;
pub mod resources;
mod running;
pub mod server;
pub mod servers;
pub mod site;
mod slot;
pub mod temporary;
mod tls_probe;
pub mod world;

pub use error::LabError;
pub use event::Event;
pub use halt::{Halt, HaltReason};
pub use lab::{Lab, LabPlan};
pub use launch::Launched;
