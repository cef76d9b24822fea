//! A proxy: HAProxy in mode http, which counts the requests that pass. It runs on this machine,
//! wherever its server does.

use std::net::SocketAddr;
use std::path::PathBuf;

use tare_io::DurationNs;
use tare_model::layers::{LayerFacts, ProxySpec};
use tare_model::samples::Proof;

use super::{Inserted, LayerKind, LayerProof, ProofContext};
use crate::context::{LaunchContext, counted, utf8};
use crate::count;
use crate::error::LabError;
use crate::launch::Launched;
use crate::launch_spec::{CountPage, CountSource, LaunchSpec};
use crate::programs;
use crate::server::Server;

const READY_WITHIN: DurationNs = DurationNs::from_secs(10);

fn program() -> Result<PathBuf, LabError> {
    programs::need(&["haproxy"], "haproxy")
}

impl LayerKind for ProxySpec {
    fn describe(&self) -> Result<String, LabError> {
        let program = program()?;
        let threads = counted(self.threads, "thread");
        Ok(format!("before it {} with {threads}, mode http", program.display()))
    }

    fn check_machine(&self) -> Result<(), LabError> {
        program().map(drop)
    }

    fn needs(&self) -> Result<Vec<PathBuf>, LabError> {
        // It runs here, wherever the server does.
        Ok(Vec::new())
    }

    fn insert(&self, _: &LaunchContext<'_>, _: &mut Inserted) -> Result<(), LabError> {
        Ok(())
    }

    fn is_hop(&self) -> bool {
        true
    }

    fn hop(
        &self,
        context: &LaunchContext<'_>,
        to: SocketAddr,
    ) -> Result<Option<LaunchSpec>, LabError> {
        let program = program()?;
        let (address, status) = (context.address()?, context.status_address()?);
        let text = format!(
            "global
    maxconn {connections}
    nbthread {threads}
defaults
    mode http
    timeout connect 10s
    timeout client 1h
    timeout server 1h
    timeout http-keep-alive 1h
    option http-keep-alive
    http-reuse always
frontend web
    bind {address}
    default_backend server
backend server
    server server {to}
frontend status
    bind {status}
    stats enable
    stats uri /
",
            connections = context.connections * 2 + 128,
            threads = self.threads,
        );
        let config = context.write("haproxy.cfg", text.as_bytes());
        let argv = [utf8(&program)?, "-db", "-q", "-f", utf8(&config)?];
        let page = CountPage::HaproxyCsv;
        let count = CountSource::Page { address: status, path: "/;csv".into(), page };
        let spec = context.launch_spec(argv.map(str::to_owned).to_vec(), address, READY_WITHIN);
        Ok(Some(LaunchSpec { count: Some(count), ..spec }))
    }

    fn begin_proof(
        &self,
        _: &Launched,
        hop: Option<&LaunchSpec>,
        _: &mut ProofContext<'_>,
    ) -> Result<Option<Box<dyn LayerProof>>, LabError> {
        let Some(count) = hop.and_then(|hop| hop.count.clone()) else { return Ok(None) };
        let before = count::read_here(&count);
        Ok(Some(Box::new(ProxyProof { name: self.name(), count, before })))
    }
}

#[derive(Debug)]
struct ProxyProof {
    name: String,
    count: CountSource,
    before: Option<u64>,
}

impl LayerProof for ProxyProof {
    fn end(self: Box<Self>, _: &dyn Server, sent: u64) -> Proof {
        let Self { name: layer, count, before } = *self;
        let after = count::read_here(&count);
        let passed = after.zip(before).map(|(after, before)| after.saturating_sub(before));
        let text = match passed {
            None => "its statistics do not answer".into(),
            Some(passed) => format!("of {sent} requests {passed} passed through it"),
        };
        Proof { layer, held: passed == Some(sent), text }
    }
}
