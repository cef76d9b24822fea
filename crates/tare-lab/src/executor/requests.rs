//! A table of all requests to an executor. Each request is a type with its own type of reply, so
//! that asking is the same in this process and across a byte stream.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tare_io::{DurationNs, Instant};
use tare_load::measured::Measured;
use tare_load::{LaneId, LoadPlan, Stretch};

use crate::executor::{
    Clocks, Executor, LaneLife, LoadId, MeterId, Opened, Probed, ServerId, Target,
};
use crate::launch::spec::LaunchSpec;
use crate::machine::cgroup::Cgroup;
use crate::meters::{Footprint, MeterReading, Quiet, Reading};
use tare_model::Failure;

/// A request with the type of its reply.
pub trait ExecutorRequest: Into<Request> + Send {
    type Reply: Serialize + DeserializeOwned + Send;

    fn carry_out(self, executor: &Executor) -> Result<Self::Reply, Failure>;
}

macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* } -> $reply:ty = $method:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Serialize, Deserialize)]
            #[serde(deny_unknown_fields)]
            pub struct $name {
                $(pub $field: $type,)*
            }

            impl ExecutorRequest for $name {
                type Reply = $reply;

                fn carry_out(self, executor: &Executor) -> Result<$reply, Failure> {
                    executor.$method($(self.$field),*)
                }
            }

            impl From<$name> for Request {
                fn from(request: $name) -> Self {
                    Self::$name(request)
                }
            }
        )*

        /// Any request, as it crosses a stream.
        #[derive(Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Request {
            $($name($name),)*
        }

        impl Request {
            /// Carries it out; returns the reply as a message.
            pub fn carry_out(self, executor: &Executor) -> Result<serde_json::Value, Failure> {
                match self {
                    $(Self::$name(request) => value(&request.carry_out(executor)?),)*
                }
            }

            /// Names of all requests, for tests and documentation.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];
        }
    };
}

requests! {
    /// Writes a server's files and starts it, on these CPUs and in this control group.
    Start {
        who: String, launch_spec: Box<LaunchSpec>, cpus: Vec<usize>, cgroup: Option<Cgroup>
    } -> ServerId = start;
    /// Waits until it accepts connections; returns the port.
    AwaitListening { server: ServerId } -> u16 = await_listening;
    /// Waits briefly for a server to become ready; fails once it is dead or `late` is set.
    AwaitReady { server: ServerId, late: bool } -> () = await_ready;
    /// Returns whether a server's first process is alive.
    IsAlive { server: ServerId } -> bool = is_alive;
    /// Describes how a server ended.
    HowItEnded { server: ServerId } -> Option<String> = how_it_ended;
    /// Counts the lines and bytes that it wrote.
    Logged { server: ServerId } -> (u64, u64) = logged;
    /// Asks a server to end.
    AskToStop { server: ServerId } -> () = ask_to_stop;
    /// Ends a server and all its processes; returns the lines and bytes that it wrote.
    Stop { server: ServerId } -> (u64, u64) = stop;
    /// Fetches a page over plain HTTP, head and all.
    Page { address: SocketAddr, path: String } -> Option<String> = page;
    /// Counts the lines of a file.
    Lines { path: PathBuf } -> Option<u64> = lines;
    /// Counts the connections to a port, by peer.
    Peers { port: u16 } -> BTreeMap<IpAddr, u64> = peers;
    /// Opens the counters of a target; if they are open, looks for its processes again.
    Attach { target: Target } -> MeterId = attach;
    /// Reads a meter's counters.
    Read { meter: MeterId } -> MeterReading = read;
    /// Reads the memory of a meter's target, and the periods in which a quota throttled it.
    ReadFootprint { meter: MeterId } -> Footprint = footprint;
    /// Returns the processes that a meter reads.
    Processes { meter: MeterId } -> Vec<u32> = processes;
    /// Waits until the targets of these meters are idle; returns whether they are.
    Quiesce { meters: Vec<MeterId>, quiet: Quiet } -> bool = quiesce;
    /// Reads these meters at an instant and again after each interval.
    Sample {
        meters: Vec<MeterId>, from: Instant, interval: DurationNs, times: u32
    } -> Vec<Vec<Reading>> = sample;
    /// Opens connections: a lane for each plan.
    Open { lanes: Vec<LoadPlan> } -> Opened = open;
    /// Makes load on one lane: ramp, window, drain.
    Slice { load: LoadId, lane: LaneId, stretch: Stretch } -> Measured = slice;
    /// Returns intervals of a load's last slice, if they were kept.
    Intervals { load: LoadId, from: usize } -> Vec<Measured> = intervals;
    /// Closes all lanes of a load; returns the totals of each.
    Close { load: LoadId } -> Vec<LaneLife> = close;
    /// Sends a server two requests on a connection of its own.
    Probe { plan: Box<LoadPlan> } -> Probed = probe;
    /// Reads the clocks.
    ReadClocks {} -> Clocks = clocks;
}

fn value(reply: &impl Serialize) -> Result<serde_json::Value, Failure> {
    serde_json::to_value(reply)
        .map_err(|error| Failure::bug(format!("a reply is no message: {error}")))
}
