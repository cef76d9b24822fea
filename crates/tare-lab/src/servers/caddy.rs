//! Caddy with a configuration that serves one file.

use std::path::PathBuf;

use tare_io::DurationNs;
use tare_model::servers::CaddySpec;

use super::ServerKind;
use crate::launch::context::{LaunchContext, counted, page, utf8};
use crate::launch::spec::CountSource;
use crate::launch::spec::LaunchSpec;
use crate::machine::programs;
use tare_model::Failure;

const READY_WITHIN: DurationNs = DurationNs::from_secs(10);

fn program() -> Result<PathBuf, Failure> {
    programs::need(&["caddy"], "caddy")
}

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

impl ServerKind for CaddySpec {
    fn describe(&self) -> Result<String, Failure> {
        Ok(format!(
            "starts: {} with {}, {} bytes per reply, access log {}, TLS {}{}",
            program()?.display(),
            counted(self.threads, "thread"),
            self.body_bytes,
            on_off(self.access_log),
            on_off(self.tls),
            if self.http2 { ", HTTP/2" } else { "" },
        ))
    }

    fn needs(&self) -> Result<Vec<PathBuf>, Failure> {
        Ok(vec![program()?])
    }

    fn launch_spec(&self, context: &LaunchContext<'_>) -> Result<LaunchSpec, Failure> {
        let program = program()?;
        let folder = utf8(context.folder)?.to_owned();
        let address = context.address()?;
        context.write("html/page.txt", &page(self.body_bytes));
        let (scheme, tls) = match self.tls {
            true => {
                let (cert, key) = context.certificate()?;
                ("https", format!("tls {} {}", utf8(&cert)?, utf8(&key)?))
            }
            false => ("http", String::new()),
        };
        let log_file = context.folder.join("access.log");
        let log = match self.access_log {
            // A rotated log would lose lines, and compressing it would cost CPU time.
            true => format!(
                "log {{\n        output file {folder}/access.log {{\n            roll_disabled\n        \
                 }}\n    }}"
            ),
            false => String::new(),
        };
        // These are Caddy's defaults. Go's server sends a file's first 512 bytes with the head and
        // the rest in a second segment; no setting changes that. Caddy's metrics count requests by
        // labels, at too high a cost: without an access log, requests are not counted.
        let text = format!(
            "{{
    admin off
    auto_https off
    storage file_system {folder}
    {protocols}
}}
{scheme}://:{port} {{
    bind {ip}
    root * {folder}/html
    rewrite * /page.txt
    file_server
    {tls}
    {log}
}}
",
            protocols =
                if self.http2 { "servers {\n        protocols h1 h2 h2c\n    }" } else { "" },
            port = address.port(),
            ip = address.ip(),
        );
        let config = context.write("Caddyfile", text.as_bytes());
        let argv = [utf8(&program)?, "run", "--adapter", "caddyfile", "--config", utf8(&config)?];
        let spec = context.launch_spec(argv.map(str::to_owned).to_vec(), address, READY_WITHIN);
        Ok(LaunchSpec {
            tls: self.tls,
            env: vec![
                ("GOMAXPROCS".into(), self.threads.to_string()),
                ("HOME".into(), folder.clone()),
                ("XDG_CONFIG_HOME".into(), folder.clone()),
                ("XDG_DATA_HOME".into(), folder),
            ],
            count: self.access_log.then(|| CountSource::AccessLog(log_file.clone())),
            log_files: if self.access_log { vec![log_file] } else { Vec::new() },
            ..spec
        })
    }
}
