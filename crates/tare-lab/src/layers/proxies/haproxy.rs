//! HAProxy.

use super::{Program, ProxyCounts, ProxySettings, TlsTerms};
use crate::executor::count;
use crate::launch::certificates::SERVER_NAME;
use crate::launch::context::LaunchContext;
use crate::launch::hop::Statistics;

pub struct Haproxy;

impl Program for Haproxy {
    fn names(&self) -> (&'static str, &'static str) {
        ("haproxy", "haproxy")
    }

    fn config(&self, job: &ProxySettings, _: &LaunchContext<'_>) -> (&'static str, String) {
        let options = match job.is_http {
            true => {
                "    timeout http-keep-alive 1h\n    option http-keep-alive\n    \
                 http-reuse always\n"
            }
            false => "",
        };
        let text = format!(
            "global
    maxconn {connections}
    nbthread {threads}
{global}defaults
    mode {mode}
    timeout connect 10s
    timeout client 1h
    timeout server 1h
{options}frontend web
    bind {listen}{accepts}
    default_backend server
backend server
    server server {to}{source}{makes}
frontend status
    mode http
    bind {statistics}
    stats enable
    stats uri /
",
            connections = job.connections,
            threads = job.threads,
            global = match &job.accepts {
                Some(tls) if !tls.terms.resumes => "    tune.ssl.cachesize 0\n",
                _ => "",
            },
            mode = if job.is_http { "http" } else { "tcp" },
            listen = job.listens_on(),
            accepts = accepts(job),
            to = job.to,
            source = job.source.map_or(String::new(), |ip| format!(" source {ip}")),
            makes = makes(job),
            statistics = job.statistics,
        );
        ("haproxy.cfg", text)
    }

    fn argv(&self, program: &str, config: &str, _: &ProxySettings) -> Vec<String> {
        [program, "-db", "-q", "-f", config].map(str::to_owned).to_vec()
    }

    fn passed(&self, statistics: &Statistics, is_http: bool) -> Option<ProxyCounts> {
        let page = statistics.page("/;csv")?;
        Some(ProxyCounts {
            requests: count::haproxy_column(&page, "req_tot").filter(|_| is_http),
            connections: Some(count::haproxy_column(&page, "conn_tot")?),
            ..ProxyCounts::default()
        })
    }
}

fn accepts(job: &ProxySettings) -> String {
    let Some(tls) = &job.accepts else { return String::new() };
    let Some(files) = &tls.own else { return String::new() };
    let TlsTerms { is_mutual, min, max, resumes, .. } = tls.terms;
    let mut own = format!(
        " ssl crt {} ssl-min-ver {} ssl-max-ver {}",
        files.both.display(),
        min.word(),
        max.word()
    );
    if is_mutual {
        own.push_str(&format!(" ca-file {} verify required", tls.authority.display()));
    }
    if !resumes {
        own.push_str(" no-tls-tickets");
    }
    own
}

fn makes(job: &ProxySettings) -> String {
    let Some(tls) = &job.makes else { return String::new() };
    let own = tls.own.as_ref().filter(|_| tls.terms.is_mutual);
    let own = own.map_or_else(String::new, |own| format!(" crt {}", own.both.display()));
    format!(
        " ssl{own} ca-file {} verify required sni str({SERVER_NAME}) verifyhost {SERVER_NAME}",
        tls.authority.display()
    )
}
