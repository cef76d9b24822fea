//! Builds the pod of a place, which waits for the agent or contains it.

use serde_json::{Value, json};
use tare_model::places::{KubernetesSpec, Via};

use super::ground::{CLIENTS_OF, PLACE};
use super::image::AGENT_IN_IMAGE;
use crate::journal::prefix::OURS;
use crate::layers::PodParts;
use tare_model::Failure;

/// Folder that any user of the pod can write to, even if its root file system is read-only.
pub const FOLDER: &str = "/tare";
pub const AGENT: &str = "/tare/tare-agent";
/// Default image: little more than a shell.
const SMALLEST_IMAGE: &str = "busybox:1";
const VOLUME: &str = "tare";
/// Longer than any run; a pod without a connected tare ends itself long before that.
const DEADLINE_SECONDS: u64 = 24 * 3600;

/// Waits some minutes for the agent, as other places of the run may start slowly; `hold` then keeps
/// the pod while a tare is connected.
const WAIT: &str = "n=0; until [ -x /tare/tare-agent ]; do n=$((n+1)); [ $n -le 3000 ] || exit 1; \
                    sleep 0.1 || sleep 1; done; exec /tare/tare-agent hold";

/// The settings of a pod to create.
#[derive(Debug)]
pub struct PodOrder<'a> {
    pub spec: &'a KubernetesSpec,
    pub name: &'a str,
    pub namespace: &'a str,
    /// The place's tag.
    pub tag: &'a str,
    /// The user's manifest, parsed.
    pub manifest: Option<&'a Value>,
    /// The server's port, if it is fixed before the server starts.
    pub port: Option<u16>,
    /// Node on which the pod must run.
    pub node: Option<&'a str>,
    /// Node on which the pod must not run.
    pub not_node: Option<&'a str>,
    /// Tag of the server's place, if this is a client's pod; its clients are spread over nodes.
    pub clients_of: Option<&'a str>,
    /// Additions by its variant's layers.
    pub parts: PodParts,
}

pub fn pod(order: &PodOrder<'_>) -> Result<Value, Failure> {
    let PodOrder { spec, name, namespace, tag, .. } = order;
    let mut pod = order.manifest.cloned().unwrap_or_else(|| json!({}));
    // A manifest may be of any kind with a pod template, such as a Deployment.
    if let Some(template) = pod.pointer_mut("/spec/template").map(Value::take) {
        pod = template;
    }
    let metadata = object(&mut pod, "metadata")?;
    metadata["name"] = json!(name);
    metadata["namespace"] = json!(namespace);
    let labels = object(metadata, "labels")?;
    for (key, value) in order.parts.labels.iter().map(|(k, v)| (k, v)).chain(&spec.labels) {
        labels[key] = json!(value);
    }
    labels[OURS.0] = json!(OURS.1);
    labels[PLACE] = json!(tag);
    if let Some(server) = order.clients_of {
        labels[CLIENTS_OF] = json!(server);
    }
    let annotations = object(metadata, "annotations")?;
    for (key, value) in order.parts.annotations.iter().map(|(k, v)| (k, v)).chain(&spec.annotations)
    {
        annotations[key] = json!(value);
    }
    let body = object(&mut pod, "spec")?;
    body["restartPolicy"] = json!("Never");
    body["activeDeadlineSeconds"] = json!(DEADLINE_SECONDS);
    body["terminationGracePeriodSeconds"] = json!(1);
    body["enableServiceLinks"] = json!(false);
    if spec.service_account.is_none() && body["serviceAccountName"].is_null() {
        body["automountServiceAccountToken"] = json!(false);
    }
    let settings = [
        ("serviceAccountName", spec.service_account.as_ref().map(|name| json!(name))),
        ("runtimeClassName", spec.runtime_class.as_ref().map(|name| json!(name))),
        ("hostNetwork", spec.host_network.then_some(json!(true))),
    ];
    for (key, value) in settings {
        if let Some(value) = value {
            body[key] = value;
        }
    }
    place_on_nodes(order, body)?;
    if order.clients_of.is_some() && body["topologySpreadConstraints"].is_null() {
        // Spread clients' pods over nodes if possible.
        body["topologySpreadConstraints"] = json!([{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {CLIENTS_OF: order.clients_of}},
        }]);
    }
    for secret in &spec.image_pull_secrets {
        list(body, "imagePullSecrets")?.push(json!({"name": secret}));
    }
    for toleration in &spec.tolerations {
        let toleration = self::toleration(toleration)?;
        list(body, "tolerations")?.push(toleration);
    }
    list(body, "volumes")?.push(json!({"name": VOLUME, "emptyDir": {}}));
    if let Some(image) = &spec.agent_image {
        let copy = json!({
            "name": "tare-agent", "image": image,
            "command": [AGENT_IN_IMAGE, "install", AGENT],
            "volumeMounts": [{"name": VOLUME, "mountPath": FOLDER}],
        });
        list(body, "initContainers")?.insert(0, copy);
    }
    container(order, body)?;
    Ok(pod)
}

