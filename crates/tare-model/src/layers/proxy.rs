//! A proxy between client and server: a process of its own, on this machine or beside one of them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{AcceptedProtocol, HopPosition, HopSettings, LayerFacts, LayerSpec};
use crate::Invalid;
use crate::places::{Bytes, Limits, PlaceSpec};
use crate::variant::Variant;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxySpec {
    pub proxy: ProxyProgram,
    /// The side that it joins as a sidecar, in the same network namespace. By default it runs
    /// between client and server, on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<Side>,
    #[serde(default, skip_serializing_if = "Mode::is_http")]
    pub mode: Mode,
    /// How requests reach it; default for sidecars: `redirect`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intercept: Option<Intercept>,
    /// TLS between the sidecars of both sides, or between clients and a proxy without a side. A
    /// proxy without a side always speaks TLS with a TLS server, whether or not this is set.
    #[serde(default, skip_serializing_if = "Tls::is_none")]
    pub tls: Tls,
    /// The kind of key in the certificates; only with `tls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyKind>,
    #[serde(default = "one", alias = "concurrency")]
    pub threads: u32,
    /// The user's own configuration; words in braces stand for values that only tare knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<PathBuf>,
    /// The place it runs in; a sidecar runs where its client or server does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<PlaceSpec>,
    /// CPU limit of each process, in CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Memory limit of each process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyProgram {
    Envoy,
    Haproxy,
    Nginx,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    Client,
    Server,
    Both,
}

/// Whether the proxy parses HTTP or forwards bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    #[default]
    Http,
    Tcp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intercept {
    /// iptables redirects requests to the proxy transparently, as in meshes.
    Redirect,
    /// Clients connect to the proxy.
    Direct,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    #[default]
    None,
    /// The server's sidecar shows a certificate.
    Tls,
    /// Both sidecars show a certificate.
    Mtls,
}

/// The key of a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeyKind {
    #[default]
    #[serde(rename = "rsa2048")]
    Rsa2048,
    #[serde(rename = "ecdsa-p256")]
    EcdsaP256,
}

fn one() -> u32 {
    1
}

impl Mode {
    pub fn is_http(&self) -> bool {
        *self == Self::Http
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Tcp => "tcp",
        }
    }
}

impl Tls {
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl KeyKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Rsa2048 => "RSA-2048",
            Self::EcdsaP256 => "ECDSA P-256",
        }
    }
}

impl Side {
    /// Positions of the sidecars.
    pub(super) fn stands(self) -> &'static [HopPosition] {
        match self {
            Self::Client => &[HopPosition::BesideClient],
            Self::Server => &[HopPosition::BesideServer],
            Self::Both => &[HopPosition::BesideClient, HopPosition::BesideServer],
        }
    }

    pub fn has_client(self) -> bool {
        self != Self::Server
    }

    pub fn has_server(self) -> bool {
        self != Self::Client
    }
}

impl ProxyProgram {
    pub fn name(self) -> &'static str {
        match self {
            Self::Envoy => "envoy",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
        }
    }
}

impl ProxySpec {
    /// Whether it intercepts requests transparently.
    pub fn intercepts(&self) -> bool {
        match self.intercept {
            Some(intercept) => intercept == Intercept::Redirect,
            None => self.side.is_some(),
        }
    }

    /// The kind of key in its certificates; by default the same as Istio's.
    pub fn key(&self) -> KeyKind {
        self.key.unwrap_or_default()
    }

