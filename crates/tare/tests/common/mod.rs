//! Shared by all suites: servers, runs, other users.

#![allow(dead_code, reason = "no suite uses all of it")]

pub mod attacker;
pub mod endpoints;
pub mod flood;
pub mod layered;
pub mod left;
#[path = "../../../tare-report/tests/made_up/mod.rs"]
pub mod made_up;
pub mod parity;
pub mod runs;
pub mod stored;
pub mod util;
pub mod wait;
