//! This machine behind the runner's traits: servers by tare-lab, load by tare-load.

mod clock;
mod launch;
mod load;
mod once;
mod together;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, channel};
use std::thread::park_timeout;
use std::time::Duration;

use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Endpoint, Instant};
use tare_lab::lab::Placed;
use tare_lab::machine;
use tare_lab::{Event, LabPlan};
use tare_load::measured::Measured;
use tare_load::{LoadPlan, Stretch};
use tare_model::layers::LayerSpec;
use tare_model::plan::Plan;
use tare_model::servers::ServerSpec;

use crate::error::RunError;
use crate::lab::{Lab, Load, Placement, Reading};
pub use clock::SystemClock;
use launch::LaunchNeeds;
pub use launch::{RealLaunch, RealMeter};
pub use load::{Client, RealLoad};
pub use once::{Once, load_from};

/// Starts of a place that takes long to start, over the first rounds.
const PLACE_LAUNCHES: u32 = 3;

pub struct RealLab {
    lab: tare_lab::Lab,
    endpoints: Vec<Endpoint>,
    layers: Vec<Vec<LayerSpec>>,
    load_cpus: Vec<usize>,
    needs: Arc<LaunchNeeds>,
    events: Receiver<Event>,
}

/// What a lab is opened for.
pub struct Opening<'a> {
    pub plan: &'a Plan,
    /// The address in each variant's URL; `None` where its port is left open.
    pub addresses: &'a [Option<SocketAddr>],
    /// The most connections that load opens to one variant.
    pub connections: u32,
    /// Where journals are kept.
    pub state: &'a Path,
    /// The user's wish to stop.
    pub stop: &'a Arc<AtomicBool>,
}

impl RealLab {
    pub fn open(opening: &Opening<'_>) -> Result<Self, RunError> {
        let Opening { plan, addresses, connections, state, stop } = opening;
        let (sender, events) = channel();
        let (servers, endpoints) = placed(plan, addresses)?;
        let lab = tare_lab::Lab::open(LabPlan {
            state,
            servers,
            cpus: plan.server_cpus.clone(),
            load_cpus: plan.load_cpus.clone(),
            exclusive: plan.is_exclusive(),
            place_launches: plan.slices.place_launches.unwrap_or(PLACE_LAUNCHES),
            stop: Arc::clone(stop),
            connections: *connections,
            events: sender,
        })?;
        let needs = Arc::new(LaunchNeeds {
            state: state.to_path_buf(),
            server_cpus: plan.server_cpus.clone(),
            stop: Arc::clone(stop),
        });
        let layers = plan.variants.iter().map(|variant| variant.layers.clone()).collect();
        Ok(Self { lab, endpoints, layers, load_cpus: plan.load_cpus.clone(), needs, events })
    }
}

/// Servers where they are to be, and the endpoints of those that are up already.
fn placed(
    plan: &Plan,
    addresses: &[Option<SocketAddr>],
) -> Result<(Vec<Placed>, Vec<Endpoint>), RunError> {
    let mut servers = Vec::new();
    let mut endpoints = Vec::new();
    for (variant, address) in plan.variants.iter().zip(addresses) {
        let unknown = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        endpoints.push(match &variant.unix_socket {
            Some(path) => Endpoint::Unix(path.clone()),
            None => Endpoint::Tcp(address.unwrap_or(unknown)),
        });
        let server = variant.server.clone();
        servers.push(Placed {
            name: variant.name.clone(),
            fixed: address.filter(|_| server != ServerSpec::Up),
            server,
            // A URL that leaves only the port open says where to listen.
            ip: variant.url(1)?.host.parse().ok().filter(|ip: &IpAddr| !ip.is_loopback()),
            layers: variant.layers.clone(),
            place: variant.place.clone(),
            client: variant.client.clone(),
        });
    }
    Ok((servers, endpoints))
}

impl Lab for RealLab {
    type Launch = RealLaunch;
    type Meter = RealMeter;
    type Client = Client;
    type Load = RealLoad;
    type Machine = machine::Reading;

    fn launch(&mut self, variant: usize, round: u32) -> Result<Option<RealLaunch>, RunError> {
        let launched = self.lab.launch(variant, round)?;
        let layers = self.layers[variant].clone();
        Ok(launched.map(|launched| RealLaunch::new(launched, layers, self.needs.clone())))
    }

