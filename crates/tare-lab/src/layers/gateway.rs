//! A gateway: a proxy that speaks TLS with clients.

use std::path::PathBuf;

use tare_model::layers::{GatewaySpec, KeyProvider, LayerFacts};
use tare_model::samples::{Proof, Sent};

use super::evidence::{Expected, HopsProof, ProgramCounting};
use super::proxies::{JobTls, ProxySettings, TlsTerms, envoy, path};
use super::{HopPlan, LayerKind, LayerProof, ProofContext, Seat, where_it_runs};
use crate::lab::server::Server;
use crate::launch::Launched;
use crate::launch::certificates;
use crate::launch::context::{LaunchContext, counted};
use crate::launch::hop::{Hop, Statistics, Upstream};
use tare_model::Failure;

fn terms(spec: &GatewaySpec) -> TlsTerms {
    TlsTerms {
        key: spec.tls.key,
        is_mutual: false,
        min: spec.tls.min,
        max: spec.tls.max,
        resumes: spec.tls.resume,
    }
}

impl LayerKind for GatewaySpec {
    fn describe(&self) -> Result<String, Failure> {
        let program = path(self.gateway)?;
        let tls = self.tls;
        let versions = match tls.min == tls.max {
            true => tls.max.word().to_owned(),
            false => format!("{} to {}", tls.min.word(), tls.max.word()),
        };
        Ok(format!(
            "before it {}{} with {}, {versions} by {}, sessions {}taken up again",
            program.display(),
            where_it_runs(self),
            counted(self.threads, "thread"),
            tls.key.word(),
            if tls.resume { "" } else { "not " }
        ))
    }

    fn check_machine(&self) -> Result<(), Failure> {
        let program = path(self.gateway)?;
        match self.tls.provider {
            Some(provider) => envoy::check_provider(
                &program,
                provider,
                certificates::layer_certificate(self.tls.key)?,
            ),
            None => Ok(()),
        }
    }

    fn needs_of_hop(&self) -> Result<Vec<PathBuf>, Failure> {
        Ok(vec![path(self.gateway)?])
    }

    fn hop(
        &self,
        context: &LaunchContext<'_>,
        seat: &Seat<'_>,
        to: Upstream,
    ) -> Result<HopPlan, Failure> {
        let job = ProxySettings {
            threads: self.threads,
            is_http: true,
            is_sidecar: false,
            intercepts: false,
            listen: context.address()?,
            to: to.address,
            passes_on: None,
            statistics: context.status_address()?,
            connections: context.connections * 2 + 128,
            source: None,
            accepts: Some(JobTls {
                provider: self.tls.provider,
                ..JobTls::new(terms(self), context)?
            }),
            makes: JobTls::to(to, context)?,
        };
        job.plan(self.gateway, self.config.as_deref(), context, seat)
    }

    fn begin_proof(
        &self,
        _: &Launched,
        hops: &[&Hop],
        _: &mut ProofContext<'_>,
    ) -> Result<Option<Box<dyn LayerProof>>, Failure> {
        let layer = hops.first().map_or_else(|| self.name(), |hop| hop.name.clone());
        let expected = Expected { layer, is_http: true, tls: Some(terms(self)) };
        let proof = HopsProof::begin(expected, hops, &|hop| {
            ProgramCounting::for_hop(self.gateway, true, hop)
        })?;
        let provider = self.tls.provider.zip(hops.first().map(|hop| hop.statistics()));
        Ok(Some(match provider {
            None => Box::new(proof),
            Some((provider, statistics)) => {
                let proof = Box::new(proof);
                Box::new(ProviderProof { proof, provider, statistics })
            }
        }))
    }
}

/// Proves that the private key provider signs, and not the gateway itself.
#[derive(Debug)]
struct ProviderProof {
    proof: Box<HopsProof>,
    provider: KeyProvider,
    statistics: Statistics,
}

impl LayerProof for ProviderProof {
    fn end(self: Box<Self>, server: &Server, sent: Sent) -> Proof {
        let signs = envoy::provider_signs(&self.statistics, self.provider);
        let mut proof = self.proof.end(server, sent);
        let name = self.provider.word();
        let told = match (signs, self.provider) {
            (Some(true), KeyProvider::Cryptomb) => format!("{name} signed in batches"),
            (Some(true), KeyProvider::Qat) => format!("{name} signs, as there is no fallback"),
            (Some(false), _) => format!("{name} signed nothing"),
            (None, _) => format!("{name} tells no statistics"),
        };
        proof.held &= signs == Some(true);
        proof.text = format!("{told}; {}", proof.text);
        proof
    }
}
