//! A load as a message: what one side resolved and another is to carry out.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tare_io::{DurationNs, Endpoint, ReactorKind, SocketOptions};
use tare_model::net::Protocol;
use tare_model::status::StatusSet;

use crate::engine::{Edges, EngineConfig, Lifetime, Stretch, WaitPolicy};
use crate::load_plan::{LoadPlan, PlannedSource};
use crate::pacer::RateProfile;
use crate::source::FixedRequest;
use crate::tls::{TlsClient, TlsOptions};

/// A [`LoadPlan`] of one fixed request, in words that cross a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadOrder {
    pub to: To,
    pub protocol: Protocol,
    pub nodelay: bool,
    pub buffer_bytes: Option<u32>,
    pub bind: Vec<IpAddr>,
    pub connections: u32,
    pub max_connections: u32,
    pub new_connections: bool,
    pub tls: Option<TlsOptions>,
    pub timeout_ns: u64,
    pub expected: StatusSet,
    pub batch_max: u32,
    pub linger_ns: u64,
    pub spin_ns: u64,
    /// Base64.
    pub request: String,
    pub rate_per_s: Option<f64>,
    pub poisson: bool,
    pub workers: u32,
    pub cpus: Vec<usize>,
    pub reactor: Option<String>,
    pub tls_resume: bool,
    pub seed: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum To {
    Tcp(SocketAddr),
    Udp(SocketAddr),
    Unix(PathBuf),
}

/// A [`Stretch`] as a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StretchOrder {
    pub ramp_ns: u64,
    pub window_ns: u64,
    pub requests: Option<u64>,
    /// The window opens and closes with replies, not by the clock.
    pub on_replies: bool,
    /// When it begins, by the clock of who carries it out; at once where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ns: Option<u64>,
}

/// Only the one who resolved it can carry this load out.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotAnOrder(String);

impl LoadOrder {
    pub fn of(plan: &LoadPlan) -> Result<Self, NotAnOrder> {
        let no = |text: &str| NotAnOrder(text.to_owned());
        let request = match &plan.source {
            PlannedSource::Fixed(request) => request.bytes(),
            PlannedSource::Messages => &[],
            _ => return Err(no("a list or script of requests cannot be sent to another place")),
        };
        let rate_per_s = match &plan.rate {
            None => None,
            Some(profile) => Some(
                profile
                    .constant_rate()
                    .ok_or_else(|| no("a changing rate cannot be sent to another place"))?,
            ),
        };
        let engine = &plan.engine;
        let tls = engine.tls.as_ref().map(TlsClient::options);
        if tls.is_some_and(TlsOptions::names_files) {
            return Err(no("cacert, cert and key stay on this machine: leave them out where the \
                           client is in another place"));
        }
        Ok(Self {
            to: match &engine.endpoint {
                Endpoint::Tcp(address) => To::Tcp(*address),
                Endpoint::Udp(address) => To::Udp(*address),
                Endpoint::Unix(path) => To::Unix(path.clone()),
            },
            protocol: engine.protocol,
            nodelay: engine.sockets.nodelay,
            buffer_bytes: engine.sockets.buffer_bytes,
            bind: engine.bind.clone(),
            connections: engine.connections,
            max_connections: engine.max_connections,
            new_connections: engine.lifetime == Lifetime::PerRequest,
            tls: tls.cloned(),
            timeout_ns: engine.timeout.as_ns(),
            expected: engine.expected.clone(),
            batch_max: engine.wait.batch_max,
            linger_ns: engine.wait.linger.as_ns(),
            spin_ns: engine.wait.spin.as_ns(),
            request: base64::encode(request),
            rate_per_s,
            poisson: plan.poisson,
            workers: plan.workers,
            cpus: plan.cpus.clone(),
            reactor: plan.reactor.map(|kind| kind.name().to_owned()),
            tls_resume: plan.tls_resume,
            seed: plan.seed,
        })
    }

    /// The parts of so many clients, who make this load together.
    pub fn divided(&self, clients: u32) -> Result<Vec<Self>, NotAnOrder> {
        if self.connections < clients {
            return Err(NotAnOrder(format!(
                "connections = {}: {clients} clients divide them, and each needs one: give at least {clients}",
                self.connections
            )));
        }
        let part = |n: u32, index: u32| n / clients + u32::from(index < n % clients);
        let of = |index: u32| Self {
            connections: part(self.connections, index),
            max_connections: part(self.max_connections, index),
            rate_per_s: self.rate_per_s.map(|rate| rate / f64::from(clients)),
            // They may share CPUs: one that waits busily would keep the others from theirs.
            cpus: if clients == 1 { self.cpus.clone() } else { Vec::new() },
            spin_ns: if clients == 1 { self.spin_ns } else { 0 },
            // Each draws its own arrivals.
            seed: self.seed.wrapping_add(u64::from(index).wrapping_mul(SEED_STEP)),
            ..self.clone()
        };
        Ok((0..clients).map(of).collect())
    }

