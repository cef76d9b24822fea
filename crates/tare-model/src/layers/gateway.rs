//! A gateway in front of the server: it speaks TLS with clients, and the server's own protocol with
//! the server.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{
    AcceptedProtocol, HopPosition, HopSettings, KeyKind, LayerFacts, LayerSpec, ProxyProgram,
};
use crate::Invalid;
use crate::places::{Bytes, Limits, PlaceSpec};
use crate::variant::Variant;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewaySpec {
    pub gateway: ProxyProgram,
    #[serde(default)]
    pub tls: GatewayTls,
    #[serde(default = "one", alias = "concurrency")]
    pub threads: u32,
    /// The user's own configuration; words in braces stand for values that only tare knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<PathBuf>,
    /// The place it runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<PlaceSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

/// TLS settings towards clients.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayTls {
    pub key: KeyKind,
    pub min: TlsVersion,
    pub max: TlsVersion,
    /// Whether clients may resume sessions; see `tls_resume` of the load.
    pub resume: bool,
    /// The key provider, if the program does not sign with the key itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<KeyProvider>,
}

/// A private key provider of Envoy, as in its contrib builds and Istio's proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyProvider {
    /// Intel's multi-buffer cryptography: up to eight handshakes at once, by AVX-512.
    Cryptomb,
    /// Intel's QuickAssist devices.
    Qat,
}

impl KeyProvider {
    pub fn word(self) -> &'static str {
        match self {
            Self::Cryptomb => "cryptomb",
            Self::Qat => "qat",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TlsVersion {
    #[serde(rename = "1.2")]
    V1_2,
    #[serde(rename = "1.3")]
    V1_3,
}

impl TlsVersion {
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "1.2" => Ok(Self::V1_2),
            "1.3" => Ok(Self::V1_3),
            _ => Err("choose 1.2 or 1.3".into()),
        }
    }

    /// The version's name, as in `TLSv1.3`.
    pub fn word(self) -> &'static str {
        match self {
            Self::V1_2 => "TLSv1.2",
            Self::V1_3 => "TLSv1.3",
        }
    }
}

impl Default for GatewayTls {
    fn default() -> Self {
        let (min, max) = (TlsVersion::V1_2, TlsVersion::V1_3);
        Self { key: KeyKind::Rsa2048, min, max, resume: true, provider: None }
    }
}

fn one() -> u32 {
    1
}

impl GatewaySpec {
    fn settings(&self) -> HopSettings<'_> {
        let Self { threads, cpus, memory, .. } = *self;
        HopSettings { threads, cpus, memory, place: self.place.as_ref() }
    }
}

impl LayerFacts for GatewaySpec {
    fn name(&self) -> String {
        format!("gateway {}", self.gateway.name())
    }

    fn check(&self, variant: &Variant) -> Result<(), Invalid> {
        let wrong = |text: &str| Err(Invalid(format!("{}: {text}", self.name())));
        self.settings().check(variant).map_err(|why| why.named(&self.name()))?;
        if self.tls.min > self.tls.max {
            return wrong("tls: min is above max");
        }
        let writes_it = self.gateway == ProxyProgram::Envoy && self.config.is_none();
        if self.tls.provider.is_some() && !writes_it {
            return wrong("tls: provider is of Envoy's, by a configuration that tare writes");
        }
        let before =
            variant.layers.iter().take_while(|layer| !matches!(layer, LayerSpec::Gateway(_)));
        let gateways = variant.layers.iter().filter(|layer| matches!(layer, LayerSpec::Gateway(_)));
        if gateways.count() > 1 || before.clone().any(|layer| matches!(layer, LayerSpec::Proxy(_)))
        {
            return wrong("it comes first, and there is one: proxies stand behind it");
        }
        if !variant.is_tls() || !variant.url.contains("{port}") {
            return wrong(
                "clients come to it by https, on a port that tare chooses: leave out url",
            );
        }
        Ok(())
    }

    fn hop_positions(&self) -> &'static [HopPosition] {
        &[HopPosition::Between]
    }

    fn place(&self) -> Option<&PlaceSpec> {
        self.place.as_ref()
    }

    fn limits(&self) -> Limits {
        self.settings().limits()
    }

    fn accepts(&self) -> AcceptedProtocol {
        AcceptedProtocol::Tls
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        self.config.iter_mut().collect()
    }
}
