//! Probes every variant before its first slice: sends two requests on one connection, and records
//! everything that can be compared of the replies.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use tare_io::{DurationNs, ReactorKind};
use tare_model::net::Protocol;
use tare_model::samples::Probe;

use crate::LaneId;
use crate::engine::{Lifetime, Stretch};
use crate::error::LoadError;
use crate::load_plan::{LoadPlan, Part};
use crate::protocol::capture::{Capture, Wanted};
use crate::protocol::reply::Reply;
use crate::run::NoObserver;
use crate::session::{Sampling, Session};
use crate::source::{NextRequest, Source};
use crate::tally::Tally;
use crate::tls::TlsClient;

/// Sends probes on a connection of its own, apart from the load's.
pub struct Prober {
    session: Session,
    /// Requests sent since the last [`Prober::take_sent`], for servers that count them.
    sent: u64,
}

#[derive(Clone, Debug, Default)]
struct ProbedReply {
    status: u16,
    header_names: Vec<String>,
    body_bytes: u64,
    sha256: String,
    body_start: String,
    content_encoding: Option<String>,
    head_bytes: u64,
}

impl Prober {
    pub fn new(stop: &Arc<AtomicBool>) -> Result<Self, LoadError> {
        Ok(Self { session: Session::start(1, &[], stop)?, sent: 0 })
    }

    /// Returns the number of requests sent since the last call.
    pub fn take_sent(&mut self) -> u64 {
        std::mem::take(&mut self.sent)
    }

    /// Probes a server. The inner error says why fewer than two whole replies arrived.
    pub fn ask(&mut self, load: &LoadPlan) -> Result<Result<Probe, String>, LoadError> {
        let seen: Arc<Mutex<Vec<ProbedReply>>> = Arc::default();
        if !load.engine.protocol.is_served() {
            return self.echo(load);
        }
        let plan = probe_plan(load, &seen);
        let answers = match self.two_answers(&plan)? {
            Ok(answers) => answers,
            Err(why) => return Ok(Err(why)),
        };
        let lives = self.session.close()?;
        let life = lives.into_iter().flatten().next().unwrap_or_default();
        self.sent += life.sent;
        let failure = answers.failures.seen().next().map(|(_, _, why)| why.to_owned());
        let seen = seen.lock().unwrap_or_else(|e| e.into_inner());
        let (Some(first), Some(second)) = (seen.first(), seen.get(1)) else {
            return Ok(Err(failure.unwrap_or_else(|| "no reply".into())));
        };
        let connection_kept = answers.counts.opened == 0 && life.closed_by_server == 0;
        let fits = |reply: &ProbedReply| reply.head_bytes + reply.body_bytes <= ONE_SEGMENT;
        // In HTTP/2 the server's settings are segments too.
        let is_http1 = load.engine.protocol == Protocol::Http;
        let counts_segments =
            is_http1 && life.data_segments > 0 && life.tls.is_none() && connection_kept;
        let reply_segments = (counts_segments && fits(first) && fits(second))
            .then(|| life.data_segments / life.answered.max(1));
        Ok(Ok(Probe {
            status: first.status,
            body_bytes: first.body_bytes,
            body_sha256: first.sha256.clone(),
            body_stable: first.sha256 == second.sha256,
            header_names: first.header_names.clone(),
            content_encoding: first.content_encoding.clone(),
            body_start: first.body_start.clone(),
            first_difference: None,
            // One connection was opened before the slice; if another was opened, the first served
            // only one request.
            connection_kept,
            reply_segments,
            tls: life.tls,
        }))
    }
}

impl Prober {
    /// Sends two requests on a new connection. The inner error says why it could not be opened.
    fn two_answers(&mut self, plan: &LoadPlan) -> Result<Result<Tally, String>, LoadError> {
        match self.session.open(&[plan], Sampling::None, &mut NoObserver) {
            Ok(_) => {
                let sliced = self.session.slice(LaneId(0), plan.stretch, &mut NoObserver)?;
                Ok(Ok(sliced.total.clone()))
            }
            Err(LoadError::NoConnection { why, .. }) => Ok(Err(why)),
            Err(error) => Err(error),
        }
    }

