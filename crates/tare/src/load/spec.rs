//! What load to make, in the user's words: the flags that `load` and `compare` share, the `[load]`
//! table of an experiment, and a part of every stored plan.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};
use tare_io::files::read_input;
use tare_io::{DurationNs, Endpoint, ReactorKind, SocketOptions};
use tare_load::net::{CallName, NetTest, Protocol};
use tare_load::pacer::RateProfile;
use tare_load::request::{RequestParts, parse_header};
use tare_load::source::FixedRequest;
use tare_load::tls::{TlsClient, TlsOptions, TlsVersion};
use tare_load::{
    Edges, EngineConfig, Lifetime, LoadPlan, PlannedSource, StatusSet, Stretch, WaitPolicy,
};

use super::arguments::{cpu_list, duration, positive_duration, reactor, si_number};
use super::plan::{Family, WAIT, check_binds, provide_files};
use super::text;
use crate::failure::Failure;
use crate::url::Url;

/// Each field is a flag here and a key in `[load]`.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoadSpec {
    /// In files: what is asked of servers that tare starts. On the command line the URL says it.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// In files: a test of the network to an endpoint of `net` instead of HTTP, with messages of …
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<NetTest>,
    /// … so many bytes (1 when left out), and replies of so many (as many),
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_bytes: Option<u32>,
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_bytes: Option<u32>,
    /// TCP_NODELAY, on for exchanges and off for streams when left out,
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodelay: Option<bool>,
    /// and bytes of the client's socket buffers.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_buffer: Option<u32>,
    /// A datagram that is not back by then is lost; decided by timeout when left out.
    #[arg(skip)]
    #[serde(skip)]
    pub lost_after: Option<DurationNs>,
    /// In files: a call into the kernel where the endpoint runs, instead of load.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<CallName>,
    /// Connections kept open, or requests at a time with --new-connections
    #[arg(short, long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections: u32,
    /// Threads; default is one for each of --cpus, or half of the CPUs, so that the server has the
    /// others
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Open loop: requests a second, due at even spaces
    #[arg(long, value_name = "PER_SECOND", value_parser = si_number)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Open loop: random spaces between requests, as independent users make them
    #[arg(long)]
    pub poisson: bool,
    /// Open loop: open more connections, up to so many, when all are busy; default none beyond -c
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<u32>,
    /// A connection for each request; latency is the total from the start of connecting
    #[arg(long)]
    pub new_connections: bool,
    /// Give a request up after this long
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = positive_duration)]
    #[serde(with = "text::duration")]
    pub timeout: DurationNs,

    /// Request method
    #[arg(short = 'X', long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Request header, 'Name: value'; may be repeated. In tare compare, 'VARIANT:Name: value' is of
    /// one variant only
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    pub headers: Vec<String>,
    /// Request body; the method becomes POST unless given
    #[arg(short, long, value_name = "TEXT", conflicts_with = "body_file")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Request body from a file
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_file: Option<PathBuf>,
    /// Statuses that count as good: 200, 2xx, 200-399, or a list of these
    #[arg(long, value_name = "STATUS", default_value = "2xx", value_parser = status_text)]
    #[serde(deserialize_with = "text::checked_status")]
    pub expect_status: String,

    /// Source address; may be repeated, and is then used in turn
    #[arg(long, value_name = "IP")]
    pub bind: Vec<IpAddr>,
    /// Only IPv4 addresses of the host
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    pub ipv4: bool,
    /// Only IPv6 addresses of the host
    #[arg(short = '6', long)]
    pub ipv6: bool,

    /// TLS: believe any certificate
    #[arg(short = 'k', long)]
    pub insecure: bool,
    /// TLS: trust the authorities in this file (PEM) instead of the machine's
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cacert: Option<PathBuf>,
    /// TLS: the client's certificate (PEM)
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// TLS: the client's private key (PEM)
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// TLS: the server's name, where it is not the URL's host
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sni: Option<String>,
    /// TLS: only this version, 1.2 or 1.3
    #[arg(long, value_name = "VERSION", value_parser = tls_version_text)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_version: Option<String>,
    /// TLS: only these cipher suites, by IANA name, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub ciphers: Vec<String>,
    /// TLS: resume sessions on new connections; full handshakes otherwise
    #[arg(long)]
    pub tls_resume: bool,

    /// Open loop: poll, not sleep, when the next request is due within this; precise, but keeps a
    /// CPU busy above 1,000/s a thread; default 1ms
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    #[serde(with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub spin: Option<DurationNs>,
    /// CPUs for the threads, in turn: 0,2-3
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<std::vec::Vec<usize>>,
    /// How to talk to the kernel: io_uring or epoll; the first that works when left out
    #[arg(long, value_name = "NAME", value_parser = reactor)]
    #[serde(with = "text::reactor", skip_serializing_if = "Option::is_none")]
    pub reactor: Option<ReactorKind>,
}

