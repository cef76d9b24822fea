//! A container started from an image by a container engine.

use serde::{Deserialize, Serialize};

use super::{Bytes, Kernel, Limits, Network, PlaceFacts};
use crate::Invalid;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerSpec {
    pub image: String,
    /// `podman`, `docker` or `nerdctl`.
    #[serde(default = "podman")]
    pub engine: String,
    /// The engine's runtime: `runc`, `runsc`, `kata`; default: the engine's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// The engine's network; default: the engine's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Whether the server may write to the image's files and has the rights that the engine gives
    /// by default, as most images expect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub writable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

fn podman() -> String {
    "podman".into()
}

pub const ENGINES: [&str; 3] = ["podman", "docker", "nerdctl"];

impl ContainerSpec {
    pub fn of_engine(engine: &str) -> Self {
        let engine = engine.to_owned();
        let image = String::new();
        let (runtime, network) = (None, None);
        Self { image, engine, runtime, network, writable: false, cpus: None, memory: None }
    }
}

impl PlaceFacts for ContainerSpec {
    fn name(&self) -> String {
        match &self.runtime {
            Some(runtime) => format!("{} {runtime}", self.engine),
            None => self.engine.clone(),
        }
    }

    fn check(&self) -> Result<(), Invalid> {
        if self.image.is_empty() {
            return Err("container: image = \"\": name an image".into());
        }
        if !ENGINES.contains(&self.engine.as_str()) {
            return Err(Invalid(format!(
                "container: engine '{}' is not known; {} are",
                self.engine,
                ENGINES.join(", ")
            )));
        }
        let plain = |c: char| !c.is_control() && !c.is_whitespace();
        if self.image.starts_with('-') || !self.image.chars().all(plain) {
            let text = format!("container: {:?} is not the name of an image", self.image);
            return Err(Invalid(text));
        }
        Ok(())
    }

    fn limits(&self) -> Limits {
        Limits::from_settings(self.cpus, self.memory)
    }

    fn has_own_kernel(&self) -> bool {
        self.runtime.as_deref().is_some_and(|runtime| Kernel::from_runtime_name(runtime).is_own())
    }

    fn shares_host_files(&self) -> bool {
        false
    }

    fn network(&self) -> Network {
        match self.network.as_deref() {
            Some("host") => Network::Host,
            _ => Network::Engine,
        }
    }
}
