//! One variant's part of the lab: its places, and its layers' processes.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

use tare_bypass::Bypass;
use tare_io::process;
use tare_model::usage::Usage;

use crate::journal::Journal;
use crate::lab::Deployment;
use crate::lab::instance::PlaceInstance;
use crate::lab::server::{Server, Starting};
use crate::lab::site::Site;
use crate::launch::context::{LaunchContext, Ports};
use crate::launch::hop::{Hop, Upstream};
use crate::launch::injected;
use crate::launch::spec::LaunchSpec;
use crate::launch::{LaunchNeeds, Launched};
use crate::layers::{self, ClientAddresses, HopPlan, HopPosition, Seat};
use crate::machine::cgroup::Cgroup;
use crate::network::intercept::{Direction, Namespace};
use crate::places::LabResources;
use crate::places::network::Network;
use tare_model::Failure;

/// One variant's part of the lab.
#[derive(Debug)]
pub struct VariantSlot {
    pub placed: Deployment,
    /// The server's control group, or its place's.
    pub cgroup: Option<Cgroup>,
    pub needs: Arc<LaunchNeeds>,
    /// How its layers' processes are started.
    pub hops: Vec<HopContext>,
    /// The folder of its servers' files, on this machine or in their place.
    pub folder: PathBuf,
    pub ports: Ports,
    pub server: Option<PlaceInstance>,
    /// The clients, in the order of the variant's configuration.
    pub clients: Vec<ClientSeat>,
    pub client_addresses: ClientAddresses,
    pub bypass: Option<Arc<Bypass>>,
}

/// Where one client of a variant makes its load.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a variant has a handful of them")]
pub enum ClientSeat {
    /// In this process.
    Here,
    /// In the server's own place.
    BesideServer,
    In(PlaceInstance),
}

impl ClientSeat {
    pub fn instance(&self) -> Option<&PlaceInstance> {
        match self {
            Self::In(instance) => Some(instance),
            Self::Here | Self::BesideServer => None,
        }
    }

    pub fn instance_mut(&mut self) -> Option<&mut PlaceInstance> {
        match self {
            Self::In(instance) => Some(instance),
            Self::Here | Self::BesideServer => None,
        }
    }
}

#[derive(Debug)]
pub struct HopContext {
    pub name: String,
    /// The name of the place where it runs.
    pub place: String,
    pub layer: usize,
    pub stand: HopPosition,
    pub who: String,
    pub cgroup: Option<Cgroup>,
    pub folder: PathBuf,
    /// Its own place, if it has one.
    pub instance: Option<PlaceInstance>,
}

/// This machine, for everything without a place of its own.
#[derive(Debug)]
pub struct LocalHost<'a> {
    pub site: &'a Site,
    pub network: Option<&'a Network>,
}

impl LocalHost<'_> {
    /// Returns this machine's address on tare's network; localhost if there is no network.
    pub fn on_network(&self) -> IpAddr {
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        self.network.map_or(localhost, Network::own_address)
    }
}

impl VariantSlot {
    /// Returns the places of its server, clients and hops, as far as they have places of their own.
    pub fn instances(&self) -> impl Iterator<Item = &PlaceInstance> {
        let hops = self.hops.iter().filter_map(|hop| hop.instance.as_ref());
        self.server.iter().chain(self.clients.iter().filter_map(ClientSeat::instance)).chain(hops)
    }

    /// Returns the CPU time of everything of this variant on this machine: its places with all that
    /// runs in them, and the parts without a place. `None` if some of it runs elsewhere, or cannot be
    /// told from other processes.
    pub fn cpu_on_this_machine(&self, used: &Usage) -> Option<u64> {
        let places: Option<u64> = self.instances().map(PlaceInstance::all_cpu_ns).sum();
        let server = if self.server.is_none() { used.server().cpu_ns() } else { 0 };
        let hops = self.hops.iter().zip(&used.hops).filter(|(hop, _)| hop.instance.is_none());
        let hops: u64 = hops.map(|(_, used)| used.cpu_ns()).sum();
        Some(places? + server + hops)
    }

