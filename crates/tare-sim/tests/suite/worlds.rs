//! Runs a case in each of the three worlds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tare_io::{DurationNs, Endpoint, ReactorKind};
use tare_load::codec::AnyCodec;
use tare_load::engine::Engine;
use tare_load::pacer::{Arrivals, Pacer, RateProfile, Spacing};
use tare_load::protocol::capture::Wanted;
use tare_load::protocol::http1::{Http1, Http1Requests};
use tare_load::request::{Order, RequestParts, Requests};
use tare_load::source::Listed;
use tare_load::tls::TlsClient;
use tare_load::{
    EngineConfig, FailureKind, Lifetime, LoadError, LoadPlan, NoObserver, Part, Stretch, Tally,
    WaitPolicy,
};
use tare_model::status::StatusSet;
use tare_sim::net::NetOptions;
use tare_sim::world::{self, World};
use tare_target::behaviour::Behaviour;
use tare_target::serve::{Target, TargetPlan};
use tare_target::stats::{Counter, Stats};
use tare_target::tls::TlsServer;

pub const KINDS: [ReactorKind; 3] =
    [ReactorKind::IoUring, ReactorKind::Epoll, ReactorKind::Simulated];

/// One load on one target; the same in every world.
#[derive(Clone)]
pub struct Case {
    pub behaviour: Behaviour,
    pub net: NetOptions,
    pub listening: bool,
    pub server_tls: Option<TlsServer>,
    pub client_tls: Option<TlsClient>,
    pub method: &'static str,
    pub body: Vec<u8>,
    pub connections: u32,
    pub max_connections: u32,
    pub lifetime: Lifetime,
    /// Requests that a connection carries at once; in simulation only.
    pub pipelined: u32,
    pub rate: Option<RateProfile>,
    pub poisson: bool,
    pub requests: Option<u64>,
    pub ramp: DurationNs,
    pub window: DurationNs,
    pub timeout: DurationNs,
    /// How long replies wait for others.
    pub linger: DurationNs,
    pub seed: u64,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            behaviour: Behaviour::default(),
            net: NetOptions::default(),
            listening: true,
            server_tls: None,
            client_tls: None,
            method: "GET",
            body: Vec::new(),
            connections: 4,
            max_connections: 4,
            lifetime: Lifetime::Kept,
            pipelined: 1,
            rate: None,
            poisson: false,
            requests: Some(400),
            ramp: DurationNs::ZERO,
            window: DurationNs::from_secs(600),
            timeout: DurationNs::from_secs(60),
            linger: DurationNs::ZERO,
            seed: 1,
        }
    }
}

/// The results of a case, including connections opened beforehand.
pub struct CaseResult {
    pub tally: Tally,
    /// Replies on each connection; in simulation only.
    pub replies: Vec<u64>,
    pub stats: Stats,
}

impl CaseResult {
    pub fn stat(&self, counter: Counter) -> u64 {
        self.stats.get(counter)
    }

    /// Returns each kind of failure, its count, and its first message.
    pub fn failures(&self) -> Vec<(FailureKind, u64, String)> {
        self.tally.failures.seen().map(|(kind, n, text)| (kind, n, text.to_owned())).collect()
    }
}

impl Case {
    /// Runs in one world, and checks that the counters balance.
    pub fn run(&self, kind: ReactorKind) -> Result<CaseResult, LoadError> {
        let found = match kind {
            ReactorKind::Simulated => self.simulate(),
            real => self.run_for_real(real)?,
        };
        found.tally.assert_closed();
        Ok(found)
    }

    /// Runs in every world and checks each result.
    pub fn everywhere(&self, check: impl Fn(&CaseResult)) {
        for kind in KINDS {
            println!("on {}", kind.name());
            match self.run(kind) {
                Ok(found) => check(&found),
                Err(error) => panic!("on {}: {error}", kind.name()),
            }
        }
    }

