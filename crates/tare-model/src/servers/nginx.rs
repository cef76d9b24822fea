//! nginx: with a configuration that tare makes, or the user's own.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{ServerFacts, check_body};
use crate::Invalid;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NginxSpec {
    pub workers: u32,
    /// Size of the page that every path returns.
    pub body_bytes: u32,
    pub access_log: bool,
    pub tls: bool,
    /// HTTP/2: with TLS in addition to HTTP/1.1, without TLS instead of it (until nginx 1.25).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub http2: bool,
    /// Head and body leave in one segment, as distributions configure it; nginx's own default is off.
    pub tcp_nopush: bool,
    /// Requests after which nginx closes a connection; unlimited by default, whereas nginx's own
    /// default is 1000.
    pub keepalive_requests: u64,
    /// The user's configuration; the settings above then do not apply.
    pub config: Option<PathBuf>,
    /// An nginx to use instead of the one in `PATH`.
    pub program: Option<PathBuf>,
}

impl Default for NginxSpec {
    fn default() -> Self {
        Self {
            workers: 1,
            body_bytes: 612,
            access_log: false,
            tls: false,
            http2: false,
            tcp_nopush: true,
            keepalive_requests: NO_LIMIT,
            config: None,
            program: None,
        }
    }
}

const NO_LIMIT: u64 = 1_000_000_000_000;

impl ServerFacts for NginxSpec {
    fn check(&self) -> Result<(), Invalid> {
        check_body(self.body_bytes)
    }

    fn tls(&self) -> bool {
        self.tls
    }

    fn check_start_elsewhere(&self) -> Result<(), Invalid> {
        match self.config {
            None => Ok(()),
            Some(_) => Err("nginx's own config is a file of this machine; in a place with \
                            programs of its own, write a command"
                .into()),
        }
    }

    fn listens_on_given_address(&self) -> bool {
        self.config.is_none()
    }

    fn check_filters(&self) -> Result<(), Invalid> {
        match self.config {
            None => Ok(()),
            Some(_) => Err("a filter goes into a configuration made by tare, not into one's own: \
                            leave out config"
                .into()),
        }
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        self.config.iter_mut().chain(&mut self.program).collect()
    }
}
