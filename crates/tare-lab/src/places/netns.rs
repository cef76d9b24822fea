//! A network namespace on tare's bridge.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;
use tare_stats::samples::Proof;

use super::network::Shape;
use super::spec::Bytes;
use super::{Ground, Here, Place, Restarts, Spot, agent_file, own_namespace, proof};
use crate::agent::Agent;
use crate::error::LabError;
use crate::programs;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NetnsSpec {
    /// What its link carries: `1gbit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// What its link adds, each way: `1ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

impl NetnsSpec {
    /// Whether it can be had here.
    pub fn check(&self) -> Result<String, LabError> {
        for (key, value) in [("rate", &self.rate), ("delay", &self.delay)] {
            let plain = |text: &String| {
                text.starts_with(|c: char| c.is_ascii_digit())
                    && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '.')
            };
            if let Some(text) = value.as_ref().filter(|text| !plain(text)) {
                let text = format!("netns: {key} = '{text}': write it as tc does: 1gbit, 500us");
                return Err(LabError::Usage(text));
            }
        }
        super::need_root("a network namespace")?;
        programs::need(&["ip"], "iproute2")?;
        agent_file::find()?;
        Ok("yes".into())
    }
}

#[derive(Debug)]
pub struct Netns {
    spec: NetnsSpec,
    spot: Spot,
    address: IpAddr,
}

const HELLO_WITHIN: DurationNs = DurationNs::from_secs(10);

impl Netns {
    pub fn new(spec: NetnsSpec, spot: Spot) -> Self {
        Self { spec, spot, address: Ipv4Addr::UNSPECIFIED.into() }
    }
}

impl Place for Netns {
    fn start(&mut self, ground: &mut Ground<'_>) -> Result<Agent, LabError> {
        let network = super::network_of(ground)?;
        let Spot { index, tag, .. } = &self.spot;
        let shape = Shape { rate: self.spec.rate.clone(), delay: self.spec.delay.clone() };
        self.address = network.attach_namespace(*index, tag, &shape, ground.journal)?;
        let agent = agent_file::find()?.display().to_string();
        let argv = ["ip", "netns", "exec", tag, &agent, "--drop-capabilities"];
        let argv = argv.map(str::to_owned);
        self.spot.start_agent(&argv, HELLO_WITHIN, ground.stop)
    }

    fn prove(&self, agent: &Agent) -> Proof {
        let (hello, here) = (&agent.hello, Here::look());
        let mut wrong = Vec::new();
        if hello.namespaces.get("net") == own_namespace("net").as_ref() {
            wrong.push("it is in this machine's own network namespace".to_owned());
        }
        if !hello.addresses.contains(&self.address.to_string()) {
            wrong.push(format!("it does not have the address {}", self.address));
        }
        if hello.boot_id != here.boot_id {
            wrong.push("it runs under another kernel".into());
        }
        let seen = format!("a network namespace of its own with the address {}", self.address);
        proof("netns".into(), wrong, seen)
    }

    fn address(&self) -> IpAddr {
        self.address
    }

    fn restarts(&self) -> Restarts {
        Restarts::Never
    }
}
