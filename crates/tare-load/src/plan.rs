//! From a load as it was asked for to the plan of its workers: requests built, TLS set up, limits
//! raised.

use std::net::IpAddr;
use std::path::PathBuf;

use tare_io::files::read_input;
use tare_io::{DurationNs, Endpoint, SocketOptions, system};
use tare_model::load::{Idle, LoadSpec};
use tare_model::net::{NetTest, Protocol};
use tare_model::url::Url;

use crate::pacer::RateProfile;
use crate::request::{Order, RequestParts, Requests, parse_header};
use crate::tls::{Pem, TlsClient, TlsOptions, TlsVersion};
use crate::{EngineConfig, Lifetime, LoadPlan, Part, Stretch, WaitPolicy};

/// Why there is no plan, sorted by who must act.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// What was asked for.
    #[error("{0}")]
    Usage(String),
    /// What this process may have.
    #[error("{0}")]
    Environment(String),
}

impl PlanError {
    fn flag(flag: &str, value: impl std::fmt::Display, allowed: impl std::fmt::Display) -> Self {
        Self::Usage(format!("{flag} {value}: {allowed}"))
    }
}

impl From<tare_model::Invalid> for PlanError {
    fn from(invalid: tare_model::Invalid) -> Self {
        Self::Usage(invalid.to_string())
    }
}

/// How workers wake. A reply is processed when it is there: one that waited for others would be
/// think time, and a server that gains from requests that come together would show another cost.
/// Spin: waking a sleeping virtual CPU takes tens of µs, hundreds in the tail, and would be
/// measured as the server's; above 1,000/s a worker this keeps a CPU busy.
pub const WAIT: WaitPolicy = WaitPolicy {
    batch_max: 1,
    linger: DurationNs::ZERO,
    spin: DurationNs::from_ms(1),
    polls: false,
};
/// Replies that wait for each other, where they are to: more of them save no more CPU time.
const BATCH_MAX: u32 = 16;
/// Files open beside connections: rings, certificates, outputs, standard streams.
const SPARE_FILES: u64 = 64;
/// A datagram that has not come back by then is lost, where the user says nothing else.
const LOST_AFTER: DurationNs = DurationNs::from_secs(1);
const BODY_MAX_BYTES: u64 = 256 << 20;

/// The plan of load on one server. Its stretch is empty: what is asked is said here, for how
/// long is not.
pub fn plan(
    spec: &LoadSpec,
    url: &Url,
    endpoint: Endpoint,
    seed: u64,
) -> Result<LoadPlan, PlanError> {
    if !spec.protocol().is_served() {
        return endpoint_plan(spec, endpoint, seed);
    }
    let requests = Requests::Parts(requests(spec, url)?.into());
    let plan = plan_of(spec, endpoint, requests, seed)?;
    let tls = url.tls.then(|| tls(spec, url)).transpose()?;
    Ok(LoadPlan { engine: EngineConfig { tls, ..plan.engine }, ..plan })
}

fn wait(spec: &LoadSpec) -> WaitPolicy {
    let linger = spec.linger.unwrap_or(WAIT.linger);
    let batch_max = if linger > DurationNs::ZERO { BATCH_MAX } else { WAIT.batch_max };
    let is_http = spec.protocol().is_served();
    let polls = match spec.idle {
        Some(idle) => idle == Idle::Poll,
        // Who set CPUs apart for load has nobody else on them.
        None => is_http && spec.linger.is_none() && spec.has_own_cpus(),
    };
    WaitPolicy { batch_max, linger, spin: spec.spin.unwrap_or(WAIT.spin), polls }
}

pub fn plan_of(
    spec: &LoadSpec,
    endpoint: Endpoint,
    requests: Requests,
    seed: u64,
) -> Result<LoadPlan, PlanError> {
    check_binds(&spec.bind, &endpoint)?;
    let max_connections = spec.max_connections.unwrap_or(spec.connections);
    if max_connections < spec.connections {
        let text = max_connections.to_string();
        let allowed = format!("must be at least -c {}", spec.connections);
        return Err(PlanError::flag("--max-connections", text, allowed));
    }
    provide_files(max_connections)?;
    let rate = match spec.rate {
        Some(rate) => Some(
            RateProfile::constant(rate)
                .map_err(|error| PlanError::Usage(format!("--rate: {error}")))?,
        ),
        None => None,
    };
    let lifetime = if spec.new_connections { Lifetime::PerRequest } else { Lifetime::Kept };
    Ok(LoadPlan {
        engine: EngineConfig {
            protocol: Protocol::Http,
            sockets: SocketOptions::default(),
            endpoint,
            bind: spec.bind.clone(),
            connections: spec.connections,
            max_connections,
            lifetime,
            tls: None,
            timeout: spec.timeout,
            expected: spec.expected()?,
            wait: wait(spec),
        },
        requests,
        order: if spec.random_order { Order::AtRandom } else { Order::InTurn { from: 0 } },
        source: None,
        worker_endpoints: Vec::new(),
        rate,
        poisson: spec.poisson,
        stretch: Stretch::NONE,
        workers: spec.workers(),
        cpus: spec.cpus.clone().unwrap_or_default(),
        reactor: spec.reactor,
        seed,
        part: Part::WHOLE,
    })
}

