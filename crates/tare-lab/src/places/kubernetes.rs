//! A pod of a Kubernetes cluster. The agent is copied in by exec or comes with an image; clients
//! connect directly, or through a Service, a hostPort, an Ingress or a Gateway.

mod fate;
mod front;
pub mod ground;
pub mod image;
mod node_meter;
mod path;
mod pod;
mod reach;
pub mod rights;
mod sidecar;
pub mod survey;
pub mod sweep;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use tare_io::DurationNs;
use tare_io::time::monotonic_now;
use tare_kube::Kind;
use tare_model::places::{Kernel, KubernetesSpec, PlaceFacts};
use tare_model::plain;
use tare_model::samples::Proof;

use super::oci::KernelCheck as _;
use super::{LabResources, Place, PlaceContext, PlaceKind, SystemIdentity, agent_file, proof};
use crate::agent::Agent;
use crate::lab::site::Site;
use crate::launch::Entry;
use crate::launch::context::Ports;
use crate::launch::injected::Injected;
use crate::layers::{self, ClientAddresses, HopPosition, LayerProof, PodParts, PodSeat};
use crate::meters::metering::MeterSource;
use ground::{ClusterNamespace, Clusters, PLACE};
use node_meter::{MeterContext, NodeMeter};
use path::{Path, PathProof, Spot};
use pod::{AGENT, FOLDER, PodOrder};
use reach::{HELLO_WITHIN, LOOK, copy_agent, exec, wait};
use sidecar::Sidecar;
use tare_model::Failure;

/// A new namespace gets its service account a moment later.
const ACCOUNT_WITHIN: DurationNs = DurationNs::from_secs(15);

impl PlaceKind for KubernetesSpec {
    /// Checks that the cluster answers, and has the named runtime class and node.
    fn check_machine(&self) -> Result<String, Failure> {
        agent_file::find()?;
        let cluster = ground::connect(self.context.as_deref())?;
        let version = cluster.version().map_err(ground::kube)?;
        let there = |kind: Kind, name: &Option<String>| -> Result<(), Failure> {
            let Some(name) = name else { return Ok(()) };
            match cluster.read(kind, "", name) {
                // A user without the right to read it may still use it.
                Ok(Some(_)) | Err(tare_kube::KubeError::Forbidden { .. }) => Ok(()),
                Ok(None) => Err(Failure::environment(format!(
                    "kubernetes: {} has no {} '{name}'",
                    cluster.server,
                    kind.name()
                ))),
                Err(error) => Err(ground::kube(error)),
            }
        };
        there(Kind::RuntimeClass, &self.runtime_class)?;
        there(Kind::Node, &self.node)?;
        if let Some(path) = &self.manifest {
            manifest(path)?;
        }
        Ok(format!("yes: Kubernetes {version} at {}", cluster.server))
    }

    fn slow_step(&self) -> Option<&'static str> {
        Some("pods start")
    }

    fn place(&self, context: PlaceContext) -> Option<Box<dyn Place>> {
        Some(Box::new(Pod {
            spec: self.clone(),
            context,
            ground: None,
            manifest: None,
            service: None,
            port: 0,
            starts: 0,
            spot: Spot::default(),
            path: None,
            kernel: Kernel::Unknown,
            node: SystemIdentity::default(),
            hash: String::new(),
            meter: None,
            sidecar: None,
            has_strange_sidecar: false,
            begun: false,
        }))
    }
}

/// Describes the kernel that a runtime provides.
fn oci_kernel(handler: &str) -> &'static str {
    match Kernel::from_runtime_name(handler) {
        Kernel::Shared => "its node's kernel",
        Kernel::Gvisor => "gVisor's kernel",
        Kernel::Machine => "a virtual machine's kernel",
        Kernel::Unknown => "not known to tare",
    }
}

/// Whether the cluster of the current context answers.
pub fn check_current_context() -> Result<String, Failure> {
    agent_file::find()?;
    let cluster = ground::connect(None)?.impatient();
    let version = cluster.version().map_err(ground::kube)?;
    Ok(format!("yes: Kubernetes {version} at {}", cluster.server))
}

