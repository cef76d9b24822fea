//! Servers in places: started, metered, stopped for sure. Knows no statistics and makes no load.
//!
//! [`servers`] says how each kind of server is started; [`local`] starts it here, an [`agent`] in
//! its [place](places); [`meter`] reads what it uses; [`filters`] puts a URL filter in nginx;
//! [`journal`] remembers what was made, so that it is removed also after `kill -9`; [`machine`]
//! knows what the machine is and does.

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
mod injected;
mod instance;
pub mod intercept;
pub mod journal;
pub mod lab;
pub mod launch;
pub mod launch_spec;
pub mod layers;
pub mod load;
pub mod local;
pub mod log_file;
pub mod machine;
pub mod made;
pub mod meter;
pub mod metering;
mod orphans;
pub mod ours;
mod peers;
pub mod places;
pub mod processes;
pub mod programs;
pub mod requests;
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
pub use lab::{Lab, LabPlan};
pub use launch::Launched;
