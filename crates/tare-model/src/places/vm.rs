//! A virtual machine.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Bytes, PlaceFacts};
use crate::Invalid;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VmSpec {
    pub cpus: u32,
    pub memory: Bytes,
    pub accel: Accel,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidential: Option<Confidential>,
    /// A kernel to use instead of the distribution's cloud kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<PathBuf>,
    /// With `kernel`: the folder with its `lib/modules`; not needed without modules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modules: Option<PathBuf>,
    /// OVMF built for confidential machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<PathBuf>,
    /// Further arguments for the guest's kernel command line.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub append: String,
    /// A QEMU to use instead of the one in `PATH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
    /// Further programs and files of this machine to add to the guest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<PathBuf>,
    /// Longest wait for the guest's first message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_within_s: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accel {
    /// Hardware virtualisation if a guest boots with it; otherwise emulation, which is reported.
    #[default]
    Auto,
    Kvm,
    Tcg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidential {
    Tdx,
    SevSnp,
}

impl Default for VmSpec {
    fn default() -> Self {
        Self {
            cpus: 1,
            memory: Bytes(1 << 30),
            accel: Accel::Auto,
            confidential: None,
            kernel: None,
            modules: None,
            firmware: None,
            append: String::new(),
            program: None,
            programs: Vec::new(),
            boot_within_s: None,
        }
    }
}

impl Confidential {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tdx => "tdx",
            Self::SevSnp => "sev-snp",
        }
    }
}

/// A guest with an initramfs does not start with less memory.
const MEMORY_MIN: u64 = 256 << 20;

impl VmSpec {
    pub fn confidential(kind: Confidential) -> Self {
        Self { confidential: Some(kind), ..Self::default() }
    }
}

impl PlaceFacts for VmSpec {
    fn name(&self) -> String {
        self.confidential.map_or("vm", Confidential::name).to_owned()
    }

    fn check(&self) -> Result<(), Invalid> {
        let usage = |text: String| Err(Invalid(format!("vm: {text}")));
        if !(1..=1024).contains(&self.cpus) {
            return usage(format!("cpus = {}: write 1 to 1024", self.cpus));
        }
        if self.memory.0 < MEMORY_MIN {
            return usage("memory: a guest needs 256M".into());
        }
        if self.confidential.is_some() && self.accel == Accel::Tcg {
            return usage("a confidential guest cannot be emulated: leave out accel".into());
        }
        if self.boot_within_s == Some(0) {
            return usage("boot_within_s = 0: write a number of seconds".into());
        }
        if self.append.chars().any(char::is_control) {
            return usage("append: write printable characters".into());
        }
        if self.modules.is_some() && self.kernel.is_none() {
            return usage("modules goes with kernel".into());
        }
        Ok(())
    }

    fn has_own_kernel(&self) -> bool {
        true
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        let files = [&mut self.kernel, &mut self.modules, &mut self.firmware, &mut self.program];
        files.into_iter().flatten().chain(&mut self.programs).collect()
    }
}
