//! A mesh's sidecar, found in a pod's status.

use std::sync::Arc;

use serde_json::{Value, json};

use super::ground::PLACE;
use super::node_meter::NodeMeter;
use crate::journal::prefix::OURS;

/// Istio's name of the container.
const NAME: &str = "istio-proxy";
/// Label with which a pod requests or refuses a sidecar.
pub const LABEL: &str = "sidecar.istio.io/inject";

#[derive(Debug)]
pub struct Sidecar {
    pub meter: Arc<NodeMeter>,
    pub image: String,
}

/// Returns the id and image of a running sidecar, whether it is an init container (a native
/// sidecar) or an ordinary one.
pub fn container(pod: &Value) -> Option<(String, String)> {
    let lists = ["initContainerStatuses", "containerStatuses"];
    let mut all = lists.iter().filter_map(|list| pod["status"][list].as_array()).flatten();
    let found = all.find(|one| one["name"] == NAME && one["state"]["running"].is_object())?;
    // The format is runtime://id.
    let id = found["containerID"].as_str()?.split_once("://")?.1;
    Some((id.to_owned(), found["image"].as_str().unwrap_or_default().to_owned()))
}

/// Builds an object that belongs to a place's server.
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
