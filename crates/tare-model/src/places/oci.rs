//! A container, run by any runtime with the OCI command line.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Bytes, Kernel, Limits, PlaceFacts};
use crate::Invalid;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OciSpec {
    /// `runc`, `crun`, `runsc`, `kata-runtime`, `youki`, or the path of another.
    pub runtime: String,
    /// Platform of runsc: `systrap`, `kvm`, `ptrace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// CPU time, in CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// A folder, or an unpacked image, instead of a root made of this machine's own programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<PathBuf>,
    /// Further programs and files of this machine to add to the root that tare makes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<PathBuf>,
}

impl OciSpec {
    pub fn plain(runtime: &str) -> Self {
        Self {
            runtime: runtime.to_owned(),
            platform: None,
            cpus: None,
            memory: None,
            root: None,
            programs: Vec::new(),
        }
    }
}

impl PlaceFacts for OciSpec {
    fn name(&self) -> String {
        let file = Path::new(&self.runtime).file_name().unwrap_or_default();
        file.to_string_lossy().into_owned()
    }

    fn check(&self) -> Result<(), Invalid> {
        if self.runtime.is_empty() || self.runtime.chars().any(char::is_control) {
            let text = format!("oci: runtime {:?}: write its name or path", self.runtime);
            return Err(Invalid(text));
        }
        let plain = |text: &String| !text.is_empty() && text.chars().all(char::is_alphanumeric);
        if let Some(platform) = self.platform.as_ref().filter(|platform| !plain(platform)) {
            let text = format!("oci: platform {platform:?}: write systrap, kvm or ptrace");
            return Err(Invalid(text));
        }
        if self.root.as_deref() == Some(Path::new("/")) {
            let text = "oci: root \"/\" is this machine itself: leave it out, or name a folder";
            return Err(text.into());
        }
        Ok(())
    }

    fn limits(&self) -> Limits {
        Limits::from_settings(self.cpus, self.memory)
    }

    fn has_own_kernel(&self) -> bool {
        Kernel::from_runtime_name(&self.name()).is_own()
    }

    fn shares_host_files(&self) -> bool {
        self.root.is_none()
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        self.root.iter_mut().chain(&mut self.programs).collect()
    }
}
