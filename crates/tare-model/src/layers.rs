//! Kinds of layers in a plan: what is put in the path of a variant's requests. `tare_lab::layers`
//! defines what each kind starts and changes, and how it is proven.
//!
//! A new kind is a file here with its settings and facts, and a line in `layers!`.

mod bypass;
mod crypto;
mod filter;
mod gateway;
mod mesh;
mod proxy;

use std::path::PathBuf;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::Invalid;
use crate::filters::FilterSpec;
use crate::places::{Bytes, Limits, PlaceSpec};
use crate::servers::ServerSpec;
use crate::variant::Variant;

pub use bypass::{BypassKind, BypassSpec};
pub use crypto::{CryptoSpec, Mask};
pub use gateway::{GatewaySpec, GatewayTls, KeyProvider, TlsVersion};
pub use mesh::{MeshProgram, MeshSpec, MeshTls};
pub use proxy::{Intercept, KeyKind, Mode, ProxyProgram, ProxySpec, Side, Tls};

/// Generates the enum of layers and its facts from a list of kinds. The key is the setting that
/// names the kind, as in `{ filter = "wasm" }`.
macro_rules! layers {
    ($($key:literal, $name:ident($spec:ty);)*) => {
        /// One layer in the path of a variant's requests.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum LayerSpec { $($name($spec),)* }

        impl LayerSpec {
            pub const KINDS: &[&str] = &[$($key),*];

            pub fn facts(&self) -> &dyn LayerFacts {
                match self { $(Self::$name(spec) => spec,)* }
            }

            /// Paths in the settings, relative to the experiment file until they are resolved.
            pub fn paths(&mut self) -> Vec<&mut PathBuf> {
                match self { $(Self::$name(spec) => spec.paths(),)* }
            }

            fn of_kind(kind: &str, settings: Value) -> Result<Self, serde_json::Error> {
                match kind {
                    $($key => serde_json::from_value(settings).map(Self::$name),)*
                    _ => Err(Error::unknown_field(kind, Self::KINDS)),
                }
            }
        }
    };
}

layers! {
    "filter", Filter(FilterSpec);
    "proxy", Proxy(ProxySpec);
    "gateway", Gateway(GatewaySpec);
    "crypto", Crypto(CryptoSpec);
    "bypass", Bypass(BypassSpec);
    "mesh", Mesh(MeshSpec);
}

impl<'de> Deserialize<'de> for LayerSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let settings = Map::deserialize(deserializer)?;
        let named = Self::KINDS.iter().find(|kind| settings.contains_key(**kind));
        let first = settings.keys().next().map_or("", String::as_str);
        let kind = (*named.unwrap_or(&first)).to_owned();
        Self::of_kind(&kind, Value::Object(settings)).map_err(Error::custom)
    }
}

/// Position of a hop: a process that requests pass through on their way to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopPosition {
    /// In a place of its own between client and server.
    Between,
    /// In the client's network namespace.
    BesideClient,
    /// In the server's network namespace.
    BesideServer,
}

impl HopPosition {
    /// Describes the position in messages.
    pub fn word(self) -> &'static str {
        match self {
            Self::Between => "the one between",
            Self::BesideClient => "the client's",
            Self::BesideServer => "the server's",
        }
    }
}

/// The protocol that a layer accepts on the client's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptedProtocol {
    /// The protocol that the next hop accepts.
    Anything,
    Plain,
    /// TLS, with a certificate that tare makes.
    Tls,
}

/// Whether clients speak TLS with a server behind these layers.
pub fn clients_use_tls(layers: &[LayerSpec], server_does: bool) -> bool {
    let mut takes = layers.iter().map(|layer| layer.facts().accepts());
    match takes.find(|takes| *takes != AcceptedProtocol::Anything) {
        None => server_does,
        Some(takes) => takes == AcceptedProtocol::Tls,
    }
}

/// One of a variant's hops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopPart {
    /// Unique among the variant's parts.
    pub name: String,
    /// Index of its layer in the variant's list.
    pub layer: usize,
    pub stand: HopPosition,
}

/// Settings that all kinds of hops share.
pub(crate) struct HopSettings<'a> {
    pub threads: u32,
    pub cpus: Option<f64>,
    pub memory: Option<Bytes>,
    /// The hop's own place; set only for a hop between client and server.
    pub place: Option<&'a PlaceSpec>,
}

const THREADS_MAX: u32 = 64;

impl HopSettings<'_> {
    fn limits(&self) -> Limits {
        Limits::from_settings(self.cpus, self.memory)
    }

    /// Checks the settings for use on that variant.
    fn check(&self, variant: &Variant) -> Result<(), Invalid> {
        if !(1..=THREADS_MAX).contains(&self.threads) {
            let text = format!("threads = {}: write 1 to {THREADS_MAX}", self.threads);
            return Err(Invalid(text));
        }
        self.limits().check()?;
        if variant.server == ServerSpec::External {
            return Err("it stands before a server that tare starts".into());
        }
        let Some(place) = self.place else { return Ok(()) };
        if self.limits() != Limits::default() {
            let text = "its place has the limits, too: place = { netns = { cpus = 1 } }";
            return Err(text.into());
        }
        if !matches!(
            place,
            PlaceSpec::Host(_) | PlaceSpec::Netns(_) | PlaceSpec::Oci(_) | PlaceSpec::Vm(_)
        ) {
            return Err(Invalid(format!(
                "its place can be host, netns, oci or vm, not {}",
                place.name()
            )));
        }
        place.check()
    }
}

/// All hops of these layers, the nearest to the client first.
pub fn hops(layers: &[LayerSpec]) -> Vec<HopPart> {
    let mut all: Vec<HopPart> = Vec::new();
    for (layer, spec) in layers.iter().enumerate() {
        for stand in spec.facts().hop_positions() {
            let own = spec.facts().name();
            let own = match stand {
                HopPosition::Between => own,
                HopPosition::BesideClient => format!("client's {own}"),
                HopPosition::BesideServer => format!("server's {own}"),
            };
            let is_same = |hop: &&HopPart| {
                hop.name.strip_suffix(char::is_numeric).unwrap_or(&hop.name).trim_end() == own
            };
            let name = match all.iter().filter(is_same).count() {
                0 => own,
                n => format!("{own} {}", n + 1),
            };
            all.push(HopPart { name, layer, stand: *stand });
        }
    }
    all
}

/// Facts about a layer before it is started.
pub trait LayerFacts {
    /// Its name in tables and messages.
    fn name(&self) -> String;

    /// Checks the settings for use on that variant.
    fn check(&self, variant: &Variant) -> Result<(), Invalid>;

    /// Positions of its hops, the nearest to the client first.
    fn hop_positions(&self) -> &'static [HopPosition] {
        &[]
    }

    /// Place configured for its processes between client and server.
    fn place(&self) -> Option<&PlaceSpec> {
        None
    }

    /// Resource limits of each of its processes.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// The protocol that it accepts on the client's side.
    fn accepts(&self) -> AcceptedProtocol {
        AcceptedProtocol::Anything
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        Vec::new()
    }
}
