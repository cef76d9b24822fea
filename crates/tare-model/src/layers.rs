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
use crate::places::{Bytes, Limits, PlaceSpec};
use crate::servers::ServerSpec;
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

/// What a layer takes from the client's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Whatever is behind it takes.
    Anything,
    Plain,
    /// TLS, with a certificate that tare makes.
    Tls,
}

/// Whether clients speak TLS with a server that has these layers before it.
pub fn take_tls(layers: &[LayerSpec], server_does: bool) -> bool {
    let mut takes = layers.iter().map(|layer| layer.facts().takes());
    match takes.find(|takes| *takes != Takes::Anything) {
        None => server_does,
        Some(takes) => takes == Takes::Tls,
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

/// What hops have in common, but for where they stand.
pub(crate) struct HopSettings<'a> {
    pub threads: u32,
    pub cpus: Option<f64>,
    pub memory: Option<Bytes>,
    /// Of a hop between client and server.
    pub place: Option<&'a PlaceSpec>,
}

const THREADS_MAX: u32 = 64;

impl HopSettings<'_> {
    fn limits(&self) -> Limits {
        Limits::of(self.cpus, self.memory)
    }

    /// What is wrong with them on that variant.
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

    /// Where its processes run, that stand between client and server.
    fn place(&self) -> Option<&PlaceSpec> {
        None
    }

    /// What each of its processes may use.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// What it takes from the client's side.
    fn takes(&self) -> Takes {
        Takes::Anything
    }

    /// Files that it names.
    fn paths(&mut self) -> Vec<&mut PathBuf> {
        Vec::new()
    }
}
