//! A service mesh of a cluster: it puts sidecars into pods that ask for them.

use serde::{Deserialize, Serialize};

use super::{HopPosition, LayerFacts, LayerSpec, Side};
use crate::Invalid;
use crate::clients::ClientSpec;
use crate::places::{KubernetesSpec, PlaceSpec, Via};
use crate::variant::Variant;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeshSpec {
    pub mesh: MeshProgram,
    /// The side on which pods ask for a sidecar.
    #[serde(default = "both")]
    pub inject: Side,
    /// Mutual TLS between the sidecars of both sides (default: `strict`), or between a gateway of
    /// the mesh and the server's sidecar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtls: Option<MeshTls>,
    /// Which of the cluster's control planes to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Threads of each sidecar.
    #[serde(default = "one", alias = "concurrency")]
    pub threads: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeshProgram {
    Istio,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeshTls {
    /// The server's sidecar accepts only mutual TLS.
    Strict,
    Disable,
}

const THREADS_MAX: u32 = 64;

fn both() -> Side {
    Side::Both
}

fn one() -> u32 {
    1
}

impl MeshSpec {
    pub fn is_mutual_tls(&self) -> bool {
        match self.mtls {
            None => self.inject == Side::Both,
            Some(mtls) => mtls == MeshTls::Strict,
        }
    }

    fn check_places(&self, variant: &Variant) -> Result<(), &'static str> {
        let PlaceSpec::Kubernetes(server) = &variant.place else {
            return Err("it is a cluster's: give the server place = { kubernetes = { … } }");
        };
        // A gateway of the mesh replaces the client's sidecar.
        let by_front = server.via.is_front() && self.inject == Side::Server;
        if server.via != Via::ClusterIp && !by_front {
            return Err(
                "its sidecars know Services: give the server's place via = \"cluster-ip\" \
                        (by \"ingress\" or \"gateway\": inject = \"server\")",
            );
        }
        if self.mtls == Some(MeshTls::Strict) && self.inject != Side::Both && !by_front {
            return Err("mtls is between the sidecars of both sides: inject = \"both\"");
        }
        if server.node_meter.is_some() {
            return Err("its sidecars are metered on their nodes: leave out node_meter");
        }
        let Some(client) = variant.clients.single() else {
            return Err("its sidecars are counted in one client's pod: give one client");
        };
        let client = match client {
            ClientSpec::Place(PlaceSpec::Kubernetes(client)) => Some(client),
            _ => None,
        };
        if self.inject.has_client() && client.is_none() {
            return Err("a client's sidecar is in its pod: client = { kubernetes = { … } }");
        }
        let has_node_network = |place: &KubernetesSpec| place.host_network;
        if has_node_network(server) || client.is_some_and(has_node_network) {
            return Err("in its node's network a pod gets no sidecar: leave out host_network");
        }
        Ok(())
    }
}

impl LayerFacts for MeshSpec {
    fn name(&self) -> String {
        match self.mesh {
            MeshProgram::Istio => "mesh istio".into(),
        }
    }

    fn hop_positions(&self) -> &'static [HopPosition] {
        self.inject.stands()
    }

    fn check(&self, variant: &Variant) -> Result<(), Invalid> {
        let wrong = |text: &str| Err(Invalid(format!("{}: {text}", self.name())));
        if !(1..=THREADS_MAX).contains(&self.threads) {
            return wrong(&format!("threads = {}: write 1 to {THREADS_MAX}", self.threads));
        }
        if variant.server.facts().tls() {
            return wrong("it speaks plain HTTP with the server: leave out TLS");
        }
        let is_other = |layer: &&LayerSpec| !matches!(layer, LayerSpec::Filter(_));
        if variant.layers.iter().filter(is_other).count() > 1 {
            return wrong("of layers beside filters it stands alone");
        }
        self.check_places(variant).or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn mutual_tls_is_of_both_sides_unless_it_is_switched_off() {
        let mesh = |settings: Value| serde_json::from_value::<MeshSpec>(settings).unwrap();
        assert!(mesh(json!({"mesh": "istio"})).is_mutual_tls());
        assert!(!mesh(json!({"mesh": "istio", "mtls": "disable"})).is_mutual_tls());
        assert!(!mesh(json!({"mesh": "istio", "inject": "client"})).is_mutual_tls());
    }
}
