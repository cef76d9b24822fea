//! Meters a pod from its node: only there is a sandbox's own cost visible.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tare_io::DurationNs;
use tare_kube::Kind;

use super::ground::{ClusterNamespace, Clusters};
use super::pod;
use super::pod::{AGENT, PodOrder};
use super::reach::{copy_agent, exec, wait};
use crate::agent::Agent;
use crate::executor::Target;
use crate::journal::Journal;
use crate::journal::prefix::OURS;
use crate::lab::site::Site;
use crate::layers::PodParts;
use crate::meters::groups::GROUPS;
use crate::meters::metering::MeterSource;
use tare_model::Failure;
use tare_model::places::KubernetesSpec;

const STARTS_WITHIN: DurationNs = DurationNs::from_secs(60);

/// Context for starting a meter.
pub struct MeterContext<'a> {
    pub who: &'a str,
    pub tag: &'a str,
    pub clusters: &'a Clusters,
    pub journal: &'a Journal,
    pub stop: &'a AtomicBool,
    pub start_agent: &'a dyn Fn(&[String]) -> Result<Agent, Failure>,
}

#[derive(Debug)]
pub struct NodeMeter {
    agent: Arc<Agent>,
    node: String,
    /// The metered pod, or one of its containers.
    target: Target,
}

impl NodeMeter {
    pub fn attach(
        wanted: &MeterContext<'_>,
        ground: &ClusterNamespace,
        node: &str,
        uid: &str,
        container: Option<&str>,
    ) -> Result<Arc<Self>, Failure> {
        let mut agents =
            wanted.clusters.node_agents.by_node.lock().unwrap_or_else(|e| e.into_inner());
        let key = (ground.cluster.server.clone(), node.to_owned());
        let agent = match agents.get(&key).filter(|agent| agent.is_alive()) {
            Some(agent) => agent.clone(),
            None => {
                let agent = Arc::new(start(wanted, ground, node)?);
                agents.insert(key, agent.clone());
                agent
            }
        };
        let container = container.map(str::to_owned);
        let target = Target::Pod { uid: uid.to_owned(), container };
        let meter = Self { agent, node: node.to_owned(), target };
        match meter.source().read() {
            Some(_) => Ok(Arc::new(meter)),
            None => Err(Failure::environment(format!(
                "{}: node {node} shows no control group of its pod (node_meter = false meters it \
                 from inside)",
                wanted.who
            ))),
        }
    }

    /// Where the meter is read: by the agent in a pod on that node.
    pub fn site(&self) -> Site {
        Site::There(self.agent.clone())
    }

    pub fn source(&self) -> MeterSource {
        MeterSource { site: self.site(), target: self.target.clone() }
    }

    pub fn words(&self) -> String {
        format!("metered on {} by its pod's control group", self.node)
    }
}

/// Keeps meshes from injecting a sidecar, even if the namespace asks for one.
fn meter_parts() -> PodParts {
    let labels = vec![("sidecar.istio.io/inject".to_owned(), "false".to_owned())];
    PodParts { labels, ..PodParts::default() }
}

fn start(
    wanted: &MeterContext<'_>,
    ground: &ClusterNamespace,
    node: &str,
) -> Result<Agent, Failure> {
    // Number the pods, since a place may move to another node and an agent may be lost.
    let number = wanted.clusters.node_agents.started.fetch_add(1, Ordering::Relaxed);
    let name = format!("{}-meter-{number}", wanted.tag);
    let spec = KubernetesSpec { tolerations: Vec::new(), ..KubernetesSpec::default() };
    let order = PodOrder {
        spec: &spec,
        name: &name,
        namespace: &ground.namespace,
        tag: &name,
        manifest: None,
        port: None,
        node: Some(node),
        not_node: None,
        clients_of: None,
        parts: meter_parts(),
    };
    let mut object = pod::pod(&order)?;
    object["metadata"]["labels"][OURS.0] = json!(OURS.1);
    // Tolerate all taints, so that it can run beside any pod.
    object["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    let push = |list: &mut Value, value: Value| {
        if let Some(list) = list.as_array_mut() {
            list.push(value);
        }
    };
    let groups = json!({"name": "cgroup", "hostPath": {"path": "/sys/fs/cgroup"}});
    push(&mut object["spec"]["volumes"], groups);
    let mount = json!({"name": "cgroup", "mountPath": GROUPS, "readOnly": true});
    push(&mut object["spec"]["containers"][0]["volumeMounts"], mount);
    ground.make(Kind::Pod, &name, object, wanted.journal)?;
    wait(ground, &name, "tare", STARTS_WITHIN, wanted.stop)
        .map_err(|error| error.named(&format!("{}, meter of {node}", wanted.who)))?;
    copy_agent(ground, &name, "tare")?;
    let argv = exec(ground, &name, "tare", false, &[AGENT, "--pod"])?;
    (wanted.start_agent)(&argv)
}
