//! The interface that a run needs: servers, their resource use, and load. [`crate::Lab`]
//! implements it for this machine and others in reach; tests of the runner use fakes.

use std::fmt;
use std::net::SocketAddr;

use tare_io::{DurationNs, Endpoint, Instant};
use tare_load::measured::Measured;
use tare_load::{LoadPlan, Stretch};
use tare_model::counters::Counters;
use tare_model::plan::VariantId;
use tare_model::samples::{LaunchPart, Probe, Proof, Sent};
use tare_model::usage::Usage;

use crate::event::Event;
use crate::executor::LaneLife;
use crate::machine;
use crate::meters::{Quiet, Reading};
use tare_model::Failure;

/// The servers of all variants, and the clients that load them.
pub trait World {
    type Launch: Launch<Meter = Self::Meter>;
    type Meter: Meter;
    /// The clients that load one variant.
    type Clients;
    type Load: MakeLoad<Clients = Self::Clients>;

    /// Ends a variant's place if it is up, so that the next start is timed without this.
    fn tear_down_place(&mut self, variant: VariantId);

    /// Starts a variant's server in its place; `None` if the user runs it.
    fn launch(&mut self, variant: VariantId, round: u32) -> Result<Option<Self::Launch>, Failure>;

    /// Returns the clients of a variant. Its server must be up.
    fn clients(&mut self, variant: VariantId, round: u32) -> Result<Self::Clients, Failure>;

    /// Returns whether a variant's clients number their CPUs as this process does.
    fn clients_share_cpu_numbers(&self, variant: VariantId) -> bool;

    /// Returns a load without open connections.
    fn load(&self) -> Self::Load;

    /// Runs the same stretch of all these loads at the same time. Returns each load's results, and
    /// what each server had used at the end of each interval.
    fn load_at_once(
        &self,
        loads: &mut [&mut Self::Load],
        stretch: Stretch,
        meters: &[Option<&Self::Meter>],
    ) -> Result<Vec<(Measured, Vec<Reading>)>, Failure>;

    /// Waits until these servers are idle; returns whether they are.
    fn quiesce(&self, meters: &[&Self::Meter], quiet: Quiet) -> bool;

    /// Returns where a variant that is already up listens.
    fn endpoint(&self, variant: VariantId) -> Endpoint;

    /// Returns how a variant's server and clients are placed, with the proofs.
    fn placement(&self, variant: VariantId) -> Placement;

    /// Returns what everything but this variant and the clients used of the CPUs so far, given what
    /// the variant used. Only differences are meaningful.
    fn neighbours(&self, variant: VariantId, used: &Usage) -> Counters;

    /// Returns the CPU time used so far in the places of servers and clients, with their runtimes
    /// and virtual machines.
    fn cpu_of_places(&self) -> u64;

    fn machine(&self) -> machine::Counters;

    /// Returns the share of local ports in use.
    fn ports_used(&self) -> Option<f64>;

    /// Returns the events since the last call.
    fn take_events(&self) -> Vec<Event>;

    /// Describes how servers are metered.
    fn metering(&self) -> String;

    /// Returns the CPU time of this process: of its load workers, and of the rest.
    fn own_cpu(&self) -> (DurationNs, DurationNs);

    /// Ends processes that servers left behind. Call it when no server runs.
    fn end_orphans(&self);

    /// Removes everything; returns a message for each thing that could not be removed.
    fn close(self) -> Vec<String>;
}

/// How a variant's server and clients are placed.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    pub proofs: Vec<Proof>,
    pub is_emulated: bool,
    /// How often the server's place was started; 0 if it has none.
    pub starts: u32,
}

/// When a server's own count is taken as final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountSettled {
    AtLeast(u64),
    /// Two consecutive readings agree.
    Quiet,
}

/// A started server with its layers. Dropping it ends it.
pub trait Launch {
    type Meter: Meter;

    /// Returns the address that its client connects to.
    fn address(&self) -> SocketAddr;

    /// Returns the host that clients name if they reach the server through something else: a
    /// Service's address, or the name that a gateway routes by.
    fn entry_host(&self) -> Option<&str> {
        None
    }

    fn started(&self) -> Instant;

    /// Returns the deadline for becoming ready.
    fn ready_limit(&self) -> Instant;

