//! Removes leftovers from a cluster for `tare clean --context`.

use serde_json::Value;
use tare_kube::{Cluster, Kind};
use tare_model::Failure;

use super::fate::age_s;
use super::ground::{FRONT_OF, PLACE, connect, is_unknown, kube, ours_selector};
use crate::journal::prefix::OURS;

/// Result of cleaning a cluster.
#[derive(Debug, Default)]
pub struct Swept {
    pub removed: Vec<String>,
    /// Namespaces and objects that a running tare may still use.
    pub in_use: Vec<String>,
}

/// Removes what ended runs left behind. A run counts as ended once its pods have, which happens by
/// itself soon after.
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

/// Whether an object may belong to a run that has just begun and has no pods yet.
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
    if !crate::journal::prefix::is_ours(name) || metadata["labels"][OURS.0] != OURS.1 {
        return Ok(false);
    }
    cluster.delete(kind, namespace, name, metadata["uid"].as_str()).map_err(kube)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
