//! Messages between tare and its agents: one JSON object per line, each with the protocol's number.
//! They are described in docs/agent.md.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::event::Event;
use crate::executor::ServerId;
use crate::executor::requests::Request;
use tare_model::Failure;

/// Incremented when a message changes.
pub const PROTOCOL: u32 = 8;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToAgent {
    pub tare: u32,
    /// Repeated in the answer.
    pub id: u64,
    #[serde(rename = "do")]
    pub word: AgentCommand,
}

/// A message from tare to an agent.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentCommand {
    /// Execute this request and answer.
    Ask(Request),
    /// Keep-alive; not answered.
    Alive,
    /// End the requests in progress; not answered.
    Cancel,
}

/// The protocol's number in a message. Its other fields may belong to another protocol.
#[derive(Deserialize)]
struct Numbered {
    tare: u32,
}

impl ToAgent {
    /// Parses a line from tare.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let no = |error| format!("this is not a message of protocol {PROTOCOL}: {error}");
        match serde_json::from_slice::<Numbered>(line).map_err(no)?.tare {
            PROTOCOL => serde_json::from_slice(line).map_err(no),
            other => Err(format!("protocol {other} is spoken there, {PROTOCOL} here")),
        }
    }
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
    /// The greeting; always the first message.
    Hello(Box<Hello>),
    Done {
        id: u64,
        value: serde_json::Value,
    },
    Failed {
        id: u64,
        failed: Failure,
    },
    /// A server's output.
    Event(Event),
    /// A server ended by itself.
    Ended(ServerId),
}

/// A line from an agent. An answer stays raw until its request is known, so that an answer of a
/// faulty agent takes no more memory than the line.
#[derive(Debug, Deserialize)]
pub struct HeardLine<'a> {
    pub tare: u32,
    #[serde(borrow)]
    pub hello: Option<&'a RawValue>,
    #[serde(borrow)]
    pub done: Option<HeardAnswer<'a>>,
    pub failed: Option<HeardFailure>,
    pub event: Option<Event>,
    pub ended: Option<ServerId>,
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
    pub failed: Failure,
}

/// An agent's description of itself and its place, which proves the place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hello {
    pub version: String,
    /// Its abilities: serve, probe, load.
    pub can: Vec<String>,
    pub kernel_release: String,
    /// `/proc/version`.
    pub kernel: String,
    pub boot_id: String,
    pub uid: u32,
    pub cpus: usize,
    pub memory_bytes: u64,
    /// Id of each namespace: `net` → `net:[4026531840]`.
    pub namespaces: std::collections::BTreeMap<String, String>,
    /// IPv4 addresses of its links.
    pub addresses: Vec<String>,
    /// CPU flags that indicate virtual and confidential machines.
    pub cpu_flags: Vec<String>,
    /// Devices in the place that indicate confidential guests or KVM.
    pub devices: Vec<String>,
    /// Effective capabilities, as in /proc.
    pub capabilities: String,
    pub hostname: String,
    /// SHA-256 of its own program.
    pub program_sha256: String,
    /// How it meters servers: by its container's control group, or by process.
    pub meters_by: String,
    /// Name of its node, if it is set.
    pub node: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::requests::ReadClocks;

    #[test]
    fn only_messages_of_this_protocol_are_taken() {
        let clocks = ToAgent::parse(br#"{"tare":8,"id":7,"do":{"ask":{"read_clocks":{}}}}"#);
        let clocks = clocks.unwrap();
        assert!(matches!(clocks.word, AgentCommand::Ask(Request::ReadClocks(ReadClocks {}))));
        assert_eq!(clocks.id, 7);
        for (line, complaint) in [
            (&br#"{"tare":9,"id":7,"do":"in a way of its own"}"#[..], "protocol 9 is spoken there"),
            (b"{\"tare\":8,\"id\":7,\"do\":\"explode\"}", "unknown variant"),
            (b"{\"tare\":8,\"id\":7,\"do\":{\"ask\":{\"explode\":{}}}}", "unknown variant"),
            (b"{\"tare\":8,\"id\":7}", "missing field"),
            (b"hello", "not a message"),
            (b"\xff\xfe", "not a message"),
        ] {
            let found = ToAgent::parse(line).err().unwrap();
            assert!(found.contains(complaint), "{found}");
        }
    }

    /// Seeds of an older protocol would end at its number, and fuzz nothing behind it.
    #[test]
    fn seeds_of_the_fuzzer_are_messages_of_this_protocol() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/messages");
        for entry in std::fs::read_dir(corpus).unwrap() {
            let path = entry.unwrap().path();
            let seed = std::fs::read(&path).unwrap();
            let number = format!("{{\"tare\": {PROTOCOL},");
            assert!(seed.starts_with(number.as_bytes()), "{}", path.display());
            let is_order =
                serde_json::from_slice::<serde_json::Value>(&seed).unwrap().get("do").is_some();
            let wrong = match is_order {
                true => ToAgent::parse(&seed).err(),
                false => serde_json::from_slice::<FromAgent>(&seed).err().map(|e| e.to_string()),
            };
            assert_eq!(wrong, None, "{}", path.display());
        }
    }
}