/// As the flags have it.
impl Default for LoadSpec {
    fn default() -> Self {
        #[derive(clap::Parser)]
        struct Alone {
            #[command(flatten)]
            spec: LoadSpec,
        }
        let alone: Alone = clap::Parser::parse_from([""]);
        alone.spec
    }
}

impl LoadSpec {
    /// The plan of load on one server. Its stretch is empty: what is asked is said here, for how
    /// long is not.
    pub fn plan(&self, url: &Url, endpoint: Endpoint, seed: u64) -> Result<LoadPlan, Failure> {
        if self.protocol() != Protocol::Http {
            return self.endpoint_plan(endpoint, seed);
        }
        let source = PlannedSource::Fixed(self.request(url)?);
        let plan = self.plan_of(endpoint, source, seed)?;
        let tls = url.tls.then(|| self.tls(url)).transpose()?;
        Ok(LoadPlan { engine: EngineConfig { tls, ..plan.engine }, ..plan })
    }

    pub(super) fn plan_of(
        &self,
        endpoint: Endpoint,
        source: PlannedSource,
        seed: u64,
    ) -> Result<LoadPlan, Failure> {
        check_binds(&self.bind, &endpoint)?;
        let max_connections = self.max_connections.unwrap_or(self.connections);
        if max_connections < self.connections {
            let text = max_connections.to_string();
            let allowed = format!("must be at least -c {}", self.connections);
            return Err(Failure::flag("--max-connections", &text, allowed));
        }
        provide_files(max_connections)?;
        let rate = match self.rate {
            Some(rate) => Some(
                RateProfile::constant(rate)
                    .map_err(|error| Failure::Usage(format!("--rate: {error}")))?,
            ),
            None => None,
        };
        let lifetime = if self.new_connections { Lifetime::PerRequest } else { Lifetime::Kept };
        Ok(LoadPlan {
            engine: EngineConfig {
                protocol: Protocol::Http,
                sockets: SocketOptions::default(),
                endpoint,
                bind: self.bind.clone(),
                connections: self.connections,
                max_connections,
                lifetime,
                tls: None,
                timeout: self.timeout,
                expected: self.expected()?,
                wait: WaitPolicy { spin: self.spin.unwrap_or(WAIT.spin), ..WAIT },
            },
            source,
            worker_endpoints: Vec::new(),
            rate,
            poisson: self.poisson,
            stretch: Stretch {
                ramp: DurationNs::ZERO,
                window: DurationNs::ZERO,
                requests: None,
                interval: DurationNs::ZERO,
                edges: Edges::Clock,
            },
            workers: self.workers(),
            cpus: self.cpus.clone().unwrap_or_default(),
            reactor: self.reactor,
            tls_resume: self.tls_resume,
            seed,
        })
    }

    pub fn workers(&self) -> u32 {
        let wanted = match (self.threads, &self.cpus) {
            (Some(threads), _) => threads,
            (None, Some(cpus)) => cpus.len() as u32,
            (None, None) => tare_io::system::allowed_cpus().len() as u32 / 2,
        };
        // A worker without a connection would have nothing to do.
        wanted.clamp(1, self.connections.max(1))
    }

