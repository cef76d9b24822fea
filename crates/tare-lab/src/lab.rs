//! The lab: a folder, a control group and the places of each variant, and a journal of all.
//!
//! [`LabPlan`] goes in; launches and loads come out. Each variant has a `slot`, with the places it
//! needs (`instance`), each of which is reached at its [`site`]; a [`server`] is a handle on a
//! process there, and a [`load`] one on the clients of a variant.

pub(crate) mod instance;
pub mod load;
pub mod server;
pub mod site;
pub(crate) mod slot;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use tare_io::process::{self, PidFd, adopt_orphans, reap};
use tare_io::{DurationNs, Endpoint};
use tare_load::Stretch;
use tare_load::measured::Measured;
use tare_model::clients::{ClientSpec, Clients};
use tare_model::counters::{Counter, Counters};
use tare_model::layers::{HopPart, HopPosition, LayerSpec, hops as all_hops};
use tare_model::places::{Limits, PlaceFacts, PlaceSpec};
use tare_model::plan::VariantId;
use tare_model::samples::Proof;
use tare_model::servers::ServerSpec;
use tare_model::usage::Usage;
use tare_model::variant::Variant;

use crate::event::Event;
use crate::executor::{Executor, ExecutorPlan, OnServerEnd};
use crate::halt::Halt;
use crate::journal::Journal;
use crate::journal::prefix::PREFIX;
use crate::journal::temporary;
use crate::lab::instance::PlaceInstance;
use crate::lab::load::Load;
use crate::lab::server::{Server, Starting};
use crate::lab::site::Site;
use crate::lab::slot::{ClientSeat, HopContext, LocalHost, SocketGroups, VariantSlot};
use crate::launch::context::{LaunchContext, Ports};
use crate::launch::{LaunchNeeds, Launched};
use crate::layers::{self, ClientAddresses};
use crate::machine;
use crate::machine::cgroup::Cgroup;
use crate::machine::everything::Everything;
use crate::machine::processes::{self, Stat};
use crate::meters::metering::{self, Metering};
use crate::meters::{Quiet, Reading};
use crate::places::kubernetes::ground::Clusters;
use crate::places::network::{Network, PLACES_MAX};
use crate::places::{self, LabResources, PlaceContext};
use crate::servers;
use crate::world::{Placement, World};
use tare_model::Failure;

/// Default number of starts of a slow place over the first rounds.
pub const PLACE_LAUNCHES: u32 = 3;

/// Options of a lab.
#[derive(Debug)]
pub struct LabPlan<'a> {
    /// Where journals are kept.
    pub state: &'a Path,
    pub servers: Vec<Deployment>,
    /// CPUs of the servers; empty means any.
    pub cpus: Vec<usize>,
    /// CPUs of the load; empty means any.
    pub load_cpus: Vec<usize>,
    /// Connections that load will open to each server.
    pub connections: u32,
    /// Variants are up one at a time.
    pub exclusive: bool,
    /// How often a place that starts slowly is started over the first rounds.
    pub place_launches: u32,
    pub halt: Halt,
}

/// One variant's server, its place and its clients.
#[derive(Clone, Debug)]
pub struct Deployment {
    pub name: String,
    pub server: ServerSpec,
    /// The address of a server that is already up.
    pub endpoint: Endpoint,
    /// The address in the URL, at which the server must listen.
    pub fixed: Option<SocketAddr>,
    /// The IP address to listen on, if the URL names one.
    pub ip: Option<IpAddr>,
    pub layers: Vec<LayerSpec>,
    pub place: PlaceSpec,
    pub clients: Clients,
}

impl Deployment {
    /// Plans the deployment of a variant; `address` is the one in its URL, if given.
    pub fn from_variant(variant: &Variant, address: Option<SocketAddr>) -> Result<Self, Failure> {
        let unknown = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = variant.server.clone();
        Ok(Self {
            name: variant.name.clone(),
            endpoint: match &variant.unix_socket {
                Some(path) => Endpoint::Unix(path.clone()),
                None => Endpoint::Tcp(address.unwrap_or(unknown)),
            },
            fixed: address.filter(|_| server != ServerSpec::External),
            server,
            // A URL without a port still says on which IP address to listen.
            ip: variant.url(1)?.host.parse().ok().filter(|ip: &IpAddr| !ip.is_loopback()),
            layers: variant.layers.clone(),
            place: variant.place.clone(),
            clients: variant.clients.clone(),
        })
    }

