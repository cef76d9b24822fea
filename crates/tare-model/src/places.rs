//! Kinds of places in a plan. `tare_lab::places` makes, proves and removes them, and knows which
//! ones this machine supports.
//!
//! A new kind is a file here with its settings and facts, and a line in `places!`.

mod container;
mod host;
mod kubernetes;
mod netns;
mod oci;
mod ssh;
mod vm;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Invalid;

pub use container::{ContainerSpec, ENGINES};
pub use host::HostSpec;
pub use kubernetes::{Enter, KubernetesSpec, OtherPod, Policy, Via};
pub use netns::NetnsSpec;
pub use oci::OciSpec;
pub use ssh::SshSpec;
pub use vm::{Accel, Confidential, VmSpec};

/// Generates the enum of places and its facts from a list of kinds: the key in experiments, and the
/// setting that a bare word sets, as in `{ oci = "runc" }`.
macro_rules! places {
    ($($key:literal, $short:expr, $name:ident($spec:ty);)*) => {
        /// The place that a server or client runs in.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[expect(clippy::large_enum_variant, reason = "a plan has a handful of them")]
        pub enum PlaceSpec { $($name($spec),)* }

        impl PlaceSpec {
            pub const KINDS: &[(&str, Option<&str>)] = &[$(($key, $short)),*];

            pub fn facts(&self) -> &dyn PlaceFacts {
                match self { $(Self::$name(spec) => spec,)* }
            }

            /// Paths in the settings, relative to the experiment file until they are resolved.
            pub fn paths(&mut self) -> Vec<&mut PathBuf> {
                match self { $(Self::$name(spec) => spec.paths(),)* }
            }
        }
    };
}

places! {
    "host", None, Host(HostSpec);
    "netns", None, Netns(NetnsSpec);
    "oci", Some("runtime"), Oci(OciSpec);
    "container", Some("image"), Container(ContainerSpec);
    "vm", None, Vm(VmSpec);
    "ssh", Some("host"), Ssh(SshSpec);
    "kubernetes", None, Kubernetes(KubernetesSpec);
}

/// Which network a place is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// This machine's own, which is reachable from all others.
    Host,
    /// tare's bridge.
    Bridge,
    /// A container engine's.
    Engine,
    /// Another machine's.
    Elsewhere,
    /// A Kubernetes cluster's.
    Cluster,
}

/// Resource limits of a place.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// CPU time, in CPUs.
    pub cpus: Option<f64>,
    pub memory_bytes: Option<u64>,
}

impl Limits {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        match self.cpus {
            Some(cpus) if !(0.01..=1024.0).contains(&cpus) => {
                Err(Invalid(format!("cpus = {cpus}: write 0.01 to 1024")))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn from_settings(cpus: Option<f64>, memory: Option<Bytes>) -> Self {
        Self { cpus, memory_bytes: memory.map(|memory| memory.0) }
    }
}

/// The kernel that a container runtime provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// The machine's own kernel.
    Shared,
    /// A kernel of gVisor.
    Gvisor,
    /// The kernel of a virtual machine.
    Machine,
    Unknown,
}

impl Kernel {
    /// Guesses the kernel from the name of a runtime or runtime class: `runsc`,
    /// `io.containerd.kata.v2`, `/opt/runc-1.2`, `gvisor`. The kernel that is really used is read
    /// later, from inside the container.
    pub fn from_runtime_name(runtime: &str) -> Self {
        let has = |word: &str| runtime.contains(word);
        match runtime {
            _ if has("runsc") || has("gvisor") => Self::Gvisor,
            _ if has("kata") => Self::Machine,
            _ if has("runc") || has("crun") || has("youki") => Self::Shared,
            _ => Self::Unknown,
        }
    }

    /// Whether it is not the machine's own kernel.
    pub fn is_own(self) -> bool {
        matches!(self, Self::Gvisor | Self::Machine)
    }
}

/// Facts about a place before it is made.
pub trait PlaceFacts {
    /// Its name in tables and messages.
    fn name(&self) -> String;

    fn check(&self) -> Result<(), Invalid> {
        Ok(())
    }

