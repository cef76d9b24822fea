//! Caddy, serving a file.

use serde::{Deserialize, Serialize};

use super::{ServerFacts, check_body, check_threads};
use crate::Invalid;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CaddySpec {
    /// Threads that run Go code at the same time.
    pub threads: u32,
    /// Size of the page that every path returns.
    pub body_bytes: u32,
    pub access_log: bool,
    pub tls: bool,
    /// HTTP/2 without TLS (h2c). With TLS, Caddy always offers HTTP/2.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub http2: bool,
}

impl Default for CaddySpec {
    fn default() -> Self {
        Self { threads: 1, body_bytes: 612, access_log: false, tls: false, http2: false }
    }
}

impl ServerFacts for CaddySpec {
    fn check(&self) -> Result<(), Invalid> {
        check_threads(self.threads, 1024)?;
        check_body(self.body_bytes)
    }

    fn tls(&self) -> bool {
        self.tls
    }
}
