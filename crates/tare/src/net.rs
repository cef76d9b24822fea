//! Shared by `tare net` and `tare qperf`: sizes in words, and measuring an endpoint.

pub mod measure;
pub mod remote;
pub mod serve;
pub mod sizes;
