//! Real programs and real load: filters, browsers, other tools, and what depends on real time.
//! `make test-real` runs it, one test at a time.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

mod browser;
mod changes;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod exports;
mod filter_runs;
mod filters;
mod guards;
mod import_tools;
mod load;
mod net;
mod sys;

use common::{endpoints, runs, util, wait};
