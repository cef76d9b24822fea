//! Reads experiment files (TOML). Every error names the file, the line and what is allowed.

mod check;
mod layer;
mod place;
mod server;
mod sweep;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Deserializer};
use tare_io::DurationNs;
use tare_model::Metric;
use tare_model::layers::{LayerSpec, clients_use_tls};
use tare_model::load::{LoadSpec, OwnLoad};
use tare_model::plan::{Draft, Slices, Stop};
use tare_model::text;
use tare_model::variant::{Difference, Variant};
use toml::Spanned;

use crate::load::addresses::random_seed;
use crate::run::choices::{EFFECT_PRECISION, MAX_TIME, PRECISION, percent};
use crate::run::cpus_and_folders::divide_cpus;
use crate::toml_file::{self, Source};
use tare_model::Failure;

/// The file as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExperimentFile {
    name: String,
    seed: Option<u64>,
    #[serde(default)]
    load: LoadSpec,
    #[serde(default)]
    stop: StopTable,
    #[serde(default)]
    slices: Slices,
    #[serde(default)]
    cpus: CpuTable,
    #[serde(default)]
    server: BTreeMap<String, Spanned<server::Table>>,
    variant: Vec<VariantTable>,
    #[serde(default)]
    sweep: BTreeMap<String, Spanned<sweep::Values>>,
    /// For `tare check`; `tare run` compares all variants.
    check: Option<Spanned<check::Table>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct StopTable {
    #[serde(deserialize_with = "share")]
    precision: Option<f64>,
    #[serde(deserialize_with = "share")]
    tolerance: Option<f64>,
    #[serde(with = "text::optional_duration")]
    max_time: Option<DurationNs>,
    metrics: Vec<Metric>,
    rounds: Option<u32>,
    lost_rounds: u32,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CpuTable {
    load: Option<Vec<usize>>,
    servers: Option<Vec<usize>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantTable {
    name: String,
    server: Spanned<String>,
    #[serde(default)]
    baseline: bool,
    url: Option<String>,
    #[serde(default)]
    headers: Vec<String>,
    #[serde(default)]
    load: OwnLoad,
    #[serde(default)]
    may_differ: Vec<Difference>,
    #[serde(default)]
    exclusive: bool,
    place: Option<Spanned<toml::Value>>,
    #[serde(default)]
    layers: Vec<Spanned<toml::Table>>,
    client: Option<Spanned<toml::Value>>,
    #[serde(default)]
    optional: bool,
}

/// Reads an experiment: one plan, or the plans of a sweep. Paths in it are relative to the file.
pub fn read(path: &Path) -> Result<Vec<Draft>, Failure> {
    parse(&Source { path, text: &toml_file::read(path)? })
}

pub use check::{Checked, read_check};

pub fn parse(source: &Source<'_>) -> Result<Vec<Draft>, Failure> {
    let file = source.parse().map_err(|error| match is_procedure_file(source.text) {
        true => {
            let path = source.path.display();
            Failure::usage(format!("{path}: a file of procedures: tare steps {path}"))
        }
        false => error,
    })?;
    plans(file, source)
}

/// Whether a variant names a procedure, which `tare steps` runs.
pub fn is_procedure_file(text: &str) -> bool {
    let table: Option<toml::Table> = text.parse().ok();
    let variants = table.as_ref().and_then(|table| table.get("variant")?.as_array());
    variants.is_some_and(|all| all.iter().any(|variant| variant.get("procedure").is_some()))
}

fn share<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let text = text::TextOrNumber::deserialize(from)?.text("%")?;
    percent(&text).map(Some).map_err(serde::de::Error::custom)
}

fn plans(mut file: ExperimentFile, source: &Source<'_>) -> Result<Vec<Draft>, Failure> {
    let values = std::mem::take(&mut file.sweep);
    sweep::cells(plan(file, source)?, &values, source)
}

fn plan(file: ExperimentFile, source: &Source<'_>) -> Result<Draft, Failure> {
    let servers = file.server;
    let path = file.load.path.clone();
    if let Some(path) = path.as_ref().filter(|path| !path.starts_with('/')) {
        return Err(Failure::flag("load.path", path, "must begin with /"));
    }
    let used: Vec<String> = file.variant.iter().map(|v| v.server.get_ref().clone()).collect();
    let path = path.as_deref();
    let variants: Result<Vec<Variant>, Failure> =
        file.variant.into_iter().map(|table| variant(table, &servers, path, source)).collect();
    let mut variants = variants?;
    if let Some((name, table)) = servers.iter().find(|(name, _)| !used.contains(name)) {
        let text = format!("no variant uses server '{name}': name it in one, or leave it out");
        return Err(source.at(table.span().start, &text));
    }
    if !variants.iter().any(|variant| variant.baseline) {
        variants.iter_mut().take(1).for_each(|first| first.baseline = true);
    }
    let mut load = file.load.absolute(source.path.parent().unwrap_or(Path::new("")));
    let (load_cpus, server_cpus) =
        divide_cpus(load.cpus.clone().or(file.cpus.load), file.cpus.servers, load.threads);
    load.threads = Some(load.threads.unwrap_or(load_cpus.len().max(1) as u32));
    let precision = file.stop.precision.unwrap_or(PRECISION);
    Ok(Draft {
        name: file.name,
        seed: file.seed.unwrap_or_else(random_seed),
        stop: Stop {
            precision,
            of_effect: if file.stop.precision.is_some() { 0.0 } else { EFFECT_PRECISION },
            tolerance: file.stop.tolerance.unwrap_or(precision),
            max_time: file.stop.max_time.unwrap_or(MAX_TIME),
            metrics: file.stop.metrics,
            rounds: file.stop.rounds,
            lost_rounds: file.stop.lost_rounds,
        },
        slices: file.slices,
        load,
        load_cpus,
        server_cpus,
        variants,
        skipped: Vec::new(),
        cell: BTreeMap::new(),
        check: None,
    })
}

fn variant(
    table: VariantTable,
    servers: &BTreeMap<String, Spanned<server::Table>>,
    path: Option<&str>,
    source: &Source<'_>,
) -> Result<Variant, Failure> {
    let place = place::place(table.place, source)?;
    let clients = place::clients(table.client, source)?;
    let layers: Result<Vec<LayerSpec>, Failure> =
        table.layers.into_iter().map(|layer| layer::layer(layer, source)).collect();
    let layers = layers?;
    let at = table.server.span().start;
    let name = table.server.into_inner();
    let Some(server) = servers.get(&name) else {
        let known: Vec<&str> = servers.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(source.at(at, &format!("there is no server '{name}'; there are: {known}")));
    };
    let spec = server::spec(&name, server, source)?;
    let takes_tls = clients_use_tls(&layers, spec.facts().tls());
    let scheme = if takes_tls { "https" } else { "http" };
    let own = table.url.or_else(|| server.get_ref().url.clone());
    let mut variant = Variant {
        name: table.name,
        baseline: table.baseline,
        url: own.unwrap_or_else(|| format!("{scheme}://127.0.0.1:{{port}}/")),
        server: spec,
        unix_socket: server.get_ref().unix_socket.as_ref().map(|path| source.resolve(path)),
        headers: table.headers,
        load: table.load,
        may_differ: table.may_differ,
        exclusive: table.exclusive,
        layers,
        place,
        clients,
        optional: table.optional,
    };
    if let Some(path) = path {
        let asked = variant.ask_for(path);
        asked.map_err(|why| source.at(at, &why.named(&format!("variant '{}'", variant.name)).0))?;
    }
    Ok(variant)
}

#[cfg(test)]
#[path = "experiment/tests.rs"]
mod tests;
