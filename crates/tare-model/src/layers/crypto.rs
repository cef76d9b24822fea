//! Hides a CPU feature for cryptography from the libraries of a variant's processes. A comparison
//! with and without acceleration then differs in one bit, not in program or configuration.

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
    /// Hides the integer fused multiply-add of AVX-512, which OpenSSL 3 uses for RSA.
    NoIfma,
    /// Hides vector AES and carry-less multiplication (AVX), used for AES-GCM of much data.
    NoVaes,
    /// Hides AES and carry-less multiplication, also the vector forms; used for AES-GCM.
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

    /// The flag in /proc/cpuinfo without which the mask changes nothing.
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
