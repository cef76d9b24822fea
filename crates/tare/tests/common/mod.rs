//! What the suites share: servers, runs, other users.

#![allow(dead_code, reason = "no suite uses all of it")]

pub mod attacker;
pub mod endpoints;
pub mod flood;
pub mod layered;
pub mod left;
pub mod pairs;
pub mod runs;
pub mod util;
