//! HTTP/2 (RFC 9113), as a client: frames, header compression, and the streams of a connection.
//!
//! Written by hand rather than built on a library: the engine wants bytes in and outcomes out, with no
//! tasks and no allocation for each reply, and has to know what the server allowed at each moment.

mod codec;
mod connection;
pub mod frame;
pub mod hpack;
mod requests;

pub use codec::{ALPN, Http2};
pub use requests::Http2Requests;

#[cfg(test)]
mod tests;
