//! Parses `layers` of a variant: tables in which one setting names the kind.

use tare_model::layers::LayerSpec;
use toml::{Spanned, Table, Value};

use crate::toml_file::{Source, nearest};
use tare_model::Failure;

pub(super) fn layer(written: Spanned<Table>, source: &Source<'_>) -> Result<LayerSpec, Failure> {
    let at = written.span().start;
    let mut written = written;
    // A hop's place is written like a variant's.
    if let Some(value) = written.get_mut().remove("place") {
        let place = super::place::place(Some(Spanned::new(at..at, value)), source)?;
        let place = Value::try_from(place).map_err(|why| source.at(at, &why.to_string()))?;
        written.get_mut().insert("place".into(), place);
    }
    let spec: Result<LayerSpec, toml::de::Error> = Value::Table(written.into_inner()).try_into();
    let mut spec = spec.map_err(|error| {
        let message = error.message().lines().collect::<Vec<_>>().join(" ");
        source.at(at, &nearest(&message).unwrap_or(message))
    })?;
    for path in spec.paths() {
        *path = source.resolve(path);
    }
    Ok(spec)
}
