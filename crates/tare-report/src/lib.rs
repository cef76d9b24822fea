//! Turns measurements into text, JSON, CSV and HDR logs. Pure functions: no sockets, no clock, no
//! files.

#![forbid(unsafe_code)]

pub mod bpftime_json;
pub mod guards;
pub mod hdr_log;
pub mod load;
pub mod load_text;
pub mod net;
pub mod run;
pub mod run_build;
pub mod run_csv;
mod run_filters;
mod run_guards;
pub mod run_markdown;
mod run_places;
pub mod run_sweep;
pub mod run_sweep_text;
pub mod run_text;
pub mod run_words;
pub mod sys;
pub mod units;
