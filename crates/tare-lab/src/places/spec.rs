//! Places as experiment files name them.

use serde::{Deserialize, Serialize};

use super::container::ContainerSpec;
use super::guest_kernel::GuestKernel;
use super::netns::NetnsSpec;
use super::oci::OciSpec;
use super::ssh::SshSpec;
use super::vm::VmSpec;
use super::{Place, Spot};
use crate::error::LabError;
use crate::meter::Limits;

/// Where a server or client runs, as the plan keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlaceSpec {
    /// This machine, as it is.
    Host(HostSpec),
    /// A network namespace of its own.
    Netns(NetnsSpec),
    /// A container, by any runtime of the OCI kind.
    Oci(OciSpec),
    /// A container of an engine, from an image.
    Container(ContainerSpec),
    /// A virtual machine.
    Vm(VmSpec),
    /// Another machine.
    Ssh(SshSpec),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

/// Where the load of a variant comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientSpec {
    /// The server's own place: the same container, or the same VM.
    SameAsServer,
    Place(PlaceSpec),
}

impl ClientSpec {
    pub fn name(&self) -> String {
        match self {
            Self::SameAsServer => "same as server".into(),
            Self::Place(place) => place.name(),
        }
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

impl HostSpec {
    pub fn limits(&self) -> Limits {
        limits(self.cpus, self.memory)
    }
}

pub(super) fn limits(cpus: Option<f64>, memory: Option<Bytes>) -> Limits {
    Limits { cpus, memory_bytes: memory.map(|memory| memory.0) }
}

impl PlaceSpec {
    /// Its words in tables and messages.
    pub fn name(&self) -> String {
        match self {
            Self::Host(_) => "host".into(),
            Self::Netns(_) => "netns".into(),
            Self::Oci(spec) => spec.name(),
            Self::Container(spec) => spec.name(),
            Self::Vm(spec) => spec.name(),
            Self::Ssh(spec) => format!("ssh {}", spec.host),
        }
    }

    /// Whether it can be had here; else why not.
    pub fn check(&self) -> Result<(), LabError> {
        let cpus = self.limits().cpus;
        if cpus.is_some_and(|cpus| !(0.01..=1024.0).contains(&cpus)) {
            let text = format!("cpus = {}: write 0.01 to 1024", cpus.unwrap_or_default());
            return Err(LabError::Usage(text));
        }
        match self {
            Self::Host(spec) if spec.limits() != Limits::default() => {
                super::need_root("a limit of CPU or memory")
            }
            Self::Host(_) => Ok(()),
            Self::Netns(spec) => spec.check().map(drop),
            Self::Oci(spec) => spec.check().map(drop),
            Self::Container(spec) if spec.image.is_empty() => {
                Err(LabError::Usage("container: image = \"\": name an image".into()))
            }
            Self::Container(spec) => spec.check().map(drop),
            Self::Vm(spec) => spec.check().map(drop),
            Self::Ssh(spec) => spec.check().map(drop),
        }
    }

    /// What takes long at its first start.
    pub fn to_wait_for(&self) -> Option<&'static str> {
        match self {
            Self::Host(_) | Self::Netns(_) | Self::Oci(_) => None,
            Self::Container(_) => Some("containers start"),
            Self::Vm(spec) if spec.kernel.is_none() && GuestKernel::kept().is_none() => {
                Some("the kernel for virtual machines is downloaded, once")
            }
            Self::Vm(_) => Some("virtual machines boot"),
            Self::Ssh(_) => Some("the agent is copied to other machines"),
        }
    }

    /// What it may use, where a control group of this machine limits it.
    pub fn limits(&self) -> Limits {
        match self {
            Self::Host(spec) => spec.limits(),
            Self::Netns(spec) => limits(spec.cpus, spec.memory),
            Self::Oci(spec) => limits(spec.cpus, spec.memory),
            Self::Container(spec) => limits(spec.cpus, spec.memory),
            // Its memory and CPUs are the machine's.
            Self::Vm(_) | Self::Ssh(_) => Limits::default(),
        }
    }

    /// Whether a control group of tare's limits it (runtimes limit what they start themselves).
    pub fn limits_by_group(&self) -> Limits {
        match self {
            Self::Host(_) | Self::Netns(_) => self.limits(),
            _ => Limits::default(),
        }
    }

    /// Whether the programs in it are those of this machine.
    pub fn has_our_programs(&self) -> bool {
        match self {
            Self::Host(_) | Self::Netns(_) | Self::Vm(_) => true,
            Self::Oci(spec) => spec.root.is_none(),
            Self::Container(_) | Self::Ssh(_) => false,
        }
    }

    /// Whether a port that is taken on this machine is taken in it.
    pub fn shares_our_ports(&self) -> bool {
        match self {
            Self::Host(_) => true,
            Self::Container(spec) => spec.network.as_deref() == Some("host"),
            _ => false,
        }
    }

    /// Whether a client there can reach a server here.
    pub fn meets(&self, client: &Self) -> bool {
        let network = |place: &Self| match place {
            Self::Host(_) => None,
            Self::Container(spec) if spec.network.as_deref() == Some("host") => None,
            Self::Netns(_) | Self::Oci(_) | Self::Vm(_) => Some("tare's"),
            Self::Container(_) => Some("the engine's"),
            Self::Ssh(_) => Some("another machine's"),
        };
        match (network(self), network(client)) {
            (Some(own), Some(other)) => own == other,
            _ => true,
        }
    }

    /// Whether it stands on tare's bridge.
    pub fn needs_network(&self) -> bool {
        matches!(self, Self::Netns(_) | Self::Oci(_) | Self::Vm(_))
    }

    /// `None` is this very place.
    pub fn place(&self, spot: Spot) -> Option<Box<dyn Place>> {
        match self {
            Self::Host(_) => None,
            Self::Netns(spec) => Some(Box::new(super::netns::Netns::new(spec.clone(), spot))),
            Self::Oci(spec) => Some(Box::new(super::oci::Oci::new(spec.clone(), spot))),
            Self::Container(spec) => {
                Some(Box::new(super::container::Container::new(spec.clone(), spot)))
            }
            Self::Vm(spec) => Some(Box::new(super::vm::Vm::new(spec.clone(), spot))),
            Self::Ssh(spec) => Some(Box::new(super::ssh::Ssh::new(spec.clone(), spot))),
        }
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
