//! What load is made by: a plan, and each worker's part of it.

use std::sync::Arc;

use tare_io::{Endpoint, Random, ReactorKind};

use crate::engine::{EngineConfig, Stretch};
use crate::pacer::{Arrivals, Pacer, RateProfile, Spacing};
use crate::source::{FixedRequest, ListedRequests, Source};
use crate::tls::TlsClient;

/// A load with every default resolved.
pub struct LoadPlan {
    /// Shared by all workers; `connections` and `max_connections` are totals.
    pub engine: EngineConfig,
    pub source: PlannedSource,
    /// Where each worker connects to, in turn; empty is the engine's endpoint for all.
    pub worker_endpoints: Vec<Endpoint>,
    /// `None` is the closed loop.
    pub rate: Option<RateProfile>,
    pub poisson: bool,
    pub stretch: Stretch,
    pub workers: u32,
    /// A CPU for each worker, in turn; empty leaves them unpinned.
    pub cpus: Vec<usize>,
    /// `None` takes io_uring where the kernel lets us.
    pub reactor: Option<ReactorKind>,
    pub tls_resume: bool,
    pub seed: u64,
}

/// What a worker is to ask.
pub enum PlannedSource {
    Fixed(FixedRequest),
    /// What the engine's protocol says: messages, a stream, calls.
    Messages,
    /// A list, in order (each worker from a place of its own) or at random.
    Listed {
        requests: Arc<[FixedRequest]>,
        random: bool,
        /// Where to begin, in order.
        offset: usize,
    },
    /// Made by each worker in its own thread (a script's state cannot move between threads).
    Made(Arc<dyn Fn(u32) -> Box<dyn Source> + Send + Sync>),
}

pub(crate) struct WorkerPlan {
    pub index: u32,
    /// There are no other workers.
    pub alone: bool,
    pub engine: EngineConfig,
    pub source: Box<dyn FnOnce() -> Box<dyn Source> + Send>,
    pub pacer: Pacer,
    pub stretch: Stretch,
    pub cpu: Option<usize>,
    pub reactor: Option<ReactorKind>,
}

/// One worker's part of the plan: its share of connections, of the rate, and of the requests.
pub(crate) fn plan_of(plan: &LoadPlan, index: u32, workers: u32) -> WorkerPlan {
    let share = |total: u64| {
        let (total, workers, index) = (total, u64::from(workers), u64::from(index));
        total / workers + u64::from(index < total % workers)
    };
    let mut engine = plan.engine.clone();
    if !plan.worker_endpoints.is_empty() {
        let at = index as usize % plan.worker_endpoints.len();
        engine.endpoint = plan.worker_endpoints[at].clone();
    }
    engine.connections = share(u64::from(plan.engine.connections)) as u32;
    engine.max_connections = share(u64::from(plan.engine.max_connections)) as u32;
    engine.tls = plan.engine.tls.as_ref().map(|tls: &TlsClient| tls.for_worker(plan.tls_resume));
    let mut stretch = plan.stretch;
    stretch.requests = plan.stretch.requests.map(share);
    let pacer = match &plan.rate {
        None => Pacer::Closed,
        Some(profile) => {
            let spacing = if plan.poisson {
                Spacing::Poisson(Random::stream(plan.seed, "arrivals", u64::from(index)))
            } else {
                Spacing::Even { phase: f64::from(index) / f64::from(workers) }
            };
            Pacer::Open(Arrivals::new(profile.clone(), 1.0 / f64::from(workers), spacing))
        }
    };
    let source: Box<dyn FnOnce() -> Box<dyn Source> + Send> = match &plan.source {
        PlannedSource::Fixed(request) => {
            let request = *request;
            Box::new(move || Box::new(request))
        }
        PlannedSource::Listed { requests, random, offset } => {
            let (requests, random, seed) = (requests.clone(), *random, plan.seed);
            let start = (offset + requests.len() * index as usize / workers as usize)
                % requests.len().max(1);
            Box::new(move || match random {
                true => {
                    let random = Random::stream(seed, "requests", u64::from(index));
                    Box::new(ListedRequests::at_random(requests, random))
                }
                false => Box::new(ListedRequests::in_order(requests, start)),
            })
        }
        PlannedSource::Made(make) => {
            let make = make.clone();
            Box::new(move || make(index))
        }
        PlannedSource::Messages => {
            let messages = engine.messages();
            Box::new(move || {
                messages
                    .map_or_else(|| Box::new(FixedRequest::new(Vec::new())) as _, |m| m.source())
            })
        }
    };
    let cpu = match plan.cpus.len() {
        0 => None,
        n => Some(plan.cpus[index as usize % n]),
    };
    WorkerPlan {
        index,
        alone: workers == 1,
        engine,
        source,
        pacer,
        stretch,
        cpu,
        reactor: plan.reactor,
    }
}
