//! Common servers, from their own registries: Node.js, a JVM, uvicorn, gunicorn. Their costs are
//! known from other tools, or by design. `make test-servers` runs it, one test at a time.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

#[path = "../common/mod.rs"]
mod common;
mod http2;
mod jvm;
mod node;
mod processes;
mod python;

use common::{runs, util, wait};