    fn has_client_elsewhere(&self) -> bool {
        self.clients.places().any(|place| !matches!(place, PlaceSpec::Host(_)))
    }

    /// Returns whether all of its load is made in its server's own place.
    fn is_loaded_from_inside(&self) -> bool {
        self.clients.single() == Some(&ClientSpec::SameAsServer)
    }

    /// Returns whether the part behind the first `hops` hops has clients in places other than the
    /// host.
    pub(crate) fn is_asked_from_elsewhere(&self, hops: usize) -> bool {
        let mut before = all_hops(&self.layers).into_iter().take(hops);
        match before.rfind(|hop| hop.stand == HopPosition::Between) {
            None => self.has_client_elsewhere(),
            Some(hop) => {
                let place = self.layers[hop.layer].facts().place();
                place.is_some_and(|place| !matches!(place, PlaceSpec::Host(_)))
            }
        }
    }

    /// Returns whether its server, hops and clients need tare's own network.
    fn needs_network(&self) -> bool {
        let hops = self.layers.iter().filter_map(|layer| layer.facts().place());
        let on_bridge = hops.chain(self.clients.places()).any(PlaceSpec::is_on_bridge);
        let on_host = matches!(self.place, PlaceSpec::Host(_));
        let has_address = self.fixed.is_some() || self.ip.is_some();
        let reached = on_host && self.has_client_elsewhere() && !has_address;
        on_bridge || self.place.is_on_bridge() || reached
    }

    /// Counts its places: one for the server, and those of its clients and hops.
    fn places(&self) -> usize {
        let hops = self.layers.iter().filter_map(|layer| layer.facts().place()).count();
        1 + self.clients.len() + hops
    }
}

/// Starts servers, and removes everything that it created. Servers must be dropped before the lab.
#[derive(Debug)]
pub struct Lab {
    slots: Vec<VariantSlot>,
    network: Option<Network>,
    clusters: Clusters,
    /// The last round in which the places of each `Side` began to start.
    begun: [Option<u32>; 2],
    exclusive: bool,
    folder: PathBuf,
    cpus: Vec<usize>,
    connections: u32,
    halt: Halt,
    /// Why servers are metered by process and not by control group.
    pub cgroup_note: Option<String>,
    /// Starts and loads everything without a place of its own.
    here: Site,
    /// How many place numbers are assigned.
    numbered: u8,
    events: (Sender<Event>, Receiver<Event>),
    journal: Journal,
    everything: Everything,
    /// Children inherited from the shell that became this process; not ours to end.
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
    halt: &'a Halt,
) -> LabResources<'a> {
    LabResources { journal, network: network.as_ref(), clusters, halt }
}

/// Identifies a process even after its PID is reused.
fn identity(pid: u32) -> (u32, u64) {
    (pid, Stat::read(pid).map_or(0, |stat| stat.started_ticks))
}

impl Lab {
    pub fn open(plan: LabPlan<'_>) -> Result<Self, Failure> {
        crate::machine::commands::install_stop_flag(plan.halt.flag());
        let journal = Journal::create(plan.state)?;
        adopt_orphans().map_err(|error| {
            Failure::environment(format!("cannot adopt what servers leave: {error}"))
        })?;
        let inherited = processes::children(std::process::id()).into_iter().map(identity).collect();
        let folder = temporary::folder(&journal)?;
        // Servers that give up root must still reach their files.
        allow_traversal(&folder)?;
        let network = match plan.servers.iter().any(Deployment::needs_network) {
            true => Some(Network::make(&journal)?),
            false => None,
        };
        let places: usize = plan.servers.iter().map(Deployment::places).sum();
        if places > PLACES_MAX {
            let text = format!("{places} servers, clients and hops; {PLACES_MAX} are allowed");
            return Err(Failure::usage(text));
        }
        let events = channel();
        let executor = Executor::new(ExecutorPlan {
            stop: plan.halt.flag().clone(),
            on_end: on_server_end(&plan.halt),
            events: events.0.clone(),
            journal: Some(journal.entries()),
            own_group: None,
            ends_orphans: false,
        });
        let run_cpus = cpu_union(&plan.load_cpus, &plan.cpus);
        let mut lab = Self {
            here: Site::Here(Arc::new(executor)),
            numbered: 0,
            events,
            slots: Vec::new(),
            network,
            clusters: Clusters::new(&format!("{PREFIX}{}", unique())),
            begun: [None; 2],
            exclusive: plan.exclusive,
            folder,
            cpus: plan.cpus.clone(),
            connections: plan.connections,
            halt: plan.halt.clone(),
            cgroup_note: None,
            journal,
            everything: Everything::attach(&run_cpus),
            inherited,
        };
        for (index, placed) in plan.servers.iter().enumerate() {
            lab.add_slot(index, placed, &plan)?;
        }
        Ok(lab)
    }

