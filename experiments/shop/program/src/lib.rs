//! A shop of eleven services with the call graph of a well-known demonstration. All are one
//! program; its environment says which service it is and which ones it calls. One visit is
//! seventeen requests; each reply names the service that sent it, and each service counts its
//! requests.

#![forbid(unsafe_code)]

mod client;
pub mod graph;
mod serve;
mod settings;
pub mod visit;

pub use client::Client;
pub use serve::serve;
pub use settings::{Callee, Settings};
