//! Shared by `tare load` and `tare wrk`: reading arguments, making the plan, showing results.

pub mod addresses;
pub mod describe;
pub mod elsewhere;
pub mod interrupt;
pub mod live;
pub mod outputs;
pub mod url_list;
pub mod watch;