    fn engine(&self, endpoint: Endpoint) -> EngineConfig {
        EngineConfig {
            protocol: Default::default(),
            sockets: Default::default(),
            endpoint,
            bind: Vec::new(),
            connections: self.connections,
            max_connections: self.max_connections,
            lifetime: self.lifetime,
            tls: self.client_tls.clone(),
            timeout: self.timeout,
            expected: StatusSet::success(),
            wait: WaitPolicy {
                batch_max: if self.linger > DurationNs::ZERO { 16 } else { 1 },
                linger: self.linger,
                spin: DurationNs::from_us(20),
                polls: false,
            },
        }
    }

    fn stretch(&self) -> Stretch {
        Stretch {
            ramp: self.ramp,
            window: self.window,
            requests: self.requests,
            interval: DurationNs::from_secs(1),
            ..Stretch::NONE
        }
    }

    fn requests(&self) -> Requests {
        let parts = RequestParts {
            method: self.method.into(),
            authority: "localhost".into(),
            paths: vec!["/".into()],
            body: self.body.clone(),
            close: self.lifetime == Lifetime::PerRequest,
            ..Default::default()
        };
        Requests::Parts(parts.into())
    }

    fn simulate(&self) -> CaseResult {
        let pacer = match &self.rate {
            None => Pacer::Closed,
            Some(profile) => {
                let random = tare_io::Random::stream(self.seed, "arrivals", 0);
                let spacing = match self.poisson {
                    true => Spacing::Poisson(random),
                    false => Spacing::Even { phase: 0.0 },
                };
                Pacer::Open(Arrivals::new(profile.clone(), 1.0, spacing))
            }
        };
        let mut config = self.engine(world::endpoint());
        config.tls = self.client_tls.as_ref().map(|tls| tls.for_worker());
        let requests = Http1Requests::new(&self.requests()).unwrap();
        let codec = Http1::new(config.slots(&pacer), &Wanted::Nothing, requests);
        let codec = AnyCodec::Http1(codec.pipelining(self.pipelined));
        let engine = Engine::new(config, codec, Listed::in_turn(1, 0).into(), pacer);
        let world = World {
            net: self.net.clone(),
            behaviour: self.behaviour.clone(),
            tls: self.server_tls.clone(),
            listening: self.listening,
        };
        let outcome = world.run(engine, self.stretch());
        let mut tally = outcome.tally;
        tally.counts.accumulate(&outcome.opening.counts);
        tally.failures.merge(&outcome.opening.failures);
        CaseResult { tally, replies: outcome.life.replies, stats: outcome.stats }
    }

    fn run_for_real(&self, kind: ReactorKind) -> Result<CaseResult, LoadError> {
        let target = Target::start(&TargetPlan {
            listen: Endpoint::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))),
            behaviour: self.behaviour.clone(),
            tls: self.server_tls.clone(),
            threads: 1,
            cpus: Vec::new(),
            reactor: Some(kind),
            slots: 4096,
        })?;
        let (endpoint, stats) = (target.listens.clone(), target.stats.clone());
        let target = self.listening.then_some(target);
        let result = tare_load::run(&self.plan(kind, endpoint), &stop(), &mut NoObserver)?;
        assert_eq!(result.opened.how, kind.name());
        // Joins the target's threads, so that its counters are final.
        drop(target);
        Ok(CaseResult { tally: result.total, replies: Vec::new(), stats })
    }

    pub fn plan(&self, kind: ReactorKind, endpoint: Endpoint) -> LoadPlan {
        LoadPlan {
            engine: self.engine(endpoint),
            requests: self.requests(),
            order: Order::InTurn { from: 0 },
            source: None,
            worker_endpoints: Vec::new(),
            rate: self.rate.clone(),
            poisson: self.poisson,
            stretch: self.stretch(),
            workers: 1,
            cpus: Vec::new(),
            reactor: Some(kind),
            seed: self.seed,
            part: Part::WHOLE,
        }
    }
}

pub fn stop() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(false))
}
