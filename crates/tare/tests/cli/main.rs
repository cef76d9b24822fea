//! The program as a user meets it: what it prints, writes, and returns.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

mod attack;
mod browser;
mod compare;
mod daemons;
mod filter_runs;
mod filters;
mod guards;
mod hostile;
mod hostile_endpoints;
mod hostile_files;
mod import;
mod import_tools;
mod kill;
mod layers;
mod load;
mod mistakes;
mod net;
mod pair;
mod places;
mod places_ended;
mod places_of_others;
mod requests;
mod runs;
mod sweeps;
mod sys;
mod target;
mod util;
mod wrk;