fn place_on_nodes(order: &PodOrder<'_>, body: &mut Value) -> Result<(), Failure> {
    for (key, value) in &order.spec.node_selector {
        object(body, "nodeSelector")?[key] = json!(value);
    }
    let term = |operator: &str, node: &str| json!({"matchFields": [{"key": "metadata.name", "operator": operator, "values": [node]}]});
    let wanted = match (order.node, order.not_node) {
        (Some(node), _) => term("In", node),
        (None, Some(node)) => term("NotIn", node),
        (None, None) => return Ok(()),
    };
    let affinity = object(object(body, "affinity")?, "nodeAffinity")?;
    affinity["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({"nodeSelectorTerms": [wanted]});
    Ok(())
}

/// Returns the name of the container that the server runs in.
pub fn container_name(spec: &KubernetesSpec, manifest: Option<&Value>) -> String {
    let first = || {
        let manifest = manifest?;
        let at = ["/spec/template/spec/containers/0/name", "/spec/containers/0/name"];
        at.iter().find_map(|at| manifest.pointer(at)?.as_str()).map(str::to_owned)
    };
    spec.container.clone().or_else(first).unwrap_or_else(|| "tare".into())
}

fn container(order: &PodOrder<'_>, body: &mut Value) -> Result<(), Failure> {
    let spec = order.spec;
    let name = container_name(spec, order.manifest);
    let containers = list(body, "containers")?;
    let container = match containers.iter_mut().find(|c| c["name"] == name.as_str()) {
        Some(container) => container,
        None if order.manifest.is_some() => {
            let text = format!("kubernetes: its manifest has no container '{name}'");
            return Err(Failure::usage(text));
        }
        None => {
            let image = spec.image.as_deref().or(spec.agent_image.as_deref());
            containers.push(json!({"name": name, "image": image.unwrap_or(SMALLEST_IMAGE)}));
            &mut containers[0]
        }
    };
    // The agent, not the container, starts the server and checks whether it is ready.
    for key in ["args", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"] {
        if let Some(container) = container.as_object_mut() {
            container.remove(key);
        }
    }
    container["command"] = match spec.agent_image {
        Some(_) => json!([AGENT, "hold"]),
        None => json!(["/bin/sh", "-c", WAIT]),
    };
    // The kubelet sets this to the node's name.
    list(container, "env")?.push(
        json!({"name": "TARE_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}),
    );
    list(container, "volumeMounts")?.push(json!({"name": VOLUME, "mountPath": FOLDER}));
    if let (Via::HostPort, Some(port)) = (spec.via, order.port) {
        list(container, "ports")?.push(json!({"containerPort": port, "hostPort": port}));
    }
    let mut limits = Vec::new();
    limits.extend(spec.cpus.map(|cpus| ("cpu", format!("{}m", (cpus * 1000.0).round()))));
    limits.extend(spec.memory.map(|memory| ("memory", memory.0.to_string())));
    for (what, much) in limits {
        for kind in ["requests", "limits"] {
            object(object(container, "resources")?, kind)?[what] = json!(much);
        }
    }
    Ok(())
}

/// Parses `key`, `key=value`, `key:Effect` or `key=value:Effect`, as in `kubectl taint`.
fn toleration(text: &str) -> Result<Value, Failure> {
    let (what, effect) = match text.split_once(':') {
        Some((what, effect)) => (what, Some(effect)),
        None => (text, None),
    };
    let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    if what.is_empty() || effect.is_some_and(|effect| !known.contains(&effect)) {
        return Err(Failure::usage(format!(
            "kubernetes: toleration '{text}': write key, key=value, key:Effect or \
             key=value:Effect, with an effect of {}",
            known.join(", ")
        )));
    }
    let mut made = match what.split_once('=') {
        Some((key, value)) => json!({"key": key, "operator": "Equal", "value": value}),
        None => json!({"key": what, "operator": "Exists"}),
    };
    if let Some(effect) = effect {
        made["effect"] = json!(effect);
    }
    Ok(made)
}

/// Returns the object at `key`, created if there is none.
fn object<'a>(of: &'a mut Value, key: &str) -> Result<&'a mut Value, Failure> {
    let Some(inner) = of.as_object_mut().map(|of| of.entry(key).or_insert_with(|| json!({})))
    else {
        return Err(not_a_pod(key));
    };
    if inner.is_null() {
        *inner = json!({});
    }
    if inner.is_object() { Ok(inner) } else { Err(not_a_pod(key)) }
}

fn list<'a>(of: &'a mut Value, key: &str) -> Result<&'a mut Vec<Value>, Failure> {
    let Some(inner) = of.as_object_mut().map(|of| of.entry(key).or_insert_with(|| json!([])))
    else {
        return Err(not_a_pod(key));
    };
    if inner.is_null() {
        *inner = json!([]);
    }
    inner.as_array_mut().ok_or_else(|| not_a_pod(key))
}

fn not_a_pod(key: &str) -> Failure {
    Failure::usage(format!("kubernetes: its manifest is not a pod's: '{key}' is of another kind"))
}

#[cfg(test)]
mod tests {
    use tare_model::Fault;

    use super::*;

