//! Makes the plan for the workers from a load and the address of a server: builds requests, sets up
//! TLS, raises limits.

use std::net::IpAddr;
use std::path::PathBuf;

use tare_io::files::read_input;
use tare_io::{DurationNs, Endpoint, SocketOptions, system};
use tare_model::Failure;
use tare_model::load::{Body, Http, Idle, Load, Pace, Version, Workload};
use tare_model::net::NetTest;
use tare_model::url::Url;

use crate::pacer::RateProfile;
use crate::protocol::http2::Http2Requests;
use crate::request::{Order, RequestParts, Requests, parse_header};
use crate::tls::{Pem, TlsClient, TlsOptions};
use crate::{EngineConfig, Lifetime, LoadPlan, Part, Stretch, WaitPolicy};

/// How workers wait by default. A reply is processed when it arrives: waiting for others would add
/// think time, and sending requests together would change their cost to the server. Workers spin
/// before a request is due: waking a sleeping virtual CPU takes tens of µs, hundreds in the tail,
/// and would count as the server's latency. Above 1,000/s per worker, spinning keeps a CPU busy.
pub const WAIT: WaitPolicy = WaitPolicy {
    batch_max: 1,
    linger: DurationNs::ZERO,
    spin: DurationNs::from_ms(1),
    polls: false,
};
/// Most replies gathered while lingering: more of them save no more CPU time.
const BATCH_MAX: u32 = 16;
/// Open files besides connections: rings, certificates, outputs, standard streams.
const SPARE_FILES: u64 = 64;
const BODY_MAX_BYTES: u64 = 256 << 20;

/// Makes the plan of load on one server. Its stretch is empty: the caller sets how long the load
/// lasts.
pub fn resolve(load: &Load, url: &Url, endpoint: Endpoint, seed: u64) -> Result<LoadPlan, Failure> {
    let (endpoint, requests, order, lifetime) = match &load.workload {
        Workload::Http(http) => {
            let requests = Requests::Parts(requests(http, url)?.into());
            let at_random = http.paths.at_random();
            let order = if at_random { Order::AtRandom } else { Order::InTurn { from: 0 } };
            (endpoint, requests, order, Lifetime::from_new_connections(http.new_connections))
        }
        Workload::Net(net) => {
            // The endpoint has the same port for TCP and UDP.
            let endpoint = match endpoint {
                Endpoint::Tcp(address) if net.test.is_udp() => Endpoint::Udp(address),
                endpoint => endpoint,
            };
            let lifetime = Lifetime::from_new_connections(net.test == NetTest::TcpCrr);
            (endpoint, Requests::OfProtocol, Order::InTurn { from: 0 }, lifetime)
        }
        Workload::Calls(_) => {
            (endpoint, Requests::OfProtocol, Order::InTurn { from: 0 }, Lifetime::Kept)
        }
    };
    let tls = match load.http().filter(|_| url.tls) {
        Some(http) => Some(tls(http, url)?),
        None => None,
    };
    let is_calls = matches!(load.workload, Workload::Calls(_));
    let connections = |n: u32| if is_calls { 1 } else { n };
    let rate = load.rate().map(RateProfile::constant).transpose();
    check_binds(&load.client.bind, &endpoint)?;
    provide_files(load.most_connections())?;
    Ok(LoadPlan {
        engine: EngineConfig {
            protocol: load.protocol(),
            sockets: match &load.workload {
                Workload::Net(net) => net.sockets,
                _ => SocketOptions::default(),
            },
            endpoint,
            bind: load.client.bind.clone(),
            connections: connections(load.connections),
            max_connections: connections(load.most_connections()),
            lifetime,
            tls,
            timeout: load.timeout,
            expected: load.http().map(|http| http.expect.clone()).unwrap_or_default(),
            wait: wait(load),
        },
        requests,
        order,
        source: None,
        worker_endpoints: Vec::new(),
        rate: rate.map_err(|error| Failure::usage(format!("rate: {error}")))?,
        poisson: load.is_poisson(),
        stretch: Stretch::NONE,
        workers: load.workers(),
        cpus: load.client.cpus.clone().unwrap_or_default(),
        reactor: load.client.reactor,
        seed,
        part: Part::WHOLE,
    })
}

