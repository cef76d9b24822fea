//! A pod of a Kubernetes cluster.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Bytes, Kernel, Limits, Network, PlaceFacts};
use crate::Invalid;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KubernetesSpec {
    /// Context in the kubeconfig; default: the current one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Default: a namespace of tare's own, removed afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Accepts a namespace of the user's in which others have pods.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub beside_others: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// An image with the agent in it; the pod's own image then needs no shell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_image: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Only for a client: run it on the node of its server's pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_node_as: Option<OtherPod>,
    /// Only for a client: run it on any other node than that of its server's pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_node_than: Option<OtherPod>,
    /// CPU request and limit, in CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Uses its node's own network.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub host_network: bool,
    /// A pod manifest of the user's; tare adds only what is necessary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<PathBuf>,
    /// The container in that pod; default: the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// `key`, `key=value`, `key:Effect` or `key=value:Effect`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<String>,
    /// How clients reach it.
    #[serde(skip_serializing_if = "Via::is_pod_ip")]
    pub via: Via,
    /// With node-port: the node at which clients enter.
    #[serde(skip_serializing_if = "Enter::is_own_node")]
    pub enter: Enter,
    /// With node-port: whether pods on other nodes may answer (`Cluster`) or not (`Local`).
    #[serde(skip_serializing_if = "Policy::is_cluster")]
    pub policy: Policy,
    /// With ingress: the class of its controller; default: the cluster's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress_class: Option<String>,
    /// With gateway: an existing Gateway, as `name` or `namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// With gateway: the class of a Gateway that tare makes for this place alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_class: Option<String>,
    /// With ingress or gateway: the address for clients, if the cluster does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<SocketAddr>,
    /// Whether the pod's usage is read on its node, by another pod that sees its control groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_meter: Option<bool>,
    /// Longest time for scheduling the pod, pulling its images and starting it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_within: Option<String>,
}

/// The pod by which another pod's node is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OtherPod {
    Server,
}

/// How clients reach a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    #[default]
    PodIp,
    ClusterIp,
    NodePort,
    HostPort,
    /// Through the controller of an Ingress.
    Ingress,
    /// Through a Gateway.
    Gateway,
}

impl Via {
    fn is_pod_ip(&self) -> bool {
        *self == Self::PodIp
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::PodIp => "pod-ip",
            Self::ClusterIp => "cluster-ip",
            Self::NodePort => "node-port",
            Self::HostPort => "host-port",
            Self::Ingress => "ingress",
            Self::Gateway => "gateway",
        }
    }

    /// Whether clients go through a Service that tare makes.
    pub fn is_service(self) -> bool {
        matches!(self, Self::ClusterIp | Self::NodePort) || self.is_front()
    }

    /// Whether clients go through a proxy of the cluster.
    pub fn is_front(self) -> bool {
        matches!(self, Self::Ingress | Self::Gateway)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enter {
    /// The node of the pod.
    #[default]
    OwnNode,
    OtherNode,
}

impl Enter {
    fn is_own_node(&self) -> bool {
        *self == Self::OwnNode
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    #[default]
    Cluster,
    Local,
}

impl Policy {
    fn is_cluster(&self) -> bool {
        *self == Self::Cluster
    }

    /// The value in a Service.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Local => "Local",
        }
    }
}

impl KubernetesSpec {
    /// The first key given that is only for servers.
    fn server_words(&self) -> Option<&'static str> {
        let words = [
            (!self.via.is_pod_ip(), "via"),
            (!self.enter.is_own_node(), "enter"),
            (!self.policy.is_cluster(), "policy"),
            (self.node_meter.is_some(), "node_meter"),
            (self.ingress_class.is_some(), "ingress_class"),
            (self.gateway.is_some(), "gateway"),
            (self.gateway_class.is_some(), "gateway_class"),
            (self.entry.is_some(), "entry"),
        ];
        words.into_iter().find_map(|(given, word)| given.then_some(word))
    }

    /// Checks whether it can be the place of a client whose server is in `place`.
    pub fn check_client(&self, place: Option<&Self>) -> Result<(), Invalid> {
        if let Some(word) = self.server_words() {
            return Err(Invalid(format!(
                "kubernetes: {word} is of a server's place, not a client's"
            )));
        }
        match (self.node_depends_on_server(), place) {
            (false, _) => Ok(()),
            (true, None) => Err("kubernetes: same_node_as and other_node_than need a server in a \
                                 pod"
            .into()),
            (true, Some(server)) if server.context != self.context => {
                Err("kubernetes: client and server are in different clusters: leave out \
                     same_node_as and other_node_than"
                    .into())
            }
            _ => Ok(()),
        }
    }

    /// Checks it as the place of a server.
    pub(crate) fn check_server(&self) -> Result<(), Invalid> {
        match self.node_depends_on_server() {
            true => Err("kubernetes: same_node_as and other_node_than are of a client's place; a \
                         server's node is told by node or node_selector"
                .into()),
            false => Ok(()),
        }
    }

    /// Checks the settings of a proxy of the cluster.
    fn check_front(&self) -> Result<(), &'static str> {
        let gateways = [self.gateway.is_some(), self.gateway_class.is_some()];
        let named = gateways.into_iter().filter(|given| *given).count();
        match self.via {
            Via::Gateway if named != 1 => {
                Err("via = \"gateway\" wants one that stands (gateway = \"namespace/name\") or a \
                     class that one is made of (gateway_class = \"…\")")
            }
            Via::Gateway => Ok(()),
            _ if named > 0 => Err("gateway and gateway_class go with via = \"gateway\""),
            _ => Ok(()),
        }?;
        if self.via != Via::Ingress && self.ingress_class.is_some() {
            return Err("ingress_class goes with via = \"ingress\"");
        }
        match self.entry {
            Some(_) if !self.via.is_front() => {
                Err("entry goes with via = \"ingress\" or \"gateway\"")
            }
            _ => Ok(()),
        }
    }

    fn node_depends_on_server(&self) -> bool {
        self.same_node_as.is_some() || self.other_node_than.is_some()
    }

    pub fn start_within(&self) -> Result<tare_io::DurationNs, Invalid> {
        let text = self.start_within.as_deref().unwrap_or("1m");
        let within = tare_io::DurationNs::parse(text)
            .map_err(|why| Invalid(format!("kubernetes: start_within = \"{text}\": {why}")))?;
        let most = tare_io::DurationNs::from_secs(3600);
        match within > tare_io::DurationNs::ZERO && within <= most {
            true => Ok(within),
            false => Err(Invalid(format!(
                "kubernetes: start_within = \"{text}\": write more than 0 and at most 1h"
            ))),
        }
    }
}

