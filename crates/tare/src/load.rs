//! What `tare load` and `tare wrk` share: reading arguments, making the plan, showing results.

pub mod arguments;
pub mod describe;
mod endpoint;
pub mod interrupt;
pub mod live;
pub mod outputs;
pub mod plan;
pub mod spec;
pub mod text;
