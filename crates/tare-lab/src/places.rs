//! Places: where a server or a client runs.
//!
//! A place is a command that ends in an agent on its standard input and output, and what must be
//! made before that: `prepare → start → prove → stop`, and removal by the journal. A new kind of
//! place is a new file here, which implements [`PlaceKind`] for its settings
//! (`tare_model::places`), and a line in `kind`.

pub mod agent_file;
pub mod container;
pub mod cpio;
pub mod guest_kernel;
pub mod kubernetes;
pub mod netns;
pub mod network;
pub mod oci;
pub mod qemu;
pub mod root;
pub mod runtime;
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
    Confidential, ContainerSpec, HostSpec, Limits, NetnsSpec, OciSpec, PlaceFacts, PlaceSpec,
    VmSpec,
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

/// What this machine knows of a kind of place.
pub trait PlaceKind {
    /// Whether it can be had here, and how; else why not.
    fn check_machine(&self) -> Result<String, Failure>;

    /// What takes long at its first start.
    fn to_wait_for(&self) -> Option<&'static str> {
        None
    }

    /// One of its kind for a variant; `None` is this very place.
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

/// Whether it can be had here; else why not.
pub fn check(spec: &PlaceSpec) -> Result<(), Failure> {
    spec.check()?;
    kind(spec).check_machine().map(drop)
}

/// What takes long at its first start.
pub fn to_wait_for(spec: &PlaceSpec) -> Option<&'static str> {
    kind(spec).to_wait_for()
}

/// One of its kind for a variant; `None` is this very place.
pub fn place(spec: &PlaceSpec, context: PlaceContext) -> Option<Box<dyn Place>> {
    kind(spec).place(context)
}

impl PlaceKind for HostSpec {
    fn check_machine(&self) -> Result<String, Failure> {
        if self.limits() != Limits::default() {
            need_root("a limit of CPU or memory")?;
        }
        Ok("yes".into())
    }

    fn place(&self, _: PlaceContext) -> Option<Box<dyn Place>> {
        None
    }
}

/// One place of one variant, for its server or its client.
pub trait Place: Debug {
    /// Whether it is still where it should be: another place may have moved.
    fn fits(&self, _clusters: &Clusters) -> bool {
        true
    }

    /// Begins with what its start takes, where that goes on by itself: all places of a round begin
    /// before the first of them is waited for.
    fn begin(&mut self, _resources: &mut LabResources<'_>) -> Result<(), Failure> {
        Ok(())
    }

    /// Makes what it needs, and starts its agent. Called again after [`Place::stop`], it starts
    /// afresh.
    fn start(&mut self, resources: &mut LabResources<'_>) -> Result<Agent, Failure>;

    /// Evidence, from what its agent saw and from this side, that it is what was asked for.
    fn prove(&self, agent: &Agent) -> Proof;

    /// What must be taken away between two starts; its agent has ended.
    fn stop(&mut self) {}

    /// Where servers in it listen, and are reached from other places.
    fn address(&self) -> IpAddr;

    /// The port on which every server in it listens, where it must be the same one.
    fn port(&self) -> Option<u16> {
        None
    }

    /// Where clients connect to, where that is not what the server listens on.
    fn entry(&self) -> Option<Entry> {
        None
    }

    /// What will show that its client came that way.
    fn path_proof(&self, _client: &ClientAddresses) -> Option<Box<dyn LayerProof>> {
        None
    }

    /// Who meters its servers, where that is not its agent.
    fn metered_by(&self) -> Option<MeterSource> {
        None
    }

    /// What a mesh put beside what runs in it, which its agent speaks with.
    fn injected(&self, _beside: &Arc<Agent>) -> Option<Injected> {
        None
    }

    /// Emulated, and not run by the hardware.
    fn is_emulated(&self) -> bool {
        false
    }

    /// The link of this machine that carries all that servers in it send and receive.
    fn link(&self, _: &Network) -> Option<String> {
        None
    }

    /// The network namespace of this machine that its programs' sockets are in, where tare made it.
    fn namespace(&self) -> Option<Namespace> {
        None
    }

    /// How often it is started afresh while its servers come and go.
    fn restarts(&self) -> Restarts {
        Restarts::AFewTimes
    }

    /// Whether more processes of this machine belong to it than its command's descendants.
    fn has_helpers(&self) -> bool {
        false
    }

    /// Whether the processes in it are in its control group on this machine.
    fn is_metered_from_here(&self) -> bool {
        true
    }

    /// Where servers in it keep their files, where that is not as on this machine.
    fn folder(&self) -> Option<PathBuf> {
        None
    }

    /// Whether CPUs have the same numbers in it as on this machine.
    fn has_our_cpus(&self) -> bool {
        true
    }
}

/// When a place is started afresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restarts {
    /// One is like another.
    Never,
    /// It starts quickly, and no two are alike.
    EachRound,
    /// It takes long to start: a few times over a run (`place_launches`).
    AFewTimes,
}

