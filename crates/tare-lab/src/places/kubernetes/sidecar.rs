//! What a mesh puts into a pod, found by what the cluster says of it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::ground::PLACE;
use super::node_meter::NodeMeter;
use crate::journal::ours::OURS;

/// As Istio calls it.
const NAME: &str = "istio-proxy";
/// Whether a pod asks for one.
pub const LABEL: &str = "sidecar.istio.io/inject";

#[derive(Debug)]
pub struct Sidecar {
    pub meter: Arc<NodeMeter>,
    pub image: String,
}

/// Its container's identity and image, where it runs: among those that start first and stay, or
/// among the others.
pub fn container(pod: &Value) -> Option<(String, String)> {
    let lists = ["initContainerStatuses", "containerStatuses"];
    let mut all = lists.iter().filter_map(|list| pod["status"][list].as_array()).flatten();
    let found = all.find(|one| one["name"] == NAME && one["state"]["running"].is_object())?;
    // runtime://identity
    let id = found["containerID"].as_str()?.split_once("://")?.1;
    Some((id.to_owned(), found["image"].as_str().unwrap_or_default().to_owned()))
}

/// An object that stands beside a place's server.
pub fn object(tag: &str, body: Value) -> Value {
    json!({"metadata": {"name": tag, "labels": {OURS.0: OURS.1, PLACE: tag}}, "spec": body})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sidecar_is_found_wherever_it_is_listed() {
        let running = |name: &str| json!({"name": name, "image": "proxy:1", "containerID": "containerd://abc", "state": {"running": {}}});
        let found = Some(("abc".to_owned(), "proxy:1".to_owned()));
        let first = json!({"status": {"initContainerStatuses": [running(NAME)]}});
        assert_eq!(container(&first), found);
        let other = json!({"status": {"containerStatuses": [running("tare"), running(NAME)]}});
        assert_eq!(container(&other), found);
        let ended =
            json!({"name": NAME, "containerID": "containerd://abc", "state": {"terminated": {}}});
        assert_eq!(container(&json!({"status": {"initContainerStatuses": [ended]}})), None);
        assert_eq!(container(&json!({"status": {"containerStatuses": [running("tare")]}})), None);
    }
}
