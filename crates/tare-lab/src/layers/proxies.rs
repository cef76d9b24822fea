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
use crate::certificates;
use crate::context::{LaunchContext, utf8};
use crate::error::LabError;
use crate::launch_spec::LaunchSpec;
use crate::programs;

const READY_WITHIN: DurationNs = DurationNs::from_secs(10);

/// How one program becomes a proxy.
pub trait Program {
    /// What it is called, and where it comes from.
    fn names(&self) -> (&'static str, &'static str);

    /// Its configuration, by the name of its file.
    fn config(&self, job: &Job, context: &LaunchContext<'_>) -> (&'static str, String);

    /// Its command line.
    fn argv(&self, program: &str, config: &str, job: &Job) -> Vec<String>;

    /// What passed so far, by the page at the address of its statistics. The asking itself is
    /// counted where [`Program::counts_asking`] says so.
    fn passed(&self, statistics: SocketAddr, is_http: bool) -> Option<Passed>;

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
    pub statistics: SocketAddr,
    /// That it must be able to hold, both sides together.
    pub connections: u32,
    /// Where it connects from.
    pub source: Option<IpAddr>,
    pub tls: Option<JobTls>,
}

/// TLS on one side of a proxy, and the files of its certificate and of who signs its peers'.
#[derive(Debug)]
pub struct JobTls {
    pub end: TlsEnd,
    pub terms: TlsTerms,
    /// Who signs with the key, where it is not the program itself.
    pub provider: Option<KeyProvider>,
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Both of these in one file.
    pub both: PathBuf,
    pub authority: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsEnd {
    /// It takes encrypted connections.
    Accepts,
    /// It makes them.
    Makes,
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

impl JobTls {
    /// Writes its files into the context's folder.
    pub fn new(
        end: TlsEnd,
        terms: TlsTerms,
        context: &LaunchContext<'_>,
    ) -> Result<Self, LabError> {
        let own = certificates::of_layer(terms.key)?;
        let authority = certificates::authority()?;
        Ok(Self {
            end,
            terms,
            provider: None,
            cert: context.write("cert.pem", own.cert.as_bytes()),
            key: context.write_secret("key.pem", own.key.as_bytes()),
            both: context.write_secret("both.pem", format!("{}{}", own.cert, own.key).as_bytes()),
            authority: context.write("authority.pem", authority.cert.as_bytes()),
        })
    }
}

impl Job {
    /// Where what it takes is encrypted.
    fn accepts(&self) -> Option<&JobTls> {
        self.tls.as_ref().filter(|tls| tls.end == TlsEnd::Accepts)
    }

    /// Where what it sends is.
    fn makes(&self) -> Option<&JobTls> {
        self.tls.as_ref().filter(|tls| tls.end == TlsEnd::Makes)
    }

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
    ) -> Result<HopPlan, LabError> {
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
            tls: self.accepts().is_some(),
            ..context.launch_spec(argv, self.listen, READY_WITHIN)
        };
        Ok(HopPlan { launch_spec, intercepts: self.intercepts.then_some(self.listen.port()) })
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

pub fn path(program: ProxyProgram) -> Result<PathBuf, LabError> {
    let (name, from) = self::program(program).names();
    programs::need(&[name], from)
}