fn manifest(path: &std::path::Path) -> Result<Value, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("kubernetes: {}: {error}", path.display())))?;
    tare_kube::manifest(&text)
        .map_err(|error| Failure::usage(format!("kubernetes: {}: {error}", path.display())))
}

#[derive(Debug)]
pub struct Pod {
    spec: KubernetesSpec,
    context: PlaceContext,
    ground: Option<Arc<ClusterNamespace>>,
    manifest: Option<Value>,
    service: Option<Value>,
    /// The servers' port, if it must be known before they start.
    port: u16,
    starts: u32,
    spot: Spot,
    path: Option<Path>,
    /// The kind of kernel that its runtime class provides.
    kernel: Kernel,
    node: SystemIdentity,
    /// SHA-256 of the agent's program.
    hash: String,
    meter: Option<Arc<NodeMeter>>,
    /// The sidecar that a mesh injected because a layer asked for it.
    sidecar: Option<Sidecar>,
    /// A mesh injected a sidecar that nobody asked for.
    has_strange_sidecar: bool,
    /// The pod was created, and tare has not waited for it yet.
    begun: bool,
}

impl Pod {
    fn name(&self) -> String {
        format!("{}-{}", self.context.tag, self.starts)
    }

    fn container(&self) -> String {
        pod::container_name(&self.spec, self.manifest.as_ref())
    }

    /// The name of the place's Service in the statistics of the cluster's proxies.
    fn service_name(&self) -> String {
        let namespace = self.ground.as_ref().map_or("", |ground| &ground.namespace);
        format!("{}.{namespace}.svc.cluster.local", self.context.tag)
    }

    fn has_settled_port(&self) -> bool {
        self.spec.host_network || self.spec.via != Default::default()
    }

    /// Creates, once, the objects that all pods of this place share.
    fn prepare(&mut self, resources: &LabResources<'_>) -> Result<Arc<ClusterNamespace>, Failure> {
        if let Some(ground) = &self.ground {
            return Ok(ground.clone());
        }
        let ground = resources.clusters.ground(&self.spec, resources.journal)?;
        self.manifest = self.spec.manifest.as_deref().map(manifest).transpose()?;
        self.port = Ports::InTurn.next(Ipv4Addr::LOCALHOST.into())?;
        let (spec, tag) = (&self.spec, &self.context.tag);
        self.service = path::make_service(spec, &ground, tag, self.port, resources.journal)?;
        front::make(spec, &ground, tag, resources.journal)?;
        for (kind, body) in self.parts(&ground).objects {
            ground.make(kind, tag, sidecar::object(tag, body), resources.journal)?;
        }
        if let Some(class) = &self.spec.runtime_class {
            let found = ground.cluster.read(Kind::RuntimeClass, "", class).map_err(ground::kube)?;
            let handler = found.as_ref().and_then(|class| class["handler"].as_str());
            self.kernel = Kernel::from_runtime_name(handler.unwrap_or(class));
        }
        self.hash = agent_file::hash(&agent_file::find()?)?;
        self.ground = Some(ground.clone());
        Ok(ground)
    }

    /// Returns what the variant's layers add to its pod.
    fn parts(&self, ground: &ClusterNamespace) -> PodParts {
        let server = self.context.server_tag.as_deref();
        let stand =
            if server.is_some() { HopPosition::BesideClient } else { HopPosition::BesideServer };
        let seat = PodSeat {
            stand,
            tag: server.unwrap_or(&self.context.tag),
            namespace: &ground.namespace,
            selector: json!({PLACE: self.context.tag}),
        };
        layers::pod_parts(&self.context.layers, &seat)
    }

    /// Returns the node of its server's pod, if this place is for a client.
    fn server_node(&self, clusters: &Clusters) -> Option<String> {
        clusters.node_of(self.context.server_tag.as_deref()?)
    }

