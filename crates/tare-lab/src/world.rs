//! What a run needs of the world: servers, what they use, load. [`crate::Lab`] is this machine and
//! what it reaches; tests of the runner have a world of their own.

use std::fmt;
use std::net::SocketAddr;

use tare_io::{DurationNs, Endpoint, Instant};
use tare_load::measured::Measured;
use tare_load::{LoadPlan, Stretch};
use tare_model::plan::VariantId;
use tare_model::samples::{LaunchPart, Probe, Proof, Sent};
use tare_model::usage::Usage;

use crate::event::Event;
use crate::executor::LaneLife;
use crate::machine;
use crate::meters::{Quiet, Reading};
use tare_model::Failure;

/// Servers of all variants, and the clients that load them.
pub trait World {
    type Launch: Launch<Meter = Self::Meter>;
    type Meter: Meter;
    /// Who makes the load on one variant.
    type Clients;
    type Load: MakeLoad<Clients = Self::Clients>;

    /// Ends a variant's place, if it is up: that is not in the time of its next start.
    fn make_way(&mut self, variant: VariantId);

    /// Starts a variant's server, in its place; `None` where it is up already.
    fn launch(&mut self, variant: VariantId, round: u32) -> Result<Option<Self::Launch>, Failure>;

    /// The clients of a variant, whose server is up.
    fn clients(&mut self, variant: VariantId, round: u32) -> Result<Self::Clients, Failure>;

    /// Whether CPUs have the numbers for a variant's clients that they have here.
    fn clients_have_our_cpus(&self, variant: VariantId) -> bool;

    /// Connections to a variant's server, none of which is open yet.
    fn load(&self) -> Self::Load;

    /// Makes the same stretch of each of these loads, at the same time; what came of it, and what
    /// each server had used at the end of each interval.
    fn load_at_once(
        &self,
        loads: &mut [&mut Self::Load],
        stretch: Stretch,
        meters: &[Option<&Self::Meter>],
    ) -> Result<Vec<(Measured, Vec<Reading>)>, Failure>;

    /// Waits until these servers stand still; whether they do.
    fn quiesce(&self, meters: &[&Self::Meter], quiet: Quiet) -> bool;

    /// Where a variant that is up already listens.
    fn endpoint(&self, variant: VariantId) -> Endpoint;

    /// How a variant's server and client are placed, and what shows it.
    fn placement(&self, variant: VariantId) -> Placement;

    /// CPU time of all that runs in the places of servers and clients, ever: those, runtimes,
    /// machines.
    fn cpu_of_places(&self) -> u64;

    fn machine(&self) -> machine::Counters;

    /// The share of local ports in use.
    fn ports_used(&self) -> Option<f64>;

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

/// When a server's own count is believed to be the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    AtLeast(u64),
    /// Twice the same.
    Quiet,
}

/// A server that was started, with its layers. Dropped, it ends.
pub trait Launch {
    type Meter: Meter;

    /// Where its client connects to.
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
    fn wait_until_listening(&mut self) -> Result<(), Failure>;

    /// Waits a little for the server to become ready; an error once it is dead, or too late.
    fn not_yet(&mut self, limit: Instant) -> Result<(), Failure>;

    fn is_alive(&self) -> bool;

    /// What of it ended ("the server"), and how, in words that help; to be asked once it is not
    /// alive.
    fn what_ended(&mut self) -> (String, Option<String>);

    /// Why the place that it runs in is no more; `None` where it still is after so long.
    fn place_gone(&self, timeout: DurationNs) -> Option<Failure>;

    /// Collects what shows that the variant's layers are in the path, as far as it can be had
    /// before load. `path` is what load asks for.
    fn begin_proofs(&mut self, path: &str, asker: &mut dyn Asker) -> Result<(), Failure>;

    /// After the load, of which so many requests were sent.
    fn end_proofs(&mut self, sent: Sent) -> Vec<Proof>;

    /// What one call of its filter costs without a server.
    fn call_ns(&self) -> Option<f64>;

    /// Requests that it served so far, without those that asked for this; where it can be asked.
    fn served(&self, expected: Expected) -> Option<u64>;

    /// Lines and bytes that it wrote.
    fn logged(&self) -> (u64, u64);

    /// Made when the server has given a reply: its processes are then all there.
    fn meter(&self) -> Self::Meter;

    /// Asks it to end; [`Launch::stop`] then waits.
    fn ask_to_stop(&mut self);

    fn stop(&mut self);
}

/// Asks for one path of a server, beside its load.
pub trait Asker {
    /// The reply; where no whole one came, why.
    fn ask(&mut self, target: &str) -> Result<Result<Probe, String>, Failure>;

    /// Requests that were sent since this was last called.
    fn take_sent(&mut self) -> u64;
}

/// What a running variant uses: its server, and the hops before it.
pub trait Meter {
    fn used(&self) -> Used;

    /// Each part with its memory and quotas: hops, the nearest to the client first, then the
    /// server.
    fn parts(&self) -> Vec<LaunchPart>;
}

/// What all parts have used since they began; differences count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Used {
    /// `None` where one of them is not to be seen.
    pub usage: Option<Usage>,
    /// Nanoseconds on a CPU, and ready and waiting for one, for each thread; none where the
    /// server's are not to be seen.
    pub threads: Vec<[u64; 2]>,
}

/// How a lane's load is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MadeBy {
    /// Its interface to the kernel, and why it is not another.
    pub reactor: String,
    pub note: Option<String>,
    pub polls: bool,
    /// Clients that make it together, and how far off the estimate of their clocks can be.
    pub clients: usize,
    pub clock_error: DurationNs,
}

impl fmt::Display for MadeBy {
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

    /// Opens its connections; how its load is made.
    fn open(&mut self, clients: &Self::Clients, plan: &LoadPlan) -> Result<MadeBy, Failure>;

    fn slice(&mut self, stretch: Stretch) -> Result<Measured, Failure>;

    /// Closes them; what they did in their life.
    fn close(&mut self) -> Result<LaneLife, Failure>;

    /// Asks twice on a connection of the first client's own; where no whole reply came, why.
    fn ask(
        &mut self,
        clients: &Self::Clients,
        plan: &LoadPlan,
    ) -> Result<Result<Probe, String>, Failure>;

    /// Requests that [`MakeLoad::ask`] sent since this was last called.
    fn take_sent(&mut self) -> u64;
}
