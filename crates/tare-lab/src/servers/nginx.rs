//! nginx: with a configuration made here, or the user's own.

use std::net::SocketAddr;
use std::path::PathBuf;

use tare_io::DurationNs;
use tare_model::servers::NginxSpec;

use super::ServerKind;
use crate::launch::context::{LaunchContext, counted, page, utf8};
use crate::launch::spec::LaunchSpec;
use crate::launch::spec::{CountPage, CountSource};
use crate::layers::{self, Inserted};
use crate::machine::programs;
use tare_model::Failure;

const READY_WITHIN: DurationNs = DurationNs::from_secs(10);

fn program(spec: &NginxSpec) -> Result<PathBuf, Failure> {
    match &spec.program {
        Some(path) if path.is_file() => Ok(path.clone()),
        Some(path) => {
            Err(Failure::usage(format!("nginx program {} is not a file", path.display())))
        }
        None => programs::need(&["nginx"], "nginx"),
    }
}

impl ServerKind for NginxSpec {
    fn describe_elsewhere(&self) -> String {
        "starts the place's nginx".into()
    }

    fn needs(&self) -> Result<Vec<PathBuf>, Failure> {
        Ok(vec![program(self)?])
    }

    fn describe(&self) -> Result<String, Failure> {
        let program = program(self)?;
        Ok(match &self.config {
            Some(config) => format!("starts: {} -c {}", program.display(), config.display()),
            None => format!(
                "starts: {} with {}, {} bytes per reply, access log {}, TLS {}{}",
                program.display(),
                counted(self.workers, "worker"),
                self.body_bytes,
                if self.access_log { "on" } else { "off" },
                if self.tls { "on" } else { "off" },
                if self.http2 { ", HTTP/2" } else { "" },
            ),
        })
    }

    fn launch_spec(&self, context: &LaunchContext<'_>) -> Result<LaunchSpec, Failure> {
        // In places with their own programs, nginx is looked up there.
        let program = match (context.our_programs, &self.program) {
            (true, _) => utf8(&program(self)?)?.to_owned(),
            (false, Some(program)) => utf8(program)?.to_owned(),
            (false, None) => "nginx".into(),
        };
        let folder = utf8(context.folder)?.to_owned();
        if let Some(config) = &self.config {
            let config = std::fs::canonicalize(config)
                .map_err(|error| Failure::usage(format!("{}: {error}", config.display())))?;
            let Some(address) = context.fixed else {
                let text = "nginx with your own config needs a url that says where it listens";
                return Err(Failure::usage(text));
            };
            let argv = [&program, "-c", utf8(&config)?, "-g", "daemon off;"];
            let launch_spec =
                context.launch_spec(argv.map(str::to_owned).to_vec(), address, READY_WITHIN);
            return Ok(LaunchSpec { tls: self.tls, ..launch_spec });
        }
        let (address, status) = (context.address()?, context.status_address()?);
        context.write("html/index.html", &page(self.body_bytes));
        let inserted = layers::inserted(context)?;
        let text = config_text(self, context, &folder, address, status, &inserted)?;
        let config = context.write("nginx.conf", text.as_bytes());
        let argv = [&program, "-p", &folder, "-e", "stderr", "-c", utf8(&config)?];
        let mut launch_spec =
            context.launch_spec(argv.map(str::to_owned).to_vec(), address, READY_WITHIN);
        launch_spec.tls = self.tls;
        let (path, page) = ("/".to_owned(), CountPage::NginxStub);
        launch_spec.count = Some(CountSource::Page { address: status, path, page });
        launch_spec.env = inserted.env;
        launch_spec.companion = inserted.companion;
        launch_spec.pages = Some(status);
        if self.access_log {
            launch_spec.log_files.push(context.folder.join("access.log"));
        }
        Ok(launch_spec)
    }
}

/// Distributions' settings (`sendfile on`, `tcp_nopush on`), except what would disturb a
/// measurement. There is no access log unless requested, limits and the backlog suffice for all
/// connections of the load, kept connections do not end, and all workers share a TLS session cache,
/// so that resumption does not depend on which worker accepts.
fn config_text(
    spec: &NginxSpec,
    context: &LaunchContext<'_>,
    folder: &str,
    address: SocketAddr,
    status: SocketAddr,
    inserted: &Inserted,
) -> Result<String, Failure> {
    let files = context.connections * 2 + 128;
    let access_log = if spec.access_log { "access.log" } else { "off" };
    // Workers stay root: as another user they could not read the page.
    let user = if context.root { "user root;" } else { "" };
    let (ssl, tls) = if spec.tls {
        let (cert, key) = context.certificate()?;
        let paths = format!(
            "ssl_certificate {}; ssl_certificate_key {}; ssl_session_cache shared:tare:1m; \
                 ssl_protocols TLSv1.2 TLSv1.3;",
            utf8(&cert)?,
            utf8(&key)?
        );
        (" ssl", paths)
    } else {
        ("", String::new())
    };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path {folder}/{kind};\n"))
        .concat();
    Ok(format!(
        "{modules}
{user}
daemon off;
worker_processes {workers};
pid {folder}/nginx.pid;
error_log stderr error;
worker_rlimit_nofile {files};
events {{ worker_connections {files}; }}
http {{
{temporary}
    access_log {access_log};
    sendfile {sendfile};
    tcp_nopush {nopush};
    keepalive_requests {keepalive};
    keepalive_timeout 3600;
    default_type text/plain;
    {directives}
    {tls}
    server {{
        listen {address}{ssl}{http2} backlog=4096;
        root {folder}/html;
        location / {{ try_files /index.html =404; }}
    }}
    server {{
        listen {status};
        location / {{ stub_status; access_log off; }}
        {pages}
    }}
}}
",
        modules = inserted.nginx.main,
        directives = inserted.nginx.http,
        pages = inserted.nginx.pages,
        // With sendfile, head and body of a reply over HTTP/2 leave in separate segments; where a
        // connection has one stream, the body waits for the acknowledgement of the head (40 ms).
        sendfile = if spec.http2 && !spec.tls { "off" } else { "on" },
        http2 = if spec.http2 { " http2" } else { "" },
        nopush = if spec.tcp_nopush { "on" } else { "off" },
        workers = spec.workers,
        keepalive = spec.keepalive_requests,
    ))
}