/// What places stand on, shared by all of a lab.
#[derive(Debug)]
pub struct LabResources<'a> {
    pub journal: &'a Journal,
    pub network: Option<&'a Network>,
    pub clusters: &'a Clusters,
    pub halt: &'a Halt,
}

/// One place's own part of the lab.
#[derive(Clone, Debug)]
pub struct PlaceContext {
    /// The variant, and whether it is for the server or the client.
    pub who: String,
    /// Names of what it makes: no other place of any run has the same.
    pub tag: String,
    /// The same of the variant's server, where this is for a client of it.
    pub server_tag: Option<String>,
    /// What is in the path of the variant's requests.
    pub layers: Vec<LayerSpec>,
    /// Its number in the lab.
    pub index: u8,
    pub cpus: Vec<usize>,
    pub cgroup: Option<Cgroup>,
    /// On this machine, for its files.
    pub folder: PathBuf,
    /// Programs and files that are needed in it.
    pub needs: Vec<PathBuf>,
    pub events: Sender<Event>,
    pub journal: Entries,
}

impl PlaceContext {
    /// Runs the command that ends in an agent.
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

/// What this machine says of itself, to compare with what an agent sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Here {
    pub kernel_release: String,
    pub boot_id: String,
}

impl Here {
    pub fn probe() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        Self {
            kernel_release: read("/proc/sys/kernel/osrelease"),
            boot_id: read("/proc/sys/kernel/random/boot_id"),
        }
    }
}

/// This process's own namespace of a kind.
fn own_namespace(kind: &str) -> Option<String> {
    let link = std::fs::read_link(Path::new("/proc/self/ns").join(kind)).ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// Where servers keep their files in a place that has its own /tmp.
fn server_folder(context: &PlaceContext) -> PathBuf {
    Path::new("/tmp").join(&context.tag).join("server")
}

/// Complaints, or what was seen.
fn proof(layer: String, wrong: Vec<String>, seen: String) -> Proof {
    match wrong.is_empty() {
        true => Proof { layer, held: true, text: seen },
        false => Proof { layer, held: false, text: format!("{}; {seen}", wrong.join("; ")) },
    }
}

const RUNNING: &str = "running";
const RUNNING_WITHIN: DurationNs = DurationNs::from_secs(2);
const RUNNING_CHECK: Duration = Duration::from_millis(10);

/// What a runtime says of a container whose agent has greeted, at last: some (crun) write down that
/// it runs only after they let it go.
fn once_running(ask: impl Fn() -> String) -> String {
    let limit = monotonic_now() + RUNNING_WITHIN;
    loop {
        let state = ask();
        if state == RUNNING || monotonic_now() > limit {
            return state;
        }
        std::thread::park_timeout(RUNNING_CHECK);
    }
}

/// Whether a kind of place can be had on this machine, for `tare doctor`.
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
        ("kubernetes", kubernetes::here().map_err(|error| error.to_string())),
    ]
}

/// Files of this machine that a place is to have.
fn check_files(kind: &str, files: &[PathBuf]) -> Result<(), Failure> {
    match files.iter().find(|path| !path.exists()) {
        None => Ok(()),
        Some(path) => {
            let text = format!("{kind}: programs: there is no {}", path.display());
            Err(Failure::usage(text))
        }
    }
}

/// Places that need it say why they cannot do without.
pub(crate) fn need_root(what: &str) -> Result<(), Failure> {
    match tare_io::process::is_root() {
        true => Ok(()),
        false => Err(Failure::environment(format!("{what} needs root (run tare with sudo)"))),
    }
}

fn network_of<'a>(resources: &LabResources<'a>) -> Result<&'a Network, Failure> {
    resources.network.ok_or_else(|| Failure::environment("the lab has no network"))
}
