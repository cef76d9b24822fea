//! The clusters that a lab uses, each with one connection and a namespace.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tare_kube::{Cluster, ClusterSelector, Kind, KubeError};
use tare_model::places::KubernetesSpec;
use tare_model::plain;

use crate::agent::Agent;
use crate::journal::Journal;
use crate::journal::prefix::OURS;
use crate::journal::resources::ClusterObject;
use tare_model::Failure;

/// Label for the place that an object belongs to.
pub const PLACE: &str = "tare/place";

/// Label of a client's pod, for the place of its server.
pub const CLIENTS_OF: &str = "tare/clients-of";

/// Label of an Ingress or Gateway, for the place it leads to.
pub const FRONT_OF: &str = "tare/front-of";

pub fn ours_selector() -> String {
    format!("{}={}", OURS.0, OURS.1)
}

/// All clusters of a lab.
#[derive(Debug)]
pub struct Clusters {
    /// Name of tare's own namespaces; unique to this run.
    name: String,
    grounds: Mutex<Vec<Arc<ClusterNamespace>>>,
    /// The node of each place's pod, by the place's tag.
    nodes: Mutex<HashMap<String, String>>,
    pub(super) node_agents: NodeAgents,
}

/// Agents that read control groups, one per node, shared by the places of a lab.
#[derive(Debug, Default)]
pub struct NodeAgents {
    /// The key is the cluster's address and the node's name.
    pub by_node: Mutex<HashMap<(String, String), Arc<Agent>>>,
    pub started: AtomicU32,
}

/// A namespace of a cluster, in which places are made.
#[derive(Debug)]
pub struct ClusterNamespace {
    pub cluster: Cluster,
    pub namespace: String,
    /// The user named the namespace. tare's own is removed with everything in it.
    is_given: bool,
    wanted: Option<String>,
}

impl Clusters {
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            grounds: Mutex::default(),
            nodes: Mutex::default(),
            node_agents: NodeAgents::default(),
        }
    }

    pub(super) fn set_node(&self, tag: &str, node: &str) {
        let mut nodes = self.nodes.lock().unwrap_or_else(|e| e.into_inner());
        nodes.insert(tag.to_owned(), node.to_owned());
    }

    /// Forgets a place's node: its next pod may run on any node.
    pub(super) fn forget_node(&self, tag: &str) {
        self.nodes.lock().unwrap_or_else(|e| e.into_inner()).remove(tag);
    }

    pub(super) fn node_of(&self, tag: &str) -> Option<String> {
        self.nodes.lock().unwrap_or_else(|e| e.into_inner()).get(tag).cloned()
    }

    /// Returns the namespace for a place, created when first needed.
    pub fn ground(
        &self,
        spec: &KubernetesSpec,
        journal: &Journal,
    ) -> Result<Arc<ClusterNamespace>, Failure> {
        let mut grounds = self.grounds.lock().unwrap_or_else(|e| e.into_inner());
        let is_it = |ground: &&Arc<ClusterNamespace>| {
            ground.cluster.which.context == spec.context && ground.wanted == spec.namespace
        };
        if let Some(ground) = grounds.iter().find(is_it) {
            return Ok(ground.clone());
        }
        let cluster = connect(spec.context.as_deref())?;
        let wanted = spec.namespace.clone();
        let ground = match &wanted {
            Some(namespace) => {
                refuse_others(&cluster, namespace, spec.beside_others)?;
                ClusterNamespace { namespace: namespace.clone(), cluster, is_given: true, wanted }
            }
            None => {
                let namespace = self.name.clone();
                journal.record_before_create(ClusterObject::new(
                    &cluster,
                    Kind::Namespace,
                    "",
                    &namespace,
                ))?;
                let object = json!({"metadata": {"name": namespace, "labels": {OURS.0: OURS.1}}});
                cluster.create(Kind::Namespace, "", object).map_err(|error| match error {
                    KubeError::Forbidden { .. } => Failure::environment(format!(
                        "kubernetes: {error} (name one that you may use: namespace = \"…\")"
                    )),
                    error => kube(error),
                })?;
                ClusterNamespace { namespace, cluster, is_given: false, wanted }
            }
        };
        let ground = Arc::new(ground);
        grounds.push(ground.clone());
        Ok(ground)
    }
}

impl ClusterNamespace {
    /// Makes an object of tare's in the namespace.
    pub fn make(
        &self,
        kind: Kind,
        name: &str,
        object: Value,
        journal: &Journal,
    ) -> Result<Value, Failure> {
        // Objects in tare's own namespace are removed with it.
        if self.is_given {
            journal.record_before_create(ClusterObject::new(
                &self.cluster,
                kind,
                &self.namespace,
                name,
            ))?;
        }
        let made = self.cluster.create(kind, &self.namespace, object);
        made.map_err(|error| if is_unknown(&error) { unknown(kind) } else { kube(error) })
    }

    pub fn read(&self, kind: Kind, name: &str) -> Result<Option<Value>, Failure> {
        self.cluster.read(kind, &self.namespace, name).map_err(kube)
    }
}

/// Whether the cluster does not know the object's kind.
pub fn is_unknown(error: &KubeError) -> bool {
    error.to_string().contains("404 page not found")
}

fn unknown(kind: Kind) -> Failure {
    let lacks = match kind.group() {
        group if group.ends_with("istio.io") => ": it has no Istio",
        "gateway.networking.k8s.io" => ": it has no Gateway API",
        _ => "",
    };
    let (name, group) = (kind.name(), kind.group());
    Failure::environment(format!("kubernetes: the cluster knows no {name} of {group}{lacks}"))
}

pub fn connect(context: Option<&str>) -> Result<Cluster, Failure> {
    Cluster::connect(&ClusterSelector::from_context(context)).map_err(kube)
}

/// Resolves a Service's name in the cluster: `name.namespace.svc`, with or without the cluster's
/// domain.
pub fn service_address(context: Option<&str>, host: &str) -> Result<Option<IpAddr>, Failure> {
    let labels: Vec<&str> = host.split('.').collect();
    let [name, namespace, "svc", ..] = labels[..] else { return Ok(None) };
    let service = connect(context)?.read(Kind::Service, namespace, name).map_err(kube)?;
    let ip = service.as_ref().and_then(|service| service["spec"]["clusterIP"].as_str());
    Ok(ip.and_then(|ip| ip.parse().ok()))
}

/// A cluster's errors may be of any length.
const ERROR_CHARS_MAX: usize = 800;

pub fn kube(error: KubeError) -> Failure {
    let text = plain::short(&format!("kubernetes: {error}"), ERROR_CHARS_MAX);
    match error {
        KubeError::Usage(_) => Failure::usage(text),
        _ => Failure::environment(text),
    }
}

/// Refuses a namespace with other pods: they would distort results, and are not tare's to remove.
fn refuse_others(cluster: &Cluster, namespace: &str, allowed: bool) -> Result<(), Failure> {
    if allowed {
        return Ok(());
    }
    let pods = cluster.list(Kind::Pod, namespace, "").map_err(kube)?;
    let is_others = |pod: &&Value| pod["metadata"]["labels"][OURS.0] != OURS.1;
    let others: Vec<&str> =
        pods.iter().filter(is_others).filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
    match others.first() {
        None => Ok(()),
        Some(first) => Err(Failure::usage(format!(
            "kubernetes: namespace {namespace} has pods that are not tare's ({} of them, as \
             {first}): leave namespace out, or allow it with beside_others = true",
            others.len()
        ))),
    }
}
