//! `place` and `client` of a variant: a word, or a table of one key.

use tare_model::places::{ClientSpec, PlaceSpec};
use toml::{Spanned, Value};

use super::{Source, nearest};
use crate::failure::Failure;

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
    let (kind, inner) = match value {
        Value::String(kind) => (kind, Value::Boolean(true)),
        Value::Table(table) if table.len() == 1 => {
            let mut entries = table.into_iter();
            entries.next().ok_or("empty")?
        }
        _ => {
            return Err(format!(
                "{key}: write a word, as \"netns\", or one kind with what it needs, as {{ oci = \
                 \"runc\" }}; kinds are {allowed}"
            ));
        }
    };
    let Some((_, short)) = PlaceSpec::KINDS.iter().find(|(name, _)| *name == kind) else {
        return Err(format!("{key}: '{kind}' is not a kind of place; there are {allowed}"));
    };
    let inner = match (inner, short) {
        (Value::Table(table), _) => Value::Table(table),
        (Value::String(text), Some(short)) => {
            Value::Table([((*short).to_owned(), Value::String(text))].into_iter().collect())
        }
        (Value::Boolean(true), None) => Value::Table(Default::default()),
        (_, Some(short)) => {
            return Err(format!("{key}: {kind} needs its {short}: {{ {kind} = \"…\" }}"));
        }
        (_, None) => {
            return Err(format!("{key}: write \"{kind}\", or {{ {kind} = {{ … }} }}"));
        }
    };
    let tagged = Value::Table([(kind.clone(), inner)].into_iter().collect());
    tagged.try_into().map_err(|error: toml::de::Error| {
        let message = error.message().lines().collect::<Vec<_>>().join(" ");
        format!("{key}: {kind}: {}", nearest(&message).unwrap_or(message))
    })
}

/// Files that it names are relative to the experiment's.
fn whole(mut spec: PlaceSpec, source: &Source<'_>) -> PlaceSpec {
    for path in spec.paths() {
        *path = source.whole(path);
    }
    spec
}
