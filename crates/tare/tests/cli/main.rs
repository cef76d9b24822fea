//! The program from the user's side: what it prints, writes, and returns. Nothing here depends on
//! the machine's speed, or on programs other than nginx.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

mod attack;
mod check;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod corpus;
mod daemons;
mod dead_servers;
mod gates;
mod guards;
mod hostile;
mod hostile_cluster;
mod hostile_files;
mod http2;
mod import;
mod layers;
mod load;
mod mistakes;
mod net;
mod pair;
mod planted;
mod ready_made;
mod requests;
mod steps;
mod stored_runs;
mod sweeps;
mod sys;
mod target;
mod wrk;

use common::{attacker, endpoints, flood, layered, runs, stored, util, wait};
