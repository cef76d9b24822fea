//! A CPU without one of its features for cryptography, to the libraries of a variant's processes:
//! with and without acceleration are then one program, one configuration, one bit.

use serde::{Deserialize, Serialize};

use super::LayerFacts;
use crate::Invalid;
use crate::servers::ServerSpec;
use crate::variant::Variant;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CryptoSpec {
    pub crypto: Mask,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mask {
    /// Integer fused multiply-add of AVX-512: RSA in OpenSSL 3.
    NoIfma,
    /// AES and carry-less multiplication by vectors of AVX: AES-GCM of much data.
    NoVaes,
    /// AES and carry-less multiplication, the vector forms too: AES-GCM.
    NoAes,
}

impl Mask {
    pub fn word(self) -> &'static str {
        match self {
            Self::NoIfma => "no-ifma",
            Self::NoVaes => "no-vaes",
            Self::NoAes => "no-aes",
        }
    }

    /// What a CPU must have for this to change anything, as /proc/cpuinfo names it.
    pub fn flag(self) -> &'static str {
        match self {
            Self::NoIfma => "avx512ifma",
            Self::NoVaes => "vaes",
            Self::NoAes => "aes",
        }
    }
}

impl LayerFacts for CryptoSpec {
    fn name(&self) -> String {
        format!("crypto {}", self.crypto.word())
    }

    fn check(&self, variant: &Variant) -> Result<(), Invalid> {
        match variant.server {
            ServerSpec::External | ServerSpec::Standing(_) => {
                Err(Invalid(format!("{}: it goes with a server that tare starts", self.name())))
            }
            _ => Ok(()),
        }
    }
}
