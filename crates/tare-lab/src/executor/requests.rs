//! What an executor can be asked: one table. Each request is a type of its own and knows the type
//! of its reply, so that asking is the same in this process and at the end of a byte stream.

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
use crate::meters::{Footprint, Quiet, Reading, Used};
use tare_model::Failure;

/// A request with the type of its reply.
pub trait Ask: Into<Request> + Send {
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

            impl Ask for $name {
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

        /// Any of them, as it crosses a stream.
        #[derive(Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Request {
            $($name($name),)*
        }

        impl Request {
            /// Carries it out; the reply as a message.
            pub fn carry_out(self, executor: &Executor) -> Result<serde_json::Value, Failure> {
                match self {
                    $(Self::$name(request) => value(&request.carry_out(executor)?),)*
                }
            }

            /// All that there are, for whoever tests or documents them.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];
        }
    };
}

requests! {
    /// Writes a server's files and starts it; who is in a control group, and on which CPUs.
    Start {
        who: String, launch_spec: Box<LaunchSpec>, cpus: Vec<usize>, cgroup: Option<Cgroup>
    } -> ServerId = start;
    /// Waits until it accepts connections.
    AwaitListening { server: ServerId } -> () = await_listening;
    /// Waits briefly for a server that does not answer well yet; an error once it is dead, or late.
    AwaitReady { server: ServerId, late: bool } -> () = await_ready;
    /// Tells whether its first process lives.
    IsAlive { server: ServerId } -> bool = is_alive;
    /// Tells how it ended, in words that help.
    HowItEnded { server: ServerId } -> Option<String> = how_it_ended;
    /// Counts the lines and bytes that it wrote.
    Logged { server: ServerId } -> (u64, u64) = logged;
    /// Asks it to end.
    AskToStop { server: ServerId } -> () = ask_to_stop;
    /// Ends it and all its processes; counts what it wrote.
    Stop { server: ServerId } -> (u64, u64) = stop;
    /// Fetches a page over plain HTTP, head and all.
    Page { address: SocketAddr, path: String } -> Option<String> = page;
    /// Counts the lines of a file.
    Lines { path: PathBuf } -> Option<u64> = lines;
    /// Tells who has connections to a port, and how many.
    Peers { port: u16 } -> BTreeMap<IpAddr, u64> = peers;
    /// Opens the counters of what is to be metered, anew where they are open.
    Attach { target: Target } -> MeterId = attach;
    /// Reads them.
    Read { meter: MeterId } -> Used = read;
    /// Reads memory, and what a quota did.
    ReadFootprint { meter: MeterId } -> Footprint = footprint;
    /// Tells whose counters they are.
    Processes { meter: MeterId } -> Vec<u32> = processes;
    /// Waits until these stand still; tells whether they do.
    Quiesce { meters: Vec<MeterId>, quiet: Quiet } -> bool = quiesce;
    /// Reads these at an instant and again after each interval.
    Sample {
        meters: Vec<MeterId>, from: Instant, interval: DurationNs, times: u32
    } -> Vec<Vec<Reading>> = sample;
    /// Opens connections: a lane for each plan.
    Open { lanes: Vec<LoadPlan> } -> Opened = open;
    /// Makes load on one lane: ramp, window, drain.
    Slice { load: LoadId, lane: LaneId, stretch: Stretch } -> Measured = slice;
    /// Tells some of the intervals of its last slice, where that handed them over.
    Intervals { load: LoadId, from: usize } -> Vec<Measured> = intervals;
    /// Closes all lanes of a load; tells what each did in its life.
    Close { load: LoadId } -> Vec<LaneLife> = close;
    /// Asks a server twice on a connection of its own.
    Probe { plan: Box<LoadPlan> } -> Probed = probe;
    /// Reads the clocks.
    ReadClocks {} -> Clocks = clocks;
}

fn value(reply: &impl Serialize) -> Result<serde_json::Value, Failure> {
    serde_json::to_value(reply)
        .map_err(|error| Failure::bug(format!("a reply is no message: {error}")))
}
