//! The plan of a load, and each worker's part of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tare_io::{DurationNs, Endpoint, Random, ReactorKind};
use tare_model::Invalid;

use crate::codec::Prepared;
use crate::engine::{Engine, EngineConfig, Stretch};
use crate::pacer::{Arrivals, Pacer, RateProfile, Spacing};
use crate::protocol::capture::Wanted;
use crate::request::{Order, RequestError, Requests};
use crate::source::{AnySource, Source};
use crate::tls::TlsClient;

/// Index of a lane (the connections to one server) among those opened together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LaneId(pub usize);

/// A load with every default resolved, to be run here or by an agent.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadPlan {
    /// Shared by all workers; `connections` and `max_connections` are totals.
    pub engine: EngineConfig,
    pub requests: Requests,
    pub order: Order,
    /// Makes each worker's source, if requests come from a script or replies are looked at.
    #[serde(skip)]
    pub source: Option<MakeSource>,
    /// Endpoints for the workers, in turn; if empty, all connect to the engine's endpoint.
    pub worker_endpoints: Vec<Endpoint>,
    /// `None` is the closed loop.
    pub rate: Option<RateProfile>,
    pub poisson: bool,
    pub stretch: Stretch,
    pub workers: u32,
    /// A CPU for each worker, in turn; empty leaves them unpinned.
    pub cpus: Vec<usize>,
    /// `None` takes io_uring if the kernel allows it.
    pub reactor: Option<ReactorKind>,
    pub seed: u64,
    /// This client's part of the load; the numbers above are totals of all clients.
    pub part: Part,
}

/// One of several clients that make a load together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "(u32, u32)", into = "(u32, u32)")]
pub struct Part {
    index: u32,
    of: u32,
}

impl Part {
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// Returns this client's part of a total of all clients.
    fn share(self, total: u64) -> u64 {
        share(total, self.index, self.of)
    }

    /// One worker's share of this client's part.
    pub(crate) fn worker_share(self, total: u64, index: u32, workers: u32) -> u64 {
        share(self.share(total), index, workers)
    }
}

impl From<Part> for (u32, u32) {
    fn from(part: Part) -> Self {
        (part.index, part.of)
    }
}

impl TryFrom<(u32, u32)> for Part {
    type Error = Invalid;

    fn try_from((index, of): (u32, u32)) -> Result<Self, Invalid> {
        match index < of {
            true => Ok(Self { index, of }),
            false => Err(Invalid(format!("part {index} of {of}"))),
        }
    }
}

/// Returns share number `index` of `total` divided by `n`; shares differ by one at most.
fn share(total: u64, index: u32, n: u32) -> u64 {
    total / u64::from(n) + u64::from(u64::from(index) < total % u64::from(n))
}

impl LoadPlan {
    /// Divides the load among this many clients, which make it together.
    pub fn divided(&self, clients: u32) -> Result<Vec<Self>, Invalid> {
        if self.engine.connections < clients {
            return Err(Invalid(format!(
                "connections = {}: {clients} clients divide them, and each needs one: give at \
                 least {clients}",
                self.engine.connections
            )));
        }
        let part = |index| {
            let mut plan = Self { part: Part { index, of: clients }, ..self.clone() };
            if clients > 1 {
                // Clients may share CPUs: one that polls would take CPU time from the others.
                plan.cpus.clear();
                plan.engine.wait.spin = DurationNs::ZERO;
                plan.engine.wait.polls = false;
            }
            plan
        };
        Ok((0..clients).map(part).collect())
    }

    /// The most connections that this client opens.
    pub fn max_connections(&self) -> u32 {
        self.part.share(u64::from(self.engine.max_connections)) as u32
    }
}

/// Makes a worker's source in its own thread: a script's state cannot move to another thread or
/// machine.
pub type MakeSource = Arc<dyn Fn(u32) -> Box<dyn Source> + Send + Sync>;

pub(crate) struct WorkerPlan {
    pub index: u32,
    /// There are no other workers.
    pub alone: bool,
    pub engine: EngineConfig,
    prepared: Prepared,
    source: Box<dyn FnOnce() -> AnySource + Send>,
    pub pacer: Pacer,
    pub reactor: Option<ReactorKind>,
}

impl WorkerPlan {
    /// Makes the engine; `None` if the protocol needs none. With `looking`, the bodies of a few
    /// replies are hashed, if all requests are the same.
    pub(crate) fn engine(self, looking: bool) -> Option<Engine> {
        let source = (self.source)();
        let looking = looking && matches!(source.wanted(), Wanted::Nothing) && source.is_constant();
        let wanted = if looking { Wanted::Few } else { source.wanted() };
        let codec = self.prepared.codec(self.engine.slots(&self.pacer), &wanted)?;
        let engine = Engine::new(self.engine, codec, source, self.pacer);
        Some(if looking { engine.looking_at_bodies() } else { engine })
    }
}

/// Divides a plan's connections, rate and requests among its workers. Requests are encoded once and
/// shared.
pub(crate) fn worker_plans(plan: &LoadPlan, workers: u32) -> Result<Vec<WorkerPlan>, RequestError> {
    let prepared = Prepared::new(&plan.engine, &plan.requests)?;
    Ok((0..workers).map(|index| worker_plan(plan, prepared.clone(), index, workers)).collect())
}

