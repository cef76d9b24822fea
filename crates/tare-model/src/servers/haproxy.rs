//! HAProxy, answering from memory.

use serde::{Deserialize, Serialize};

use super::{ServerFacts, check_threads};
use crate::Invalid;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HaproxySpec {
    pub threads: u32,
    /// Size of the reply to every request.
    pub body_bytes: u32,
    pub tls: bool,
    /// HTTP/2: with TLS in addition to HTTP/1.1, without TLS instead of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub http2: bool,
}

impl Default for HaproxySpec {
    fn default() -> Self {
        Self { threads: 1, body_bytes: 612, tls: false, http2: false }
    }
}

/// A reply must fit into a buffer; each connection has one.
const BODY_BYTES_MAX: u32 = 1 << 20;

impl ServerFacts for HaproxySpec {
    fn check(&self) -> Result<(), Invalid> {
        // HAProxy's limit at build time.
        check_threads(self.threads, 64)?;
        match self.body_bytes <= BODY_BYTES_MAX {
            true => Ok(()),
            false => Err(Invalid(format!(
                "body_bytes = {}: HAProxy answers from memory, at most {BODY_BYTES_MAX} (1 MiB)",
                self.body_bytes
            ))),
        }
    }

    fn tls(&self) -> bool {
        self.tls
    }
}
