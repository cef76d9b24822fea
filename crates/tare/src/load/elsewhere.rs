//! `tare load --kubernetes`: the load is made by pods.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tare_io::Instant;
use tare_lab::LabError;
use tare_lab::places::kubernetes::ground::service_address;
use tare_load::LoadPlan;
use tare_model::load::Family;
use tare_model::places::{KubernetesSpec, PlaceFacts, PlaceSpec};
use tare_model::url::Url;
use tare_report::load::{Clients, LoadReport};
use tare_run::load_from;

use crate::failure::Failure;
use crate::load::describe::{ClientCpu, Found, Request, describe};
use crate::load::plan::resolve;
use crate::run::places::journal_folder;

/// Settings of a pod: `pods=4,context=lab,node=node2`.
pub fn settings(text: &str) -> Result<KubernetesSpec, String> {
    let mut table = toml::Table::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| format!("'{part}': write KEY=VALUE, as in pods=4,node=node2"))?;
        if table.insert(key.trim().to_owned(), typed(value.trim())).is_some() {
            return Err(format!("{key} is given twice"));
        }
    }
    let spec: KubernetesSpec = table.try_into().map_err(|error: toml::de::Error| {
        let text = error.to_string();
        text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
    })?;
    let checked = spec.check().and_then(|()| spec.check_client(None));
    checked.map_err(|error| error.to_string()).map(|()| spec)
}

fn typed(text: &str) -> toml::Value {
    if let Ok(number) = text.parse::<i64>() {
        return number.into();
    }
    match (text, text.parse::<f64>()) {
        ("true", _) => true.into(),
        ("false", _) => false.into(),
        (_, Ok(number)) => number.into(),
        _ => text.into(),
    }
}

/// Where the load goes: a name that this machine does not know may be a Service's.
pub fn target(spec: &KubernetesSpec, url: &Url, family: Family) -> Result<SocketAddr, Failure> {
    if url.host.parse::<IpAddr>().is_err()
        && let Some(ip) = service_address(spec.context.as_deref(), &url.host)?
    {
        return Ok(SocketAddr::new(ip, url.port));
    }
    resolve(&url.host, url.port, family)
}

/// Makes the load and says what came of it.
pub fn run(
    spec: &KubernetesSpec,
    plan: &LoadPlan,
    request: &Request<'_>,
    stop: &Arc<AtomicBool>,
) -> Result<LoadReport, Failure> {
    let place = PlaceSpec::Kubernetes(spec.clone());
    let once = load_from(&place, plan, &journal_folder()?, stop)?;
    for text in &once.left {
        eprintln!("tare: {text}");
    }
    if let Some(proof) = once.proofs.iter().find(|proof| !proof.held) {
        let text = format!("not proven: {}: {}", proof.layer, proof.text);
        return Err(LabError::Environment(text).into());
    }
    let counts = &once.measured.counts;
    let total = once.measured.tally(Instant::ZERO);
    let together = counts.together.unwrap_or_default();
    let pods = spec.pods();
    let found = Found {
        total: &total,
        reactor: &once.made_by.reactor,
        reactor_note: once.made_by.note.clone(),
        workers: plan.workers.saturating_mul(pods).min(plan.engine.connections),
        cpu: ClientCpu { total_ns: counts.client_cpu_ns, split: None },
        busiest: counts.client_busiest,
        clients: Some(Clients {
            clients: pods,
            seen: once.proofs.first().map(|proof| proof.text.clone()).unwrap_or_default(),
            skew_ns: together.skew_ns,
            clock_error_ns: together.clock_ns,
            least_good: if pods == 1 { counts.good } else { together.least },
            most_good: if pods == 1 { counts.good } else { together.most },
        }),
    };
    Ok(describe(request, plan, found, Vec::new(), false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_those_of_a_place() {
        let spec = settings("pods=4, context=lab,cpus=0.5,memory=256M,host_network=true").unwrap();
        assert_eq!((spec.pods(), spec.context.as_deref()), (4, Some("lab")));
        assert_eq!((spec.cpus, spec.host_network), (Some(0.5), true));
        assert_eq!(settings("").unwrap(), KubernetesSpec::default());
    }

    #[test]
    fn wrong_settings_are_told() {
        for (text, part) in [
            ("pods", "write KEY=VALUE"),
            ("pods=1,pods=2", "twice"),
            ("pots=4", "unknown field `pots`"),
            ("pods=0", "pods = 0"),
            ("pods=many", "invalid type"),
            ("via=node-port", "of a server's place"),
            ("same_node_as=server", "need a server in a pod"),
        ] {
            let error = settings(text).unwrap_err();
            assert!(error.contains(part) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