    /// Returns the lab with another executor in place of this process's own.
    pub fn with_site(self, site: Site) -> Self {
        Self { here: site, ..self }
    }

    fn add_slot(
        &mut self,
        index: usize,
        placed: &Deployment,
        plan: &LabPlan<'_>,
    ) -> Result<(), Failure> {
        let folder = self.folder.join(index.to_string());
        std::fs::create_dir(&folder).map_err(|e| Failure::file("make", &folder, e))?;
        allow_traversal(&folder)?;
        let name = format!("{}-{index}", unique());
        let limits = placed.place.limits_by_group();
        let is_up = placed.server == ServerSpec::External;
        let mut groups = SocketGroups::for_deployment(placed);
        let mut cgroup = if is_up { None } else { self.cgroup(&name, limits, &placed.name)? };
        groups.add(&mut cgroup, &self.journal)?;
        let mut needs = Vec::new();
        if placed.place.facts().shares_host_files() {
            needs.extend(servers::needs(&placed.server)?);
            needs.extend(layers::needs(&placed.layers)?);
        }
        let shared = placed.clients.has_one_beside_server();
        let context = PlaceContext {
            who: placed.name.clone(),
            tag: format!("{PREFIX}{name}"),
            server_tag: None,
            layers: placed.layers.clone(),
            index: self.next_number(),
            cpus: if shared { cpu_union(&plan.cpus, &plan.load_cpus) } else { plan.cpus.clone() },
            cgroup: cgroup.clone(),
            folder: folder.join("place"),
            needs,
            events: self.events.0.clone(),
            journal: self.journal.entries(),
        };
        let server = match is_up {
            true => None,
            false => self.instance(&placed.place, context.clone(), plan.place_launches)?,
        };
        let clients = self.clients_of(placed, &name, &context, plan, &mut groups)?;
        let hops = self.hop_contexts(placed, &name, &context, plan, &mut groups)?;
        let bypass = groups.attach().map_err(|error| error.named(&placed.name))?;
        let own_ports = server.is_some() && !placed.place.shares_our_ports();
        let ports = if own_ports { Ports::InTurn } else { Ports::Kernel };
        self.slots.push(VariantSlot {
            placed: placed.clone(),
            cgroup,
            needs: Arc::new(LaunchNeeds {
                state: plan.state.to_owned(),
                server_cpus: plan.cpus.clone(),
                layers: placed.layers.clone(),
                place: placed.place.name(),
                stop: plan.halt.flag().clone(),
            }),
            hops,
            folder,
            ports,
            server,
            clients,
            client_addresses: ClientAddresses::default(),
            bypass,
        });
        Ok(())
    }

