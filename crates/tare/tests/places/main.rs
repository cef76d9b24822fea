//! Real places, `kill -9`, and attackers. `make test-places` runs it as root, one test at a time.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

mod attack;
mod clients;
#[path = "../common/mod.rs"]
mod common;
mod hostile;
mod hostile_endpoints;
mod kill;
mod places;
mod places_ended;
mod places_of_others;

use common::{attacker, flood, left, parity, runs, util, wait};
