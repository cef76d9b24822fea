//! qperf's command line and output, for tare's tests.

pub mod format;
pub mod options;
