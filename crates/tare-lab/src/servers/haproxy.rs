//! HAProxy, configured to answer every request from memory.

use std::path::PathBuf;

use tare_io::DurationNs;
use tare_model::servers::HaproxySpec;

use super::ServerKind;
use crate::launch::context::{LaunchContext, counted, page, utf8};
use crate::launch::spec::LaunchSpec;
use crate::launch::spec::{CountPage, CountSource};
use crate::machine::programs;
use tare_model::Failure;

const READY_WITHIN: DurationNs = DurationNs::from_secs(10);
/// Room for a reply's head.
const HEAD_BYTES: u32 = 4096;

fn program() -> Result<PathBuf, Failure> {
    programs::need(&["haproxy"], "haproxy")
}

impl ServerKind for HaproxySpec {
    fn describe(&self) -> Result<String, Failure> {
        Ok(format!(
            "starts: {} with {}, {} bytes per reply, TLS {}{}",
            program()?.display(),
            counted(self.threads, "thread"),
            self.body_bytes,
            if self.tls { "on" } else { "off" },
            if self.http2 { ", HTTP/2" } else { "" },
        ))
    }

    fn needs(&self) -> Result<Vec<PathBuf>, Failure> {
        Ok(vec![program()?])
    }

    fn launch_spec(&self, context: &LaunchContext<'_>) -> Result<LaunchSpec, Failure> {
        let program = program()?;
        let (address, status) = (context.address()?, context.status_address()?);
        let page = context.write("page", &page(self.body_bytes));
        let tls = match self.tls {
            true => format!(" ssl crt {}", utf8(&context.certificate_with_key()?)?),
            false => String::new(),
        };
        // Debian's configuration would log each request to syslog and end idle connections after 50
        // s. The buffer holds the whole reply, which is answered from memory.
        let text = format!(
            "global
    maxconn {connections}
    nbthread {threads}
    tune.bufsize {buffer}
defaults
    mode http
    timeout connect 10s
    timeout client 1h
    timeout server 1h
    timeout http-keep-alive 1h
frontend web
    bind {address}{tls}{http2}
    http-request return status 200 content-type text/plain file {page}
frontend status
    bind {status}
    stats enable
    stats uri /
",
            http2 = match (self.http2, self.tls) {
                (false, _) => "",
                (true, false) => " proto h2",
                (true, true) => " alpn h2,http/1.1",
            },
            connections = context.connections * 2 + 128,
            threads = self.threads,
            buffer = (self.body_bytes + HEAD_BYTES).max(16 << 10),
            page = utf8(&page)?,
        );
        let config = context.write("haproxy.cfg", text.as_bytes());
        let argv = [utf8(&program)?, "-db", "-q", "-f", utf8(&config)?];
        let count = CountSource::Page {
            address: status,
            path: "/;csv".into(),
            page: CountPage::HaproxyCsv,
        };
        let spec = context.launch_spec(argv.map(str::to_owned).to_vec(), address, READY_WITHIN);
        Ok(LaunchSpec { tls: self.tls, count: Some(count), ..spec })
    }
}
