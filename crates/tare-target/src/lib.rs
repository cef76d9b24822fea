//! A server with exactly known costs, to test any load generator against arithmetic.
//!
//! [`behaviour`] decides when and what to answer, as a pure function of arrival times and a seed;
//! [`effort`] decides what CPU time that takes;
//! [`server`] speaks HTTP over any reactor, real or simulated; [`serve`] runs it on threads;
//! [`endpoint`] is the other end of `tare net` and `tare sys`.

#![forbid(unsafe_code)]

pub mod behaviour;
pub mod effort;
pub mod endpoint;
mod http2;
mod replies;
mod request;
pub mod serve;
pub mod server;
pub mod stats;
pub mod tls;