fn wait(load: &Load) -> WaitPolicy {
    let (linger, spin) = match load.pace {
        Pace::Closed { linger } => (linger, None),
        Pace::Open { spin, .. } => (None, spin),
    };
    let polls = match load.client.idle {
        Some(idle) => idle == Idle::Poll,
        // Nothing else runs on CPUs that were set apart for load.
        None => load.protocol().is_served() && linger.is_none() && load.has_own_cpus(),
    };
    let lingers = linger.is_some_and(|linger| linger > DurationNs::ZERO);
    WaitPolicy {
        batch_max: if lingers { BATCH_MAX } else { WAIT.batch_max },
        linger: linger.unwrap_or(WAIT.linger),
        spin: spin.unwrap_or(WAIT.spin),
        polls,
    }
}

/// Checks a load before its server has an address: its requests must be valid, and the files that
/// it names readable.
pub fn check(load: &Load, url: &Url) -> Result<(), Failure> {
    let Some(http) = load.http() else { return Ok(()) };
    requests(http, url)?;
    if url.tls { tls(http, url).map(|_| ()) } else { Ok(()) }
}

/// Returns the requests for `url`, or for the listed paths on its server.
fn requests(http: &Http, url: &Url) -> Result<RequestParts, Failure> {
    let headers = http
        .headers
        .iter()
        .map(|text| parse_header(text).map_err(|error| Failure::usage(format!("headers: {error}"))))
        .collect::<Result<Vec<_>, _>>()?;
    let paths = match http.paths.several() {
        [] => vec![url.target.clone()],
        several => several.to_vec(),
    };
    let parts = RequestParts {
        method: http.method().to_owned(),
        authority: url.host_header(),
        paths,
        headers,
        body: body_bytes(&http.body)?,
        close: http.new_connections,
    };
    let checked = parts.check().and_then(|()| match http.version {
        Version::Http1 => Ok(()),
        Version::Http2 { .. } => Http2Requests::check(&parts),
    });
    checked.map_err(|error| Failure::usage(error.to_string()))?;
    Ok(parts)
}

fn body_bytes(body: &Body) -> Result<Vec<u8>, Failure> {
    match body {
        Body::None => Ok(Vec::new()),
        Body::Text(text) => Ok(text.clone().into_bytes()),
        Body::File(path) => read_input(path, BODY_MAX_BYTES)
            .map_err(|error| Failure::usage(format!("body_file {}: {error}", path.display()))),
    }
}

fn tls(http: &Http, url: &Url) -> Result<TlsClient, Failure> {
    let tls = &http.tls;
    let pem = |path: &Option<PathBuf>, what: &str| {
        let read = path.as_deref().map(|path| Pem::read(path, what)).transpose();
        read.map_err(|error| Failure::usage(error.to_string()))
    };
    let options = TlsOptions {
        name: tls.sni.clone().unwrap_or_else(|| url.host.clone()),
        insecure: tls.insecure,
        authorities: pem(&tls.cacert, "certificates")?,
        certificate: pem(&tls.cert, "certificates")?,
        key: pem(&tls.key, "a private key")?,
        version: tls.version,
        ciphers: tls.ciphers.clone(),
        resume: tls.resume,
        http2: matches!(http.version, Version::Http2 { .. }),
    };
    TlsClient::new(&options).map_err(|error| Failure::usage(error.to_string()))
}

/// Raises the open-file limit for this many connections, or fails before any load starts.
pub fn provide_files(connections: u32) -> Result<(), Failure> {
    let wanted = u64::from(connections) + SPARE_FILES;
    let allowed = system::raise_open_files(wanted);
    if allowed >= wanted {
        return Ok(());
    }
    Err(Failure::environment(format!(
        "{connections} connections need {wanted} open files, and this process may have {allowed}; \
         raise the limit (ulimit -n {wanted}) or use fewer connections"
    )))
}

/// Checks that source addresses belong to this machine and to the destination's family.
pub fn check_binds(binds: &[IpAddr], endpoint: &Endpoint) -> Result<(), Failure> {
    for bind in binds {
        let fits = match endpoint {
            Endpoint::Tcp(to) | Endpoint::Udp(to) => to.is_ipv4() == bind.is_ipv4(),
            Endpoint::Unix(_) => false,
        };
        if !fits {
            let text = format!("bind {bind}: cannot be a source for {endpoint}");
            return Err(Failure::usage(text));
        }
        std::net::UdpSocket::bind((*bind, 0)).map_err(|error| {
            Failure::usage(format!("bind {bind}: not an address of this machine ({error})"))
        })?;
    }
    Ok(())
}