    /// Makes a control group and a folder for each hop, and its place if it has one of its own.
    fn hop_contexts(
        &mut self,
        placed: &Deployment,
        name: &str,
        server: &PlaceContext,
        plan: &LabPlan<'_>,
        groups: &mut SocketGroups,
    ) -> Result<Vec<HopContext>, Failure> {
        let mut hops = Vec::new();
        for (at, hop) in all_hops(&placed.layers).into_iter().enumerate() {
            let HopPart { name: own, layer, stand } = hop;
            let spec = &placed.layers[layer];
            let place = spec.facts().place().filter(|_| stand == HopPosition::Between);
            let who = format!("{}, {own}", placed.name);
            let limits = match place.map(PlaceSpec::limits_by_group) {
                Some(limits) if limits != Limits::default() => limits,
                _ => spec.facts().limits(),
            };
            let name = format!("{name}h{at}");
            let mut cgroup = self.cgroup(&name, limits, &who)?;
            groups.add(&mut cgroup, &self.journal)?;
            let folder = server.folder.with_file_name(format!("hop-{at}"));
            std::fs::create_dir(&folder).map_err(|e| Failure::file("make", &folder, e))?;
            allow_traversal(&folder)?;
            let instance = match place {
                None => None,
                Some(place) => {
                    let context = PlaceContext {
                        who: who.clone(),
                        tag: format!("{PREFIX}{name}"),
                        layers: Vec::new(),
                        index: self.next_number(),
                        cpus: plan.cpus.clone(),
                        cgroup: cgroup.clone(),
                        folder: folder.join("place"),
                        needs: layers::kind(spec).needs_of_hop()?,
                        ..server.clone()
                    };
                    self.instance(place, context, plan.place_launches)?
                }
            };
            let place = match (stand, place) {
                (HopPosition::Between, Some(place)) => place.name(),
                (HopPosition::Between, None) => PlaceSpec::host().name(),
                (HopPosition::BesideServer, _) => placed.place.name(),
                (HopPosition::BesideClient, _) => placed.clients.name(),
            };
            hops.push(HopContext { name: own, place, layer, stand, who, cgroup, folder, instance });
        }
        Ok(hops)
    }

    fn next_number(&mut self) -> u8 {
        self.numbered += 1;
        self.numbered - 1
    }

    /// Returns where each client makes load. Places of their own are not started yet.
    fn clients_of(
        &mut self,
        placed: &Deployment,
        name: &str,
        server: &PlaceContext,
        plan: &LabPlan<'_>,
        groups: &mut SocketGroups,
    ) -> Result<Vec<ClientSeat>, Failure> {
        let mut seats = Vec::new();
        for (at, client) in placed.clients.iter().enumerate() {
            let who = format!("{}, {}", placed.name, placed.clients.word(at));
            let place = match client {
                ClientSpec::SameAsServer => {
                    seats.push(ClientSeat::BesideServer);
                    continue;
                }
                ClientSpec::Place(PlaceSpec::Host(spec)) if spec.limits() == Limits::default() => {
                    seats.push(ClientSeat::Here);
                    continue;
                }
                ClientSpec::Place(PlaceSpec::Host(_)) => {
                    let text = "on the host it has no limits of its own: leave them out";
                    return Err(Failure::usage(format!("{who}: {text}")));
                }
                ClientSpec::Place(place) => place,
            };
            let name = format!("{name}c{at}");
            let mut cgroup = self.cgroup(&name, place.limits_by_group(), &who)?;
            groups.add(&mut cgroup, &self.journal)?;
            let context = PlaceContext {
                who,
                tag: format!("{PREFIX}{name}"),
                server_tag: Some(server.tag.clone()),
                index: self.next_number(),
                cpus: plan.load_cpus.clone(),
                cgroup,
                folder: server.folder.with_file_name(format!("client-{at}")),
                needs: Vec::new(),
                ..server.clone()
            };
            let instance = self.instance(place, context, plan.place_launches)?;
            seats.extend(instance.map(ClientSeat::In));
        }
        Ok(seats)
    }