    pub fn plan(self) -> Result<LoadPlan, NotAnOrder> {
        let no = |what: &str, why: String| NotAnOrder(format!("{what}: {why}"));
        let request =
            base64::decode(&self.request).ok_or_else(|| no("request", "base64".into()))?;
        let tls = self.tls.as_ref().map(TlsClient::new).transpose();
        let rate = self.rate_per_s.map(RateProfile::constant).transpose();
        let reactor = match self.reactor.as_deref() {
            None => None,
            Some("io_uring") => Some(ReactorKind::IoUring),
            Some("epoll") => Some(ReactorKind::Epoll),
            Some(other) => return Err(no("reactor", format!("'{other}' is not known"))),
        };
        Ok(LoadPlan {
            engine: EngineConfig {
                endpoint: match self.to {
                    To::Tcp(address) => Endpoint::Tcp(address),
                    To::Udp(address) => Endpoint::Udp(address),
                    To::Unix(path) => Endpoint::Unix(path),
                },
                protocol: self.protocol,
                sockets: SocketOptions { nodelay: self.nodelay, buffer_bytes: self.buffer_bytes },
                bind: self.bind,
                connections: self.connections,
                max_connections: self.max_connections,
                lifetime: if self.new_connections { Lifetime::PerRequest } else { Lifetime::Kept },
                tls: tls.map_err(|error| no("tls", error.to_string()))?,
                timeout: DurationNs::from_ns(self.timeout_ns),
                expected: self.expected,
                wait: WaitPolicy {
                    batch_max: self.batch_max,
                    linger: DurationNs::from_ns(self.linger_ns),
                    spin: DurationNs::from_ns(self.spin_ns),
                    // Its CPUs may be its server's.
                    polls: false,
                },
            },
            source: match self.protocol {
                Protocol::Http => PlannedSource::Fixed(FixedRequest::new(request)),
                _ => PlannedSource::Messages,
            },
            worker_endpoints: Vec::new(),
            rate: rate.map_err(|error| no("rate", error.to_string()))?,
            poisson: self.poisson,
            stretch: StretchOrder::NONE.stretch(),
            workers: self.workers,
            cpus: self.cpus,
            reactor,
            tls_resume: self.tls_resume,
            seed: self.seed,
        })
    }
}

/// Odd: all seeds that come of one are different.
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl StretchOrder {
    const NONE: Self =
        Self { ramp_ns: 0, window_ns: 0, requests: None, on_replies: false, at_ns: None };

    pub fn of(stretch: &Stretch) -> Self {
        Self {
            ramp_ns: stretch.ramp.as_ns(),
            window_ns: stretch.window.as_ns(),
            requests: stretch.requests,
            on_replies: stretch.edges == Edges::Replies,
            at_ns: None,
        }
    }

    pub fn stretch(self) -> Stretch {
        Stretch {
            ramp: DurationNs::from_ns(self.ramp_ns),
            window: DurationNs::from_ns(self.window_ns),
            requests: self.requests,
            interval: WHOLE,
            edges: if self.on_replies { Edges::Replies } else { Edges::Clock },
        }
    }
}

/// A slice is one interval.
const WHOLE: DurationNs = DurationNs::from_secs(3600);

/// Bytes in JSON.
mod base64 {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    pub fn encode(bytes: &[u8]) -> String {
        STANDARD.encode(bytes)
    }

    pub fn decode(text: &str) -> Option<Vec<u8>> {
        STANDARD.decode(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(connections: u32, rate_per_s: Option<f64>) -> LoadOrder {
        LoadOrder {
            to: To::Tcp(([127, 0, 0, 1], 80).into()),
            protocol: Protocol::Http,
            nodelay: true,
            buffer_bytes: None,
            bind: Vec::new(),
            connections,
            max_connections: connections,
            new_connections: false,
            tls: None,
            timeout_ns: 1,
            expected: StatusSet::success(),
            batch_max: 1,
            linger_ns: 0,
            spin_ns: 0,
            request: String::new(),
            rate_per_s,
            poisson: false,
            workers: 1,
            cpus: Vec::new(),
            reactor: None,
            tls_resume: false,
            seed: 5,
        }
    }

    #[test]
    fn a_divided_load_is_the_same_load() {
        let parts = order(10, Some(1000.0)).divided(4).unwrap();
        let connections: Vec<u32> = parts.iter().map(|part| part.connections).collect();
        assert_eq!(connections, [3, 3, 2, 2]);
        assert_eq!(parts.iter().filter_map(|part| part.rate_per_s).sum::<f64>(), 1000.0);
        let seeds: std::collections::BTreeSet<u64> = parts.iter().map(|part| part.seed).collect();
        assert_eq!(seeds.len(), 4);
        assert!(order(3, None).divided(4).unwrap_err().to_string().contains("at least 4"));
    }
}
