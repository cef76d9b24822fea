//! `tare load --kubernetes` and `--ssh`: the load is made by pods, or on other machines.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tare_io::{DurationNs, Instant};
use tare_lab::Halt;
use tare_lab::places::kubernetes::ground::service_address;
use tare_load::measured::Measured;
use tare_load::{LoadPlan, Tally};
use tare_model::Failure;
use tare_model::clients::{CLIENTS_MAX, ClientSpec, Clients};
use tare_model::load::Family;
use tare_model::places::{KubernetesSpec, PlaceFacts, PlaceSpec, SshSpec};
use tare_model::url::Url;
use tare_report::clients_summary::ClientsSummary;
use tare_report::load::LoadReport;
use tare_run::load_from;

use crate::load::addresses::address_of;
use crate::load::describe::{ClientCpu, LoadOutcome, Request, describe};
use crate::load::watch::Watch;
use crate::run::cpus_and_folders::journal_folder;

/// Pods that make the load together.
#[derive(Clone, Debug, PartialEq)]
pub struct Pods {
    pub count: usize,
    pub spec: KubernetesSpec,
}

impl Pods {
    pub fn places(&self) -> Vec<PlaceSpec> {
        vec![PlaceSpec::Kubernetes(self.spec.clone()); self.count]
    }
}

/// Parses the number of pods and their settings: `count=4,context=lab,node=node2`.
pub fn settings(text: &str) -> Result<Pods, String> {
    let mut table = toml::Table::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| format!("'{part}': write KEY=VALUE, as in count=4,node=node2"))?;
        if table.insert(key.trim().to_owned(), typed(value.trim())).is_some() {
            return Err(format!("{key} is given twice"));
        }
    }
    let count = match table.remove("count").map(|n| n.as_integer().map(usize::try_from)) {
        None => 1,
        Some(Some(Ok(n))) if (1..=CLIENTS_MAX).contains(&n) => n,
        Some(_) => return Err(format!("count: write 1 to {CLIENTS_MAX}")),
    };
    let spec: KubernetesSpec = table.try_into().map_err(|error: toml::de::Error| {
        let text = error.to_string();
        text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
    })?;
    let checked = spec.check().and_then(|()| spec.check_client(None));
    checked.map_err(|error| error.to_string()).map(|()| Pods { count, spec })
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

/// Resolves the URL's host as a Service of the cluster, or else on this machine.
pub fn target(spec: &KubernetesSpec, url: &Url, family: Family) -> Result<SocketAddr, Failure> {
    if url.host.parse::<IpAddr>().is_err()
        && let Some(ip) = service_address(spec.context.as_deref(), &url.host)?
    {
        return Ok(SocketAddr::new(ip, url.port));
    }
    address_of(&url.host, url.port, family)
}

/// Returns the place of a client on each of these ssh hosts.
pub fn hosts(names: &[String]) -> Result<Vec<PlaceSpec>, Failure> {
    let place = |name: &String| {
        let spec = SshSpec { host: name.clone(), address: None, options: Vec::new() };
        spec.check().map_err(|error| Failure::usage(format!("--ssh: {error}")))?;
        Ok(PlaceSpec::Ssh(spec))
    };
    names.iter().map(place).collect()
}

/// Makes the load in these places, passes the intervals to `watch`, and returns the report.
pub fn run(
    places: &[PlaceSpec],
    plan: &LoadPlan,
    request: &Request<'_>,
    watch: &mut Watch,
    stop: &Arc<AtomicBool>,
) -> Result<LoadReport, Failure> {
    let clients: Vec<_> = places.iter().cloned().map(ClientSpec::Place).collect();
    let clients = Clients::try_from(clients).map_err(Failure::from)?;
    let halt = Halt::without_timer(Instant::FAR, stop.clone());
    halt.ignore_ends(true);
    let once = load_from(clients, plan, &journal_folder()?, &halt)?;
    for text in &once.left {
        eprintln!("tare: {text}");
    }
    if let Some(proof) = once.proofs.iter().find(|proof| !proof.held) {
        let text = format!("not proven: {}: {}", proof.layer, proof.text);
        return Err(Failure::environment(text));
    }
    match &once.intervals {
        Ok(intervals) => {
            rows(intervals, plan.stretch.interval).iter().for_each(|row| watch.add_row(row))
        }
        Err(error) => eprintln!("tare: there is no time series: {error}"),
    }
    let counts = &once.measured.counts;
    let total = once.measured.tally(Instant::ZERO);
    let n = u32::try_from(places.len()).unwrap_or(u32::MAX);
    let seen = once.proofs.iter().map(|proof| proof.text.clone()).collect();
    let found = LoadOutcome {
        total: &total,
        reactor: &once.made_by.reactor,
        reactor_note: once.made_by.note.clone(),
        workers: plan.workers.saturating_mul(n).min(plan.engine.connections),
        cpu: ClientCpu { total_ns: counts.client_cpu_ns, split: None },
        busiest: counts.client_busiest,
        clients: Some(ClientsSummary::with_places(counts, seen)),
    };
    Ok(describe(request, plan, found, watch.intervals(), false))
}

/// Merges the intervals of all clients into rows; the middle of an interval decides its row.
fn rows(intervals: &[Measured], length: DurationNs) -> Vec<Tally> {
    let mut rows: BTreeMap<u64, Tally> = BTreeMap::new();
    for interval in intervals {
        let tally = interval.tally(interval.began);
        let middle = tally.start.as_ns() + tally.elapsed().as_ns() / 2;
        rows.entry(middle / length.as_ns().max(1)).or_default().merge(&tally);
    }
    rows.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_model::samples::Counts;

    #[test]
    fn intervals_of_several_clients_are_rows_by_when_they_were() {
        let interval = |began_ms: u64, ms: u64, good: u64| {
            let began = Instant::ZERO + DurationNs::from_ms(began_ms);
            let window_ns = DurationNs::from_ms(ms).as_ns();
            let counts = Counts { window_ns, good, completed: good, ..Counts::default() };
            Measured { began, counts, latencies: Vec::new(), marks: Vec::new() }
        };
        // One client is late in its second interval, the other is not.
        let one = [interval(0, 500, 10), interval(500, 540, 11), interval(1040, 460, 9)];
        let other = [interval(0, 501, 20), interval(501, 500, 20), interval(1001, 499, 20)];
        let rows = rows(&[one, other].concat(), DurationNs::from_ms(500));
        assert_eq!(rows.iter().map(|row| row.counts.good).collect::<Vec<_>>(), [30, 31, 29]);
        assert_eq!(rows[2].start, Instant::ZERO + DurationNs::from_ms(1001));
    }

    #[test]
    fn settings_are_those_of_a_place() {
        let Pods { count, spec } =
            settings("count=4, context=lab,cpus=0.5,memory=256M,host_network=true").unwrap();
        assert_eq!((count, spec.context.as_deref()), (4, Some("lab")));
        assert_eq!((spec.cpus, spec.host_network), (Some(0.5), true));
        assert_eq!(settings("").unwrap(), Pods { count: 1, spec: KubernetesSpec::default() });
    }

    #[test]
    fn wrong_settings_are_told() {
        for (text, part) in [
            ("count", "write KEY=VALUE"),
            ("count=1,count=2", "twice"),
            ("pots=4", "unknown field `pots`"),
            ("count=0", "count: write 1 to 64"),
            ("count=many", "count: write 1 to 64"),
            ("cpus=many", "invalid type"),
            ("via=node-port", "of a server's place"),
            ("same_node_as=server", "need a server in a pod"),
        ] {
            let error = settings(text).unwrap_err();
            assert!(error.contains(part) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