    /// Resource limits that something on this machine enforces.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// Whether a control group of tare's enforces the limits; runtimes enforce them themselves.
    fn is_limited_by_group(&self) -> bool {
        false
    }

    /// Whether it has this machine's programs.
    fn shares_host_files(&self) -> bool {
        true
    }

    fn network(&self) -> Network {
        Network::Bridge
    }

    /// Whether it has a kernel of its own, which uses CPU time even while its servers are idle.
    fn has_own_kernel(&self) -> bool {
        false
    }

    /// Whether starts of the place cannot differ from each other.
    fn is_always_the_same(&self) -> bool {
        false
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        Vec::new()
    }
}

impl PlaceSpec {
    pub fn host() -> Self {
        Self::Host(HostSpec::default())
    }

    /// Whether it is this machine, without limits.
    pub fn is_host(&self) -> bool {
        *self == Self::host()
    }

    pub fn name(&self) -> String {
        self.facts().name()
    }

    pub fn check(&self) -> Result<(), Invalid> {
        self.facts().limits().check()?;
        self.facts().check()
    }

    /// Limits that a control group of tare's enforces.
    pub fn limits_by_group(&self) -> Limits {
        let facts = self.facts();
        if facts.is_limited_by_group() { facts.limits() } else { Limits::default() }
    }

    /// Checks whether it can be the place of a client whose server is in `place`.
    pub fn check_client(&self, place: &Self) -> Result<(), Invalid> {
        match (self, place) {
            (Self::Kubernetes(client), Self::Kubernetes(server)) => {
                client.check_client(Some(server))
            }
            (Self::Kubernetes(client), _) => client.check_client(None),
            _ => Ok(()),
        }
    }

    /// Whether a port that is in use on this machine is also in use in this place.
    pub fn shares_our_ports(&self) -> bool {
        self.facts().network() == Network::Host
    }

    /// Whether a client in that place can reach a server in this one.
    pub fn is_reachable_from(&self, client: &Self) -> bool {
        let (own, other) = (self.facts().network(), client.facts().network());
        own == other || [own, other].contains(&Network::Host)
    }

    pub fn is_on_bridge(&self) -> bool {
        self.facts().network() == Network::Bridge
    }
}

/// An amount of memory: `2G`, `512M`, or a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "u64")]
pub struct Bytes(pub u64);

#[derive(Deserialize)]
#[serde(untagged, expecting = "write memory as 512M, 2G, or a number of bytes")]
enum Written {
    Number(u64),
    Text(String),
}

impl From<Bytes> for u64 {
    fn from(bytes: Bytes) -> Self {
        bytes.0
    }
}

impl TryFrom<Written> for Bytes {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let text = match written {
            Written::Number(n) => n.to_string(),
            Written::Text(text) => text,
        };
        let bad = || format!("memory '{text}': write 512M, 2G, or a number of bytes from 32M");
        let plain = text.trim_end_matches(['B', 'b']).trim_end_matches('i');
        let (digits, unit) = match plain.char_indices().next_back() {
            Some((at, 'k' | 'K')) => (&plain[..at], 1 << 10),
            Some((at, 'm' | 'M')) => (&plain[..at], 1 << 20),
            Some((at, 'g' | 'G')) => (&plain[..at], 1 << 30),
            _ => (plain, 1),
        };
        let n: u64 = digits.trim().parse().map_err(|_| bad())?;
        n.checked_mul(unit).filter(|n| (32 << 20..1 << 50).contains(n)).map(Bytes).ok_or_else(bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_memory_are_read() {
        let read = |text: &str| Bytes::try_from(Written::Text(text.into())).map(|bytes| bytes.0);
        assert_eq!(read("2G"), Ok(2 << 30));
        assert_eq!(read("512MiB"), Ok(512 << 20));
        assert_eq!(read("33554432"), Ok(32 << 20));
        for bad in ["", "G", "-1G", "1X", "12", "99999999999G"] {
            assert!(read(bad).unwrap_err().contains("write 512M"), "{bad}");
        }
    }
}
