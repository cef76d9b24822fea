//! Protocols, one file each. [`http1`], [`http2`] and [`messages`] are codecs of the engine, which matches
//! replies to requests; [`stream`] and [`calls`] have no replies, and are lanes of a session
//! themselves. tare-target's endpoint serves what `tare net` and `tare sys` measure; docs/net.md
//! describes its protocol.

pub mod calls;
pub mod capture;
pub mod content;
pub mod control;
pub mod http1;
pub mod http2;
pub mod messages;
pub mod reply;
pub mod stream;
pub mod wire;