    fn cgroup(&mut self, name: &str, limits: Limits, who: &str) -> Result<Option<Cgroup>, Failure> {
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
                Err(Failure::environment(format!("{who}: cannot limit what it uses: {note}")))
            }
        }
    }

    fn instance(
        &mut self,
        place: &PlaceSpec,
        context: PlaceContext,
        launches: u32,
    ) -> Result<Option<PlaceInstance>, Failure> {
        let (folder, cgroup) = (context.folder.clone(), context.cgroup.clone());
        let Some(place) = places::place(place, context.clone()) else { return Ok(None) };
        // The folder holds copies of programs and their configuration, which no other user may
        // read.
        let mut private = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut private, 0o700);
        private.create(&folder).map_err(|e| Failure::file("make", &folder, e))?;
        Ok(Some(PlaceInstance::new(place, cgroup, launches, &context)))
    }

    /// Begins to start all places of one side, before the first is waited for.
    fn begin(&mut self, side: Side, round: u32) -> Result<(), Failure> {
        if self.exclusive || self.begun[side as usize] == Some(round) {
            return Ok(());
        }
        self.begun[side as usize] = Some(round);
        let mut resources = resources(&self.journal, &self.network, &self.clusters, &self.halt);
        for slot in &mut self.slots {
            let begun = match side {
                Side::Server => {
                    slot.instances_of_parts().try_for_each(|s| s.begin(round, &mut resources))
                }
                Side::Client => begin_clients(slot, round, &mut resources),
            };
            begun.map_err(|error| error.named(&slot.placed.name))?;
        }
        Ok(())
    }
}

impl World for Lab {
    type Launch = Launched;
    type Meter = Metering;
    type Clients = Vec<Site>;
    type Load = Load;