    /// Creates its pod.
    fn create_pod(
        &mut self,
        ground: &ClusterNamespace,
        resources: &LabResources<'_>,
    ) -> Result<(), Failure> {
        self.starts += 1;
        resources.clusters.forget_node(&self.context.tag);
        if self.service.is_none() {
            // The previous pod may still be terminating on the same node.
            self.port = Ports::InTurn.next(Ipv4Addr::LOCALHOST.into())?;
        }
        let name = self.name();
        let server = self.server_node(resources.clusters);
        if server.is_none() && (self.spec.same_node_as.or(self.spec.other_node_than)).is_some() {
            let text = format!("{}: its server's node is not known", self.context.who);
            return Err(Failure::environment(text));
        }
        let told = |other: Option<tare_model::places::OtherPod>| other.and(server.as_deref());
        let order = PodOrder {
            spec: &self.spec,
            name: &name,
            namespace: &ground.namespace,
            tag: &self.context.tag,
            manifest: self.manifest.as_ref(),
            port: self.has_settled_port().then_some(self.port),
            node: self.spec.node.as_deref().or(told(self.spec.same_node_as)),
            not_node: told(self.spec.other_node_than),
            clients_of: self.context.server_tag.as_deref(),
            parts: self.parts(ground),
        };
        let object = pod::pod(&order)?;
        let limit = monotonic_now() + ACCOUNT_WITHIN;
        loop {
            match ground.make(Kind::Pod, &name, object.clone(), resources.journal) {
                Ok(_) => {
                    self.begun = true;
                    return Ok(());
                }
                Err(error)
                    if error.to_string().contains("serviceaccount \"")
                        && monotonic_now() < limit =>
                {
                    std::thread::park_timeout(LOOK);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until its pod runs, and records where.
    fn settle(
        &mut self,
        ground: &ClusterNamespace,
        resources: &LabResources<'_>,
    ) -> Result<(), Failure> {
        self.begun = false;
        let within = self.spec.start_within()?;
        let pod = wait(ground, &self.name(), &self.container(), within, resources.halt.flag())
            .map_err(|error| error.named(&self.context.who))?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let ip = |value: &Value| value.as_str().and_then(|ip| ip.parse().ok());
        self.spot = Spot {
            node: text(&pod["spec"]["nodeName"]),
            node_ip: ip(&pod["status"]["hostIP"]),
            pod_ip: ip(&pod["status"]["podIP"]),
        };
        resources.clusters.set_node(&self.context.tag, &self.spot.node);
        let node = ground.cluster.read(Kind::Node, "", &self.spot.node).map_err(ground::kube)?;
        let info = node.as_ref().map_or(&Value::Null, |node| &node["status"]["nodeInfo"]);
        self.node = SystemIdentity {
            kernel_release: text(&info["kernelVersion"]),
            boot_id: text(&info["bootID"]),
        };
        let (spec, service) = (&self.spec, self.service.as_ref());
        self.path = path::path(spec, ground, service, &self.spot, self.port)?;
        if self.spec.via.is_front() {
            self.path = Some(self.path_through_front(ground, resources)?);
        }
        let uid = text(&pod["metadata"]["uid"]);
        if self.wants_node_meter() {
            let meter = self.node_meter(ground, resources, &self.spot.node, &uid, None)?;
            self.meter = Some(meter);
        }
        self.sidecar = None;
        let found = sidecar::container(&pod);
        let is_wanted = self.context.layers.iter().any(layers::is_injected);
        self.has_strange_sidecar = found.is_some() && !is_wanted && !self.asks_for_sidecar();
        if let Some((container, image)) = found.filter(|_| is_wanted) {
            let node = &self.spot.node;
            let meter = self.node_meter(ground, resources, node, &uid, Some(&container))?;
            self.sidecar = Some(Sidecar { meter, image });
        }
        Ok(())
    }

    /// Waits for the cluster's proxy, and meters its pods if the cluster names them.
    fn path_through_front(
        &self,
        ground: &ClusterNamespace,
        resources: &LabResources<'_>,
    ) -> Result<Path, Failure> {
        let (spec, tag) = (&self.spec, &self.context.tag);
        let front = front::wait(spec, ground, tag, spec.start_within()?, resources.halt.flag());
        let mut front = front.map_err(|error| error.named(&self.context.who))?;
        if spec.node_meter != Some(false) {
            for pod in &mut front.pods {
                let meter = self.node_meter(ground, resources, &pod.node, &pod.uid, None)?;
                pod.meter = Some(meter);
            }
        }
        Ok(Path::through(front, spec, front::host(tag, &ground.namespace)))
    }

    /// Whether the user's labels, rather than a layer, request a sidecar.
    fn asks_for_sidecar(&self) -> bool {
        self.spec.labels.get(sidecar::LABEL).is_some_and(|asks| asks == "true")
    }

    fn node_meter(
        &self,
        ground: &ClusterNamespace,
        resources: &LabResources<'_>,
        node: &str,
        uid: &str,
        container: Option<&str>,
    ) -> Result<Arc<NodeMeter>, Failure> {
        let start = |argv: &[String]| self.context.start_agent(argv, HELLO_WITHIN, resources.halt);
        let wanted = MeterContext {
            who: &self.context.who,
            tag: &self.context.tag,
            clusters: resources.clusters,
            journal: resources.journal,
            stop: resources.halt.flag(),
            start_agent: &start,
        };
        NodeMeter::attach(&wanted, ground, node, uid, container)
    }

    fn wants_node_meter(&self) -> bool {
        // Only the node sees a sandbox's own cost.
        let sandbox = matches!(self.kernel, Kernel::Gvisor | Kernel::Machine);
        self.context.server_tag.is_none() && self.spec.node_meter.unwrap_or(sandbox)
    }

    /// Starts the agent in its pod, and checks its hash.
    fn start_agent(
        &self,
        ground: &Arc<ClusterNamespace>,
        resources: &LabResources<'_>,
    ) -> Result<Agent, Failure> {
        let name = self.name();
        let argv = exec(ground, &name, &self.container(), false, &[AGENT, "--pod"])?;
        let mut agent = self.context.start_agent(&argv, HELLO_WITHIN, resources.halt)?;
        if agent.hello.program_sha256 != self.hash {
            return Err(Failure::environment(format!(
                "{}: the agent in its pod is not this tare's (SHA-256 {} there, {} here)",
                self.context.who, agent.hello.program_sha256, self.hash
            )));
        }
        let ground = ground.clone();
        agent.set_fate_lookup(Box::new(move || fate::describe_loss(&ground, &name)));
        Ok(agent)
    }
}

impl Place for Pod {
    /// Whether the pod's node still fits: its server's pod may have moved to another node.
    fn fits(&self, clusters: &Clusters) -> bool {
        let server = self.server_node(clusters);
        let is_there = server.as_ref() == Some(&self.spot.node);
        let (same, other) = (self.spec.same_node_as, self.spec.other_node_than);
        (same.is_none() || is_there) && (other.is_none() || !is_there)
    }

    fn begin(&mut self, resources: &mut LabResources<'_>) -> Result<(), Failure> {
        if self.begun {
            // An earlier round created the pod, but failed before it waited for the pod.
            return Ok(());
        }
        let ground = self.prepare(resources)?;
        let is_told = self.spec.same_node_as.or(self.spec.other_node_than).is_some();
        if is_told && self.server_node(resources.clusters).is_none() {
            // Its server's node is not known yet; `start` creates the pod.
            return Ok(());
        }
        self.create_pod(&ground, resources)
    }

    fn start(&mut self, resources: &mut LabResources<'_>) -> Result<Agent, Failure> {
        let ground = self.prepare(resources)?;
        if !self.begun {
            self.create_pod(&ground, resources)?;
        }
        self.settle(&ground, resources)?;
        if self.spec.agent_image.is_none() {
            copy_agent(&ground, &self.name(), &self.container())?;
        }
        let agent = self.start_agent(&ground, resources)?;
        if let Some(note) = self.meter.as_ref().map(|meter| meter.words()) {
            self.context.note(note);
        }
        Ok(agent)
    }

    fn prove(&self, agent: &Agent) -> Proof {
        let hello = &agent.hello;
        let mut wrong = Vec::new();
        if hello.node != self.spot.node {
            wrong.push(format!(
                "from inside its node is '{}', and the cluster says '{}'",
                plain::line(&hello.node),
                self.spot.node
            ));
        }
        if self.has_strange_sidecar {
            wrong.push(format!(
                "a mesh put a sidecar into its pod that no layer names: name it (layers = [{{ mesh \
                 = … }}]), or refuse it (labels = {{ \"{}\" = \"false\" }})",
                sidecar::LABEL
            ));
        }
        let ip = self.spot.pod_ip.map(|ip| ip.to_string()).unwrap_or_default();
        if !hello.addresses.is_empty() && !hello.addresses.contains(&ip) {
            wrong.push(format!("it does not have the address {ip}"));
        }
        let kernel = match self.spec.runtime_class {
            // A cluster's default runtime may be anything.
            None => Kernel::Unknown,
            Some(_) => self.kernel,
        };
        wrong.extend(kernel.mismatch(hello, &self.node));
        let shares =
            hello.boot_id == self.node.boot_id && hello.kernel_release == self.node.kernel_release;
        let whose = if shares { "its node's kernel" } else { "a kernel of its own" };
        let class = self.spec.runtime_class.as_deref();
        let class = class.map_or("no runtime class".to_owned(), |class| format!("class {class}"));
        let seen = format!(
            "pod {} is on {} ({class}), under {whose} ({}), address {ip}{}",
            self.name(),
            self.spot.node,
            hello.kernel_release,
            match &self.meter {
                Some(meter) => format!("; {}", meter.words()),
                None => format!("; metered by {}", plain::short(&hello.meters_by, 50)),
            },
        );
        proof(self.spec.name(), wrong, seen)
    }

    /// Does not wait: the cluster starts the next pod once this one's resources are free.
    fn stop(&mut self) {
        if let Some(ground) = &self.ground {
            let _ = ground.cluster.delete(Kind::Pod, &ground.namespace, &self.name(), None);
        }
    }

    fn address(&self) -> IpAddr {
        self.spot.pod_ip.unwrap_or(Ipv4Addr::UNSPECIFIED.into())
    }

    fn port(&self) -> Option<u16> {
        self.has_settled_port().then_some(self.port)
    }

    fn entry(&self) -> Option<Entry> {
        let path = self.path.as_ref()?;
        let pods = path.front.iter().flat_map(|front| &front.pods);
        let meters = pods.filter_map(|pod| pod.meter.clone());
        Some(Entry {
            name: path.via.word(),
            address: path.entry,
            host: path.host.clone(),
            meters: meters.map(|meter| meter.source()).collect(),
        })
    }

    fn path_proof(&self, client: &ClientAddresses) -> Option<Box<dyn LayerProof>> {
        let (path, client) = (self.path.clone()?, client.clone());
        Some(Box::new(PathProof {
            path,
            spot: self.spot.clone(),
            client,
            service: self.service_name(),
            has_sidecar: self.sidecar.is_some(),
            before: None,
        }))
    }

    fn metered_by(&self) -> Option<MeterSource> {
        self.meter.as_ref().map(|meter| meter.source())
    }

    fn injected(&self, beside: &Arc<Agent>) -> Option<Injected> {
        let sidecar = self.sidecar.as_ref()?;
        Some(Injected {
            who: format!("{}, its sidecar", self.context.who),
            image: sidecar.image.clone(),
            metered: sidecar.meter.source(),
            beside: Site::There(beside.clone()),
            stranger: sidecar.meter.site(),
            leads_to: None,
        })
    }

    fn is_metered_from_here(&self) -> bool {
        false
    }

    fn folder(&self) -> Option<PathBuf> {
        Some(PathBuf::from(FOLDER).join("server"))
    }

    /// True if the pod's node is this machine, and the pod runs on the node's own kernel.
    fn has_our_cpus(&self) -> bool {
        let here = SystemIdentity::probe();
        self.node == here && !matches!(self.kernel, Kernel::Gvisor | Kernel::Machine)
    }
}
