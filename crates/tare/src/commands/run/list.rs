//! The list of ready-made experiments: their questions, what each uses, and what is missing here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tare_lab::places::kubernetes;
use tare_model::places::{Network, PlaceSpec};
use tare_model::plan::{Draft, Plan};
use tare_model::variant::Variant;
use tare_model::{Failure, plain};

use crate::experiment;
use crate::run::machine::check_available;
use crate::shipped::{self, Shipped};
use crate::toml_file::Source;

/// An experiment as this machine sees it.
#[derive(Default)]
struct Entry {
    uses: String,
    /// Why it cannot be run by its name here.
    missing: Option<String>,
    /// Variants that it would skip here, by the reason.
    skips: BTreeMap<String, Vec<String>>,
}

pub fn ready_made() -> String {
    let mut text = String::from("Ready-made experiments (✓ runs here, ~ in part, ✗ not):\n\n");
    let mut machine = Machine::default();
    let width = shipped::all().map(|shipped| shipped.name.len()).max().unwrap_or(0);
    for shipped in shipped::all() {
        let entry = Entry::new(shipped, &mut machine);
        let sign = match (&entry.missing, entry.skips.is_empty()) {
            (Some(_), _) => '✗',
            (None, false) => '~',
            (None, true) => '✓',
        };
        text.push_str(&format!("{sign} {:width$}  {}\n", shipped.name, question(shipped)));
        let skips = entry.skips.iter().map(|(why, names)| {
            let n = names.len();
            let names = if n > 2 { format!("{n} variants") } else { names.join(" and ") };
            format!("without {names}: {why}")
        });
        let uses = (!entry.uses.is_empty()).then(|| format!("uses {}", entry.uses));
        // What cannot be run at all skips nothing.
        let reasons: Vec<String> = match entry.missing {
            Some(missing) => vec![missing],
            None => skips.collect(),
        };
        for line in uses.into_iter().chain(reasons) {
            text.push_str(&format!("  {:width$}  {}\n", "", plain::line(&line)));
        }
    }
    text.push_str(
        "\n'tare run NAME' runs one, 'tare run --copy NAME' writes its file to change.\n",
    );
    text
}

fn question(shipped: Shipped) -> String {
    let table: toml::Table = shipped.text.parse().unwrap_or_default();
    table.get("name").and_then(|name| name.as_str()).unwrap_or_default().to_owned()
}

/// What was found out about this machine: checks of places may take long.
#[derive(Default)]
struct Machine {
    cluster: Option<Result<(), Failure>>,
}

impl Machine {
    fn check(&mut self, variant: &Variant) -> Result<(), Failure> {
        let mut places = std::iter::once(&variant.place).chain(variant.clients.places());
        if places.any(|place| matches!(place, PlaceSpec::Kubernetes(_))) {
            let check = || kubernetes::check_current_context().map(drop);
            self.cluster.get_or_insert_with(check).clone()?;
        }
        check_available(variant)
    }
}

impl Entry {
    fn new(shipped: Shipped, machine: &mut Machine) -> Self {
        let Shipped { name, text } = shipped;
        let mut entry = Self::default();
        if let Some(needs) = shipped.needs_sources() {
            entry.missing = Some(needs);
            return entry;
        }
        if experiment::is_procedure_file(text) {
            let how = format!("has steps: tare run --copy {name}, then tare steps {name}.toml");
            entry.missing = Some(how);
            return entry;
        }
        let drafts = experiment::parse(&Source { path: Path::new(name), text });
        let plan = drafts.and_then(|all| {
            let first = all.into_iter().next();
            let first = first.ok_or_else(|| Failure::bug("an experiment without a plan"))?;
            entry.uses = uses(&first);
            Ok(Plan::try_from(first)?)
        });
        match plan {
            Ok(plan) => {
                plan.variants.iter().for_each(|variant| entry.check(variant, machine));
                let skips: usize = entry.skips.values().map(Vec::len).sum();
                if plan.variants.len() < skips + 2 {
                    let why = entry.skips.keys().next();
                    entry.missing = entry.missing.or(why.cloned());
                }
            }
            Err(failure) => entry.missing = Some(failure.to_string()),
        }
        if shipped.companions().next().is_some() {
            let how = format!("needs files beside it: tare run --copy {name}");
            entry.missing.get_or_insert(how);
        }
        entry
    }

    fn check(&mut self, variant: &Variant, machine: &mut Machine) {
        if self.missing.is_some() {
            return;
        }
        match machine.check(variant) {
            Ok(()) => {}
            Err(why) if variant.optional => {
                self.skips.entry(why.to_string()).or_default().push(variant.name.clone());
            }
            Err(why) => {
                self.missing.get_or_insert(why.to_string());
            }
        }
    }
}

/// Lists the servers, places and layers of an experiment, after "root" if that is needed.
fn uses(draft: &Draft) -> String {
    let all = &draft.variants;
    let servers: BTreeSet<String> = all.iter().filter_map(server).collect();
    let layers = all.iter().flat_map(|variant| &variant.layers);
    let layers: BTreeSet<String> = layers.map(|layer| layer.facts().name()).collect();
    let places = all.iter().flat_map(|variant| {
        let own = std::iter::once(&variant.place);
        own.chain(variant.places_of_hops()).chain(variant.clients.places())
    });
    let places = places.filter(|place| !place.is_host()).map(|place| place.facts());
    let places: Vec<_> = places.collect();
    // Which Service or node a pod is reached by is no need of its own.
    let kind = |name: String| name.split(',').next().unwrap_or_default().to_owned();
    let names: BTreeSet<String> = places.iter().map(|place| kind(place.name())).collect();
    let needs_root = places.iter().any(|place| place.network() == Network::Bridge);
    let root = needs_root.then(|| "root".to_owned());
    let words: Vec<String> = root.into_iter().chain(servers).chain(names).chain(layers).collect();
    words.join(", ")
}

/// Returns the key of the server's kind.
fn server(variant: &Variant) -> Option<String> {
    let value = serde_json::to_value(&variant.server).ok()?;
    value.as_object()?.keys().next().cloned()
}
