//! nginx: `proxy_pass` over kept connections.

use super::{Program, ProxyCounts, ProxySettings, TlsTerms};
use crate::executor::count;
use crate::launch::certificates::SERVER_NAME;
use crate::launch::context::LaunchContext;
use crate::launch::hop::Statistics;
use crate::network::intercept;

pub struct Nginx;

impl Program for Nginx {
    fn names(&self) -> (&'static str, &'static str) {
        ("nginx", "nginx")
    }

    fn config(&self, job: &ProxySettings, context: &LaunchContext<'_>) -> (&'static str, String) {
        let folder = context.folder.display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("    {kind}_temp_path {folder}/{kind};\n"))
            .concat();
        let text = format!(
            "{user}
daemon off;
worker_processes {threads};
pid {folder}/nginx.pid;
error_log stderr error;
worker_rlimit_nofile {connections};
events {{ worker_connections {connections}; }}
http {{
{temporary}
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 3600;
    upstream server {{
        server {to};
        keepalive {connections};
        keepalive_requests 1000000000;
        keepalive_timeout 3600;
    }}
    server {{
        listen {listen} backlog=4096{accepts};
        location / {{
            proxy_pass {scheme}://server;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_set_header Host $http_host;
{source}{makes}        }}
    }}
    server {{
        listen {statistics};
        location / {{ stub_status; }}
    }}
}}
",
            user = user(job, context),
            threads = job.threads,
            // One on each side per client connection.
            connections = job.connections * 2,
            to = job.to,
            listen = job.listens_on(),
            accepts = accepts(job),
            scheme = if job.makes.is_some() { "https" } else { "http" },
            source =
                job.source.map_or(String::new(), |ip| format!("            proxy_bind {ip};\n")),
            makes = makes(job),
            statistics = job.statistics,
        );
        ("nginx.conf", text)
    }

    fn argv(&self, program: &str, config: &str, _: &ProxySettings) -> Vec<String> {
        let folder = config.rsplit_once('/').map_or("/", |(folder, _)| folder);
        [program, "-p", folder, "-e", "stderr", "-c", config].map(str::to_owned).to_vec()
    }

    fn passed(&self, statistics: &Statistics, is_http: bool) -> Option<ProxyCounts> {
        let (accepted, requests) = count::nginx_stub(&statistics.page("/")?)?;
        let requests = is_http.then_some(requests);
        Some(ProxyCounts { requests, connections: Some(accepted), ..ProxyCounts::default() })
    }

    fn counts_asking(&self) -> bool {
        true
    }
}

/// Returns the `user` directive; workers of sidecars stay in the sidecars' group.
fn user(job: &ProxySettings, context: &LaunchContext<'_>) -> String {
    match (context.root, job.is_sidecar) {
        (false, _) => String::new(),
        (true, false) => "user root;".into(),
        (true, true) => {
            intercept::group().map_or(String::new(), |(name, _)| format!("user root {name};"))
        }
    }
}

/// Returns what follows the address in `listen`: `ssl` and the TLS directives.
fn accepts(job: &ProxySettings) -> String {
    let Some(tls) = &job.accepts else { return String::new() };
    let Some(own) = &tls.own else { return String::new() };
    let TlsTerms { is_mutual, min, max, resumes, .. } = tls.terms;
    let versions = match min == max {
        true => max.word().to_owned(),
        false => format!("{} {}", min.word(), max.word()),
    };
    let mut lines = vec![
        " ssl".to_owned(),
        format!("ssl_protocols {versions}"),
        format!("ssl_certificate {}", own.cert.display()),
        format!("ssl_certificate_key {}", own.key.display()),
    ];
    lines.extend(match resumes {
        true => ["ssl_session_cache shared:tare:10m".to_owned(), "ssl_session_tickets on".into()],
        false => ["ssl_session_cache off".to_owned(), "ssl_session_tickets off".into()],
    });
    if is_mutual {
        lines.push(format!("ssl_client_certificate {}", tls.authority.display()));
        lines.push("ssl_verify_client on".into());
    }
    lines.join(";\n        ")
}

fn makes(job: &ProxySettings) -> String {
    let Some(tls) = &job.makes else { return String::new() };
    let mut lines = vec![
        "proxy_ssl_verify on".to_owned(),
        format!("proxy_ssl_trusted_certificate {}", tls.authority.display()),
        format!("proxy_ssl_name {SERVER_NAME}"),
        "proxy_ssl_server_name on".into(),
        "proxy_ssl_protocols TLSv1.2 TLSv1.3".into(),
    ];
    if let Some(own) = tls.own.as_ref().filter(|_| tls.terms.is_mutual) {
        lines.push(format!("proxy_ssl_certificate {}", own.cert.display()));
        lines.push(format!("proxy_ssl_certificate_key {}", own.key.display()));
    }
    lines.iter().map(|line| format!("            {line};\n")).collect()
}
