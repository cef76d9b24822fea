//! tare's own server with known costs.

use serde::{Deserialize, Serialize};

use super::{ServerFacts, check_body};
use crate::Invalid;

/// Each key is the flag of `tare target` with that name; docs/target.md.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TargetSpec {
    pub body_bytes: Option<u32>,
    pub busy: Option<String>,
    pub defer: Option<String>,
    pub burst: Option<String>,
    pub pause_every: Option<String>,
    pub warm_for: Option<String>,
    pub warm_requests: Option<String>,
    pub idle_slow: Option<String>,
    pub period: Option<String>,
    pub leak: Option<String>,
    pub launch_slow: Option<String>,
    pub first_request: Option<String>,
    pub change_after: Option<u64>,
    pub odd_rate: Option<f64>,
    pub odd_connections: Option<f64>,
    pub delay: Option<String>,
    pub service_time: Option<String>,
    pub turn: Option<String>,
    pub sticky: bool,
    pub workers: Option<u32>,
    pub stall: Option<String>,
    pub every: Option<String>,
    pub close_after: Option<u64>,
    pub error_rate: Option<f64>,
    pub status: Option<u16>,
    pub reset_rate: Option<f64>,
    pub threads: Option<u32>,
    pub chunked: bool,
    pub tls: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub http2: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_streams: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refuse_rate: Option<f64>,
    pub seed: Option<u64>,
}

impl TargetSpec {
    pub fn flags(&self) -> Vec<String> {
        let mut flags = Vec::new();
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                flags.extend([format!("--{name}"), value]);
            }
        };
        add("body", self.body_bytes.map(|n| n.to_string()));
        for (name, value) in [
            ("busy", &self.busy),
            ("defer", &self.defer),
            ("burst", &self.burst),
            ("pause-every", &self.pause_every),
            ("warm-for", &self.warm_for),
            ("warm-requests", &self.warm_requests),
            ("idle-slow", &self.idle_slow),
            ("period", &self.period),
            ("leak", &self.leak),
            ("launch-slow", &self.launch_slow),
            ("first-request", &self.first_request),
        ] {
            add(name, value.clone());
        }
        add("change-after", self.change_after.map(|n| n.to_string()));
        add("odd-rate", self.odd_rate.map(|share| share.to_string()));
        add("odd-connections", self.odd_connections.map(|share| share.to_string()));
        add("delay", self.delay.clone());
        add("service-time", self.service_time.clone());
        add("turn", self.turn.clone());
        add("workers", self.workers.map(|n| n.to_string()));
        add("stall", self.stall.clone());
        add("every", self.every.clone());
        add("close-after", self.close_after.map(|n| n.to_string()));
        add("error-rate", self.error_rate.map(|share| share.to_string()));
        add("status", self.status.map(|n| n.to_string()));
        add("reset-rate", self.reset_rate.map(|share| share.to_string()));
        add("threads", self.threads.map(|n| n.to_string()));
        add("max-streams", self.max_streams.clone());
        add("refuse-rate", self.refuse_rate.map(|share| share.to_string()));
        add("seed", self.seed.map(|n| n.to_string()));
        flags.extend(self.sticky.then(|| "--sticky".to_owned()));
        flags.extend(self.chunked.then(|| "--chunked".to_owned()));
        flags.extend(self.tls.then(|| "--tls".to_owned()));
        flags.extend(self.http2.then(|| "--http2".to_owned()));
        flags
    }
}

impl ServerFacts for TargetSpec {
    fn check(&self) -> Result<(), Invalid> {
        check_body(self.body_bytes.unwrap_or(0))?;
        if !self.http2 && (self.max_streams.is_some() || self.refuse_rate.is_some()) {
            return Err("max_streams and refuse_rate go with http2 = true".into());
        }
        Ok(())
    }

    /// It can start in any place, because the agent itself is the target.
    fn check_start_elsewhere(&self) -> Result<(), Invalid> {
        Ok(())
    }

    fn tls(&self) -> bool {
        self.tls
    }
}
