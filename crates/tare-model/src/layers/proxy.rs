//! A proxy on this machine, between client and server: a process of its own.

use serde::{Deserialize, Serialize};

use super::LayerFacts;
use crate::Invalid;
use crate::places::Limits;
use crate::servers::ServerSpec;
use crate::variant::Variant;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxySpec {
    pub proxy: ProxyProgram,
    #[serde(default = "one")]
    pub threads: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyProgram {
    Haproxy,
}

const THREADS_MAX: u32 = 64;

fn one() -> u32 {
    1
}

impl ProxyProgram {
    pub fn name(self) -> &'static str {
        match self {
            Self::Haproxy => "haproxy",
        }
    }
}

impl LayerFacts for ProxySpec {
    fn name(&self) -> String {
        format!("proxy {}", self.proxy.name())
    }

    fn check(&self, variant: &Variant) -> Result<(), Invalid> {
        let wrong = |text: &str| Err(Invalid(format!("{}: {text}", self.name())));
        if !(1..=THREADS_MAX).contains(&self.threads) {
            return wrong(&format!("threads = {}: write 1 to {THREADS_MAX}", self.threads));
        }
        if variant.server == ServerSpec::Up {
            return wrong("it stands before a server that tare starts");
        }
        if !variant.url.contains("{port}") {
            return wrong("it listens where tare says: leave out the port in url");
        }
        if variant.is_tls() {
            return wrong("it speaks plain HTTP on both sides: leave out TLS");
        }
        if variant.place.limits_by_group() != Limits::default() {
            return wrong("limits of the server's place would not be its: leave them out");
        }
        if !variant.client.is_on_host() {
            return wrong("it runs on this machine, as its client must: leave out client");
        }
        Ok(())
    }
}
