//! The path from clients to a pod: its Service, its entry, and the proof that requests took it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};
use tare_kube::Kind;
use tare_model::places::{Enter, KubernetesSpec, Policy, Via};
use tare_model::samples::{Proof, Sent};

use super::fate::not_ready;
use super::front::{ClusterProxy, FrontPod, ServiceCounts};
use super::ground::{ClusterNamespace, PLACE, kube};
use crate::journal::Journal;
use crate::journal::prefix::OURS;
use crate::lab::server::Server;
use crate::layers::{ClientAddresses, LayerProof};
use crate::network::intercept::SIDECAR;
use tare_model::Failure;

/// How clients reach a pod that runs.
#[derive(Clone, Debug)]
pub struct Path {
    pub entry: SocketAddr,
    /// The host that clients request.
    pub host: String,
    pub via: Via,
    policy: Policy,
    /// In words: `NodePort 31000 of node2`.
    words: String,
    /// The cluster's proxy in front of the Service.
    pub front: Option<ClusterProxy>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    pub node: String,
    pub node_ip: Option<IpAddr>,
    pub pod_ip: Option<IpAddr>,
}

/// The port of tare's own Services.
pub const SERVICE_PORT: u16 = 80;

/// Creates the Service of a place, once; the pods behind it may change.
pub fn make_service(
    spec: &KubernetesSpec,
    ground: &ClusterNamespace,
    tag: &str,
    port: u16,
    journal: &Journal,
) -> Result<Option<Value>, Failure> {
    if !spec.via.is_service() {
        return Ok(None);
    }
    let mut body = json!({
        "selector": {PLACE: tag},
        // A mesh infers the protocol from the name.
        "ports": [{"name": "http", "port": SERVICE_PORT, "targetPort": port, "protocol": "TCP"}],
        "type": if spec.via == Via::NodePort { "NodePort" } else { "ClusterIP" },
    });
    if spec.via == Via::NodePort {
        body["externalTrafficPolicy"] = json!(spec.policy.word());
    }
    let labels = json!({OURS.0: OURS.1, PLACE: tag});
    let service = json!({"metadata": {"name": tag, "labels": labels}, "spec": body});
    ground.make(Kind::Service, tag, service, journal).map(Some)
}

/// Returns the path by a Service or hostPort; `None` for direct connections, and for an Ingress or
/// Gateway (see `front`).
pub fn path(
    spec: &KubernetesSpec,
    ground: &ClusterNamespace,
    service: Option<&Value>,
    spot: &Spot,
    port: u16,
) -> Result<Option<Path>, Failure> {
    let no = |text: &str| Failure::environment(format!("kubernetes: {text}"));
    let service = service.unwrap_or(&Value::Null);
    let own_node = || spot.node_ip.ok_or_else(|| no("its node has no address"));
    let (entry, words) = match spec.via {
        // Ingresses and Gateways are waited for elsewhere (`front::wait`).
        Via::PodIp | Via::Ingress | Via::Gateway => return Ok(None),
        Via::ClusterIp => {
            let ip = service["spec"]["clusterIP"].as_str().and_then(|ip| ip.parse().ok());
            let ip: IpAddr = ip.ok_or_else(|| no("its Service got no address"))?;
            (SocketAddr::new(ip, SERVICE_PORT), format!("ClusterIP {ip}"))
        }
        Via::NodePort => {
            let port = service["spec"]["ports"][0]["nodePort"].as_u64();
            let port = port.and_then(|port| u16::try_from(port).ok());
            let port = port.ok_or_else(|| no("its Service got no NodePort"))?;
            let (node, ip) = match spec.enter {
                Enter::OwnNode => (spot.node.clone(), own_node()?),
                Enter::OtherNode => other_node(ground, &spot.node)?,
            };
            let which = if node == spot.node { "its own" } else { "another" };
            let words =
                format!("NodePort {port} of {node} ({which} node), policy {}", spec.policy.word());
            (SocketAddr::new(ip, port), words)
        }
        Via::HostPort => {
            (SocketAddr::new(own_node()?, port), format!("hostPort {port} of {}", spot.node))
        }
    };
    let host = entry.ip().to_string();
    Ok(Some(Path { entry, host, via: spec.via, policy: spec.policy, words, front: None }))
}

impl Path {
    pub fn through(front: ClusterProxy, spec: &KubernetesSpec, host: String) -> Self {
        let (entry, words) = (front.entry, front.words.clone());
        let front = Some(front);
        Self { entry, host, via: spec.via, policy: spec.policy, words, front }
    }
}

/// Finds a ready node that the pod is not on.
fn other_node(ground: &ClusterNamespace, own: &str) -> Result<(String, IpAddr), Failure> {
    let nodes = ground.cluster.list(Kind::Node, "", "").map_err(kube)?;
    let fitting = nodes.iter().filter(|node| not_ready(node).is_none());
    let mut named = fitting.filter_map(|node| Some((name(node)?, address(node)?)));
    named.find(|(name, _)| name != own).ok_or_else(|| {
        Failure::environment("kubernetes: enter = \"other-node\": there is no other node")
    })
}