    /// Returns the places that count as the variant's: those of the server and hops.
    pub fn instances_of_parts(&mut self) -> impl Iterator<Item = &mut PlaceInstance> {
        let hops = self.hops.iter_mut().filter_map(|hop| hop.instance.as_mut());
        self.server.iter_mut().chain(hops)
    }

    /// Returns the only client's own place, if there is one; hops beside the client run there.
    fn client(&self) -> Option<&PlaceInstance> {
        self.clients.first().and_then(ClientSeat::instance)
    }

    /// Starts the hops' own places that are due.
    pub fn start_hop_places(
        &mut self,
        round: u32,
        resources: &mut LabResources<'_>,
    ) -> Result<(), Failure> {
        let mut instances = self.hops.iter_mut().filter_map(|hop| hop.instance.as_mut());
        instances.try_for_each(|instance| instance.up(round, resources).map(drop))
    }

    /// Starts hops, beginning at the server: each forwards to what is already up.
    pub fn start_hops(
        &self,
        launched: &mut Launched,
        here: &LocalHost<'_>,
        connections: u32,
    ) -> Result<(), Failure> {
        launched.bypass = self.bypass.clone();
        for (at, hop) in self.hops.iter().enumerate().rev() {
            let hop = match layers::kind(&self.placed.layers[hop.layer]).is_injected() {
                true => self.injected(hop, launched)?,
                false => self.started(at, launched.entrance(), here, connections)?,
            };
            launched.add_hop(hop);
        }
        Ok(())
    }

    fn started(
        &self,
        at: usize,
        to: Upstream,
        here: &LocalHost<'_>,
        connections: u32,
    ) -> Result<Hop, Failure> {
        let hop = &self.hops[at];
        let layer = &self.placed.layers[hop.layer];
        let namespace = self.namespace(hop.stand)?;
        let instance = hop.instance.as_ref();
        let agent = instance.and_then(PlaceInstance::agent);
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let ip = match (&namespace, instance) {
            (Some(namespace), _) => namespace.address,
            (None, Some(instance)) => instance.place.address(),
            (None, None) if self.placed.is_asked_from_elsewhere(at) => here.on_network(),
            (None, None) => localhost,
        };
        let folder = instance.and_then(|instance| instance.place.folder());
        let context = LaunchContext {
            folder: folder.as_deref().unwrap_or(&hop.folder),
            our_programs: true,
            ip,
            ports: if instance.is_some() { Ports::InTurn } else { Ports::Kernel },
            port: instance.and_then(|instance| instance.place.port()),
            root: agent.map_or_else(process::is_root, |agent| agent.hello.uid == 0),
            files: Default::default(),
            connections,
            fixed: None,
            layers: &[],
            layers_taken: Default::default(),
        };
        let seat = Seat { stand: hop.stand, namespace: namespace.as_ref() };
        let plan = layers::kind(layer).hop(&context, &seat, to)?;
        let HopPlan { mut launch_spec, intercepts, shows, makes_tls } = plan;
        launch_spec.env.extend(layers::env(&self.placed.layers));
        let cpus = &self.needs.server_cpus;
        let starting = match instance.zip(agent) {
            Some((instance, agent)) => instance.starting(agent, &hop.who, cpus, here.site),
            None => Starting {
                site: here.site.clone(),
                who: &hop.who,
                cpus: cpus.clone(),
                cgroup: hop.cgroup.clone(),
                metered: None,
            },
        };
        let server = Server::start(starting, launch_spec.clone())?;
        if let Some((port, namespace)) = intercepts.zip(namespace.as_ref()) {
            let direction = match hop.stand {
                HopPosition::BesideClient => Direction::Outbound,
                HopPosition::BesideServer | HopPosition::Between => Direction::Inbound,
            };
            namespace.intercept(direction, to.address, port, &hop.folder)?;
        }
        Ok(Hop {
            name: hop.name.clone(),
            place: hop.place.clone(),
            place_starts: instance.map_or(0, |instance| instance.starts),
            layer: hop.layer,
            stand: hop.stand,
            namespace,
            injected: None,
            intercepts: intercepts.is_some(),
            to: to.address,
            makes_tls,
            shows,
            launch_spec,
            server,
        })
    }

