//! Layers with real programs. `make test-layers` runs it, one test at a time.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

#[path = "../common/mod.rs"]
mod common;
mod proxies;
mod sidecars;

use common::{layered, left, runs, util, wait};
