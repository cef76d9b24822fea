//! Proxies: one on this machine between client and server, or sidecars in the network namespace of
//! either. Which programs they can be is in [`super::proxies`].

use std::net::SocketAddr;

use tare_model::layers::{LayerFacts, ProxySpec, Side, Tls, TlsVersion};

use super::evidence::{Expected, HopsProof, ProgramCounting};
use super::proxies::{Job, JobTls, TlsEnd, TlsTerms, path};
use super::{HopPlan, LayerKind, LayerProof, ProofContext, Seat, Stand};
use crate::context::{LaunchContext, counted};
use crate::error::LabError;
use crate::intercept;
use crate::launch::{Hop, Launched};

/// Ports of sidecars, as Istio's.
const LEAVING_PORT: u16 = 15_001;
const COMING_PORT: u16 = 15_006;
const ADMIN_PORT: u16 = 15_000;

/// Between its sidecars; as a mesh does it.
fn terms(spec: &ProxySpec) -> Option<TlsTerms> {
    let terms = TlsTerms {
        key: spec.key(),
        is_mutual: spec.tls == Tls::Mtls,
        min: TlsVersion::V1_2,
        max: TlsVersion::V1_3,
        resumes: true,
    };
    (spec.tls != Tls::None).then_some(terms)
}

fn job(
    spec: &ProxySpec,
    context: &LaunchContext<'_>,
    stand: Stand,
    to: SocketAddr,
) -> Result<Job, LabError> {
    let at = |port: u16| SocketAddr::new(context.ip, port);
    let (listen, statistics) = match stand {
        Stand::Between => (context.address()?, context.status_address()?),
        Stand::BesideClient => (at(LEAVING_PORT), at(ADMIN_PORT)),
        Stand::BesideServer => (at(COMING_PORT), at(ADMIN_PORT)),
    };
    let end = if stand == Stand::BesideServer { TlsEnd::Accepts } else { TlsEnd::Makes };
    let tls = terms(spec).map(|terms| JobTls::new(end, terms, context)).transpose()?;
    Ok(Job {
        threads: spec.threads,
        is_http: spec.mode.is_http(),
        is_sidecar: spec.side.is_some(),
        intercepts: spec.intercepts(),
        listen,
        to,
        statistics,
        connections: context.connections * 2 + 128,
        source: (stand == Stand::BesideServer).then_some(intercept::SIDECAR),
        tls,
    })
}

impl LayerKind for ProxySpec {
    fn describe(&self) -> Result<String, LabError> {
        let program = path(self.proxy)?;
        let threads = counted(self.threads, "thread");
        let who = match self.side {
            None => "before it",
            Some(Side::Client) => "beside its client",
            Some(Side::Server) => "beside it",
            Some(Side::Both) => "beside it and its client",
        };
        let tls = match self.tls {
            Tls::None => String::new(),
            Tls::Tls => format!(", TLS between them by {}", self.key().word()),
            Tls::Mtls => format!(", mutual TLS between them by {}", self.key().word()),
        };
        let redirected = if self.intercepts() { ", connections redirected" } else { "" };
        let mode = self.mode.word();
        Ok(format!("{who} {} with {threads}, mode {mode}{tls}{redirected}", program.display()))
    }

    fn check_machine(&self) -> Result<(), LabError> {
        path(self.proxy)?;
        match self.side {
            Some(_) => intercept::check_machine(),
            None => Ok(()),
        }
    }

    fn hop(
        &self,
        context: &LaunchContext<'_>,
        seat: &Seat<'_>,
        to: SocketAddr,
    ) -> Result<HopPlan, LabError> {
        let job = job(self, context, seat.stand, to)?;
        job.plan(self.proxy, self.config.as_deref(), context, seat)
    }

    fn begin_proof(
        &self,
        _: &Launched,
        hops: &[&Hop],
        _: &mut ProofContext<'_>,
    ) -> Result<Option<Box<dyn LayerProof>>, LabError> {
        let expected =
            Expected { layer: self.name(), is_http: self.mode.is_http(), tls: terms(self) };
        Ok(Some(Box::new(HopsProof::begin(expected, hops, &|hop| {
            ProgramCounting::of(self.proxy, self.mode.is_http(), hop)
        })?)))
    }
}
