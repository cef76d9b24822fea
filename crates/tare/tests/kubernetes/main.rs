//! Places in a real Kubernetes: the one that `scripts/cluster/with` starts, or the user's own.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

mod clusters;
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
#[path = "../common/util.rs"]
#[expect(dead_code, reason = "the tests of the command line use all of it")]
mod util;
