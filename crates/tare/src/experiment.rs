//! Experiment files: TOML to a plan. Every mistake names the file, the line and what is allowed.

mod layer;
mod place;
mod server;
mod sweep;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};
use tare_io::DurationNs;
use tare_io::files::open_input;
use tare_model::Metric;
use tare_model::layers::LayerSpec;
use tare_model::load::LoadSpec;
use tare_model::plan::{PlanParts, Slices, Stop};
use tare_model::text;
use tare_model::variant::{Difference, Variant};
use toml::Spanned;

use crate::failure::Failure;
use crate::load::plan::random_seed;
use crate::run::choices::{MAX_TIME, PRECISION, default_metrics, percent};
use crate::run::places::divide_cpus;

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
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

/// Experiments are short; a device has no end.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads an experiment: one plan, or those of a sweep. Files that it names are relative to it.
pub fn read(path: &Path) -> Result<Vec<PlanParts>, Failure> {
    let in_file = |why: String| Failure::Usage(format!("{}: {why}", path.display()));
    let file = open_input(path).map_err(|error| in_file(error.to_string()))?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| in_file(error.to_string()))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(in_file("it is longer than 1 MB; experiments are short".into()));
    }
    let source = Source { path, text: &text };
    let file: Written = toml::from_str(&text).map_err(|error| source.complain(&error))?;
    plans(file, &source)
}

struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn at(&self, byte: usize, what: &str) -> Failure {
        let line = self.text[..byte.min(self.text.len())].matches('\n').count() + 1;
        Failure::Usage(format!("{}:{line}: {what}", self.path.display()))
    }

    /// Files that it names are relative to it.
    fn whole(&self, path: &Path) -> PathBuf {
        let path = self.path.parent().unwrap_or(Path::new(".")).join(path);
        std::path::absolute(&path).unwrap_or(path)
    }

    fn complain(&self, error: &toml::de::Error) -> Failure {
        let message = error.message().lines().collect::<Vec<_>>().join(" ");
        let what = nearest(&message).unwrap_or(message);
        match error.span() {
            Some(span) => self.at(span.start, &what),
            None => Failure::Usage(format!("{}: {what}", self.path.display())),
        }
    }
}

/// serde's "unknown field (or variant) `x`, expected one of `a`, `b`", with the likeliest of them
/// first.
fn nearest(message: &str) -> Option<String> {
    let (rest, what) = match message.strip_prefix("unknown variant ") {
        Some(rest) => (rest, "word"),
        None => (message.strip_prefix("unknown field ")?, "key"),
    };
    let mut quoted = rest.split('`').skip(1).step_by(2);
    let unknown = quoted.next()?;
    let mut known: Vec<&str> = quoted.collect();
    known.sort_by_key(|name| strsim::damerau_levenshtein(name, unknown));
    let first = *known.first()?;
    known[1..].sort_unstable();
    let others = known[1..].join(", ");
    let close = strsim::damerau_levenshtein(first, unknown) <= unknown.len().max(first.len()) / 2;
    Some(match (close, others.is_empty()) {
        (true, false) => {
            format!("unknown {what} '{unknown}'; did you mean '{first}'? (others are {others})")
        }
        (true, true) => format!("unknown {what} '{unknown}'; did you mean '{first}'?"),
        (false, _) => format!("unknown {what} '{unknown}'; known are {}", known.join(", ")),
    })
}

fn share<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let text = text::OfUnit::deserialize(from)?.text("%")?;
    percent(&text).map(Some).map_err(serde::de::Error::custom)
}

fn plans(mut file: Written, source: &Source<'_>) -> Result<Vec<PlanParts>, Failure> {
    let values = std::mem::take(&mut file.sweep);
    // What decides depends on the test, which may be swept.
    let chooses = file.stop.metrics.is_empty();
    let mut cells = sweep::cells(plan(file, source)?, &values, source)?;
    for cell in cells.iter_mut().filter(|_| chooses) {
        cell.stop.metrics = default_metrics(&cell.load);
    }
    Ok(cells)
}

fn plan(file: Written, source: &Source<'_>) -> Result<PlanParts, Failure> {
    let servers = file.server;
    let path = file.load.path.clone().unwrap_or_else(|| "/".into());
    if !path.starts_with('/') {
        return Err(Failure::flag("load.path", &path, "must begin with /"));
    }
    let variants: Result<Vec<Variant>, Failure> =
        file.variant.into_iter().map(|table| variant(table, &servers, &path, source)).collect();
    let mut variants = variants?;
    if !variants.iter().any(|variant| variant.baseline) {
        variants.iter_mut().take(1).for_each(|first| first.baseline = true);
    }
    let mut load = file.load.absolute(source.path.parent().unwrap_or(Path::new("")));
    let (load_cpus, server_cpus) =
        divide_cpus(load.cpus.clone().or(file.cpus.load), file.cpus.servers, load.threads);
    load.threads = Some(load.threads.unwrap_or(load_cpus.len().max(1) as u32));
    let precision = file.stop.precision.unwrap_or(PRECISION);
    let metrics = match file.stop.metrics.is_empty() {
        true => default_metrics(&load),
        false => file.stop.metrics,
    };
    Ok(PlanParts {
        name: file.name,
        seed: file.seed.unwrap_or_else(random_seed),
        stop: Stop {
            precision,
            tolerance: file.stop.tolerance.unwrap_or(precision),
            max_time: file.stop.max_time.unwrap_or(MAX_TIME),
            metrics,
            rounds: file.stop.rounds,
        },
        slices: file.slices,
        load,
        load_cpus,
        server_cpus,
        variants,
        skipped: Vec::new(),
        cell: BTreeMap::new(),
    })
}

fn variant(
    table: VariantTable,
    servers: &BTreeMap<String, Spanned<server::Table>>,
    path: &str,
    source: &Source<'_>,
) -> Result<Variant, Failure> {
    let place = place::place(table.place, source)?;
    let client = place::client(table.client, source)?;
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
    let scheme = if spec.facts().tls() { "https" } else { "http" };
    let own = table.url.or_else(|| server.get_ref().url.clone());
    Ok(Variant {
        name: table.name,
        baseline: table.baseline,
        url: own.unwrap_or_else(|| format!("{scheme}://127.0.0.1:{{port}}{path}")),
        server: spec,
        unix_socket: server.get_ref().unix_socket.as_ref().map(|path| source.whole(path)),
        headers: table.headers,
        may_differ: table.may_differ,
        exclusive: table.exclusive,
        layers,
        place,
        client,
        optional: table.optional,
    })
}

#[cfg(test)]
#[path = "experiment/tests.rs"]
mod tests;
