//! The lab: a folder, a control group and the places of each variant, and a journal of all.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;

use tare_io::DurationNs;
use tare_io::process::{self, Watched, adopt_orphans, reap};
use tare_model::layers::LayerSpec;
use tare_model::places::{ClientSpec, Limits, PlaceFacts, PlaceSpec};
use tare_model::samples::Proof;
use tare_model::servers::ServerSpec;

use crate::agent::{Agent, MeteredBy, PlacedServer};
use crate::cgroup::Cgroup;
use crate::context::{LaunchContext, Ports};
use crate::error::LabError;
use crate::event::Event;
use crate::instance::PlaceInstance;
use crate::journal::Journal;
use crate::launch::Launched;
use crate::layers::{self, ClientAddresses};
use crate::local::{HostContext, LocalServer};
use crate::ours::PREFIX;
use crate::places::kubernetes::ground::Clusters;
use crate::places::network::{Network, PLACES_MAX};
use crate::places::{self, LabResources, PlaceContext};
use crate::processes::{self, Stat};
use crate::servers::{self, StandingServer};
use crate::slot::{HopContext, SocketGroups, VariantSlot};
use crate::temporary;

/// What the lab is for.
#[derive(Debug)]
pub struct LabPlan<'a> {
    /// Where journals are kept.
    pub state: &'a Path,
    pub servers: Vec<Placed>,
    /// CPUs of the servers, and of the load; empty leaves them to the kernel.
    pub cpus: Vec<usize>,
    pub load_cpus: Vec<usize>,
    /// Connections that load will open to each.
    pub connections: u32,
    /// Variants are up one at a time.
    pub exclusive: bool,
    /// How often a place that starts slowly is started over the first rounds.
    pub place_launches: u32,
    pub events: Sender<Event>,
    /// The user's wish to stop.
    pub stop: Arc<AtomicBool>,
}

/// One variant's server, and where it and its client are.
#[derive(Clone, Debug)]
pub struct Placed {
    pub name: String,
    pub server: ServerSpec,
    /// Where the user said that it listens.
    pub fixed: Option<SocketAddr>,
    /// On which address of this machine, where only that was said.
    pub ip: Option<IpAddr>,
    pub layers: Vec<LayerSpec>,
    pub place: PlaceSpec,
    pub client: ClientSpec,
}

impl Placed {
    fn has_client_elsewhere(&self) -> bool {
        !matches!(self.client, ClientSpec::SameAsServer | ClientSpec::Place(PlaceSpec::Host(_)))
    }

    /// Whether tare's network is what its server and client meet on.
    fn needs_network(&self) -> bool {
        let client = match &self.client {
            ClientSpec::Place(place) => place.is_on_bridge(),
            ClientSpec::SameAsServer => false,
        };
        let on_host = matches!(self.place, PlaceSpec::Host(_));
        let has_address = self.fixed.is_some() || self.ip.is_some();
        let reached = on_host && self.has_client_elsewhere() && !has_address;
        client || self.place.is_on_bridge() || reached
    }
}

/// Starts servers, and removes whatever that took. Servers must be dropped before it.
#[derive(Debug)]
pub struct Lab {
    slots: Vec<VariantSlot>,
    network: Option<Network>,
    clusters: Clusters,
    /// The rounds of which all servers' places, and all clients', have begun to start.
    begun: [Option<u32>; 2],
    exclusive: bool,
    folder: PathBuf,
    cpus: Vec<usize>,
    connections: u32,
    stop: Arc<AtomicBool>,
    /// Why servers are metered by process and not by control group.
    pub cgroup_note: Option<String>,
    journal: Journal,
    /// Children that this process had before: of the shell that became it. Not ours to end.
    inherited: Vec<(u32, u64)>,
}

#[derive(Clone, Copy, Debug)]
enum Side {
    Server,
    Client,
}

fn resources<'a>(
    journal: &'a Journal,
    network: &'a Option<Network>,
    clusters: &'a Clusters,
    stop: &'a Arc<AtomicBool>,
) -> LabResources<'a> {
    LabResources { journal, network: network.as_ref(), clusters, stop }
}

/// A process for good: numbers are used again.
fn born(pid: u32) -> (u32, u64) {
    (pid, Stat::of(pid).map_or(0, |stat| stat.started_ticks))
}