    /// Returns the sidecar that the cluster injected into a pod of this variant.
    fn injected(&self, hop: &HopContext, launched: &Launched) -> Result<Hop, Failure> {
        let (side, instance) = match hop.stand {
            HopPosition::BesideClient => ("its client's pod", self.client()),
            HopPosition::BesideServer | HopPosition::Between => ("its pod", self.server.as_ref()),
        };
        let found = instance.and_then(PlaceInstance::injected);
        let layer = &self.placed.layers[hop.layer];
        let mut injected = found.ok_or_else(|| {
            Failure::environment(format!(
                "{}: {side} has no sidecar, though it asked for one: is there a mesh in this \
                 cluster, and does it inject here?",
                layer.facts().name()
            ))
        })?;
        if hop.stand == HopPosition::BesideClient {
            injected.leads_to = Some(launched.launch_spec.address);
        }
        Ok(Hop {
            name: hop.name.clone(),
            place: hop.place.clone(),
            place_starts: 0,
            layer: hop.layer,
            stand: hop.stand,
            namespace: None,
            intercepts: true,
            to: launched.launch_spec.address,
            makes_tls: false,
            shows: None,
            launch_spec: LaunchSpec {
                pages: Some(injected::ADMIN),
                ..launched.launch_spec.clone()
            },
            server: Server::injected(injected.clone()),
            injected: Some(injected),
        })
    }

    /// Returns the network namespace for a process beside the client or server.
    fn namespace(&self, stand: HopPosition) -> Result<Option<Namespace>, Failure> {
        let (side, instance) = match stand {
            HopPosition::Between => return Ok(None),
            HopPosition::BesideClient => ("client", self.client()),
            HopPosition::BesideServer => ("server", self.server.as_ref()),
        };
        let namespace = instance.and_then(|instance| instance.place.namespace());
        namespace.map(Some).ok_or_else(|| {
            Failure::usage(format!(
                "{}: the place of its {side} keeps its network to itself (a kernel of its own): \
                 sidecars need netns, runc or crun",
                self.placed.name
            ))
        })
    }

    pub fn has_hop_beside_client(&self) -> bool {
        self.hops.iter().any(|hop| hop.stand == HopPosition::BesideClient)
    }
}

/// The control groups to which the sockets of one variant's processes belong, if a layer needs
/// them.
#[derive(Debug)]
pub struct SocketGroups {
    wanted: bool,
    groups: Vec<PathBuf>,
}

impl SocketGroups {
    pub fn for_deployment(placed: &Deployment) -> Self {
        let wanted = placed.layers.iter().any(|layer| layers::kind(layer).bypasses());
        Self { wanted, groups: Vec::new() }
    }

    pub fn add(&mut self, cgroup: &mut Option<Cgroup>, journal: &Journal) -> Result<(), Failure> {
        if !self.wanted {
            return Ok(());
        }
        let cgroup = cgroup.as_mut().ok_or_else(|| {
            Failure::environment("a bypass needs control groups, which cannot be made")
        })?;
        self.groups.push(cgroup.socket_group(journal)?);
        Ok(())
    }

    /// Attaches the bypass to all of them, until the returned handle is dropped.
    pub fn attach(&self) -> Result<Option<Arc<Bypass>>, Failure> {
        if !self.wanted {
            return Ok(None);
        }
        let attached = Bypass::attach(&self.groups).map(Arc::new);
        attached.map(Some).map_err(|why| Failure::environment(format!("bypass: {why}")))
    }
}
