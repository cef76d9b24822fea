//! Proxies: one between client and server, or sidecars in the network namespace of either. Their
//! programs are in [`super::proxies`].

use std::net::SocketAddr;
use std::path::PathBuf;

use tare_model::layers::{LayerFacts, ProxySpec, Side, Tls, TlsVersion};

use super::evidence::{Expected, HopsProof, ProgramCounting};
use super::proxies::{JobTls, ProxySettings, TlsTerms, path};
use super::{HopPlan, HopPosition, LayerKind, LayerProof, ProofContext, Seat, where_it_runs};
use crate::launch::Launched;
use crate::launch::context::{LaunchContext, counted};
use crate::launch::hop::{Hop, Upstream};
use crate::network::intercept;
use tare_model::Failure;

/// Ports of sidecars, the same as Istio's.
const LEAVING_PORT: u16 = 15_001;
const COMING_PORT: u16 = 15_006;
const ADMIN_PORT: u16 = 15_000;

/// TLS between the layer's sidecars or towards clients, with a mesh's parameters.
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
    stand: HopPosition,
    to: Upstream,
) -> Result<ProxySettings, Failure> {
    let at = |port: u16| SocketAddr::new(context.ip, port);
    let (listen, statistics) = match stand {
        HopPosition::Between => (context.address()?, context.status_address()?),
        HopPosition::BesideClient => (at(LEAVING_PORT), at(ADMIN_PORT)),
        HopPosition::BesideServer => (at(COMING_PORT), at(ADMIN_PORT)),
    };
    let own = || terms(spec).map(|terms| JobTls::new(terms, context)).transpose();
    let (accepts, makes) = match (stand, spec.mode.is_http()) {
        (HopPosition::BesideServer, _) => (own()?, None),
        (HopPosition::BesideClient, _) => (None, own()?),
        (HopPosition::Between, true) => (own()?, JobTls::to(to, context)?),
        // A TCP proxy forwards the bytes of clients and the server unchanged.
        (HopPosition::Between, false) => (None, None),
    };
    Ok(ProxySettings {
        threads: spec.threads,
        is_http: spec.mode.is_http(),
        is_sidecar: spec.side.is_some(),
        intercepts: spec.intercepts(),
        listen,
        to: to.address,
        passes_on: if spec.mode.is_http() { None } else { to.shows },
        statistics,
        connections: context.connections * 2 + 128,
        source: (stand == HopPosition::BesideServer).then_some(intercept::SIDECAR),
        accepts,
        makes,
    })
}

impl LayerKind for ProxySpec {
    fn describe(&self) -> Result<String, Failure> {
        let program = path(self.proxy)?;
        let threads = counted(self.threads, "thread");
        let who = match self.side {
            None => "before it",
            Some(Side::Client) => "beside its client",
            Some(Side::Server) => "beside it",
            Some(Side::Both) => "beside it and its client",
        };
        let tls = match self.tls {
            Tls::Tls if self.side.is_none() => format!(", TLS by {}", self.key().word()),
            Tls::None => String::new(),
            Tls::Tls => format!(", TLS between them by {}", self.key().word()),
            Tls::Mtls => format!(", mutual TLS between them by {}", self.key().word()),
        };
        let redirected = if self.intercepts() { ", connections redirected" } else { "" };
        let mode = self.mode.word();
        let place = where_it_runs(self);
        let program = program.display();
        Ok(format!("{who} {program}{place} with {threads}, mode {mode}{tls}{redirected}"))
    }

    fn check_machine(&self) -> Result<(), Failure> {
        path(self.proxy)?;
        match self.side {
            Some(_) => intercept::check_machine(),
            None => Ok(()),
        }
    }

    fn needs_of_hop(&self) -> Result<Vec<PathBuf>, Failure> {
        Ok(vec![path(self.proxy)?])
    }

    fn hop(
        &self,
        context: &LaunchContext<'_>,
        seat: &Seat<'_>,
        to: Upstream,
    ) -> Result<HopPlan, Failure> {
        let job = job(self, context, seat.stand, to)?;
        job.plan(self.proxy, self.config.as_deref(), context, seat)
    }

    fn begin_proof(
        &self,
        _: &Launched,
        hops: &[&Hop],
        _: &mut ProofContext<'_>,
    ) -> Result<Option<Box<dyn LayerProof>>, Failure> {
        let between = hops.first().filter(|hop| hop.stand == HopPosition::Between);
        let layer = between.map_or_else(|| self.name(), |hop| hop.name.clone());
        let expected = Expected { layer, is_http: self.mode.is_http(), tls: terms(self) };
        Ok(Some(Box::new(HopsProof::begin(expected, hops, &|hop| {
            ProgramCounting::for_hop(self.proxy, self.mode.is_http(), hop)
        })?)))
    }
}