impl Lab {
    pub fn open(plan: LabPlan<'_>) -> Result<Self, LabError> {
        crate::commands::heed(&plan.stop);
        let journal = Journal::create(plan.state)?;
        adopt_orphans().map_err(|error| {
            LabError::Environment(format!("cannot adopt what servers leave: {error}"))
        })?;
        let inherited = processes::children(std::process::id()).into_iter().map(born).collect();
        let folder = temporary::folder(&journal)?;
        // Servers that give up root must still reach what is theirs.
        open_up(&folder)?;
        let network = match plan.servers.iter().any(Placed::needs_network) {
            true => Some(Network::make(&journal)?),
            false => None,
        };
        if plan.servers.len() * 2 > PLACES_MAX {
            let text = format!("{} variants; {} are allowed", plan.servers.len(), PLACES_MAX / 2);
            return Err(LabError::Usage(text));
        }
        let mut lab = Self {
            slots: Vec::new(),
            network,
            clusters: Clusters::new(&format!("{PREFIX}{}", unique())),
            begun: [None; 2],
            exclusive: plan.exclusive,
            folder,
            cpus: plan.cpus.clone(),
            connections: plan.connections,
            stop: plan.stop.clone(),
            cgroup_note: None,
            journal,
            inherited,
        };
        for (index, placed) in plan.servers.iter().enumerate() {
            lab.add_slot(index, placed, &plan)?;
        }
        Ok(lab)
    }

    fn add_slot(
        &mut self,
        index: usize,
        placed: &Placed,
        plan: &LabPlan<'_>,
    ) -> Result<(), LabError> {
        let folder = self.folder.join(index.to_string());
        std::fs::create_dir(&folder).map_err(|e| LabError::file("make", &folder, e))?;
        open_up(&folder)?;
        let name = format!("{}-{index}", unique());
        let limits = placed.place.limits_by_group();
        let is_up = placed.server == ServerSpec::Up;
        let mut groups = SocketGroups::of(placed);
        let mut cgroup = if is_up { None } else { self.cgroup(&name, limits, &placed.name)? };
        groups.add(&mut cgroup, &self.journal)?;
        let mut needs = Vec::new();
        if placed.place.facts().has_our_programs() {
            needs.extend(servers::needs(&placed.server)?);
            needs.extend(layers::needs(&placed.layers)?);
        }
        let same = placed.client == ClientSpec::SameAsServer;
        let context = PlaceContext {
            who: placed.name.clone(),
            tag: format!("{PREFIX}{name}"),
            server_tag: None,
            layers: placed.layers.clone(),
            index: (index * 2) as u8,
            cpus: if same { both(&plan.cpus, &plan.load_cpus) } else { plan.cpus.clone() },
            cgroup: cgroup.clone(),
            folder: folder.join("place"),
            needs,
            events: plan.events.clone(),
            journal: self.journal.entries(),
        };
        let server = match is_up {
            true => None,
            false => self.instance(&placed.place, context.clone(), plan.place_launches)?,
        };
        let client = self.client_of(placed, &name, context, plan, &mut groups)?;
        let host = HostContext {
            who: placed.name.clone(),
            cpus: plan.cpus.clone(),
            cgroup,
            journal: Some(self.journal.entries()),
            events: plan.events.clone(),
        };
        let hops = self.hop_contexts(placed, &name, &folder, &host, &mut groups)?;
        let bypass = groups.attach().map_err(|error| error.named(&placed.name))?;
        let own_ports = server.is_some() && !placed.place.shares_our_ports();
        let ports = if own_ports { Ports::InTurn } else { Ports::Kernel };
        self.slots.push(VariantSlot {
            placed: placed.clone(),
            host,
            hops,
            folder,
            ports,
            server,
            client,
            client_addresses: ClientAddresses::default(),
            bypass,
        });
        Ok(())
    }

    /// A control group and a folder for each layer that may be a process.
    fn hop_contexts(
        &mut self,
        placed: &Placed,
        name: &str,
        folder: &Path,
        server: &HostContext,
        groups: &mut SocketGroups,
    ) -> Result<Vec<HopContext>, LabError> {
        let mut hops = Vec::new();
        for (layer, spec) in placed.layers.iter().enumerate() {
            for (at, stand) in layers::kind(spec).stands().iter().enumerate() {
                let who = format!("{}, {}", placed.name, spec.facts().name());
                let own = format!("l{layer}-{at}");
                let mut cgroup = self.cgroup(&format!("{name}{own}"), Limits::default(), &who)?;
                groups.add(&mut cgroup, &self.journal)?;
                let folder = folder.join(own);
                std::fs::create_dir(&folder).map_err(|e| LabError::file("make", &folder, e))?;
                open_up(&folder)?;
                let host = HostContext { who, cgroup, ..server.clone() };
                hops.push(HopContext { layer, stand: *stand, host, folder });
            }
        }
        Ok(hops)
    }

