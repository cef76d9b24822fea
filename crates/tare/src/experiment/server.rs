//! `[server.NAME]`: a command and its settings, a key that names a kind, or the URL of a running
//! server.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::de::{self, DeserializeSeed, EnumAccess, MapAccess, Unexpected, VariantAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tare_io::DurationNs;
use tare_model::servers::{CommandSpec, ServerSpec};
use tare_model::text::OptionalDuration;
use toml::Spanned;

use super::Source;
use tare_model::Failure;

/// A server's table as written.
#[derive(Default)]
pub(super) struct Table {
    command: Option<String>,
    env: BTreeMap<String, String>,
    ready_within: Option<DurationNs>,
    access_log: Option<String>,
    /// Servers given by the key of their kind: `nginx = { … }`.
    kinds: Vec<ServerSpec>,
    /// URL of the server; alone, it means that the server is already running.
    pub url: Option<String>,
    /// Unix socket to connect to instead of the URL's host.
    pub unix_socket: Option<PathBuf>,
}

const READY_WITHIN: DurationNs = DurationNs::from_secs(10);
const OWN_KEYS: [&str; 6] = ["command", "env", "ready_within", "access_log", "url", "unix_socket"];

pub(super) fn spec(
    name: &str,
    table: &Spanned<Table>,
    source: &Source<'_>,
) -> Result<ServerSpec, Failure> {
    let wrong = |text: String| Err(source.at(table.span().start, &text));
    let table = table.get_ref();
    let command = table.command.as_ref().map(|command| {
        ServerSpec::Command(CommandSpec {
            command: command.clone(),
            argv: Vec::new(),
            env: table.env.clone(),
            ready_within_ms: table.ready_within.unwrap_or(READY_WITHIN).as_ns() / 1_000_000,
            access_log: table.access_log.clone(),
        })
    });
    let of_commands =
        !table.env.is_empty() || table.ready_within.is_some() || table.access_log.is_some();
    let mut kinds = command.into_iter().chain(table.kinds.iter().cloned());
    match (kinds.next(), kinds.next(), &table.url) {
        (Some(_), Some(_), _) => wrong(format!("server '{name}' is of two kinds; choose one")),
        (Some(ServerSpec::Command(spec)), None, _) => Ok(ServerSpec::Command(spec)),
        (Some(_), None, _) if of_commands => {
            wrong(format!("server '{name}': env, ready_within and access_log go with command"))
        }
        (Some(mut spec), None, _) => {
            for path in spec.paths() {
                *path = source.resolve(path);
            }
            Ok(spec)
        }
        (None, _, Some(_)) => Ok(ServerSpec::External),
        (None, _, None) => {
            let kinds = ServerSpec::KINDS.join(", ");
            wrong(format!(
                "server '{name}' needs one of {kinds}, or the url of one that is up already"
            ))
        }
    }
}

impl<'de> Deserialize<'de> for Table {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Keys;

        impl<'de> Visitor<'de> for Keys {
            type Value = Table;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Table, M::Error> {
                let mut table = Table::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "command" => table.command = Some(map.next_value()?),
                        "env" => table.env = map.next_value()?,
                        "ready_within" => {
                            table.ready_within = map.next_value::<OptionalDuration>()?.0;
                        }
                        "access_log" => table.access_log = Some(map.next_value()?),
                        "url" => table.url = Some(map.next_value()?),
                        "unix_socket" => table.unix_socket = Some(map.next_value()?),
                        kind if ServerSpec::KINDS.contains(&kind) => {
                            let entry = Entry { key: kind, map: &mut map };
                            table.kinds.push(ServerSpec::deserialize(entry)?);
                        }
                        unknown => {
                            let kinds = ServerSpec::KINDS.iter().filter(|kind| **kind != "command");
                            let known: Vec<&str> = OWN_KEYS.iter().chain(kinds).copied().collect();
                            let known = known.join("`, `");
                            return Err(de::Error::custom(format!(
                                "unknown field `{unknown}`, expected one of `{known}`"
                            )));
                        }
                    }
                }
                Ok(table)
            }
        }

        from.deserialize_map(Keys)
    }
}

/// One key and value of a map, read by serde as an enum, so that errors keep their position.
struct Entry<'a, M> {
    key: &'a str,
    map: &'a mut M,
}

impl<'de, M: MapAccess<'de>> Deserializer<'de> for Entry<'_, M> {
    type Error = M::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, M::Error> {
        visitor.visit_enum(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, M: MapAccess<'de>> EnumAccess<'de> for Entry<'_, M> {
    type Error = M::Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self), Self::Error> {
        Ok((seed.deserialize(de::value::StrDeserializer::new(self.key))?, self))
    }
}

impl<'de, M: MapAccess<'de>> VariantAccess<'de> for Entry<'_, M> {
    type Error = M::Error;

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, M::Error> {
        self.map.next_value_seed(seed)
    }

    fn unit_variant(self) -> Result<(), M::Error> {
        Err(de::Error::invalid_type(Unexpected::UnitVariant, &"settings"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, M::Error> {
        Err(de::Error::invalid_type(Unexpected::TupleVariant, &"settings"))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, M::Error> {
        Err(de::Error::invalid_type(Unexpected::StructVariant, &"settings"))
    }
}
