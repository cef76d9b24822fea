//! `place` and `client` of a variant: a word, or a table with the kind and its settings.

use tare_model::clients::{CLIENTS_MAX, ClientSpec, Clients};
use tare_model::places::{ENGINES, PlaceSpec};
use toml::{Spanned, Table, Value};

use crate::toml_file::{Source, nearest};
use tare_model::Failure;

pub(super) fn place(
    written: Option<Spanned<Value>>,
    source: &Source<'_>,
) -> Result<PlaceSpec, Failure> {
    let Some(written) = written else { return Ok(PlaceSpec::host()) };
    let at = written.span().start;
    let spec = spec("place", written.into_inner()).map_err(|why| source.at(at, &why))?;
    Ok(whole(spec, source))
}

/// Parses one client or a list; `count` in a table repeats that client.
pub(super) fn clients(
    written: Option<Spanned<Value>>,
    source: &Source<'_>,
) -> Result<Clients, Failure> {
    let Some(written) = written else { return Ok(Clients::on_host()) };
    let at = written.span().start;
    let all = match written.into_inner() {
        Value::Array(all) => all,
        one => vec![one],
    };
    let mut clients = Vec::new();
    for value in all {
        let (client, count) = client(value).map_err(|why| source.at(at, &why))?;
        let client = match client {
            ClientSpec::SameAsServer => client,
            ClientSpec::Place(place) => ClientSpec::Place(whole(place, source)),
        };
        clients.extend(std::iter::repeat_n(client, count));
    }
    Clients::try_from(clients).map_err(|why| source.at(at, &format!("client: {why}")))
}

fn client(mut value: Value) -> Result<(ClientSpec, usize), String> {
    let count = value.as_table_mut().and_then(take_count);
    let count = match count.as_ref().map(|n| n.as_integer().and_then(|n| usize::try_from(n).ok())) {
        None => 1,
        Some(Some(n)) if (1..=CLIENTS_MAX).contains(&n) => n,
        Some(_) => return Err(format!("client: count: write 1 to {CLIENTS_MAX}")),
    };
    let same = value.get("same_as_server").and_then(Value::as_bool);
    if value.as_str() == Some("same_as_server") || same == Some(true) {
        return Ok((ClientSpec::SameAsServer, count));
    }
    spec("client", value).map(|place| (ClientSpec::Place(place), count))
}

/// Takes `count`, which may be beside the kind or among its settings.
fn take_count(table: &mut Table) -> Option<Value> {
    let mut inner = PlaceSpec::KINDS.iter().map(|(kind, _)| *kind);
    let own = table.remove("count");
    own.or_else(|| inner.find_map(|kind| table.get_mut(kind)?.as_table_mut()?.remove("count")))
}

fn spec(key: &str, value: Value) -> Result<PlaceSpec, String> {
    let kinds: Vec<&str> = PlaceSpec::KINDS.iter().map(|(kind, _)| *kind).collect();
    let kinds = kinds.join(", ");
    let allowed = match key {
        "client" => format!("{kinds}, same_as_server"),
        _ => kinds,
    };
    let known = |name: &str| PlaceSpec::KINDS.iter().find(|(kind, _)| *kind == name);
    let (kind, inner, settings) = match value {
        Value::String(kind) => (kind, Value::Boolean(true), Table::new()),
        Value::Table(table) => one_kind(key, table, &allowed)?,
        _ => return Err(expected(key, &allowed)),
    };
    let Some((_, short)) = known(&kind) else {
        let engine = ENGINES.contains(&kind.as_str());
        let hint = match engine {
            true => format!("; for an image: {{ container = \"IMAGE\", engine = \"{kind}\" }}"),
            false => String::new(),
        };
        return Err(format!("{key}: '{kind}' is not a kind of place; there are {allowed}{hint}"));
    };
    let mut inner = match (inner, short) {
        (Value::Table(table), _) => table,
        (Value::String(text), Some(short)) => {
            [((*short).to_owned(), Value::String(text))].into_iter().collect()
        }
        (Value::Boolean(true), None) => Table::new(),
        (_, Some(short)) => {
            return Err(format!("{key}: {kind} needs its {short}: {{ {kind} = \"…\" }}"));
        }
        (_, None) => {
            return Err(format!("{key}: write \"{kind}\", or {{ {kind} = {{ … }} }}"));
        }
    };
    if let Some(twice) = settings.keys().find(|key| inner.contains_key(*key)) {
        return Err(format!("{key}: {kind}: {twice} is given twice"));
    }
    inner.extend(settings);
    let tagged = Value::Table([(kind.clone(), Value::Table(inner))].into_iter().collect());
    tagged.try_into().map_err(|error: toml::de::Error| {
        let message = error.message().lines().collect::<Vec<_>>().join(" ");
        format!("{key}: {kind}: {}", nearest(&message).unwrap_or(message))
    })
}

fn expected(key: &str, allowed: &str) -> String {
    format!(
        "{key}: write a word, as \"netns\", or one kind with what it needs, as {{ oci = \"runc\" \
         }} or {{ oci = \"runc\", cpus = 1 }}; kinds are {allowed}"
    )
}

/// Returns the kind that a table names, its value, and the settings beside it.
fn one_kind(key: &str, mut table: Table, allowed: &str) -> Result<(String, Value, Table), String> {
    let is_kind = |name: &&String| PlaceSpec::KINDS.iter().any(|(kind, _)| kind == name);
    let kinds: Vec<String> = table.keys().filter(is_kind).cloned().collect();
    let kind = match kinds.as_slice() {
        [kind] => kind.clone(),
        // The name of an unknown kind is returned, for the error message.
        [] => {
            let engine = table.keys().find(|key| ENGINES.contains(&key.as_str()));
            let only = table.keys().next().filter(|_| table.len() == 1);
            engine.or(only).cloned().ok_or_else(|| expected(key, allowed))?
        }
        // `host` is a setting of ssh, too.
        [_, _] if table.contains_key("ssh") => "ssh".to_owned(),
        _ => return Err(expected(key, allowed)),
    };
    let inner = table.remove(&kind).ok_or_else(|| expected(key, allowed))?;
    Ok((kind, inner, table))
}

/// Makes paths in the place absolute; they are relative to the experiment file.
fn whole(mut spec: PlaceSpec, source: &Source<'_>) -> PlaceSpec {
    for path in spec.paths() {
        *path = source.resolve(path);
    }
    spec
}