    /// The place of its client, where that is another than its server's and than this process.
    fn client_of(
        &mut self,
        placed: &Placed,
        name: &str,
        server: PlaceContext,
        plan: &LabPlan<'_>,
        groups: &mut SocketGroups,
    ) -> Result<Option<PlaceInstance>, LabError> {
        let place = match &placed.client {
            ClientSpec::SameAsServer => return Ok(None),
            ClientSpec::Place(PlaceSpec::Host(spec)) if spec.limits() == Limits::default() => {
                return Ok(None);
            }
            ClientSpec::Place(PlaceSpec::Host(_)) => {
                let text = "a client on the host has no limits of its own: leave them out";
                return Err(LabError::Usage(format!("{}: {text}", placed.name)));
            }
            ClientSpec::Place(place) => place,
        };
        let name = format!("{name}c");
        let who = format!("{}, client", placed.name);
        let mut cgroup = self.cgroup(&name, place.limits_by_group(), &who)?;
        groups.add(&mut cgroup, &self.journal)?;
        let context = PlaceContext {
            who,
            tag: format!("{PREFIX}{name}"),
            server_tag: Some(server.tag.clone()),
            index: server.index + 1,
            cpus: plan.load_cpus.clone(),
            cgroup,
            folder: server.folder.with_file_name("client"),
            needs: Vec::new(),
            ..server
        };
        self.instance(place, context, plan.place_launches)
    }

    fn cgroup(
        &mut self,
        name: &str,
        limits: Limits,
        who: &str,
    ) -> Result<Option<Cgroup>, LabError> {
        match Cgroup::make(name, &self.journal)? {
            Ok(mut cgroup) => {
                cgroup.limit(limits, &self.journal).map_err(|error| error.named(who))?;
                Ok(Some(cgroup))
            }
            Err(note) if limits == Limits::default() => {
                self.cgroup_note = Some(note);
                Ok(None)
            }
            Err(note) => {
                Err(LabError::Environment(format!("{who}: cannot limit what it uses: {note}")))
            }
        }
    }