/// Checks a name by the rules for namespaces, nodes and classes.
fn check_name(key: &str, name: &str) -> Result<(), Invalid> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let whole = name.len() <= 253 && name.chars().all(plain);
    match whole && edge(name.chars().next()) && edge(name.chars().next_back()) {
        true => Ok(()),
        false => Err(Invalid(format!(
            "kubernetes: {key} = {name:?}: write lower-case letters, digits, '-' and '.'"
        ))),
    }
}

impl PlaceFacts for KubernetesSpec {
    fn name(&self) -> String {
        let mut name = "pod".to_owned();
        if let Some(class) = &self.runtime_class {
            name += &format!(" ({class})");
        }
        if self.host_network {
            name += ", host network";
        }
        if !self.via.is_pod_ip() {
            name += &format!(", {}", self.via.word());
        }
        name
    }

    fn check(&self) -> Result<(), Invalid> {
        let no = |text: &str| Err(Invalid(format!("kubernetes: {text}")));
        for (key, name) in [
            ("namespace", &self.namespace),
            ("runtime_class", &self.runtime_class),
            ("node", &self.node),
            ("service_account", &self.service_account),
            ("container", &self.container),
            ("ingress_class", &self.ingress_class),
            ("gateway_class", &self.gateway_class),
        ] {
            name.as_deref().map_or(Ok(()), |name| check_name(key, name))?;
        }
        self.image_pull_secrets.iter().try_for_each(|s| check_name("image_pull_secrets", s))?;
        let gateway = self.gateway.iter().flat_map(|name| name.splitn(2, '/'));
        gateway.into_iter().try_for_each(|name| check_name("gateway", name))?;
        let plain = |c: char| !c.is_control() && !c.is_whitespace();
        for (key, image) in [("image", &self.image), ("agent_image", &self.agent_image)] {
            if image.as_deref().is_some_and(|i| i.is_empty() || !i.chars().all(plain)) {
                return no(&format!("{key} is not the name of an image"));
            }
        }
        if self.manifest.is_some() && self.image.is_some() {
            return no("image and manifest both name an image: leave one out");
        }
        if self.container.is_some() && self.manifest.is_none() {
            return no("container = \"…\" is one of a manifest's");
        }
        if self.beside_others && self.namespace.is_none() {
            return no("beside_others goes with a namespace of your own");
        }
        let ways =
            [self.node.is_some(), self.same_node_as.is_some(), self.other_node_than.is_some()];
        if ways.into_iter().filter(|given| *given).count() > 1 {
            return no("node, same_node_as and other_node_than each say where it runs: give one");
        }
        if self.via != Via::NodePort && !(self.enter.is_own_node() && self.policy.is_cluster()) {
            return no("enter and policy go with via = \"node-port\"");
        }
        if self.policy == Policy::Local && self.enter == Enter::OtherNode {
            return no("by policy \"local\" no other node answers: leave enter out");
        }
        if let Err(text) = self.check_front() {
            return no(text);
        }
        if self.host_network && self.via == Via::HostPort {
            return no("in its node's network every port is the node's: leave via out");
        }
        self.start_within().map(drop)
    }

    fn limits(&self) -> Limits {
        Limits::from_settings(self.cpus, self.memory)
    }

    fn has_own_kernel(&self) -> bool {
        self.runtime_class.as_deref().is_some_and(|class| Kernel::from_runtime_name(class).is_own())
    }

    fn shares_host_files(&self) -> bool {
        false
    }

    fn network(&self) -> Network {
        Network::Cluster
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        self.manifest.iter_mut().collect()
    }
}