fn name(node: &Value) -> Option<String> {
    node["metadata"]["name"].as_str().map(str::to_owned)
}

pub fn address(node: &Value) -> Option<IpAddr> {
    let mut all = node["status"]["addresses"].as_array()?.iter();
    let internal = all.find(|address| address["type"] == "InternalIP")?;
    internal["address"].as_str()?.parse().ok()
}

/// Proves which path the requests of a launch took.
#[derive(Debug)]
pub struct PathProof {
    pub path: Path,
    pub spot: Spot,
    pub client: ClientAddresses,
    /// The Service's name in the statistics of the cluster's proxy.
    pub service: String,
    /// Whether a sidecar forwards requests to the server.
    pub has_sidecar: bool,
    /// Counts of the cluster's proxy before the load.
    pub before: Option<ServiceCounts>,
}

impl LayerProof for PathProof {
    fn begin(&mut self) {
        self.before = self.passed();
    }

    fn end(self: Box<Self>, server: &Server, sent: Sent) -> Proof {
        let passed = self.before.zip(self.passed());
        self.judge(&server.peers(), sent, passed)
    }
}

impl PathProof {
    fn passed(&self) -> Option<ServiceCounts> {
        self.path.front.as_ref()?.passed(&self.service)
    }

    /// Checks how the cluster's proxy forwarded requests. Returns complaints and observations.
    fn judge_front(
        &self,
        front: &ClusterProxy,
        client: &[IpAddr],
        peers: &BTreeMap<IpAddr, u64>,
        sent: Sent,
        passed: Option<(ServiceCounts, ServiceCounts)>,
    ) -> (Vec<String>, Vec<String>) {
        let (mut wrong, mut seen) = (Vec::new(), Vec::new());
        let known: Vec<IpAddr> = match self.has_sidecar {
            true => vec![SIDECAR],
            false => {
                front.pods.iter().flat_map(|pod| [Some(pod.ip), pod.node_ip]).flatten().collect()
            }
        };
        let strange = peers.keys().find(|ip| !known.contains(ip));
        match (known.is_empty(), strange) {
            (true, Some(ip)) if client.contains(ip) => {
                wrong.push(format!("its server was asked by {ip}, its client"));
            }
            (true, _) => seen.push("whose pods pass them on, this cluster does not tell".into()),
            (false, Some(ip)) => {
                wrong.push(format!("its server was asked by {ip}, which is not it"))
            }
            (false, None) if peers.is_empty() => {
                wrong.push("no connection was open to see who asks".into());
            }
            (false, None) => {}
        }
        match passed {
            None => seen.push("it tells no counts".into()),
            Some((before, after)) => {
                let requests = after.requests.saturating_sub(before.requests);
                let text = format!("of {sent} requests {requests} passed through it");
                if sent.fits(requests) { &mut seen } else { &mut wrong }.push(text);
                let ServiceCounts { connections, handshakes, .. } = after;
                if handshakes > 0 {
                    seen.push(format!("{handshakes} TLS handshakes for {connections} connections"));
                }
            }
        }
        (wrong, seen)
    }