    /// The words about an open loop need one.
    pub fn check_open_loop(&self, open: bool, flags: &str) -> Result<(), Failure> {
        if !open && (self.poisson || self.max_connections.is_some()) {
            let flag = if self.poisson { "--poisson" } else { "--max-connections" };
            return Err(Failure::Usage(format!("{flag} needs an open loop: give {flags}")));
        }
        Ok(())
    }

    /// Files that it names, whole: a stored plan is read in other folders too.
    pub fn absolute(mut self, folder: &Path) -> Self {
        let files = [&mut self.body_file, &mut self.cacert, &mut self.cert, &mut self.key];
        for file in files.into_iter().flatten() {
            let path = folder.join(&*file);
            *file = std::path::absolute(&path).unwrap_or(path);
        }
        self
    }

    pub fn expected(&self) -> Result<StatusSet, Failure> {
        StatusSet::parse(&self.expect_status)
            .ok_or_else(|| Failure::flag("--expect-status", &self.expect_status, STATUS_ALLOWED))
    }

    pub fn method(&self) -> String {
        let has_body = self.body.is_some() || self.body_file.is_some();
        self.method.clone().unwrap_or_else(|| if has_body { "POST" } else { "GET" }.to_owned())
    }

    pub fn family(&self) -> Family {
        match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        }
    }

    /// The request for `url`, as bytes.
    pub fn request(&self, url: &Url) -> Result<FixedRequest, Failure> {
        let headers = self
            .headers
            .iter()
            .map(|text| parse_header(text).map_err(|error| Failure::Usage(format!("-H: {error}"))))
            .collect::<Result<Vec<_>, _>>()?;
        let parts = RequestParts {
            method: self.method(),
            target: url.target.clone(),
            host: url.host_header(),
            headers,
            body: self.body_bytes()?,
            close: self.new_connections,
        };
        parts.build().map_err(|error| Failure::Usage(error.to_string()))
    }

    fn body_bytes(&self) -> Result<Vec<u8>, Failure> {
        match (&self.body, &self.body_file) {
            (Some(text), _) => Ok(text.clone().into_bytes()),
            (None, Some(path)) => read_input(path, BODY_MAX_BYTES).map_err(|error| {
                Failure::Usage(format!("--body-file {}: {error}", path.display()))
            }),
            (None, None) => Ok(Vec::new()),
        }
    }

    fn tls(&self, url: &Url) -> Result<TlsClient, Failure> {
        let version = match self.tls_version.as_deref() {
            None => None,
            Some("1.2") => Some(TlsVersion::V1_2),
            Some("1.3") => Some(TlsVersion::V1_3),
            Some(other) => return Err(Failure::flag("--tls-version", other, TLS_ALLOWED)),
        };
        let options = TlsOptions {
            name: self.sni.clone().unwrap_or_else(|| url.host.clone()),
            insecure: self.insecure,
            ca_file: self.cacert.clone(),
            cert_file: self.cert.clone(),
            key_file: self.key.clone(),
            version,
            ciphers: self.ciphers.clone(),
            resume: self.tls_resume,
        };
        TlsClient::new(&options).map_err(|error| Failure::Usage(error.to_string()))
    }
}

const BODY_MAX_BYTES: u64 = 256 << 20;
const STATUS_ALLOWED: &str = "write 200, 2xx, 200-399, or a list of these";
const TLS_ALLOWED: &str = "choose 1.2 or 1.3";

pub fn status_text(text: &str) -> Result<String, String> {
    StatusSet::parse(text).map(|_| text.to_owned()).ok_or_else(|| STATUS_ALLOWED.to_owned())
}

fn tls_version_text(text: &str) -> Result<String, String> {
    if ["1.2", "1.3"].contains(&text) { Ok(text.to_owned()) } else { Err(TLS_ALLOWED.into()) }
}
