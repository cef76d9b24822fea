//! What tare and its agents say to each other: one JSON object a line, each with the protocol's
//! number. docs/agent.md tells it in words.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tare_load::engine::Life;
use tare_load::{LoadPlan, Stretch};
use tare_model::samples::{NUMBER_MAX, ServerUse};

use crate::event::Event;
use crate::launch_spec::LaunchSpec;

/// Raised when a message changes.
pub const PROTOCOL: u32 = 6;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToAgent {
    pub tare: u32,
    /// The answer bears it.
    pub id: u64,
    #[serde(rename = "do")]
    pub request: Request,
}

impl ToAgent {
    /// Reads one line of tare's.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let message: Self = serde_json::from_slice(line)
            .map_err(|error| format!("this is not a message of protocol {PROTOCOL}: {error}"))?;
        match message.tare {
            PROTOCOL => Ok(message),
            other => Err(format!("protocol {other} is spoken there, {PROTOCOL} here")),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Starts a server, the only one; answer: null.
    Start { launch_spec: Box<LaunchSpec>, cpus: Vec<usize> },
    /// Waits until it accepts connections; null.
    Listening,
    /// Waits a little for it to become ready; null, or why it never will be.
    NotYet { late: bool },
    /// Whether its first process lives; a boolean.
    IsAlive,
    /// How its server ended, in words, or null.
    HowItEnded,
    /// [`Used`].
    Used,
    /// Lines and bytes that it wrote.
    Logged,
    /// A page over plain HTTP, head and all, or null.
    Page { address: SocketAddr, path: String },
    /// Lines of a file, or null.
    Lines { path: PathBuf },
    /// Asks it to end; null.
    AskToStop,
    /// Ends it and all its processes; null.
    Stop,
    /// Opens connections; [`Opened`].
    Open { lanes: Vec<LoadPlan> },
    /// A slice of load on one of them; a `Measured` of tare-load.
    Slice { lane: usize, stretch: Stretch },
    /// Closes them; one [`LaneLife`] a lane.
    Close,
    /// Two requests on a connection of its own; [`Probed`].
    Probe { plan: Box<LoadPlan> },
    /// The place's clocks; [`Clock`].
    Clock,
    /// Who has connections to a port of the place; addresses and how many.
    Peers { port: u16 },
    /// Of an agent that sees its node's control groups: what a pod uses, or one container of it;
    /// [`Used`].
    UsedByPod { uid: String, container: Option<String> },
    /// tare is there; not answered.
    Alive,
    /// Ends what is under way; said in between, and not answered.
    Cancel,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FromAgent {
    pub tare: u32,
    #[serde(flatten)]
    pub message: Message,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// The first, unasked.
    Hello(Box<Hello>),
    Done {
        id: u64,
        value: serde_json::Value,
    },
    Failed {
        id: u64,
        failed: Failed,
    },
    /// What a server said.
    Event(Event),
}

/// A line of an agent's, as it is read. An answer is kept as it came until it is known what it is
/// an answer to: whatever a strange agent sends takes no more memory than the line.
#[derive(Debug, Deserialize)]
pub struct HeardLine<'a> {
    pub tare: u32,
    #[serde(borrow)]
    pub hello: Option<&'a RawValue>,
    #[serde(borrow)]
    pub done: Option<HeardAnswer<'a>>,
    pub failed: Option<HeardFailure>,
    pub event: Option<Event>,
}

#[derive(Debug, Deserialize)]
pub struct HeardAnswer<'a> {
    pub id: u64,
    #[serde(borrow)]
    pub value: &'a RawValue,
}

#[derive(Debug, Deserialize)]
pub struct HeardFailure {
    pub id: u64,
    pub failed: Failed,
}

/// Who must act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failed {
    Usage(String),
    Environment(String),
    Target(String),
}

/// What an agent says of itself and of where it is: by this a place is proven.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hello {
    pub version: String,
    /// What it can do: serve, probe, load.
    pub can: Vec<String>,
    pub kernel_release: String,
    /// `/proc/version`.
    pub kernel: String,
    pub boot_id: String,
    pub uid: u32,
    pub cpus: usize,
    pub memory_bytes: u64,
    /// The identity of each namespace: `net` → `net:[4026531840]`.
    pub namespaces: std::collections::BTreeMap<String, String>,
    /// IPv4 addresses of its links.
    pub addresses: Vec<String>,
    /// Flags of its CPUs, those that tell of virtual and confidential machines.
    pub cpu_flags: Vec<String>,
    /// Devices of confidential guests that it sees.
    pub devices: Vec<String>,
    /// Effective capabilities, as /proc tells them.
    pub capabilities: String,
    pub hostname: String,
    /// Of its own program.
    pub program_sha256: String,
    /// How it meters servers: by its container's control group, or by process.
    pub meters_by: String,
    /// What its node is called, where it is told.
    pub node: String,
}

/// What a server uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Used {
    pub server: Option<ServerUse>,
    pub rss_bytes: Option<u64>,
    /// Periods in which a quota held it up, ever.
    #[serde(default)]
    pub throttled_periods: u64,
}

/// How load is made there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    pub reactor: String,
    pub note: Option<String>,
}

/// What a lane did in its life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneLife {
    pub sent: u64,
    pub closed_by_server: u64,
    /// Of each connection that was kept.
    #[serde(default)]
    pub replies: Vec<u64>,
}

impl LaneLife {
    /// With what others did beside it. It may be told by an agent in another's hands.
    pub fn add(&mut self, more: &Self) {
        let sum = |a: u64, b: u64| a.saturating_add(b).min(NUMBER_MAX);
        self.sent = sum(self.sent, more.sent);
        self.closed_by_server = sum(self.closed_by_server, more.closed_by_server);
        self.replies.extend(&more.replies);
    }

    pub fn of<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        parts.into_iter().fold(Self::default(), |mut all, part| {
            all.add(part);
            all
        })
    }

    /// A lane's, of all workers.
    pub fn of_workers(workers: &[Vec<Life>], lane: usize) -> Self {
        let own = workers.iter().filter_map(|lanes| lanes.get(lane));
        let lives: Vec<Self> = own.map(Self::from).collect();
        Self::of(&lives)
    }
}

impl From<&Life> for LaneLife {
    fn from(life: &Life) -> Self {
        let Life { sent, closed_by_server, replies, .. } = life.clone();
        Self { sent, closed_by_server, replies }
    }
}

/// What a probe saw, or why it saw nothing; and the requests that it sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probed {
    pub probe: Option<tare_model::samples::Probe>,
    pub why: String,
    pub sent: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    pub unix_ns: u64,
    pub monotonic_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_of_this_protocol_are_taken() {
        let stop = ToAgent::parse(br#"{"tare":6,"id":7,"do":"stop"}"#).unwrap();
        assert!(stop.id == 7 && matches!(stop.request, Request::Stop));
        for (line, complaint) in [
            (&br#"{"tare":1,"id":7,"do":"stop"}"#[..], "protocol 1"),
            (b"{\"tare\":6,\"id\":7,\"do\":\"explode\"}", "unknown variant"),
            (b"{\"tare\":6,\"id\":7}", "missing field"),
            (b"hello", "not a message"),
            (b"\xff\xfe", "not a message"),
        ] {
            let found = ToAgent::parse(line).err().unwrap();
            assert!(found.contains(complaint), "{found}");
        }
    }
}
