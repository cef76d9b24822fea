//! A shop of eleven services with the call graph of a well-known demonstration: one program, told
//! by its environment which of them it is and whom it calls. One visit is seventeen requests; each
//! answer names who served it, and each service counts what it served.

#![forbid(unsafe_code)]

mod client;
pub mod graph;
mod serve;
mod settings;
pub mod visit;

pub use client::Client;
pub use serve::serve;
pub use settings::{Callee, Settings};
