//! Places: where a server or a client runs.
//!
//! A place is a command that runs an agent on its standard input and output, plus all that must be
//! created before it: `prepare → start → prove → stop`; the journal removes it. To add a kind of
//! place, add a file here that implements [`PlaceKind`] for its settings (`tare_model::places`),
//! and a line in `kind`.

pub mod agent_file;
pub mod container;
pub mod cpio;
pub mod guest_kernel;
mod host;
pub mod kubernetes;
pub mod netns;
pub mod network;
pub mod oci;
pub mod qemu_command;
pub mod root_files;
pub mod runtime_command;
pub mod ssh;
pub mod ssh_command;
pub mod vm;

use std::fmt::Debug;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use tare_io::DurationNs;
use tare_io::time::monotonic_now;
use tare_model::layers::LayerSpec;
use tare_model::places::{
    Confidential, ContainerSpec, HostSpec, NetnsSpec, OciSpec, PlaceSpec, VmSpec,
};
use tare_model::samples::Proof;

use crate::agent::Agent;
use crate::event::Event;
use crate::executor::running::Start;
use crate::halt::Halt;
use crate::journal::{Entries, Journal};
use crate::launch::Entry;
use crate::launch::injected::Injected;
use crate::layers::{ClientAddresses, LayerProof};
use crate::machine::cgroup::Cgroup;
use crate::meters::metering::MeterSource;
use crate::network::intercept::Namespace;
use kubernetes::ground::Clusters;
use network::Network;
use tare_model::Failure;

/// A kind of place: whether this machine supports it, and how to create one.
pub trait PlaceKind {
    /// Checks whether this machine supports it. Returns a description, or the reason it does not.
    fn check_machine(&self) -> Result<String, Failure>;

    /// Returns the slow step of its first start, to announce it.
    fn slow_step(&self) -> Option<&'static str> {
        None
    }

    /// Creates a place for a variant; `None` means this machine itself, without an agent.
    fn place(&self, context: PlaceContext) -> Option<Box<dyn Place>>;
}

/// The registry: a line for each kind.
fn kind(spec: &PlaceSpec) -> &dyn PlaceKind {
    match spec {
        PlaceSpec::Host(spec) => spec,
        PlaceSpec::Netns(spec) => spec,
        PlaceSpec::Oci(spec) => spec,
        PlaceSpec::Container(spec) => spec,
        PlaceSpec::Vm(spec) => spec,
        PlaceSpec::Ssh(spec) => spec,
        PlaceSpec::Kubernetes(spec) => spec,
    }
}

/// Checks a place's settings, and whether this machine supports it.
pub fn check(spec: &PlaceSpec) -> Result<(), Failure> {
    spec.check()?;
    kind(spec).check_machine().map(drop)
}

pub fn to_wait_for(spec: &PlaceSpec) -> Option<&'static str> {
    kind(spec).slow_step()
}

pub fn place(spec: &PlaceSpec, context: PlaceContext) -> Option<Box<dyn Place>> {
    kind(spec).place(context)
}

/// One place of one variant, for its server or its client.
pub trait Place: Debug {
    /// Whether it is still where it should be; the place it depends on may have moved.
    fn fits(&self, _clusters: &Clusters) -> bool {
        true
    }

    /// Requests what can start in the background. All places of a round begin before tare waits for
    /// the first.
    fn begin(&mut self, _resources: &mut LabResources<'_>) -> Result<(), Failure> {
        Ok(())
    }

    /// Creates what it needs and starts its agent. May be called again after [`Place::stop`].
    fn start(&mut self, resources: &mut LabResources<'_>) -> Result<Agent, Failure>;

    /// Returns evidence, from its agent and from this machine, that it is as configured.
    fn prove(&self, agent: &Agent) -> Proof;

    /// Removes what must not remain for the next start; its agent has already ended.
    fn stop(&mut self) {}

    /// The address on which its servers listen and are reached from other places.
    fn address(&self) -> IpAddr;

    /// The port of every server in it, if that must be a fixed one.
    fn port(&self) -> Option<u16> {
        None
    }

    /// The entry that clients connect to, if it is not the server's own address.
    fn entry(&self) -> Option<Entry> {
        None
    }

    /// Returns the check that its client's requests took this path.
    fn path_proof(&self, _client: &ClientAddresses) -> Option<Box<dyn LayerProof>> {
        None
    }

    /// The meter of its servers, if that is not its own agent.
    fn metered_by(&self) -> Option<MeterSource> {
        None
    }

    /// The sidecar that a mesh injected into it; `beside` is the place's agent.
    fn injected(&self, _beside: &Arc<Agent>) -> Option<Injected> {
        None
    }

    /// Whether its CPU is emulated rather than virtualised by the hardware.
    fn is_emulated(&self) -> bool {
        false
    }

    /// This machine's link that carries all traffic of its servers.
    fn link(&self, _: &Network) -> Option<String> {
        None
    }

    /// The network namespace of its sockets, if tare made it on this machine.
    fn namespace(&self) -> Option<Namespace> {
        None
    }

    /// How often it is restarted during a run.
    fn restarts(&self) -> Restarts {
        Restarts::AFewTimes
    }

    /// Whether it has processes on this machine that are not its command's descendants.
    fn has_helpers(&self) -> bool {
        false
    }

    /// Whether the processes in it are in its control group on this machine.
    fn is_metered_from_here(&self) -> bool {
        true
    }

    /// The folder for its servers' files, if it differs from this machine's.
    fn folder(&self) -> Option<PathBuf> {
        None
    }

    /// Whether CPUs have the same numbers in it as on this machine.
    fn has_our_cpus(&self) -> bool {
        true
    }
}

/// How often a place is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restarts {
    /// A restart would change nothing.
    Never,
    /// It starts quickly, and each start differs.
    EachRound,
    /// It starts slowly: a few times per run (`place_launches`).
    AFewTimes,
}

