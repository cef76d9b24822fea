//! qperf's command line and output, over tare's own tests.

pub mod format;
pub mod options;