    /// Exchanges two messages, which an endpoint answers for a load of any protocol.
    fn echo(&mut self, load: &LoadPlan) -> Result<Result<Probe, String>, LoadError> {
        let bytes = match load.engine.protocol {
            Protocol::Messages { request_bytes, .. } => request_bytes,
            Protocol::Stream { message_bytes, .. } => message_bytes,
            _ => 1,
        };
        let mut plan = two_requests(load);
        plan.engine.protocol = match load.engine.protocol {
            messages @ Protocol::Messages { .. } => messages,
            _ => Protocol::Messages { request_bytes: bytes, reply_bytes: bytes },
        };
        let answers = match self.two_answers(&plan)? {
            Ok(answers) => answers,
            Err(why) => return Ok(Err(why)),
        };
        let lives = self.session.close()?;
        self.sent += lives.into_iter().flatten().map(|life| life.sent).sum::<u64>();
        if answers.counts.good < 2 {
            let why = answers.failures.seen().next().map_or("no reply", |(_, _, why)| why);
            return Ok(Err(why.to_owned()));
        }
        Ok(Ok(Probe {
            status: 200,
            body_bytes: answers.counts.body_bytes / 2,
            // The codec has checked the content.
            body_stable: true,
            connection_kept: load.engine.lifetime == Lifetime::Kept,
            ..Probe::default()
        }))
    }
}

fn probe_plan(load: &LoadPlan, seen: &Arc<Mutex<Vec<ProbedReply>>>) -> LoadPlan {
    let seen = seen.clone();
    let make = move |_| -> Box<dyn Source> { Box::new(Watching(seen.clone())) };
    LoadPlan { source: Some(Arc::new(make)), ..two_requests(load) }
}

fn two_requests(load: &LoadPlan) -> LoadPlan {
    let mut engine = load.engine.clone();
    engine.connections = 1;
    engine.protocol = engine.protocol.one_at_a_time();
    engine.max_connections = 1;
    engine.timeout = engine.timeout.min(TIMEOUT);
    engine.tls = engine.tls.as_ref().map(TlsClient::never_resuming);
    LoadPlan {
        engine,
        requests: load.requests.clone(),
        order: load.order,
        source: None,
        worker_endpoints: Vec::new(),
        rate: None,
        poisson: false,
        stretch: Stretch { window: TIMEOUT, requests: Some(2), ..Stretch::NONE },
        workers: 1,
        cpus: Vec::new(),
        // Only this reactor can count a connection's segments.
        reactor: Some(ReactorKind::Epoll),
        seed: load.seed,
        part: Part::WHOLE,
    }
}

/// A reply of at most this many bytes fits into one segment on any usual link.
const ONE_SEGMENT: u64 = 1400;

/// Timeout of a probe's replies.
const TIMEOUT: DurationNs = DurationNs::from_secs(10);

/// Sends the first of the load's requests, as an example of all, and records the replies.
struct Watching(Arc<Mutex<Vec<ProbedReply>>>);

impl Source for Watching {
    fn next(&mut self, _scratch: &mut Vec<u8>) -> NextRequest {
        NextRequest::Listed(0)
    }

    fn wanted(&self) -> Wanted {
        Wanted::Hashes
    }

    fn on_reply(&mut self, reply: &Reply, capture: &Capture) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        let headers = capture.headers().map(|(name, value)| (text(name).to_lowercase(), value));
        let (mut header_names, mut content_encoding) = (Vec::new(), None);
        for (name, value) in headers {
            if name == "content-encoding" {
                content_encoding.get_or_insert_with(|| text(value));
            }
            header_names.push(name);
        }
        header_names.sort();
        header_names.dedup();
        let (sha256, body_bytes) = (capture.sha256(), capture.body_bytes());
        let seen = ProbedReply {
            status: reply.status,
            header_names,
            body_bytes,
            sha256,
            body_start: String::from_utf8_lossy(capture.body_start()).into_owned(),
            content_encoding,
            head_bytes: capture.head_bytes() as u64,
        };
        self.0.lock().unwrap_or_else(|e| e.into_inner()).push(seen);
    }
}