    fn judge(
        &self,
        peers: &BTreeMap<IpAddr, u64>,
        sent: Sent,
        passed: Option<(ServiceCounts, ServiceCounts)>,
    ) -> Proof {
        let Self { path, spot, client, .. } = self;
        let client = client.lock().unwrap_or_else(|e| e.into_inner());
        let seen: Vec<String> = peers
            .iter()
            .map(|(ip, n)| {
                let mut front = path.front.iter().flat_map(|front| &front.pods);
                let is_its = |pod: &&FrontPod| pod.ip == *ip || pod.node_ip == Some(*ip);
                let whose = match front.find(is_its) {
                    Some(pod) if pod.ip == *ip => format!(" ({})", pod.name),
                    Some(pod) => format!(" ({}, masked by its node)", pod.name),
                    None if self.has_sidecar && *ip == SIDECAR => " (its sidecar)".into(),
                    None if client.contains(ip) => " (its client)".into(),
                    None if Some(*ip) == spot.node_ip => " (its node)".into(),
                    None => String::new(),
                };
                format!("{n} from {ip}{whose}")
            })
            .collect();
        let pod = spot.pod_ip.map_or("its pod".to_owned(), |ip| ip.to_string());
        let mut wrong = Vec::new();
        let is_local = path.policy == Policy::Local && path.via == Via::NodePort;
        if is_local && peers.is_empty() {
            wrong.push("no connection was open to see its client's address".into());
        }
        if is_local && let Some(other) = peers.keys().find(|ip| !client.contains(ip)) {
            wrong.push(format!(
                "by policy Local the server sees its client's own address, and it saw {other}"
            ));
        }
        let mut more = Vec::new();
        if let Some(front) = &path.front {
            let (bad, seen) = self.judge_front(front, &client, peers, sent, passed);
            wrong.extend(bad);
            more = seen;
        }
        // With the node's network, the pod's address is the node's.
        if Some(path.entry.ip()) == spot.pod_ip && spot.pod_ip != spot.node_ip {
            wrong.push("its entry is the pod itself".into());
        }
        let connections = match seen.is_empty() {
            true => "no connection was open when its server was looked at".to_owned(),
            false => format!("its server saw connections: {}", seen.join(", ")),
        };
        let text = format!(
            "{sent} requests entered by {} at {} and were answered by {pod} on {}; {connections}{}",
            path.words,
            path.entry,
            spot.node,
            more.iter().map(|text| format!("; {text}")).collect::<String>()
        );
        let layer = path.via.word().to_owned();
        match wrong.is_empty() {
            true => Proof { layer, held: true, text },
            false => Proof { layer, held: false, text: format!("{}; {text}", wrong.join("; ")) },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn proof(path: Path, client: &str) -> PathProof {
        let spot = Spot {
            node: "node1".into(),
            node_ip: Some(ip("10.98.0.11")),
            pod_ip: Some(ip("10.244.1.5")),
        };
        let client = Arc::new(Mutex::new(vec![ip(client)]));
        let service = "a.b.svc.cluster.local".into();
        PathProof { path, spot, client, service, has_sidecar: false, before: None }
    }

    fn proof_of(via: Via, policy: Policy, entry: &str, peers: &[(&str, u64)]) -> Proof {
        let (entry, host): (SocketAddr, String) = (entry.parse().unwrap(), "x".into());
        let path = Path { entry, host, via, policy, words: "a way".into(), front: None };
        let proof = proof(path, "10.98.0.254");
        proof.judge(
            &peers.iter().map(|(peer, n)| (ip(peer), *n)).collect(),
            Sent { requests: 7, unsure: 0 },
            None,
        )
    }

    #[test]
    fn a_path_is_proven_by_what_the_server_saw() {
        let by_node = |policy, peers: &[(&str, u64)]| {
            proof_of(Via::NodePort, policy, "10.98.0.11:31000", peers)
        };
        let kept = by_node(Policy::Local, &[("10.98.0.254", 20)]);
        assert!(
            kept.held && kept.text.contains("20 from 10.98.0.254 (its client)"),
            "{}",
            kept.text
        );
        let rewritten = by_node(Policy::Local, &[("10.98.0.11", 20)]);
        assert!(!rewritten.held && rewritten.text.contains("it saw 10.98.0.11"));
        let masked = by_node(Policy::Cluster, &[("10.98.0.11", 20)]);
        assert!(masked.held && masked.text.contains("its node"));
        let straight = proof_of(Via::ClusterIp, Policy::Cluster, "10.244.1.5:80", &[]);
        assert!(!straight.held);
    }

    #[test]
    fn what_passed_a_gateway_came_from_its_pods_and_was_counted_there() {
        let pod = FrontPod {
            name: "edge-1".into(),
            uid: "u".into(),
            node: "node2".into(),
            ip: ip("10.244.1.9"),
            node_ip: Some(ip("10.98.0.12")),
            meter: None,
        };
        let entry: SocketAddr = "10.96.0.5:80".parse().unwrap();
        let judge = |pods: &[FrontPod], peer: &str, counted: Option<u64>, has_sidecar: bool| {
            let front = ClusterProxy { entry, words: "Gateway".into(), pods: pods.to_vec() };
            let spec = KubernetesSpec { via: Via::Gateway, ..KubernetesSpec::default() };
            let mut proof = proof(Path::through(front, &spec, "x".into()), "10.244.1.7");
            proof.has_sidecar = has_sidecar;
            let passed = |requests| ServiceCounts { requests, connections: 2, handshakes: 2 };
            let counts = counted.map(|n| (passed(5), passed(5 + n)));
            proof.judge(&[(ip(peer), 2)].into(), Sent { requests: 7, unsure: 0 }, counts)
        };
        let pods = [pod];
        let good = judge(&pods, "10.244.1.9", Some(7), false);
        assert!(good.held && good.text.contains("2 from 10.244.1.9 (edge-1)"), "{}", good.text);
        assert!(good.text.contains("of 7 requests 7 passed through it; 2 TLS handshakes for 2"));
        let past = judge(&pods, "10.244.1.7", Some(7), false);
        assert!(!past.held && past.text.contains("asked by 10.244.1.7, which is not it"));
        assert!(!judge(&pods, "10.244.1.9", Some(6), false).held);
        assert!(judge(&pods, "10.98.0.12", Some(7), false).held, "masked by its node");
        assert!(judge(&pods, "127.0.0.6", None, true).held);
        assert!(!judge(&pods, "10.244.1.9", None, true).held);
        let unknown = judge(&[], "10.244.1.8", None, false);
        assert!(unknown.held && unknown.text.contains("this cluster does not tell"));
        assert!(!judge(&[], "10.244.1.7", None, false).held, "its own client");
    }
}
