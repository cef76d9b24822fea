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

const RATE_UNITS: [&str; 4] = ["bit", "kbit", "mbit", "gbit"];
const DELAY_UNITS: [&str; 3] = ["us", "ms", "s"];

fn is_amount(text: &str, units: &[&str]) -> bool {
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let number = text[..at].parse::<f64>();
    number.is_ok_and(|n| n > 0.0 && n < 1e6) && units.contains(&&text[at..])
}

impl NetnsSpec {
    /// Whether it can be had here.
    pub fn check(&self) -> Result<String, LabError> {
        for (key, value, units) in
            [("rate", &self.rate, &RATE_UNITS[..]), ("delay", &self.delay, &DELAY_UNITS[..])]
        {
            if let Some(text) = value.as_ref().filter(|text| !is_amount(text, units)) {
                return Err(LabError::Usage(format!(
                    "netns: {key} = {text:?}: write it as tc does, a number above 0 and one of {}",
                    units.join(", ")
                )));
            }
        }
        if self.rate.is_some() || self.delay.is_some() {
            programs::need(&["tc"], "iproute2")?;
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
        let ip = programs::need(&["ip"], "iproute2")?.display().to_string();
        let argv = [&ip, "netns", "exec", tag, &agent, "--drop-capabilities"];
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