    fn order<'a>(spec: &'a KubernetesSpec, manifest: Option<&'a Value>) -> PodOrder<'a> {
        PodOrder {
            spec,
            name: "tare-1-0-1",
            namespace: "tare-1",
            tag: "tare-1-0",
            manifest,
            port: Some(20_001),
            node: None,
            not_node: None,
            clients_of: None,
            parts: PodParts::default(),
        }
    }

    #[test]
    fn a_plain_pod_waits_for_the_agent_in_the_smallest_image() {
        let spec = KubernetesSpec { cpus: Some(0.5), ..KubernetesSpec::default() };
        let pod = pod(&order(&spec, None)).unwrap();
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["image"], SMALLEST_IMAGE);
        assert_eq!(container["resources"]["limits"]["cpu"], "500m");
        assert_eq!(container["resources"]["requests"]["cpu"], "500m");
        assert_eq!(pod["metadata"]["labels"][OURS.0], OURS.1);
        assert_eq!(pod["spec"]["restartPolicy"], "Never");
        assert_eq!(pod["spec"]["automountServiceAccountToken"], false);
    }

    #[test]
    fn a_manifest_keeps_what_tare_does_not_need() {
        let spec = KubernetesSpec {
            labels: [("app".to_owned(), "web".to_owned())].into(),
            tolerations: vec!["gpu=yes:NoSchedule".into()],
            container: Some("web".into()),
            ..KubernetesSpec::default()
        };
        let manifest = json!({
            "kind": "Deployment",
            "spec": {"template": {
                "metadata": {"labels": {"version": "2"}},
                "spec": {
                    "securityContext": {"runAsNonRoot": true},
                    "containers": [
                        {"name": "proxy", "image": "p", "args": ["stays"]},
                        {"name": "web", "image": "w", "args": ["goes"],
                         "livenessProbe": {"httpGet": {"port": 80}},
                         "securityContext": {"readOnlyRootFilesystem": true}},
                    ],
                },
            }},
        });
        let pod = pod(&order(&spec, Some(&manifest))).unwrap();
        let [proxy, web] = &pod["spec"]["containers"].as_array().unwrap()[..] else { panic!() };
        assert_eq!(proxy["args"][0], "stays");
        assert!(proxy["volumeMounts"].is_null());
        assert!(web["args"].is_null() && web["livenessProbe"].is_null());
        assert_eq!(web["securityContext"]["readOnlyRootFilesystem"], true);
        assert_eq!(web["volumeMounts"][0]["mountPath"], FOLDER);
        assert_eq!(pod["metadata"]["labels"]["version"], "2");
        assert_eq!(pod["metadata"]["labels"]["app"], "web");
        assert_eq!(pod["spec"]["tolerations"][0]["effect"], "NoSchedule");
        assert_eq!(pod["spec"]["securityContext"]["runAsNonRoot"], true);
    }

    #[test]
    fn manifests_that_are_no_pods_are_refused() {
        let spec = KubernetesSpec { container: Some("web".into()), ..KubernetesSpec::default() };
        for (manifest, complaint) in [
            (json!({"spec": {"containers": [{"name": "a"}]}}), "no container 'web'"),
            (json!({"spec": []}), "'spec' is of another kind"),
            (json!({"metadata": 5}), "'metadata'"),
            (json!({"spec": {"containers": {"web": 1}}}), "'containers'"),
        ] {
            let Failure { fault: Fault::Usage, text: said } =
                pod(&order(&spec, Some(&manifest))).unwrap_err()
            else {
                panic!()
            };
            assert!(said.contains(complaint), "{said}");
        }
        assert!(toleration("a:Never").is_err() && toleration("").is_err());
        assert_eq!(toleration("a").unwrap()["operator"], "Exists");
    }

    #[test]
    fn clients_of_one_server_are_kept_apart() {
        let spec = KubernetesSpec::default();
        let order = PodOrder { clients_of: Some("tare-1"), ..order(&spec, None) };
        let apart = pod(&order).unwrap();
        assert_eq!(apart["metadata"]["labels"][CLIENTS_OF], "tare-1");
        let spread = &apart["spec"]["topologySpreadConstraints"][0];
        assert_eq!(spread["labelSelector"]["matchLabels"], json!({CLIENTS_OF: "tare-1"}));
        // A manifest's own constraints are kept.
        let own = json!({"spec": {"containers": [{"name": "a"}], "topologySpreadConstraints": []}});
        let own = pod(&PodOrder { manifest: Some(&own), ..order }).unwrap();
        assert_eq!(own["spec"]["topologySpreadConstraints"], json!([]));
    }

    #[test]
    fn an_image_with_the_agent_needs_no_shell() {
        let spec = KubernetesSpec { agent_image: Some("r/agent:1".into()), ..Default::default() };
        let pod = pod(&order(&spec, None)).unwrap();
        assert_eq!(pod["spec"]["containers"][0]["image"], "r/agent:1");
        assert_eq!(pod["spec"]["containers"][0]["command"], json!([AGENT, "hold"]));
        assert_eq!(pod["spec"]["initContainers"][0]["command"][1], "install");
    }
}
