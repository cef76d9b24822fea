//! tare's interface to the kernel: a clock, sockets, and completions.
//!
//! Engines (load, target) reach the network through one trait, [`Reactor`], which is implemented by
//! io_uring, epoll, blocking calls, and the simulated network of `tare-sim`. All `unsafe` code of
//! the project is in this crate.

mod buffers;
pub mod calls;
pub mod direct;
pub mod endpoint;
pub mod epoll;
pub mod files;
pub mod net_config;
pub mod owned;
pub mod plugin;
pub mod process;
pub mod random;
pub mod reactor;
pub mod socket;
pub mod system;
pub mod time;
pub mod uring;
pub mod vm_init;

pub use buffers::Buffers;
pub use endpoint::Endpoint;
pub use random::Random;
pub use reactor::{
    Accepted, Close, Completion, Happened, KeptBytes, KeptId, Outgoing, Reactor, ReactorKind,
    SetupError, Token, Tuning, Wait,
};
pub use socket::SocketOptions;
pub use time::{DurationNs, Instant};
