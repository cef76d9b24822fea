//! Describes a cluster for `tare doctor --context`, and removes leftovers from it for `tare clean
//! --context`.

use serde_json::Value;
use tare_kube::{Cluster, Kind};
use tare_model::plain;

use super::fate::{age_s, not_ready};
use super::ground::{FRONT_OF, PLACE, connect, is_unknown, kube, ours_selector};
use super::oci_kernel;
use super::rights::RIGHTS;
use crate::journal::ours::OURS;
use tare_model::Failure;

/// Returns lines, each with its subject.
pub fn survey(context: &str) -> Result<Vec<(&'static str, String)>, Failure> {
    let cluster = connect(Some(context))?;
    let version = cluster.version().map_err(kube)?;
    let mut lines = vec![("cluster", format!("Kubernetes {version} at {}", cluster.server))];
    lines.extend(nodes(&cluster));
    lines.push(("classes", classes(&cluster)));
    lines.push(("network", network(&cluster)));
    let mut refused = Vec::new();
    for right in &RIGHTS {
        if !right.is_granted(&cluster, "").map_err(kube)? {
            refused.push(format!("{} ({})", right.words(), right.what_for));
        }
    }
    lines.push((
        "rights",
        match refused.is_empty() {
            true => format!("all {} that tare may need", RIGHTS.len()),
            false => format!("missing: {}", refused.join("; ")),
        },
    ));
    Ok(lines)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn nodes(cluster: &Cluster) -> Vec<(&'static str, String)> {
    let found = match cluster.list(Kind::Node, "", "") {
        Ok(found) => found,
        Err(error) => return vec![("node", format!("not known: {error}"))],
    };
    let line = |node: &Value| {
        let (info, room) = (&node["status"]["nodeInfo"], &node["status"]["allocatable"]);
        let state = match not_ready(node) {
            Some(why) => format!("not ready ({})", plain::short(&why, 200)),
            None if node["spec"]["unschedulable"] == true => "ready, takes no new pods".into(),
            None => "ready".to_owned(),
        };
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        let taints: Vec<&str> = taints.map(|taint| text(&taint["key"])).collect();
        let taints = match taints.is_empty() {
            true => String::new(),
            false => format!(", taints: {}", taints.join(", ")),
        };
        format!(
            "{}: {state}, {} CPUs, {} memory, {} pods, {}, kernel {}, {}{taints}",
            text(&node["metadata"]["name"]),
            text(&room["cpu"]),
            text(&room["memory"]),
            text(&room["pods"]),
            text(&info["containerRuntimeVersion"]),
            text(&info["kernelVersion"]),
            text(&info["osImage"]),
        )
    };
    found.iter().map(|node| ("node", line(node))).collect()
}

fn classes(cluster: &Cluster) -> String {
    match cluster.list(Kind::RuntimeClass, "", "") {
        Err(error) => format!("not known: {error}"),
        Ok(found) if found.is_empty() => {
            "no runtime classes: pods run as nodes do by default".into()
        }
        Ok(found) => {
            let words = |class: &Value| {
                let handler = text(&class["handler"]);
                let kind = oci_kernel(handler);
                format!("{} ({handler}: {kind})", text(&class["metadata"]["name"]))
            };
            found.iter().map(words).collect::<Vec<_>>().join(", ")
        }
    }
}

/// Names the network plugin, judging by the names of the cluster's pods.
fn network(cluster: &Cluster) -> String {
    const KNOWN: [&str; 9] = [
        "calico",
        "cilium",
        "flannel",
        "canal",
        "weave",
        "antrea",
        "kindnet",
        "aws-node",
        "kube-router",
    ];
    let pods = match cluster.list(Kind::Pod, "", "") {
        Ok(pods) => pods,
        Err(error) => return format!("not known: {error}"),
    };
    let runs = |name: &&&str| pods.iter().any(|p| text(&p["metadata"]["name"]).starts_with(**name));
    let seen: Vec<&str> = KNOWN.iter().filter(runs).copied().collect();
    let proxy = pods.iter().any(|pod| text(&pod["metadata"]["name"]).starts_with("kube-proxy"));
    format!(
        "{}; {}",
        if seen.is_empty() {
            "no known network plugin runs as pods".to_owned()
        } else {
            seen.join(", ")
        },
        if proxy {
            "kube-proxy runs as pods"
        } else {
            "kube-proxy does not run as pods: its mode is not told"
        },
    )
}

/// Result of cleaning a cluster.
#[derive(Debug, Default)]
pub struct Swept {
    pub removed: Vec<String>,
    /// Namespaces and objects that a running tare may still use.
    pub in_use: Vec<String>,
}

/// Removes leftovers of runs that have ended: their pods end by themselves soon after.
pub fn sweep(context: &str) -> Result<Swept, Failure> {
    let cluster = connect(Some(context))?;
    let mut swept = Swept::default();
    let ours = ours_selector();
    // List pods last, so that no listed namespace lacks a pod created in between.
    let namespaces = cluster.list(Kind::Namespace, "", &ours).map_err(kube)?;
    let pods = cluster.list(Kind::Pod, "", &ours).map_err(kube)?;
    let runs = |pod: &&Value| ["Running", "Pending"].contains(&text(&pod["status"]["phase"]));
    let is_in = |namespace: &str, pod: &&Value| text(&pod["metadata"]["namespace"]) == namespace;
    let mut own = Vec::new();
    for namespace in namespaces {
        let name = text(&namespace["metadata"]["name"]).to_owned();
        if namespace["metadata"]["deletionTimestamp"].is_null() {
            if is_new(&namespace) || pods.iter().filter(runs).any(|pod| is_in(&name, &pod)) {
                swept.in_use.push(name.escape_debug().to_string());
            } else if remove(&cluster, Kind::Namespace, &namespace)? {
                swept.removed.push(format!("namespace {}", name.escape_debug()));
            }
        }
        own.push(name);
    }
    // Leftover pods in the user's namespaces.
    let is_elsewhere = |o: &&Value| !own.iter().any(|n| n == text(&o["metadata"]["namespace"]));
    for pod in pods.iter().filter(is_elsewhere).filter(|pod| !runs(pod)) {
        if remove(&cluster, Kind::Pod, pod)? {
            swept.removed.push(format!("pod {}", path(pod)));
        }
    }
    for kind in BESIDE_PODS {
        let objects = match cluster.list(kind, "", &ours) {
            Ok(objects) => objects,
            Err(error) if is_unknown(&error) => continue,
            Err(error) => return Err(kube(error)),
        };
        for object in objects.iter().filter(is_elsewhere) {
            let labels = &object["metadata"]["labels"];
            let place = labels[PLACE].as_str().or(labels[FRONT_OF].as_str());
            let is_its = |pod: &Value| pod["metadata"]["labels"][PLACE].as_str() == place;
            let what = format!("{} {}", kind.name().to_lowercase(), path(object));
            if is_new(object) || pods.iter().filter(runs).any(is_its) {
                swept.in_use.push(what);
            } else if remove(&cluster, kind, object)? {
                swept.removed.push(what);
            }
        }
    }
    Ok(swept)
}

/// Kinds of objects that tare creates beside pods in a user's namespace.
const BESIDE_PODS: [Kind; 6] = [
    Kind::Service,
    Kind::Ingress,
    Kind::HTTPRoute,
    Kind::Gateway,
    Kind::PeerAuthentication,
    Kind::DestinationRule,
];

/// Whether it may belong to a run that has just begun and has no pods yet.
fn is_new(object: &Value) -> bool {
    let now = tare_io::time::wall_unix_ms() / 1000;
    let age = age_s(text(&object["metadata"]["creationTimestamp"]), now);
    age.is_none_or(|age| age < NEW_S)
}

const NEW_S: u64 = 30;

fn path(object: &Value) -> String {
    let name = |key: &str| text(&object["metadata"][key]).escape_debug().to_string();
    format!("{}/{}", name("namespace"), name("name"))
}

/// Deletes exactly this object, and only if it has tare's label and name.
fn remove(cluster: &Cluster, kind: Kind, object: &Value) -> Result<bool, Failure> {
    let metadata = &object["metadata"];
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    if !crate::journal::ours::is_ours(name) || metadata["labels"][OURS.0] != OURS.1 {
        return Ok(false);
    }
    cluster.delete(kind, namespace, name, metadata["uid"].as_str()).map_err(kube)
}
