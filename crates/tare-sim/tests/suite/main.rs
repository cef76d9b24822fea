//! The load engine with every kind of server. One suite, three worlds: io_uring, epoll, simulation.
//! Nothing here depends on the speed of the machine.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

mod behaviour;
mod defects;
mod http2;
mod multiplexing;
mod pipelining;
mod tls;
mod truth;
mod worlds;
