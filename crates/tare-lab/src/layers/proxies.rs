//! Programs that serve as proxies, sidecars and gateways. Each program has a file here with its
//! configuration, and a line in [`program`].

pub mod envoy;
mod haproxy;
mod nginx;
mod own_config;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use tare_io::DurationNs;
use tare_model::layers::{KeyKind, KeyProvider, ProxyProgram, TlsVersion};

use super::{HopPlan, Seat};
use crate::launch::certificates;
use crate::launch::context::{LaunchContext, utf8};
use crate::launch::hop::{CertificateKind, Statistics, Upstream};
use crate::launch::spec::LaunchSpec;
use crate::machine::programs;
use tare_model::Failure;

const READY_WITHIN: DurationNs = DurationNs::from_secs(10);

/// How a program is run as a proxy.
pub trait Program {
    /// Its name, and the package or script that installs it.
    fn names(&self) -> (&'static str, &'static str);

    /// The name and the text of its configuration file.
    fn config(&self, job: &ProxySettings, context: &LaunchContext<'_>) -> (&'static str, String);

    fn argv(&self, program: &str, config: &str, job: &ProxySettings) -> Vec<String>;

    /// Reads the program's counts so far from its statistics. They include the query itself if
    /// [`Program::counts_asking`] is true.
    fn passed(&self, statistics: &Statistics, is_http: bool) -> Option<ProxyCounts>;

    fn counts_asking(&self) -> bool {
        false
    }
}

/// A proxy's counts; `None` for a count that it does not report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProxyCounts {
    pub requests: Option<u64>,
    pub connections: Option<u64>,
    pub handshakes: Option<u64>,
    /// Handshakes that resumed an earlier session.
    pub resumed: Option<u64>,
    /// Clients that presented no certificate.
    pub without_certificate: Option<u64>,
}

/// Settings of one proxy.
#[derive(Debug)]
pub struct ProxySettings {
    pub threads: u32,
    pub is_http: bool,
    /// Runs in the network namespace of the client or the server, and listens on all addresses
    /// there.
    pub is_sidecar: bool,
    /// Connections are redirected to it by rules, unnoticed by both ends.
    pub intercepts: bool,
    pub listen: SocketAddr,
    pub to: SocketAddr,
    /// Certificate of the server or hop behind the proxy, if the proxy forwards bytes unchanged.
    pub passes_on: Option<CertificateKind>,
    pub statistics: SocketAddr,
    /// Number of connections that it must hold, both sides together.
    pub connections: u32,
    /// Source address of its own connections.
    pub source: Option<IpAddr>,
    /// TLS on the connections that the proxy accepts.
    pub accepts: Option<JobTls>,
    /// TLS on the connections that the proxy makes.
    pub makes: Option<JobTls>,
}

/// TLS on one side of a proxy, with the files of its certificate and its trusted authority.
#[derive(Debug)]
pub struct JobTls {
    pub terms: TlsTerms,
    /// The private key provider, if the program does not sign by itself.
    pub provider: Option<KeyProvider>,
    /// Its certificate; `None` for a client that is not asked for one.
    pub own: Option<OwnFiles>,
    /// The authority that signed the peer's certificate.
    pub authority: PathBuf,
    /// Kind of the peer's certificate.
    pub shows: CertificateKind,
}

#[derive(Debug)]
pub struct OwnFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Certificate and key in one file.
    pub both: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsTerms {
    pub key: KeyKind,
    /// Both ends present a certificate.
    pub is_mutual: bool,
    pub min: TlsVersion,
    pub max: TlsVersion,
    pub resumes: bool,
}

/// Proxies' default parameters for TLS to a server or hop.
const UPSTREAM: TlsTerms = TlsTerms {
    key: KeyKind::Rsa2048,
    is_mutual: false,
    min: TlsVersion::V1_2,
    max: TlsVersion::V1_3,
    resumes: true,
};

impl JobTls {
    /// TLS from an HTTP hop to the server or hop behind it, if that requires TLS.
    pub fn to(upstream: Upstream, context: &LaunchContext<'_>) -> Result<Option<Self>, Failure> {
        upstream.shows.map(|shows| Self::without_own(UPSTREAM, shows, context)).transpose()
    }

    fn without_own(
        terms: TlsTerms,
        shows: CertificateKind,
        context: &LaunchContext<'_>,
    ) -> Result<Self, Failure> {
        let (name, authority) = match shows {
            CertificateKind::Hop => ("authority.pem", certificates::authority()?),
            CertificateKind::Server => ("server.pem", certificates::server_certificate()?),
        };
        let authority = context.write(name, authority.cert.as_bytes());
        Ok(Self { terms, shows, provider: None, own: None, authority })
    }

    /// TLS between hops, with a certificate for the layer. Writes files to the context's folder.
    pub fn new(terms: TlsTerms, context: &LaunchContext<'_>) -> Result<Self, Failure> {
        let own = certificates::layer_certificate(terms.key)?;
        let files = OwnFiles {
            cert: context.write("cert.pem", own.cert.as_bytes()),
            key: context.write_secret("key.pem", own.key.as_bytes()),
            both: context.write_secret("both.pem", format!("{}{}", own.cert, own.key).as_bytes()),
        };
        Ok(Self { own: Some(files), ..Self::without_own(terms, CertificateKind::Hop, context)? })
    }
}

impl ProxySettings {
    /// Returns the address to listen on; a sidecar listens on all addresses of its namespace.
    fn listens_on(&self) -> SocketAddr {
        match self.is_sidecar {
            true => {
                SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), self.listen.port())
            }
            false => self.listen,
        }
    }

    /// Plans the process, with the user's own configuration if there is one.
    pub fn plan(
        &self,
        program: ProxyProgram,
        own_config: Option<&Path>,
        context: &LaunchContext<'_>,
        seat: &Seat<'_>,
    ) -> Result<HopPlan, Failure> {
        let (path, program) = (path(program)?, self::program(program));
        let (name, text) = program.config(self, context);
        let text = match own_config {
            Some(own) => own_config::read(own, self)?,
            None => text,
        };
        let config = context.write(name, text.as_bytes());
        let mut argv = program.argv(utf8(&path)?, utf8(&config)?, self);
        if let Some(namespace) = seat.namespace {
            argv = namespace.enter(argv)?;
        }
        let launch_spec = LaunchSpec {
            pages: Some(self.statistics),
            tls: self.accepts.is_some(),
            ..context.launch_spec(argv, self.listen, READY_WITHIN)
        };
        let shows = self.accepts.is_some().then_some(CertificateKind::Hop).or(self.passes_on);
        let makes_tls = self.makes.is_some();
        Ok(HopPlan {
            launch_spec,
            shows,
            makes_tls,
            intercepts: self.intercepts.then_some(self.listen.port()),
        })
    }
}

/// The registry: a line for each program.
pub fn program(program: ProxyProgram) -> &'static dyn Program {
    match program {
        ProxyProgram::Envoy => &envoy::Envoy,
        ProxyProgram::Haproxy => &haproxy::Haproxy,
        ProxyProgram::Nginx => &nginx::Nginx,
    }
}

pub fn path(program: ProxyProgram) -> Result<PathBuf, Failure> {
    let (name, from) = self::program(program).names();
    programs::need(&[name], from)
}