    /// Waits until the server accepts connections; returns at once when the user stops the run.
    fn wait_until_listening(&mut self) -> Result<(), Failure>;

    /// Waits briefly for the server to become ready; fails once it is dead or past `limit`.
    fn wait_until_ready(&mut self, limit: Instant) -> Result<(), Failure>;

    fn is_alive(&self) -> bool;

    /// Returns which part ended ("the server") and how. Call it once the launch is not alive.
    fn describe_end(&mut self) -> (String, Option<String>);

    /// Waits up to `timeout` for its place to end; returns why it ended, or `None` if it is still
    /// up.
    fn place_failure(&self, timeout: DurationNs) -> Option<Failure>;

    /// Collects the proofs that the variant's layers are in the path, as far as they exist before
    /// load. `path` is the path that the load requests.
    fn begin_proofs(&mut self, path: &str, asker: &mut dyn ProbeSender) -> Result<(), Failure>;

    /// Collects the remaining proofs after a load that sent these requests.
    fn end_proofs(&mut self, sent: Sent) -> Vec<Proof>;

    /// Returns the cost of one call of its filter without a server, in nanoseconds.
    fn call_ns(&self) -> Option<f64>;

    /// Returns the requests served so far, without those of the count itself, if the server can be
    /// asked.
    fn served(&self, expected: CountSettled) -> Option<u64>;

    /// Returns the lines and bytes that it wrote.
    fn logged(&self) -> (u64, u64);

    /// Makes a meter. Call it once the server has replied: all its processes exist by then.
    fn meter(&self) -> Self::Meter;

    /// Asks it to end; [`Launch::stop`] then waits.
    fn ask_to_stop(&mut self);

    fn stop(&mut self);
}

/// Sends single requests to a server, beside its load.
pub trait ProbeSender {
    /// Returns the reply, or why no complete one came.
    fn ask(&mut self, target: &str) -> Result<Result<Probe, String>, Failure>;

    /// Returns the requests sent since the last call.
    fn take_sent(&mut self) -> u64;
}

/// Measures what a running variant uses: its server, and the hops before it.
pub trait Meter {
    fn used(&self) -> LaunchUsage;

    /// Returns each part with its memory and quotas: hops, starting with the one nearest to the
    /// client, then the server.
    fn parts(&self) -> Vec<LaunchPart>;
}

/// Use of all parts since they started. Only differences are meaningful.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LaunchUsage {
    /// `None` if one of the parts cannot be read.
    pub usage: Option<Usage>,
    /// Nanoseconds on a CPU, and nanoseconds ready but waiting for one, of each thread. Empty if the
    /// server's threads cannot be read.
    pub threads: Vec<[u64; 2]>,
}

/// How load is made on a lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadSource {
    /// Its interface to the kernel; `note` says why no other was chosen.
    pub reactor: String,
    pub note: Option<String>,
    pub polls: bool,
    /// Number of clients that make the load together.
    pub clients: usize,
    /// Largest error of the clients' estimated clock offsets.
    pub clock_error: DurationNs,
}

impl fmt::Display for LoadSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reactor)?;
        if let Some(note) = &self.note {
            write!(f, " ({note})")?;
        }
        if self.polls {
            f.write_str(", polling")?;
        }
        if self.clients > 1 {
            let (n, error) = (self.clients, self.clock_error);
            write!(f, " from {n} clients, whose clocks are known to ± {error}")?;
        }
        Ok(())
    }
}

/// Makes load on one variant.
pub trait MakeLoad {
    type Clients;

    /// Opens its connections; returns how its load is made.
    fn open(&mut self, clients: &Self::Clients, plan: &LoadPlan) -> Result<LoadSource, Failure>;

    fn slice(&mut self, stretch: Stretch) -> Result<Measured, Failure>;

    /// Closes the connections; returns what they did in their life.
    fn close(&mut self) -> Result<LaneLife, Failure>;

    /// Sends two requests on a separate connection of the first client; returns why if one got no
    /// complete reply.
    fn ask(
        &mut self,
        clients: &Self::Clients,
        plan: &LoadPlan,
    ) -> Result<Result<Probe, String>, Failure>;

    /// Returns the requests that [`MakeLoad::ask`] sent since the last call.
    fn take_sent(&mut self) -> u64;
}
