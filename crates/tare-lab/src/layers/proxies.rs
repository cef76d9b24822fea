//! Programs that stand between client and server, which proxies, sidecars and gateways are made of.
//! A program is a file here with its configuration, and a line in [`program`].

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
use crate::launch::hop::{Shows, Statistics, Upstream};
use crate::launch::spec::LaunchSpec;
use crate::machine::programs;
use tare_model::Failure;

const READY_WITHIN: DurationNs = DurationNs::from_secs(10);

/// How one program becomes a proxy.
pub trait Program {
    /// What it is called, and where it comes from.
    fn names(&self) -> (&'static str, &'static str);

    /// Its configuration, by the name of its file.
    fn config(&self, job: &Job, context: &LaunchContext<'_>) -> (&'static str, String);

    /// Its command line.
    fn argv(&self, program: &str, config: &str, job: &Job) -> Vec<String>;

    /// What passed so far, by its pages of statistics. The asking itself is counted where
    /// [`Program::counts_asking`] says so.
    fn passed(&self, statistics: &Statistics, is_http: bool) -> Option<Passed>;

    fn counts_asking(&self) -> bool {
        false
    }
}

/// What a proxy counted; what it does not tell is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    pub requests: Option<u64>,
    pub connections: Option<u64>,
    pub handshakes: Option<u64>,
    /// Handshakes that took up an earlier session.
    pub resumed: Option<u64>,
    /// Clients that showed no certificate.
    pub without_certificate: Option<u64>,
}

/// What a proxy is to do.
#[derive(Debug)]
pub struct Job {
    pub threads: u32,
    pub is_http: bool,
    /// In a namespace with one end of what passes: it listens on all addresses there.
    pub is_sidecar: bool,
    /// Connections are sent to it by rules that neither end knows of.
    pub intercepts: bool,
    pub listen: SocketAddr,
    pub to: SocketAddr,
    /// What clients see of the certificate behind it: it passes on bytes as they are.
    pub passes_on: Option<Shows>,
    pub statistics: SocketAddr,
    /// That it must be able to hold, both sides together.
    pub connections: u32,
    /// Where it connects from.
    pub source: Option<IpAddr>,
    /// How it takes connections, and how it makes them, where these are encrypted.
    pub accepts: Option<JobTls>,
    pub makes: Option<JobTls>,
}

/// TLS on one side of a proxy, and the files of its certificate and of whom it trusts.
#[derive(Debug)]
pub struct JobTls {
    pub terms: TlsTerms,
    /// Who signs with the key, where it is not the program itself.
    pub provider: Option<KeyProvider>,
    /// What it shows; a client that nobody asks for one shows no certificate.
    pub own: Option<OwnFiles>,
    /// Whose signature its peer's certificate must have, and what that must be for.
    pub authority: PathBuf,
    pub shows: Shows,
}

/// A certificate and its key.
#[derive(Debug)]
pub struct OwnFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Both of these in one file.
    pub both: PathBuf,
}

/// How TLS is to be spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsTerms {
    pub key: KeyKind,
    /// Both ends show a certificate.
    pub is_mutual: bool,
    pub min: TlsVersion,
    pub max: TlsVersion,
    /// Sessions may be taken up again.
    pub resumes: bool,
}

/// To a server or hop that takes nothing else, as proxies do it by themselves.
const UPSTREAM: TlsTerms = TlsTerms {
    key: KeyKind::Rsa2048,
    is_mutual: false,
    min: TlsVersion::V1_2,
    max: TlsVersion::V1_3,
    resumes: true,
};

impl JobTls {
    /// How a hop that understands requests speaks with what is behind it.
    pub fn to(upstream: Upstream, context: &LaunchContext<'_>) -> Result<Option<Self>, Failure> {
        upstream.shows.map(|shows| Self::without_own(UPSTREAM, shows, context)).transpose()
    }

    fn without_own(
        terms: TlsTerms,
        shows: Shows,
        context: &LaunchContext<'_>,
    ) -> Result<Self, Failure> {
        let (name, authority) = match shows {
            Shows::Hop => ("authority.pem", certificates::authority()?),
            Shows::Server => ("server.pem", certificates::of_server()?),
        };
        let authority = context.write(name, authority.cert.as_bytes());
        Ok(Self { terms, shows, provider: None, own: None, authority })
    }

    /// Among hops, with a certificate of its own. Writes its files into the context's folder.
    pub fn new(terms: TlsTerms, context: &LaunchContext<'_>) -> Result<Self, Failure> {
        let own = certificates::of_layer(terms.key)?;
        let files = OwnFiles {
            cert: context.write("cert.pem", own.cert.as_bytes()),
            key: context.write_secret("key.pem", own.key.as_bytes()),
            both: context.write_secret("both.pem", format!("{}{}", own.cert, own.key).as_bytes()),
        };
        Ok(Self { own: Some(files), ..Self::without_own(terms, Shows::Hop, context)? })
    }
}

impl Job {
    /// What it listens on: to a sidecar connections come by more than one address.
    fn listens_on(&self) -> SocketAddr {
        match self.is_sidecar {
            true => {
                SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), self.listen.port())
            }
            false => self.listen,
        }
    }

    /// What is started, by that program and by the user's own configuration where there is one.
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
        let shows = self.accepts.is_some().then_some(Shows::Hop).or(self.passes_on);
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
