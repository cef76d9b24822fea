//! `place` and `client` of a variant: a word, or a table with the kind and its settings.

use tare_model::places::{ClientSpec, ENGINES, PlaceSpec};
use toml::{Spanned, Table, Value};

use crate::failure::Failure;
use crate::toml_file::{Source, nearest};

pub(super) fn place(
    written: Option<Spanned<Value>>,
    source: &Source<'_>,
) -> Result<PlaceSpec, Failure> {
    let Some(written) = written else { return Ok(PlaceSpec::host()) };
    let at = written.span().start;
    let spec = spec("place", written.into_inner()).map_err(|why| source.at(at, &why))?;
    Ok(whole(spec, source))
}

pub(super) fn client(
    written: Option<Spanned<Value>>,
    source: &Source<'_>,
) -> Result<ClientSpec, Failure> {
    let Some(written) = written else { return Ok(ClientSpec::on_host()) };
    let at = written.span().start;
    let value = written.into_inner();
    let same = |value: &Value| value.get("same_as_server").and_then(Value::as_bool);
    if value.as_str() == Some("same_as_server") || same(&value) == Some(true) {
        return Ok(ClientSpec::SameAsServer);
    }
    let spec = spec("client", value).map_err(|why| source.at(at, &why))?;
    Ok(ClientSpec::Place(whole(spec, source)))
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

/// The kind that a table names, its value, and the settings that stand beside it.
fn one_kind(key: &str, mut table: Table, allowed: &str) -> Result<(String, Value, Table), String> {
    let is_kind = |name: &&String| PlaceSpec::KINDS.iter().any(|(kind, _)| kind == name);
    let kinds: Vec<String> = table.keys().filter(is_kind).cloned().collect();
    let kind = match kinds.as_slice() {
        [kind] => kind.clone(),
        // One that is not known is told by its name.
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

/// Files that it names are relative to the experiment's.
fn whole(mut spec: PlaceSpec, source: &Source<'_>) -> PlaceSpec {
    for path in spec.paths() {
        *path = source.whole(path);
    }
    spec
}
