//! Describes a cluster for `tare doctor --context`, and removes leftovers from it for `tare clean
//! --context`.

use serde_json::Value;
use tare_kube::{Cluster, Kind};
use tare_model::plain;

use super::fate::not_ready;
use super::ground::{connect, kube};
use super::oci_kernel;
use super::rights::RIGHTS;
use tare_model::Failure;

/// Describes a cluster in lines, each with its subject.
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