fn worker_plan(plan: &LoadPlan, prepared: Prepared, index: u32, workers: u32) -> WorkerPlan {
    let share = |total: u64| plan.part.worker_share(total, index, workers);
    // Workers are numbered across all clients.
    let (nth, all) = (plan.part.index * workers + index, plan.part.of * workers);
    let mut engine = plan.engine.clone();
    if !plan.worker_endpoints.is_empty() {
        let at = index as usize % plan.worker_endpoints.len();
        engine.endpoint = plan.worker_endpoints[at].clone();
    }
    engine.connections = share(u64::from(plan.engine.connections)) as u32;
    engine.max_connections = share(u64::from(plan.engine.max_connections)) as u32;
    engine.tls = plan.engine.tls.as_ref().map(TlsClient::for_worker);
    let pacer = match &plan.rate {
        None => Pacer::Closed,
        Some(profile) => {
            let spacing = if plan.poisson {
                Spacing::Poisson(Random::stream(plan.seed, "arrivals", u64::from(nth)))
            } else {
                // Starts half an interval late, so that short windows are not one request off.
                Spacing::Even { phase: (f64::from(nth) + 0.5) / f64::from(all) }
            };
            Pacer::Open(Arrivals::new(profile.clone(), 1.0 / f64::from(all), spacing))
        }
    };
    let source: Box<dyn FnOnce() -> AnySource + Send> = match &plan.source {
        Some(make) => {
            let make = make.clone();
            Box::new(move || make(index).into())
        }
        None => {
            let listed = plan.requests.listed(plan.order, plan.seed, nth, all);
            Box::new(move || listed.into())
        }
    };
    WorkerPlan {
        index,
        alone: workers == 1,
        engine,
        prepared,
        source,
        pacer,
        reactor: plan.reactor,
    }
}

#[cfg(test)]
mod tests {
    use tare_model::load::{Load, LoadSpec};
    use tare_model::url::Url;

    use super::*;
    use crate::resolve;

    fn planned(spec: LoadSpec, url: &str) -> LoadPlan {
        let endpoint = Endpoint::Tcp(([127, 0, 0, 1], 80).into());
        let load = Load::try_from(spec).unwrap();
        resolve(&load, &Url::parse(url).unwrap(), endpoint, 5).unwrap()
    }

    #[test]
    fn every_plan_crosses_to_another_place_as_it_is() {
        let spec = LoadSpec { connections: Some(7), ..LoadSpec::default() };
        let many = ["/a", "/b"].map(str::to_owned).to_vec();
        let mut staged = planned(spec.clone(), "http://a/");
        staged.rate = Some(RateProfile::parse("1s:10..100,2s:50").unwrap());
        for plan in [
            planned(spec.clone(), "http://a/"),
            planned(LoadSpec { paths: many, random_order: true, ..spec.clone() }, "http://a/"),
            planned(LoadSpec { insecure: true, ..spec.clone() }, "https://a/"),
            planned(LoadSpec { rate: Some(1e3), poisson: true, ..spec.clone() }, "http://a/"),
            staged,
        ] {
            let text = serde_json::to_string(&plan).unwrap();
            let crossed: LoadPlan = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&crossed).unwrap(), text);
        }
        let requests = Requests::Written { each: Vec::new(), requests: 1 };
        let scripted = LoadPlan { requests, ..planned(spec.clone(), "http://a/") };
        assert!(serde_json::to_string(&scripted).is_err(), "a script stays where it is");
    }

    #[test]
    fn a_divided_load_is_the_same_load() {
        let spec = LoadSpec { connections: Some(11), rate: Some(1000.0), ..LoadSpec::default() };
        let mut whole = planned(spec.clone(), "http://a/");
        whole.workers = 2;
        let parts = whole.divided(4).unwrap();
        let workers = parts.iter().flat_map(|part| worker_plans(part, 2).unwrap());
        let workers: Vec<WorkerPlan> = workers.collect();
        let connections: Vec<u32> = workers.iter().map(|plan| plan.engine.connections).collect();
        assert_eq!(connections, [2, 1, 2, 1, 2, 1, 1, 1]);
        let requests =
            |part: &LoadPlan| (0..2).map(|w| part.part.worker_share(21, w, 2)).sum::<u64>();
        assert_eq!(parts.iter().map(requests).sum::<u64>(), 21);
        // Together, the clients' requests are due as a single client's would be: every millisecond.
        let start = tare_io::Instant::from_ns(0);
        let mut due: Vec<u64> = workers
            .into_iter()
            .flat_map(|mut plan| {
                plan.pacer.begin(start);
                (0..5).map(move |_| plan.pacer.take(start).as_ns()).collect::<Vec<_>>()
            })
            .collect();
        due.sort_unstable();
        assert_eq!(due, (0..40).map(|ms| ms * 1_000_000 + 500_000).collect::<Vec<u64>>());
        let too_many = whole.divided(12).err().unwrap().to_string();
        assert!(too_many.contains("give at least 12"), "{too_many}");
    }
}
