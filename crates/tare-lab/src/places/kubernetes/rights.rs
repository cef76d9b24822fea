//! The RBAC rights that tare needs in a cluster; docs/kubernetes-rights.yaml grants exactly these.

use serde_json::json;
use tare_kube::{Cluster, Kind, KubeError};

/// A right, and what it is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    pub verb: &'static str,
    pub group: &'static str,
    pub resource: &'static str,
    pub subresource: &'static str,
    pub what_for: &'static str,
}

const fn right(verb: &'static str, resource: &'static str, what_for: &'static str) -> Right {
    Right { verb, group: "", resource, subresource: "", what_for }
}

const fn exec(verb: &'static str) -> Right {
    Right { subresource: "exec", ..right(verb, "pods", "its agent gets in and is spoken with") }
}

const OWN_NAMESPACE: &str = "a namespace of its own (else: namespace = \"…\")";
const POD: &str = "pods as places";
const SERVICE: &str = "via = \"cluster-ip\" and \"node-port\"";

pub const RIGHTS: [Right; 17] = [
    right("create", "namespaces", OWN_NAMESPACE),
    right("get", "namespaces", OWN_NAMESPACE),
    right("delete", "namespaces", OWN_NAMESPACE),
    right("create", "pods", POD),
    right("get", "pods", POD),
    right("list", "pods", "a namespace of yours is not others'"),
    right("delete", "pods", POD),
    exec("get"),
    exec("create"),
    right("create", "services", SERVICE),
    right("get", "services", SERVICE),
    right("delete", "services", SERVICE),
    right("get", "nodes", "where a pod is, and under which kernel"),
    right("list", "nodes", "enter = \"other-node\""),
    Right {
        group: "coordination.k8s.io",
        ..right("get", "leases", "whether a node is still heard of")
    },
    right("list", "events", "why a pod does not start"),
    Right {
        group: "node.k8s.io",
        ..right("get", "runtimeclasses", "runtime_class is what it says it is")
    },
];

impl Right {
    pub fn words(&self) -> String {
        match self.subresource {
            "" => format!("{} {}", self.verb, self.resource),
            sub => format!("{} {}/{sub}", self.verb, self.resource),
        }
    }

    /// Whether the current user has this right in `namespace`, or in all namespaces if it is empty.
    pub fn is_granted(&self, cluster: &Cluster, namespace: &str) -> Result<bool, KubeError> {
        let attributes = json!({
            "verb": self.verb, "group": self.group, "resource": self.resource,
            "subresource": self.subresource, "namespace": namespace,
        });
        let review = json!({"metadata": {}, "spec": {"resourceAttributes": attributes}});
        let answer = cluster.create(Kind::SelfSubjectAccessReview, "", review)?;
        Ok(answer["status"]["allowed"] == true)
    }
}
