//! Kinds of layers, as a plan names them: what is put in the path of a variant's requests. What
//! each starts and changes, and how it is proven, is in `tare_lab::layers`.
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
use crate::variant::Variant;

pub use bypass::{BypassKind, BypassSpec};
pub use crypto::{CryptoSpec, Mask};
pub use gateway::{GatewaySpec, GatewayTls, KeyProvider, TlsVersion};
pub use mesh::{MeshProgram, MeshSpec, MeshTls};
pub use proxy::{Intercept, KeyKind, Mode, ProxyProgram, ProxySpec, Side, Tls};

/// The enum of layers and its facts, from a list of kinds: the setting that names the kind, as in
/// `{ filter = "wasm" }`.
macro_rules! layers {
    ($($key:literal, $name:ident($spec:ty);)*) => {
        /// Something in the path.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum LayerSpec { $($name($spec),)* }

        impl LayerSpec {
            pub const KINDS: &[&str] = &[$($key),*];

            pub fn facts(&self) -> &dyn LayerFacts {
                match self { $(Self::$name(spec) => spec,)* }
            }

            /// Files that it names; relative to the experiment's until that is read.
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

/// Where a hop stands: a process that requests pass on their way to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// It has a place of its own on the way from client to server.
    Between,
    /// In the network namespace of one of them.
    BesideClient,
    BesideServer,
}

impl Stand {
    /// Whose process it is, in words.
    pub fn word(self) -> &'static str {
        match self {
            Self::Between => "the one between",
            Self::BesideClient => "the client's",
            Self::BesideServer => "the server's",
        }
    }
}

/// One of a variant's hops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopPart {
    /// No other part of the variant has the same.
    pub name: String,
    /// Its layer's number among the variant's.
    pub layer: usize,
    pub stand: Stand,
}

/// All hops of these layers, in their order: from the client's side on.
pub fn hops(layers: &[LayerSpec]) -> Vec<HopPart> {
    let mut all: Vec<HopPart> = Vec::new();
    for (layer, spec) in layers.iter().enumerate() {
        for stand in spec.facts().stands() {
            let own = spec.facts().name();
            let own = match stand {
                Stand::Between => own,
                Stand::BesideClient => format!("client's {own}"),
                Stand::BesideServer => format!("server's {own}"),
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

/// What is known of a layer before it is in the path.
pub trait LayerFacts {
    /// Its name in tables and messages.
    fn name(&self) -> String;

    /// What is wrong with it on that variant.
    fn check(&self, variant: &Variant) -> Result<(), Invalid>;

    /// The hops that it is, from the client's side on.
    fn stands(&self) -> &'static [Stand] {
        &[]
    }

    /// Clients speak TLS with it, whatever their server speaks.
    fn takes_tls(&self) -> bool {
        false
    }

    /// Files that it names.
    fn paths(&mut self) -> Vec<&mut PathBuf> {
        Vec::new()
    }
}
