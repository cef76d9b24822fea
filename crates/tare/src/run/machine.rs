//! Checks a plan against this machine.

use tare_lab::places;
use tare_lab::{layers, servers};
use tare_model::plan::{Plan, PlanParts};
use tare_model::variant::{Skipped, Variant};
use tare_model::{Failure, Fault};

/// Fails if this machine lacks CPUs, or what the plan's servers, filters and places need.
pub fn check_machine(plan: &Plan) -> Result<(), Failure> {
    let known = tare_io::system::allowed_cpus();
    let mut cpus = plan.load_cpus.iter().chain(&plan.server_cpus);
    if let Some(cpu) = cpus.find(|cpu| !known.contains(cpu)) {
        let text = format!("cpus: {cpu} is not one that tare may use: {known:?}");
        return Err(Failure::usage(text));
    }
    for variant in &plan.variants {
        match describe(variant) {
            // The variant will be skipped, and the report says why.
            Err(Failure { fault: Fault::Environment, .. }) if variant.optional => {}
            described => described.map(drop)?,
        }
    }
    Ok(())
}

/// Describes a variant's server and layers; fails if this machine lacks something for them.
pub fn describe(variant: &Variant) -> Result<(String, Vec<String>), Failure> {
    let server = match variant.place.facts().shares_host_files() {
        true => servers::describe(&variant.server)?,
        false => servers::describe_elsewhere(&variant.server)?,
    };
    let layers = variant.layers.iter();
    let layers = layers.map(|layer| layers::kind(layer).describe().map_err(|e| named(e, variant)));
    Ok((server, layers.collect::<Result<_, _>>()?))
}

/// Adds the variant's name to an error about a wrong setting.
fn named(error: Failure, variant: &Variant) -> Failure {
    match error.fault {
        Fault::Usage => error.map(|text| format!("variant '{}': {text}", variant.name)),
        _ => error,
    }
}

/// Returns the optional variants that this machine cannot run.
pub fn absent(plan: &Plan) -> Result<Vec<Skipped>, Failure> {
    let mut absent = Vec::new();
    for variant in &plan.variants {
        match check_available(variant) {
            Ok(()) => {}
            Err(Failure { fault: Fault::Environment, text: reason }) if variant.optional => {
                absent.push(Skipped { name: variant.name.clone(), reason });
            }
            Err(error) => return Err(error.named(&variant.name)),
        }
    }
    Ok(absent)
}

/// Fails if a variant's server, layers or places are not available on this machine.
pub fn check_available(variant: &Variant) -> Result<(), Failure> {
    describe(variant)?;
    variant.layers.iter().try_for_each(|layer| layers::kind(layer).check_machine())?;
    places::check(&variant.place)?;
    variant.places_of_hops().try_for_each(places::check)?;
    variant.clients.places().try_for_each(places::check)
}

/// Returns the plan without the skipped variants.
pub fn without(plan: Plan, absent: &[Skipped]) -> Result<Plan, Failure> {
    if absent.is_empty() {
        return Ok(plan);
    }
    let mut parts = PlanParts::from(plan);
    parts.variants.retain(|variant| absent.iter().all(|skipped| skipped.name != variant.name));
    parts.skipped.extend(absent.iter().cloned());
    if parts.variants.len() < 2 {
        let reasons = parts.skipped.iter().map(|s| format!("{}: {}", s.name, s.reason));
        let reasons: Vec<String> = reasons.collect();
        let text = format!("nothing is left to compare: {}", reasons.join("; "));
        return Err(Failure::environment(text));
    }
    Ok(Plan::try_from(parts)?)
}
