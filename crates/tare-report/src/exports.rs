//! Forms that other tools read.

pub mod bpftime_json;
pub mod csv;
pub mod fortio_csv;
pub mod k6_csv;
pub mod open_metrics;
pub mod smp;
