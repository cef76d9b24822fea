//! What must hold of any input. libFuzzer calls these through `targets/`; the tests of the command
//! line call them on what `corpus/` keeps.

pub mod http2;
pub mod imports;
pub mod messages;
pub mod replies;