    fn launch(&mut self, variant: VariantId, round: u32) -> Result<Option<Launched>, Failure> {
        self.begin(Side::Server, round)?;
        let slot = &mut self.slots[variant.0];
        if slot.placed.server == ServerSpec::External {
            return Ok(None);
        }
        let who = slot.placed.name.clone();
        // The start of a hop's place does not count as part of the server's start.
        let mut stood_on = resources(&self.journal, &self.network, &self.clusters, &self.halt);
        let placed = slot.start_hop_places(round, &mut stood_on);
        placed.map_err(|error| error.named(&who))?;
        let inside = slot.placed.is_loaded_from_inside();
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (agent, ip) = match &mut slot.server {
            Some(instance) => {
                let agent = instance.up(round, &mut stood_on).map_err(|error| error.named(&who))?;
                let ip = if inside { localhost } else { instance.place.address() };
                (Some(agent), ip)
            }
            None => {
                let elsewhere = slot.placed.is_asked_from_elsewhere(slot.hops.len());
                let network = self.network.as_ref().filter(|_| elsewhere);
                let ip = network.map_or(localhost, Network::own_address);
                (None, slot.placed.ip.unwrap_or(ip))
            }
        };
        let own_folder = slot.server.as_ref().and_then(|instance| instance.place.folder());
        let context = LaunchContext {
            folder: own_folder.as_deref().unwrap_or(&slot.folder),
            our_programs: slot.placed.place.facts().shares_host_files(),
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
        // The link carries nothing if the client is in the same place.
        let place = slot.server.as_ref().filter(|_| !inside);
        let link = place.zip(self.network.as_ref()).and_then(|(s, network)| s.place.link(network));
        let starting = match slot.server.as_ref().zip(agent.as_ref()) {
            None => Starting {
                site: self.here.clone(),
                who: &who,
                cpus: self.cpus.clone(),
                cgroup: slot.cgroup.clone(),
                metered: None,
            },
            Some((instance, agent)) => {
                let starting = instance.starting(agent, &who, &self.cpus, &self.here);
                // If the place also makes load, only its agent can say what the server alone used.
                match slot.placed.clients.has_one_beside_server() {
                    true => Starting { metered: instance.place.metered_by(), ..starting },
                    false => starting,
                }
            }
        };
        let needs = slot.needs.clone();
        let start = |launch_spec| Server::start(starting, launch_spec);
        let mut launched = Launched::begin(launch_spec, link, needs, start)?;
        if let Some(instance) = slot.server.as_ref().filter(|_| !inside) {
            launched.entry = instance.place.entry();
            launched.path = instance.place.path_proof(&slot.client_addresses);
        }
        if slot.has_hop_beside_client() {
            self.clients(variant, round)?;
        }
        let here = LocalHost { site: &self.here, network: self.network.as_ref() };
        let slot = &self.slots[variant.0];
        let hops = slot.start_hops(&mut launched, &here, self.connections);
        hops.map_err(|error| error.named(&who))?;
        Ok(Some(launched))
    }

    fn clients(&mut self, variant: VariantId, round: u32) -> Result<Vec<Site>, Failure> {
        self.begin(Side::Client, round)?;
        let mut resources = resources(&self.journal, &self.network, &self.clusters, &self.halt);
        let slot = &mut self.slots[variant.0];
        if self.exclusive {
            begin_clients(slot, round, &mut resources)?;
        }
        let mut sites = Vec::new();
        let mut addresses: Vec<String> = Vec::new();
        for seat in &mut slot.clients {
            match seat {
                ClientSeat::Here => {
                    addresses.extend(tare_io::net_config::addresses());
                    sites.push(self.here.clone());
                }
                ClientSeat::BesideServer => {
                    sites.extend(slot.server.as_ref().and_then(PlaceInstance::site));
                }
                ClientSeat::In(instance) => {
                    let up = instance.up(round, &mut resources);
                    let agent = up.map_err(|error| error.named(&slot.placed.name))?;
                    addresses.extend(agent.hello.addresses.iter().cloned());
                    sites.push(Site::There(agent));
                }
            }
        }
        let known = addresses.iter().filter_map(|address| address.parse().ok()).collect();
        *slot.client_addresses.lock().unwrap_or_else(|e| e.into_inner()) = known;
        Ok(sites)
    }

    fn clients_share_cpu_numbers(&self, variant: VariantId) -> bool {
        let slot = &self.slots[variant.0];
        slot.clients.iter().all(|seat| {
            let instance = match seat {
                ClientSeat::Here => None,
                ClientSeat::BesideServer => slot.server.as_ref(),
                ClientSeat::In(instance) => Some(instance),
            };
            instance.is_none_or(|instance| instance.place.has_our_cpus())
        })
    }

    fn placement(&self, variant: VariantId) -> Placement {
        let slot = &self.slots[variant.0];
        let server = slot.server.as_ref().and_then(PlaceInstance::proof).cloned();
        let clients = slot.clients.iter().enumerate().filter_map(|(at, seat)| {
            let proof = seat.instance()?.proof()?;
            let layer = format!("{} in {}", slot.placed.clients.word(at), proof.layer);
            Some(Proof { layer, ..proof.clone() })
        });
        let hops = slot.hops.iter().filter_map(|hop| {
            let proof = hop.instance.as_ref()?.proof()?;
            let layer = format!("{} in {}", hop.name, proof.layer);
            Some(Proof { layer, ..proof.clone() })
        });
        Placement {
            proofs: server.into_iter().chain(hops).chain(clients).collect(),
            is_emulated: slot.instances().any(|instance| instance.place.is_emulated()),
            starts: slot.server.as_ref().map_or(0, |instance| instance.starts),
        }
    }

    fn tear_down_place(&mut self, variant: VariantId) {
        self.slots[variant.0].instances_of_parts().for_each(PlaceInstance::tear_down);
    }

    fn neighbours(&self, variant: VariantId, used: &Usage) -> Counters {
        let machine = Counters::default()
            .with(Counter::Capacity, self.everything.capacity_ns())
            .with(Counter::Steal, self.everything.steal_ns());
        let slot = &self.slots[variant.0];
        let ours = slot.cpu_on_this_machine(used);
        let others = ours.zip(self.everything.cpu_ns()).map(|(ours, all)| {
            all.saturating_sub(ours.saturating_add(process::own_cpu_time().as_ns()))
        });
        machine.with(Counter::Others, others)
    }

    /// Leaves out the places of hops: everything that runs there counts as part of the hop.
    fn cpu_of_places(&self) -> u64 {
        let of = |slot: &VariantSlot| -> u64 {
            let clients = slot.clients.iter().filter_map(ClientSeat::instance);
            slot.server.iter().chain(clients).filter_map(PlaceInstance::cpu_ns).sum()
        };
        self.slots.iter().map(of).sum()
    }

    /// Ends daemons, which outlive the process that tare started.
    fn end_orphans(&self) {
        let all = self.slots.iter().flat_map(VariantSlot::instances);
        let up: Vec<&PlaceInstance> = all.filter(|instance| instance.agent().is_some()).collect();
        // A container engine's helper differs from an orphan only by its control group.
        if up.iter().any(|instance| instance.has_helpers_unseen()) {
            return;
        }
        let spared = || -> Vec<u32> { up.iter().flat_map(|i| i.processes()).collect() };
        let mut tried: Vec<(u32, u64)> = Vec::new();
        // Ending a process orphans its children, such as a daemon's workers.
        for _ in 0..GENERATIONS_MAX {
            let mut orphans = processes::children(std::process::id());
            let spared = spared();
            // A process of another user cannot be killed, so each process is tried only once.
            let is_left = |pid: &u32| {
                self.inherited.contains(&identity(*pid)) || tried.contains(&identity(*pid))
            };
            orphans.retain(|pid| !is_left(pid) && !spared.contains(pid));
            if orphans.is_empty() {
                return;
            }
            tried.extend(orphans.iter().copied().map(identity));
            for pid in orphans {
                if let Ok(watched) = PidFd::new(pid) {
                    let _ = watched.signal(libc::SIGKILL);
                    watched.wait_timeout(KILLED_WITHIN);
                }
                reap(pid);
            }
        }
    }

    fn close(mut self) -> Vec<String> {
        self.slots.clear();
        drop(self.clusters);
        self.journal.remove_all()
    }

    fn load(&self) -> Load {
        Load::default()
    }

    fn load_at_once(
        &self,
        loads: &mut [&mut Load],
        stretch: Stretch,
        meters: &[Option<&Metering>],
    ) -> Result<Vec<(Measured, Vec<Reading>)>, Failure> {
        load::run_together(loads, stretch, meters)
    }

    fn quiesce(&self, meters: &[&Metering], quiet: Quiet) -> bool {
        metering::quiesce(meters, quiet)
    }

    fn endpoint(&self, variant: VariantId) -> Endpoint {
        self.slots[variant.0].placed.endpoint.clone()
    }

    fn machine(&self) -> machine::Counters {
        machine::Counters::take()
    }

    fn ports_used(&self) -> Option<f64> {
        machine::ports_used()
    }

    fn take_events(&self) -> Vec<Event> {
        self.events.1.try_iter().collect()
    }

    fn metering(&self) -> String {
        match &self.cgroup_note {
            Some(note) => format!("servers are metered by process: {note}"),
            None => "servers are metered by control group".into(),
        }
    }

    fn own_cpu(&self) -> (DurationNs, DurationNs) {
        let threads = processes::threads_cpu_ns(std::process::id());
        let of_load = threads.iter().filter(|(name, _)| name.starts_with("load-"));
        let load: u64 = of_load.map(|(_, ns)| ns).sum();
        let all = process::own_cpu_time().as_ns();
        (DurationNs::from_ns(load), DurationNs::from_ns(all.saturating_sub(load)))
    }
}

fn on_server_end(halt: &Halt) -> OnServerEnd {
    let on_end = halt.on_end();
    Arc::new(move |_, name| on_end(name))
}

const GENERATIONS_MAX: u32 = 20;
/// A killed process is gone within this time.
const KILLED_WITHIN: DurationNs = DurationNs::from_secs(2);

/// Begins to start all of a variant's clients, before the first is waited for.
fn begin_clients(
    slot: &mut VariantSlot,
    round: u32,
    resources: &mut LabResources<'_>,
) -> Result<(), Failure> {
    let mut instances = slot.clients.iter_mut().filter_map(ClientSeat::instance_mut);
    instances.try_for_each(|instance| instance.begin(round, resources))
}

/// Lets others pass through a folder, but not list it.
fn allow_traversal(folder: &Path) -> Result<(), Failure> {
    let through = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(folder, through).map_err(|e| Failure::file("open up", folder, e))
}

/// Merges two sets of CPUs. An empty set means any CPU, so the result is empty if either is.
fn cpu_union(one: &[usize], other: &[usize]) -> Vec<usize> {
    if one.is_empty() || other.is_empty() {
        return Vec::new();
    }
    let mut all: Vec<usize> = one.iter().chain(other).copied().collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns a name that is unique to this process and lab.
fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static LABS: AtomicU32 = AtomicU32::new(0);
    let (pid, started) = identity(std::process::id());
    format!("{pid}-{}-{}", started % 1_000_000, LABS.fetch_add(1, Ordering::Relaxed))
}