    fn settings(&self) -> HopSettings<'_> {
        let Self { threads, cpus, memory, .. } = *self;
        HopSettings { threads, cpus, memory, place: self.place.as_ref() }
    }

    fn check_between(&self) -> Result<(), &'static str> {
        if self.intercept == Some(Intercept::Redirect) {
            return Err("intercept = \"redirect\" is of sidecars: give side, too");
        }
        if self.tls == Tls::Mtls {
            return Err(
                "clients show no certificate: tls = \"mtls\" is between sidecars, \"tls\" \
                        with clients",
            );
        }
        if !self.tls.is_none() && self.mode == Mode::Tcp {
            return Err("in mode tcp it passes TLS on as it is: leave out tls");
        }
        Ok(())
    }

    fn check_sidecar(&self, side: Side, variant: &Variant) -> Result<(), &'static str> {
        if self.place.is_some() {
            return Err("a sidecar runs where its client or server does: leave out place");
        }
        if self.mode == Mode::Http && variant.server.facts().tls() {
            return Err("it speaks plain HTTP with the server: leave out TLS, or take mode tcp");
        }
        let has_namespace =
            |place: &PlaceSpec| matches!(place, PlaceSpec::Netns(_) | PlaceSpec::Oci(_));
        if side.has_server() && !has_namespace(&variant.place) {
            return Err("a server's sidecar needs a server in place = \"netns\" or oci");
        }
        let clients = variant.clients.len();
        if side.has_client() && clients > 1 {
            return Err("one sidecar stands beside one client: give one client, or side = \
                        \"server\"");
        }
        if side.has_client() && !variant.clients.places().all(has_namespace) {
            return Err("a client's sidecar needs a client in a place of its own: client = \
                        \"netns\" or oci");
        }
        if variant.clients.has_one_beside_server() {
            return Err("a client in the server's own place passes no sidecar");
        }
        if !self.tls.is_none() && side != Side::Both {
            return Err("tls is between the sidecars of both sides: give side = \"both\"");
        }
        let mut stands = variant.layers.iter().flat_map(|layer| layer.facts().hop_positions());
        if side.has_client() && stands.any(|stand| *stand == HopPosition::Between) {
            return Err("what stands between the two goes with side = \"server\" alone");
        }
        let others = variant.layers.iter().filter_map(|layer| match layer {
            LayerSpec::Proxy(other) if other != self => Some(other),
            _ => None,
        });
        let sidecars = others.clone().filter(|other| other.side.is_some()).count();
        if sidecars > 0 {
            return Err("a variant has one layer of sidecars; side = \"both\" is two");
        }
        if side.has_client() && others.count() > 0 {
            return Err("a proxy between the two goes with side = \"server\" alone");
        }
        Ok(())
    }
}

impl LayerFacts for ProxySpec {
    fn name(&self) -> String {
        let what = if self.side.is_some() { "sidecar" } else { "proxy" };
        format!("{what} {}", self.proxy.name())
    }

    fn check(&self, variant: &Variant) -> Result<(), Invalid> {
        let wrong = |text: &str| Err(Invalid(format!("{}: {text}", self.name())));
        self.settings().check(variant).map_err(|why| why.named(&self.name()))?;
        if !variant.url.contains("{port}") {
            return wrong("it listens where tare says: leave out the port in url");
        }
        if self.mode == Mode::Tcp && self.proxy == ProxyProgram::Nginx {
            return wrong("nginx does not tell what passed in mode tcp: take envoy or haproxy");
        }
        if self.tls.is_none() && self.key.is_some() {
            return wrong("key is of the certificates of tls: leave it out");
        }
        let checked = match self.side {
            None => self.check_between(),
            Some(side) => self.check_sidecar(side, variant),
        };
        checked.or_else(wrong)
    }

    fn place(&self) -> Option<&PlaceSpec> {
        self.place.as_ref()
    }

    fn limits(&self) -> Limits {
        self.settings().limits()
    }

    fn accepts(&self) -> AcceptedProtocol {
        match (self.side, self.mode, self.tls.is_none()) {
            (Some(_), ..) | (_, Mode::Tcp, _) => AcceptedProtocol::Anything,
            (None, Mode::Http, true) => AcceptedProtocol::Plain,
            (None, Mode::Http, false) => AcceptedProtocol::Tls,
        }
    }

    fn hop_positions(&self) -> &'static [HopPosition] {
        self.side.map_or(&[HopPosition::Between], Side::stands)
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        self.config.iter_mut().collect()
    }
}
