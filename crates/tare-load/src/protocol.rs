//! What goes over connections: a file for each protocol. [`http1`] and [`messages`] are codecs of
//! the engine, which finds replies in what comes back; [`stream`] and [`calls`] have no replies,
//! and are lanes of a session of their own. What `tare net` and `tare sys` measure is served by
//! tare-target's endpoint; docs/net.md describes its protocol.

pub mod calls;
pub mod capture;
pub mod content;
pub mod control;
pub mod http1;
pub mod messages;
pub mod reply;
pub mod stream;
pub mod wire;