    fn client(&mut self, variant: usize, round: u32) -> Result<Client, RunError> {
        Ok(self.lab.client(variant, round)?)
    }

    fn make_way(&mut self, variant: usize) {
        self.lab.make_way(variant);
    }

    fn client_has_our_cpus(&self, variant: usize) -> bool {
        self.lab.client_has_our_cpus(variant)
    }

    /// An agent makes one load at a time.
    fn can_load_at_once(&self, clients: &[&Client]) -> bool {
        let agents: Vec<_> = clients.iter().flat_map(|client| client.iter()).collect();
        let shared = |at: usize| agents[..at].iter().any(|other| Arc::ptr_eq(other, agents[at]));
        !(0..agents.len()).any(shared)
    }

    fn load(&self, workers: u32) -> Result<RealLoad, RunError> {
        RealLoad::start(workers, &self.load_cpus, &self.needs.stop)
    }

    fn load_at_once(
        &self,
        loads: &mut [RealLoad],
        plans: &[&LoadPlan],
        stretch: Stretch,
        meters: &[Option<&RealMeter>],
    ) -> Result<(Vec<Measured>, Vec<Reading>), RunError> {
        load_at_once(loads, plans, stretch, meters)
    }

    fn endpoint(&self, variant: usize) -> Endpoint {
        self.endpoints[variant].clone()
    }

    fn placement(&self, variant: usize) -> Placement {
        Placement {
            proofs: self.lab.proofs(variant),
            is_emulated: self.lab.is_emulated(variant),
            starts: self.lab.place_starts(variant),
        }
    }

    fn cpu_of_places(&self) -> u64 {
        self.lab.cpu_of_places()
    }

    fn machine(&self) -> machine::Reading {
        machine::Reading::take()
    }

    fn take_events(&self) -> Vec<Event> {
        self.events.try_iter().collect()
    }

    fn metering(&self) -> String {
        match &self.lab.cgroup_note {
            Some(note) => format!("servers are metered by process: {note}"),
            None => "servers are metered by control group".into(),
        }
    }

    fn own_cpu(&self) -> (DurationNs, DurationNs) {
        let threads = tare_lab::processes::threads_cpu_ns(std::process::id());
        let of_load = threads.iter().filter(|(name, _)| name.starts_with("load-"));
        let load: u64 = of_load.map(|(_, ns)| ns).sum();
        let all = tare_io::process::own_cpu_time().as_ns();
        (DurationNs::from_ns(load), DurationNs::from_ns(all.saturating_sub(load)))
    }

    fn end_orphans(&self) {
        self.lab.end_orphans();
    }

    fn close(self) -> Vec<String> {
        self.lab.close()
    }
}

/// Readings are due at the end of each interval; this is how late they can be.
const READING_LATE: DurationNs = DurationNs::from_ms(5);

fn load_at_once(
    loads: &mut [RealLoad],
    plans: &[&LoadPlan],
    stretch: Stretch,
    meters: &[Option<&RealMeter>],
) -> Result<(Vec<Measured>, Vec<Reading>), RunError> {
    std::thread::scope(|scope| {
        let began = monotonic_now();
        let mut readings = vec![read(began, meters)];
        let running: Vec<_> = loads
            .iter_mut()
            .zip(plans)
            .map(|(load, plan)| scope.spawn(move || load.slice(0, plan, stretch)))
            .collect();
        let mut next = began + stretch.interval;
        while !running.iter().all(|load| load.is_finished()) {
            let left = next.since(monotonic_now()).min(READING_LATE);
            park_timeout(Duration::from_nanos(left.as_ns().max(100_000)));
            if monotonic_now() >= next {
                readings.push(read(began, meters));
                next = next + stretch.interval;
            }
        }
        readings.push(read(began, meters));
        let lost = || Err(RunError::Bug("a load thread panicked".into()));
        let measured = running.into_iter().map(|load| load.join().unwrap_or_else(|_| lost()));
        let measured: Result<Vec<Measured>, RunError> = measured.collect();
        Ok((measured?, readings))
    })
}

fn read(began: Instant, meters: &[Option<&RealMeter>]) -> Reading {
    let servers = meters.iter().map(|meter| meter.map(RealMeter::reading).unwrap_or_default());
    Reading { servers: servers.collect(), ns: monotonic_now().since(began).as_ns() }
}
