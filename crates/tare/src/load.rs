//! What `tare load` and `tare wrk` share: reading arguments, making the plan, showing results.

pub mod arguments;
pub mod interrupt;
pub mod plan;
