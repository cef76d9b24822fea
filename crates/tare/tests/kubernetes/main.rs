//! Places in a real Kubernetes: the one that `scripts/cluster/with` starts, or the user's own.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

mod clusters;
#[path = "../common/mod.rs"]
mod common;
mod deploy;
mod disturbances;
mod failures;
mod front;
mod images;
mod leftovers;
mod mesh;
mod pods;
mod rights;
mod standing;
mod support;

use common::{util, wait};
