//! Messages, streams and calls: what `tare net` and `tare sys` measure against an endpoint
//! (tare-target serves it; docs/net.md tells its protocol in words).

pub mod calls;
pub mod content;
pub mod control;
pub mod messages;
pub mod stream;
pub mod wire;