/// Resources that all places of a lab share.
#[derive(Debug)]
pub struct LabResources<'a> {
    pub journal: &'a Journal,
    pub network: Option<&'a Network>,
    pub clusters: &'a Clusters,
    pub halt: &'a Halt,
}

/// The settings and resources of one place.
#[derive(Clone, Debug)]
pub struct PlaceContext {
    /// The variant, and whether it is for the server or the client.
    pub who: String,
    /// Names everything it creates; unique to this place across all runs.
    pub tag: String,
    /// The tag of the server's place, if this place is for a client.
    pub server_tag: Option<String>,
    /// Layers in the path of the variant's requests.
    pub layers: Vec<LayerSpec>,
    /// Its number in the lab.
    pub index: u8,
    pub cpus: Vec<usize>,
    pub cgroup: Option<Cgroup>,
    /// The folder for its files on this machine.
    pub folder: PathBuf,
    /// Programs and files that are needed in it.
    pub needs: Vec<PathBuf>,
    pub events: Sender<Event>,
    pub journal: Entries,
}

impl PlaceContext {
    fn start_agent(
        &self,
        argv: &[String],
        patience: DurationNs,
        halt: &Halt,
    ) -> Result<Agent, Failure> {
        let entrances = self.cgroup.as_ref().map(Cgroup::entrances).unwrap_or_default();
        let start = Start {
            who: &self.who,
            argv,
            env: &[],
            cpus: &self.cpus,
            journal: Some(&self.journal),
            entrances: &entrances,
            events: &self.events,
            talks: true,
        };
        Agent::start(&start, patience, halt)
    }

    fn note(&self, text: String) {
        let unix_ms = tare_io::time::wall_unix_ms();
        let _ = self.events.send(Event { unix_ms, who: self.who.clone(), text });
    }
}

/// Identifies a running system: this machine, or a cluster's node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemIdentity {
    pub kernel_release: String,
    pub boot_id: String,
}

impl SystemIdentity {
    pub fn probe() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        Self {
            kernel_release: read("/proc/sys/kernel/osrelease"),
            boot_id: read("/proc/sys/kernel/random/boot_id"),
        }
    }
}

/// Returns this process's namespace of a kind (`net`, `pid`, `mnt`).
fn own_namespace(kind: &str) -> Option<String> {
    let link = std::fs::read_link(Path::new("/proc/self/ns").join(kind)).ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// Returns the folder for servers' files in a place that has its own /tmp.
fn server_folder(context: &PlaceContext) -> PathBuf {
    Path::new("/tmp").join(&context.tag).join("server")
}

/// Builds a proof, which held if `wrong` has no complaints.
fn proof(layer: String, wrong: Vec<String>, seen: String) -> Proof {
    match wrong.is_empty() {
        true => Proof { layer, held: true, text: seen },
        false => Proof { layer, held: false, text: format!("{}; {seen}", wrong.join("; ")) },
    }
}

const RUNNING: &str = "running";
const RUNNING_WITHIN: DurationNs = DurationNs::from_secs(2);
const RUNNING_CHECK: Duration = Duration::from_millis(10);

/// Polls a runtime's state of a container until it is running or 2 s have passed: crun records that
/// state only after the agent has started.
fn wait_until_running(ask: impl Fn() -> String) -> String {
    let limit = monotonic_now() + RUNNING_WITHIN;
    loop {
        let state = ask();
        if state == RUNNING || monotonic_now() > limit {
            return state;
        }
        std::thread::park_timeout(RUNNING_CHECK);
    }
}

/// Lists the kinds of place, with whether this machine supports them, for `tare doctor`.
pub fn survey() -> Vec<(&'static str, Result<String, String>)> {
    let words = |kind: &dyn PlaceKind| kind.check_machine().map_err(|error| error.to_string());
    let oci = |runtime: &str| words(&OciSpec::plain(runtime));
    vec![
        ("host", words(&HostSpec::default())),
        ("netns", words(&NetnsSpec::default())),
        ("runc", oci("runc")),
        ("crun", oci("crun")),
        ("runsc", oci("runsc")),
        ("kata", oci("kata-runtime")),
        ("youki", oci("youki")),
        ("podman", words(&container::podman_here())),
        ("docker", words(&ContainerSpec::of_engine("docker"))),
        ("nerdctl", words(&ContainerSpec::of_engine("nerdctl"))),
        ("vm", words(&VmSpec::default())),
        ("tdx", words(&VmSpec::confidential(Confidential::Tdx))),
        ("sev-snp", words(&VmSpec::confidential(Confidential::SevSnp))),
        ("ssh", ssh::check_program().map_err(|error| error.to_string())),
        ("kubernetes", kubernetes::check_current_context().map_err(|error| error.to_string())),
    ]
}

/// Checks that the files to be copied into a place exist.
fn check_files(kind: &str, files: &[PathBuf]) -> Result<(), Failure> {
    match files.iter().find(|path| !path.exists()) {
        None => Ok(()),
        Some(path) => {
            let text = format!("{kind}: programs: there is no {}", path.display());
            Err(Failure::usage(text))
        }
    }
}

/// Fails unless tare runs as root; `what` is named in the error.
pub(crate) fn need_root(what: &str) -> Result<(), Failure> {
    match tare_io::process::is_root() {
        true => Ok(()),
        false => Err(Failure::environment(format!("{what} needs root (run tare with sudo)"))),
    }
}

fn network_of<'a>(resources: &LabResources<'a>) -> Result<&'a Network, Failure> {
    resources.network.ok_or_else(|| Failure::environment("the lab has no network"))
}
