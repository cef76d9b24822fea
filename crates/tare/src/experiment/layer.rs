//! `layers` of a variant: tables with the setting that names the kind.

use tare_model::layers::LayerSpec;
use toml::{Spanned, Table, Value};

use crate::failure::Failure;
use crate::toml_file::{Source, nearest};

pub(super) fn layer(written: Spanned<Table>, source: &Source<'_>) -> Result<LayerSpec, Failure> {
    let at = written.span().start;
    let spec: Result<LayerSpec, toml::de::Error> = Value::Table(written.into_inner()).try_into();
    let mut spec = spec.map_err(|error| {
        let message = error.message().lines().collect::<Vec<_>>().join(" ");
        source.at(at, &nearest(&message).unwrap_or(message))
    })?;
    for path in spec.paths() {
        *path = source.whole(path);
    }
    Ok(spec)
}