    fn instance(
        &mut self,
        place: &PlaceSpec,
        context: PlaceContext,
        launches: u32,
    ) -> Result<Option<PlaceInstance>, LabError> {
        let (folder, cgroup) = (context.folder.clone(), context.cgroup.clone());
        let Some(place) = places::place(place, context.clone()) else { return Ok(None) };
        // Copies of programs and what they are given: nobody else's to read.
        let mut private = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut private, 0o700);
        private.create(&folder).map_err(|e| LabError::file("make", &folder, e))?;
        Ok(Some(PlaceInstance::new(place, cgroup, launches, &context)))
    }

    /// All places of one side begin to start before the first is waited for.
    fn begin(&mut self, side: Side, round: u32) -> Result<(), LabError> {
        if self.exclusive || self.begun[side as usize] == Some(round) {
            return Ok(());
        }
        self.begun[side as usize] = Some(round);
        let mut resources = resources(&self.journal, &self.network, &self.clusters, &self.stop);
        for slot in &mut self.slots {
            let instance = match side {
                Side::Server => &mut slot.server,
                Side::Client => &mut slot.client,
            };
            if let Some(instance) = instance {
                let begun = instance.begin(round, &mut resources);
                begun.map_err(|error| error.named(&slot.placed.name))?;
            }
        }
        Ok(())
    }

    /// Starts a variant's server, in its place; `None` where it is up already.
    pub fn launch(&mut self, variant: usize, round: u32) -> Result<Option<Launched>, LabError> {
        self.begin(Side::Server, round)?;
        let slot = &mut self.slots[variant];
        if slot.placed.server == ServerSpec::Up {
            return Ok(None);
        }
        let who = slot.placed.name.clone();
        let same = slot.placed.client == ClientSpec::SameAsServer;
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (agent, ip) = match &mut slot.server {
            Some(instance) => {
                let mut resources =
                    resources(&self.journal, &self.network, &self.clusters, &self.stop);
                let agent =
                    instance.up(round, &mut resources).map_err(|error| error.named(&who))?;
                let ip = if same { localhost } else { instance.place.address() };
                (Some(agent), ip)
            }
            None => {
                let elsewhere = slot.placed.has_client_elsewhere();
                let network = self.network.as_ref().filter(|_| elsewhere);
                let ip = network.map_or(localhost, Network::own_address);
                (None, slot.placed.ip.unwrap_or(ip))
            }
        };
        let own_folder = slot.server.as_ref().and_then(|instance| instance.place.folder());
        let context = LaunchContext {
            folder: own_folder.as_deref().unwrap_or(&slot.folder),
            our_programs: slot.placed.place.facts().has_our_programs(),
            ip,
            ports: slot.ports,
            port: slot.server.as_ref().and_then(|instance| instance.place.port()),
            root: agent.as_ref().map_or_else(process::is_root, |agent| agent.hello.uid == 0),
            files: Default::default(),
            connections: self.connections,
            fixed: slot.placed.fixed,
            layers: &slot.placed.layers,
            layers_taken: Default::default(),
        };
        let launch_spec = servers::launch_spec(&slot.placed.server, &context)
            .map_err(|error| error.named(&who))?;
        let metered = slot.server.as_ref().is_some_and(|s| s.place.is_metered_from_here());
        // Beside a client in the same place it would carry nothing.
        let place = slot.server.as_ref().filter(|_| !same);
        let link = place.zip(self.network.as_ref()).and_then(|(s, network)| s.place.link(network));
        let numbered = slot.server.as_ref().filter(|s| s.place.has_our_cpus());
        let cpus = numbered.map_or(Vec::new(), |_| self.cpus.clone());
        let stands = matches!(slot.placed.server, ServerSpec::Standing(_));
        let mut launched = Launched::begin(launch_spec, link, |launch_spec| match agent {
            None if stands => Ok(Box::new(StandingServer::start(&who, &launch_spec)?)),
            None => Ok(Box::new(LocalServer::start(launch_spec, &slot.host)?)),
            Some(agent) => {
                // Of a place that holds the load too, only its agent can tell what the server used.
                let cgroup = slot.host.cgroup.clone().filter(|_| metered && !same);
                let far = place.and_then(|instance| instance.place.far_meter());
                let metered_by = MeteredBy::of(cgroup, far);
                Ok(Box::new(PlacedServer::start(agent, &who, launch_spec, &cpus, metered_by)?))
            }
        })?;
        if let Some(instance) = slot.server.as_ref().filter(|_| !same) {
            launched.entry = instance.place.entry();
            launched.path = instance.place.path_proof(&slot.client_addresses);
        }
        if slot.has_hop_beside_client() {
            self.client(variant, round)?;
        }
        let hops = self.slots[variant].start_hops(&mut launched, self.connections);
        hops.map_err(|error| error.named(&who))?;
        Ok(Some(launched))
    }

    /// Who makes the load of a variant; nobody where that is this process. Its server is up.
    pub fn client(&mut self, variant: usize, round: u32) -> Result<Vec<Arc<Agent>>, LabError> {
        self.begin(Side::Client, round)?;
        let slot = &mut self.slots[variant];
        if slot.placed.client == ClientSpec::SameAsServer {
            return Ok(slot.server.as_ref().map(PlaceInstance::agents).unwrap_or_default());
        }
        let know = |addresses: &mut dyn Iterator<Item = &String>| {
            let all = addresses.filter_map(|address| address.parse().ok());
            *slot.client_addresses.lock().unwrap_or_else(|e| e.into_inner()) = all.collect();
        };
        let Some(instance) = &mut slot.client else {
            know(&mut tare_io::net_config::addresses().iter());
            return Ok(Vec::new());
        };
        let mut resources = resources(&self.journal, &self.network, &self.clusters, &self.stop);
        let up = instance.up(round, &mut resources);
        up.map_err(|error| error.named(&slot.placed.name))?;
        let agents = instance.agents();
        know(&mut agents.iter().flat_map(|agent| &agent.hello.addresses));
        Ok(agents)
    }

    /// Whether CPUs of the client's place have the numbers that they have here.
    pub fn client_has_our_cpus(&self, variant: usize) -> bool {
        let slot = &self.slots[variant];
        let same = slot.placed.client == ClientSpec::SameAsServer;
        let instance = if same { &slot.server } else { &slot.client };
        instance.as_ref().is_none_or(|instance| instance.place.has_our_cpus())
    }

    /// What shows that a variant's places are what was asked for.
    pub fn proofs(&self, variant: usize) -> Vec<Proof> {
        let slot = &self.slots[variant];
        let server = slot.server.as_ref().and_then(PlaceInstance::proof).cloned();
        let client = slot
            .client
            .as_ref()
            .and_then(PlaceInstance::proof)
            .map(|proof| Proof { layer: format!("client in {}", proof.layer), ..proof.clone() });
        server.into_iter().chain(client).collect()
    }

    /// Whether a variant's server or client runs on an emulated CPU.
    pub fn is_emulated(&self, variant: usize) -> bool {
        let slot = &self.slots[variant];
        let both = slot.server.iter().chain(&slot.client);
        both.into_iter().any(|instance| instance.place.is_emulated())
    }

    /// Ends a server's place, if it is up.
    pub fn make_way(&mut self, variant: usize) {
        if let Some(instance) = &mut self.slots[variant].server {
            instance.make_way();
        }
    }

    /// How often a variant's server's place was started; 0 where it has none.
    pub fn place_starts(&self, variant: usize) -> u32 {
        self.slots[variant].server.as_ref().map_or(0, |instance| instance.starts)
    }

    /// CPU time of all that runs in places, ever: servers, clients, runtimes, machines.
    pub fn cpu_of_places(&self) -> u64 {
        let all = self.slots.iter().flat_map(|slot| slot.server.iter().chain(&slot.client));
        all.filter_map(PlaceInstance::cpu_ns).sum()
    }

    /// Ends what servers left to themselves: daemons that outlived the process tare started. To be
    /// called when no other server or helper of this process runs.
    pub fn end_orphans(&self) {
        let all = self.slots.iter().flat_map(|slot| slot.server.iter().chain(&slot.client));
        let up: Vec<&PlaceInstance> = all.filter(|instance| instance.agent().is_some()).collect();
        // What an engine put beside a container is told from an orphan by its group.
        if up.iter().any(|instance| instance.has_helpers_unseen()) {
            return;
        }
        let spared = || -> Vec<u32> { up.iter().flat_map(|i| i.processes()).collect() };
        let mut tried: Vec<(u32, u64)> = Vec::new();
        // Whose parent was ended becomes an orphan by that: a daemon's workers.
        for _ in 0..GENERATIONS_MAX {
            let mut orphans = processes::children(std::process::id());
            let spared = spared();
            // Another user's cannot be ended, by us or by trying again.
            let is_left =
                |pid: &u32| self.inherited.contains(&born(*pid)) || tried.contains(&born(*pid));
            orphans.retain(|pid| !is_left(pid) && !spared.contains(pid));
            if orphans.is_empty() {
                return;
            }
            tried.extend(orphans.iter().copied().map(born));
            for pid in orphans {
                if let Ok(watched) = Watched::new(pid) {
                    let _ = watched.signal(libc::SIGKILL);
                    watched.ends_within(KILLED_WITHIN);
                }
                reap(pid);
            }
        }
    }

    /// Removes everything now; complaints about what could not be removed.
    pub fn close(mut self) -> Vec<String> {
        self.slots.clear();
        drop(self.clusters);
        self.journal.remove_all()
    }
}

const GENERATIONS_MAX: u32 = 20;
/// A process that was killed is gone within this.
const KILLED_WITHIN: DurationNs = DurationNs::from_secs(2);

/// Lets others through a folder, but not see what is in it.
fn open_up(folder: &Path) -> Result<(), LabError> {
    let through = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(folder, through).map_err(|e| LabError::file("open up", folder, e))
}

/// CPUs of two sets; none where one is left to the kernel.
fn both(one: &[usize], other: &[usize]) -> Vec<usize> {
    if one.is_empty() || other.is_empty() {
        return Vec::new();
    }
    let mut all: Vec<usize> = one.iter().chain(other).copied().collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// This process, for good, and which of its labs.
fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static LABS: AtomicU32 = AtomicU32::new(0);
    let (pid, started) = born(std::process::id());
    format!("{pid}-{}-{}", started % 1_000_000, LABS.fetch_add(1, Ordering::Relaxed))
}
