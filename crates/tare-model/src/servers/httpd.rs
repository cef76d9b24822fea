//! Apache httpd.

use serde::{Deserialize, Serialize};

use super::{ServerFacts, check_body};
use crate::Invalid;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpdSpec {
    /// Worker processes of the event MPM.
    pub processes: u32,
    /// Threads of each worker process.
    pub threads: u32,
    /// Size of the page that every path returns.
    pub body_bytes: u32,
    pub access_log: bool,
    /// HTTP/2 in addition to HTTP/1.1, by mod_http2.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub http2: bool,
}

impl Default for HttpdSpec {
    fn default() -> Self {
        Self { processes: 1, threads: 64, body_bytes: 612, access_log: false, http2: false }
    }
}

impl ServerFacts for HttpdSpec {
    fn check(&self) -> Result<(), Invalid> {
        check_body(self.body_bytes)
    }

    fn check_start_elsewhere(&self) -> Result<(), Invalid> {
        Ok(())
    }
}