/// The plan of load on an endpoint; over UDP it has the same port.
pub fn endpoint_plan(
    spec: &LoadSpec,
    endpoint: Endpoint,
    seed: u64,
) -> Result<LoadPlan, PlanError> {
    let is_udp = spec.test.is_some_and(NetTest::is_udp);
    let endpoint = match endpoint {
        Endpoint::Tcp(address) if is_udp => Endpoint::Udp(address),
        endpoint => endpoint,
    };
    let mut plan = plan_of(spec, endpoint, Requests::OfProtocol, seed)?;
    let engine = &mut plan.engine;
    engine.protocol = spec.protocol();
    engine.sockets = spec.sockets();
    if spec.test == Some(NetTest::TcpCrr) {
        engine.lifetime = Lifetime::PerRequest;
    }
    if is_udp {
        let own = spec.timeout != LoadSpec::default().timeout;
        let limit = if own { spec.timeout } else { LOST_AFTER };
        engine.timeout = spec.lost_after.unwrap_or(limit);
    }
    if matches!(engine.protocol, Protocol::Calls { .. }) {
        *engine = EngineConfig { connections: 1, max_connections: 1, ..engine.clone() };
    }
    Ok(plan)
}

/// Whether such a load can be made at all: that its words can stand in a request, and that the files
/// it names are there. For what has no address yet.
pub fn check(spec: &LoadSpec, url: &Url) -> Result<(), PlanError> {
    if !spec.protocol().is_served() {
        return Ok(());
    }
    requests(spec, url)?;
    if url.tls { tls(spec, url).map(|_| ()) } else { Ok(()) }
}

/// The requests for `url`, or for the paths on its server.
fn requests(spec: &LoadSpec, url: &Url) -> Result<RequestParts, PlanError> {
    let headers = spec
        .headers
        .iter()
        .map(|text| parse_header(text).map_err(|error| PlanError::Usage(format!("-H: {error}"))))
        .collect::<Result<Vec<_>, _>>()?;
    let paths = match spec.paths.is_empty() {
        true => vec![url.target.clone()],
        false => spec.paths.clone(),
    };
    let parts = RequestParts {
        method: spec.method(),
        authority: url.host_header(),
        paths,
        headers,
        body: body_bytes(spec)?,
        close: spec.new_connections,
    };
    parts.check().map_err(|error| PlanError::Usage(error.to_string()))?;
    Ok(parts)
}

fn body_bytes(spec: &LoadSpec) -> Result<Vec<u8>, PlanError> {
    match (&spec.body, &spec.body_file) {
        (Some(text), _) => Ok(text.clone().into_bytes()),
        (None, Some(path)) => read_input(path, BODY_MAX_BYTES)
            .map_err(|error| PlanError::Usage(format!("--body-file {}: {error}", path.display()))),
        (None, None) => Ok(Vec::new()),
    }
}

fn tls(spec: &LoadSpec, url: &Url) -> Result<TlsClient, PlanError> {
    let version = match spec.tls_version.as_deref() {
        None => None,
        Some("1.2") => Some(TlsVersion::V1_2),
        Some("1.3") => Some(TlsVersion::V1_3),
        Some(other) => return Err(PlanError::flag("--tls-version", other, "choose 1.2 or 1.3")),
    };
    let pem = |path: &Option<PathBuf>, what: &str| {
        let read = path.as_deref().map(|path| Pem::read(path, what)).transpose();
        read.map_err(|error| PlanError::Usage(error.to_string()))
    };
    let options = TlsOptions {
        name: spec.sni.clone().unwrap_or_else(|| url.host.clone()),
        insecure: spec.insecure,
        authorities: pem(&spec.cacert, "certificates")?,
        certificate: pem(&spec.cert, "certificates")?,
        key: pem(&spec.key, "a private key")?,
        version,
        ciphers: spec.ciphers.clone(),
        resume: spec.tls_resume,
    };
    TlsClient::new(&options).map_err(|error| PlanError::Usage(error.to_string()))
}

/// Makes room for this many connections, or says what is missing, before any load starts.
pub fn provide_files(connections: u32) -> Result<(), PlanError> {
    let wanted = u64::from(connections) + SPARE_FILES;
    let allowed = system::raise_open_files(wanted);
    if allowed >= wanted {
        return Ok(());
    }
    Err(PlanError::Environment(format!(
        "{connections} connections need {wanted} open files, and this process may have {allowed}; \
         raise the limit (ulimit -n {wanted}) or use fewer connections"
    )))
}

/// Source addresses must be of the destination's family.
pub fn check_binds(binds: &[IpAddr], endpoint: &Endpoint) -> Result<(), PlanError> {
    for bind in binds {
        let fits = match endpoint {
            Endpoint::Tcp(to) | Endpoint::Udp(to) => to.is_ipv4() == bind.is_ipv4(),
            Endpoint::Unix(_) => false,
        };
        if !fits {
            let text = bind.to_string();
            return Err(PlanError::flag(
                "--bind",
                text,
                format!("cannot be a source for {endpoint}"),
            ));
        }
        if let Err(error) = std::net::UdpSocket::bind((*bind, 0)) {
            let text = bind.to_string();
            return Err(PlanError::flag(
                "--bind",
                text,
                format!("not an address of this machine ({error})"),
            ));
        }
    }
    Ok(())
}
