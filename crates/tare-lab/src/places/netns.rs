//! A network namespace on tare's bridge.

use std::net::{IpAddr, Ipv4Addr};

use tare_io::DurationNs;
use tare_model::places::NetnsSpec;
use tare_model::samples::Proof;

use super::network::{Network, Shape};
use super::{
    LabResources, Place, PlaceContext, PlaceKind, Restarts, SystemIdentity, agent_file,
    own_namespace, proof,
};
use crate::agent::Agent;
use crate::machine::programs;
use crate::network::intercept::Namespace;
use tare_model::Failure;

impl PlaceKind for NetnsSpec {
    fn check_machine(&self) -> Result<String, Failure> {
        if self.rate.is_some() || self.delay.is_some() {
            programs::need(&["tc"], "iproute2")?;
        }
        super::need_root("a network namespace")?;
        programs::need(&["ip"], "iproute2")?;
        agent_file::find()?;
        Ok("yes".into())
    }

    fn place(&self, context: PlaceContext) -> Option<Box<dyn Place>> {
        Some(Box::new(Netns { spec: self.clone(), context, address: Ipv4Addr::UNSPECIFIED.into() }))
    }
}

#[derive(Debug)]
pub struct Netns {
    spec: NetnsSpec,
    context: PlaceContext,
    address: IpAddr,
}

const HELLO_WITHIN: DurationNs = DurationNs::from_secs(10);

impl Place for Netns {
    fn start(&mut self, resources: &mut LabResources<'_>) -> Result<Agent, Failure> {
        let network = super::network_of(resources)?;
        let PlaceContext { index, tag, .. } = &self.context;
        let shape = Shape { rate: self.spec.rate.clone(), delay: self.spec.delay.clone() };
        self.address = network.attach_namespace(*index, tag, &shape, resources.journal)?;
        let agent = agent_file::find()?.display().to_string();
        let ip = programs::need(&["ip"], "iproute2")?.display().to_string();
        let argv = [&ip, "netns", "exec", tag, &agent, "--drop-capabilities"];
        let argv = argv.map(str::to_owned);
        self.context.start_agent(&argv, HELLO_WITHIN, resources.halt)
    }

    fn prove(&self, agent: &Agent) -> Proof {
        let (hello, here) = (&agent.hello, SystemIdentity::probe());
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

    fn link(&self, network: &Network) -> Option<String> {
        Some(network.link(self.context.index))
    }

    fn address(&self) -> IpAddr {
        self.address
    }

    fn namespace(&self) -> Option<Namespace> {
        Some(Namespace { name: self.context.tag.clone(), address: self.address })
    }

    fn restarts(&self) -> Restarts {
        Restarts::Never
    }
}
