//! What the runner needs of the world: servers, what they use, load, time.

use std::net::SocketAddr;

use tare_io::{DurationNs, Endpoint, Instant};
use tare_lab::Event;
use tare_lab::agent::protocol::LaneLife;
use tare_lab::launch::Expected;
use tare_lab::layers::Asker;
use tare_load::measured::Measured;
use tare_load::{LoadPlan, Stretch};
use tare_model::samples::{MachineUse, Probe, Proof, ServerUse};

use crate::error::RunError;

/// Servers of all variants, and the clients that load them.
pub trait Lab {
    type Launch: Launch<Meter = Self::Meter>;
    type Meter: Meter;
    /// Who makes the load on one variant.
    type Client;
    type Load: Load<Client = Self::Client>;
    /// Counters of the whole machine at one moment.
    type Machine: MachineReading;

    /// Ends a variant's place, if it is up: that is not in the time of its next start.
    fn make_way(&mut self, variant: usize);

    /// Starts a variant's server; `None` where it is up already.
    fn launch(&mut self, variant: usize, round: u32) -> Result<Option<Self::Launch>, RunError>;

    /// The client of a variant, whose server is up.
    fn client(&mut self, variant: usize, round: u32) -> Result<Self::Client, RunError>;

    /// Whether CPUs have the numbers for a variant's client that they have here.
    fn client_has_our_cpus(&self, variant: usize) -> bool;

    /// Whether these can make load at the same time.
    fn can_load_at_once(&self, clients: &[&Self::Client]) -> bool;

    /// Workers that wait for orders.
    fn load(&self, workers: u32) -> Result<Self::Load, RunError>;

    /// The same stretch on all of them at the same time, and what their servers had used at the
    /// end of each of its intervals.
    fn load_at_once(
        &self,
        loads: &mut [Self::Load],
        plans: &[&LoadPlan],
        stretch: Stretch,
        meters: &[Option<&Self::Meter>],
    ) -> Result<(Vec<Measured>, Vec<Reading>), RunError>;

    /// Where a variant that is up already listens.
    fn endpoint(&self, variant: usize) -> Endpoint;

    /// How a variant's server and client are placed, and what shows it.
    fn placement(&self, variant: usize) -> Placement;

    /// CPU time of all that runs in places, ever.
    fn cpu_of_places(&self) -> u64;

    fn machine(&self) -> Self::Machine;

    /// What servers said since this was last called.
    fn take_events(&self) -> Vec<Event>;

    /// How servers are metered, in words.
    fn metering(&self) -> String;

    /// CPU time of this process: of its load workers, and of the rest.
    fn own_cpu(&self) -> (DurationNs, DurationNs);

    /// Ends what servers left to themselves. To be called when no server runs.
    fn end_orphans(&self);

    /// Removes everything; complaints about what could not be removed.
    fn close(self) -> Vec<String>;
}

/// Where a variant's server and client are.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    pub proofs: Vec<Proof>,
    pub is_emulated: bool,
    /// How often its server's place was started; 0 where it has none.
    pub starts: u32,
}

/// A server that was started. Dropped, it ends.
pub trait Launch {
    type Meter: Meter;

    fn address(&self) -> SocketAddr;

    /// What clients ask for, where they reach it by what stands for it: a Service's address, or the
    /// name by which a gateway knows it.
    fn entry_host(&self) -> Option<&str> {
        None
    }

    fn started(&self) -> Instant;

    /// When it counts as not having become ready.
    fn ready_limit(&self) -> Instant;

    /// Returns at once when the user stops the run.
    fn wait_until_listening(&mut self) -> Result<(), RunError>;

    /// Waits a little for the server to become ready; an error once it is dead, or too late.
    fn not_yet(&mut self, limit: Instant) -> Result<(), RunError>;

    fn is_alive(&self) -> bool;

    /// What of it ended ("the server"), and how, in words that help; to be asked once it is not
    /// alive.
    fn what_ended(&mut self) -> (String, Option<String>);

    /// Why the place that it runs in is no more; `None` where it still is after so long.
    fn place_gone(&self, patience: DurationNs) -> Option<RunError>;

    /// Collects what shows that the variant's layers are in the path, as far as it can be had
    /// before load. `path` is what load asks for.
    fn begin_proofs(&mut self, path: &str, asker: &mut dyn Asker) -> Result<(), RunError>;

    /// After the load, of which so many requests were sent.
    fn end_proofs(&mut self, sent: u64) -> Vec<Proof>;

    /// What one call of its filter costs without a server.
    fn call_ns(&self) -> Option<f64>;

    /// Requests that it served so far, where it can be asked.
    fn served(&self, expected: Expected) -> Option<u64>;

    /// Lines and bytes that it wrote.
    fn logged(&self) -> (u64, u64);

    /// Made when the server has given a reply: its processes are then all there.
    fn meter(&self) -> Self::Meter;

    /// Asks it to end; [`Launch::stop`] then waits.
    fn ask_to_stop(&mut self);

    fn stop(&mut self);
}

/// What a running server uses.
pub trait Meter {
    /// Since the server began (differences count).
    fn read(&self) -> Option<ServerUse>;

    /// CPU time alone, where it can be had in a few microseconds.
    fn cpu_ns(&self) -> Option<u64>;

    /// Of each thread: nanoseconds on a CPU, and ready and waiting for one.
    fn threads(&self) -> Vec<[u64; 2]>;

    fn rss_bytes(&self) -> Option<u64>;

    /// The part of it that its layers' processes hold, where it has such.
    fn layers_rss_bytes(&self) -> Option<u64>;

    /// Periods in which a quota held its processes up, ever.
    fn throttled_periods(&self) -> u64;
}

/// Makes load: one lane a variant; only one is under load at a time.
pub trait Load {
    type Client;

    /// Opens a lane for each plan; how load is made, in words.
    fn open(&mut self, lanes: &[(&Self::Client, &LoadPlan)]) -> Result<Vec<String>, RunError>;

    fn slice(
        &mut self,
        lane: usize,
        plan: &LoadPlan,
        stretch: Stretch,
    ) -> Result<Measured, RunError>;

    /// Closes all lanes; what each did in its life.
    fn close(&mut self) -> Result<Vec<LaneLife>, RunError>;

    /// Asks twice on a connection of its own; where no whole reply came, why.
    fn ask(
        &mut self,
        client: &Self::Client,
        plan: &LoadPlan,
    ) -> Result<Result<Probe, String>, RunError>;

    /// Requests that [`Load::ask`] sent since this was last called.
    fn take_sent(&mut self) -> u64;
}

pub trait MachineReading {
    /// What the machine did since.
    fn since(&self, earlier: &Self) -> MachineUse;

    /// The share of local ports in use.
    fn ports_used(&self) -> Option<f64>;
}

/// What all servers had used at one time.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Since load began.
    pub ns: u64,
    pub servers: Vec<ServerReading>,
}

#[derive(Clone, Debug, Default)]
pub struct ServerReading {
    pub cpu_ns: u64,
    pub threads: Vec<[u64; 2]>,
}

pub trait Clock {
    fn now(&self) -> Instant;
    fn unix_ms(&self) -> u64;
    fn pause(&self, time: DurationNs);
}
