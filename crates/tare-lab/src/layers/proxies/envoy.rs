//! Envoy, as a mesh configures its sidecars: one route, no access log, limits out of the way.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use serde_json::{Value, json};
use tare_io::DurationNs;
use tare_model::layers::{KeyProvider, TlsVersion};
use tare_model::plain;

use super::{JobTls, Program, ProxyCounts, ProxySettings};
use crate::launch::certificates::{Certified, SERVER_NAME};
use crate::launch::context::{LaunchContext, utf8};
use crate::launch::hop::{CertificateKind, Statistics};
use crate::machine::commands::{self, Outcome};
use tare_model::Failure;

pub struct Envoy;

const VALIDATED_WITHIN: DurationNs = DurationNs::from_secs(10);
const WHY_CHARS_MAX: usize = 300;
/// More connections and requests than any load has.
const NO_LIMIT: u32 = 1_000_000;

impl Program for Envoy {
    fn names(&self) -> (&'static str, &'static str) {
        ("envoy", "see envoyproxy.io; tare's sources have scripts/install-envoy")
    }

    fn config(&self, job: &ProxySettings, _: &LaunchContext<'_>) -> (&'static str, String) {
        ("envoy.json", config(job).to_string())
    }

    fn argv(&self, program: &str, config: &str, job: &ProxySettings) -> Vec<String> {
        let threads = job.threads.to_string();
        let argv =
            [program, "-c", config, "--concurrency", &threads, "--disable-hot-restart", "-l"];
        argv.into_iter().chain(["error"]).map(str::to_owned).collect()
    }

    fn passed(&self, statistics: &Statistics, is_http: bool) -> Option<ProxyCounts> {
        read(&statistics.page("/stats?filter=web")?, is_http)
    }
}

/// Parses statistics, one per line; those that never counted are zero or absent.
fn read(page: &str, is_http: bool) -> Option<ProxyCounts> {
    let find = |name: &str| -> Option<u64> {
        let mut lines = page.lines().filter_map(|line| line.strip_prefix(name));
        lines.find_map(|rest| rest.strip_prefix(": "))?.trim().parse().ok()
    };
    let connections = find("listener.web.downstream_cx_total")?;
    Some(ProxyCounts {
        requests: is_http.then(|| find("http.web.downstream_rq_total").unwrap_or(0)),
        connections: Some(connections),
        handshakes: Some(find("listener.web.ssl.handshake").unwrap_or(0)),
        resumed: Some(find("listener.web.ssl.session_reused").unwrap_or(0)),
        without_certificate: Some(find("listener.web.ssl.no_certificate").unwrap_or(0)),
    })
}

fn typed(name: &str, kind: &str, mut settings: Value) -> Value {
    settings["@type"] = json!(format!("type.googleapis.com/envoy.extensions.{kind}"));
    json!({"name": format!("envoy.{name}"), "typed_config": settings})
}

fn config(job: &ProxySettings) -> Value {
    json!({
        "admin": {"address": socket(job.statistics)},
        "static_resources": {"listeners": [listener(job)], "clusters": [cluster(job)]},
    })
}

fn listener(job: &ProxySettings) -> Value {
    let filter = if job.is_http { http_filter() } else { tcp_filter() };
    let mut chain = json!({"filters": [filter]});
    let address = job.listens_on();
    let mut listener = json!({"name": "web", "stat_prefix": "web", "address": socket(address)});
    if job.intercepts {
        let original = typed("filters.listener.original_dst", ORIGINAL_DST, json!({}));
        listener["listener_filters"] = json!([original]);
        // A connection to its own port would be forwarded to itself endlessly.
        chain["filter_chain_match"] = json!({"destination_port": job.to.port()});
    }
    if let Some(tls) = &job.accepts {
        let mut settings = json!({"common_tls_context": tls_context(tls, true)});
        settings["require_client_certificate"] = json!(tls.terms.is_mutual);
        if !tls.terms.resumes {
            settings["disable_stateless_session_resumption"] = json!(true);
            settings["disable_stateful_session_resumption"] = json!(true);
        }
        chain["transport_socket"] = typed("transport_sockets.tls", DOWNSTREAM_TLS, settings);
    }
    listener["filter_chains"] = json!([chain]);
    listener
}

const ORIGINAL_DST: &str = "filters.listener.original_dst.v3.OriginalDst";
const DOWNSTREAM_TLS: &str = "transport_sockets.tls.v3.DownstreamTlsContext";
const UPSTREAM_TLS: &str = "transport_sockets.tls.v3.UpstreamTlsContext";

fn http_filter() -> Value {
    let router = typed("filters.http.router", "filters.http.router.v3.Router", json!({}));
    let manager = json!({
        "stat_prefix": "web",
        "http_filters": [router],
        "route_config": {"virtual_hosts": [{
            "name": "any",
            "domains": ["*"],
            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "server", "timeout": "0s"}}],
        }]},
    });
    let kind = "filters.network.http_connection_manager.v3.HttpConnectionManager";
    typed("filters.network.http_connection_manager", kind, manager)
}

fn tcp_filter() -> Value {
    let proxy = json!({"stat_prefix": "web", "cluster": "server"});
    typed("filters.network.tcp_proxy", "filters.network.tcp_proxy.v3.TcpProxy", proxy)
}

fn cluster(job: &ProxySettings) -> Value {
    let limits = json!({
        "max_connections": NO_LIMIT,
        "max_pending_requests": NO_LIMIT,
        "max_requests": NO_LIMIT,
        "max_retries": NO_LIMIT,
    });
    let mut cluster = json!({
        "name": "server",
        "connect_timeout": "10s",
        "circuit_breakers": {"thresholds": [limits]},
    });
    if job.intercepts {
        cluster["type"] = json!("ORIGINAL_DST");
        cluster["lb_policy"] = json!("CLUSTER_PROVIDED");
    } else {
        let endpoint = json!({"endpoint": {"address": socket(job.to)}});
        cluster["type"] = json!("STATIC");
        cluster["load_assignment"] =
            json!({"cluster_name": "server", "endpoints": [{"lb_endpoints": [endpoint]}]});
    }
    if let Some(source) = job.source {
        cluster["upstream_bind_config"] = json!({"source_address": ip(source, 0)});
    }
    if let Some(tls) = &job.makes {
        let settings = json!({"sni": SERVER_NAME, "common_tls_context": tls_context(tls, false)});
        cluster["transport_socket"] = typed("transport_sockets.tls", UPSTREAM_TLS, settings);
    }
    cluster
}

/// Configures the proxy's certificate and the authority of its peer's certificate. Without mutual
/// TLS, a server checks no certificate and a client presents none.
fn tls_context(tls: &JobTls, accepts: bool) -> Value {
    let mut context = json!({
        "alpn_protocols": ["http/1.1"],
        "tls_params": {
            "tls_minimum_protocol_version": version(tls.terms.min),
            "tls_maximum_protocol_version": version(tls.terms.max),
        },
    });
    if let Some(own) = tls.own.as_ref().filter(|_| accepts || tls.terms.is_mutual) {
        let mut certificate = json!({"certificate_chain": {"filename": own.cert}});
        let key = json!({"filename": own.key});
        match tls.provider {
            None => certificate["private_key"] = key,
            Some(provider) => certificate["private_key_provider"] = self::provider(provider, key),
        }
        context["tls_certificates"] = json!([certificate]);
    }
    if !accepts || tls.terms.is_mutual {
        let name = match tls.shows {
            CertificateKind::Hop => json!({"san_type": "URI", "matcher": {"prefix": "spiffe://"}}),
            CertificateKind::Server => {
                json!({"san_type": "DNS", "matcher": {"exact": SERVER_NAME}})
            }
        };
        context["validation_context"] = json!({
            "trusted_ca": {"filename": tls.authority},
            "match_typed_subject_alt_names": [name],
        });
    }
    context
}

/// Configures a provider without a fallback: if it cannot sign, handshakes fail.
fn provider(provider: KeyProvider, key: Value) -> Value {
    let kind = match provider {
        KeyProvider::Cryptomb => "cryptomb.v3alpha.CryptoMbPrivateKeyMethodConfig",
        KeyProvider::Qat => "qat.v3alpha.QatPrivateKeyMethodConfig",
    };
    json!({
        "provider_name": provider.word(),
        "typed_config": {
            "@type": format!("type.googleapis.com/envoy.extensions.private_key_providers.{kind}"),
            "private_key": key,
            // A batch waits this long for further handshakes.
            "poll_delay": "0.002s",
        },
    })
}

/// Checks that this build of Envoy has the provider, and that it works here.
pub fn check_provider(envoy: &Path, wanted: KeyProvider, own: &Certified) -> Result<(), Failure> {
    let mut certificate = json!({"certificate_chain": {"inline_string": own.cert}});
    certificate["private_key_provider"] = provider(wanted, json!({"inline_string": own.key}));
    let settings = json!({"common_tls_context": {"tls_certificates": [certificate]}});
    let echo = typed("filters.network.echo", "filters.network.echo.v3.Echo", json!({}));
    let chain = json!({
        "filters": [echo],
        "transport_socket": typed("transport_sockets.tls", DOWNSTREAM_TLS, settings),
    });
    let anywhere = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let listener = json!({"address": socket(anywhere), "filter_chains": [chain]});
    let config = json!({"static_resources": {"listeners": [listener]}}).to_string();
    let envoy = utf8(envoy)?;
    let argv = [envoy, "--mode", "validate", "-l", "critical", "--config-yaml", &config];
    let Outcome { worked, said, .. } = commands::run(&argv, VALIDATED_WITHIN);
    let name = wanted.word();
    let is_unknown = said.contains("could not find @type")
        || said.contains(&format!("Failed to load private key provider: {name}"));
    match (worked, is_unknown) {
        (true, _) => Ok(()),
        (false, true) => Err(Failure::environment(format!(
            "{envoy} lacks the private key provider {name}: builds with Envoy's contrib extensions \
             and Istio's proxies have it"
        ))),
        (false, false) => {
            // Cut off the configuration that follows, as it contains the key.
            let why = said.split(": {\"").next().unwrap_or_default();
            let why = plain::short(why, WHY_CHARS_MAX);
            Err(Failure::environment(format!(
                "{envoy}: the private key provider {name} does not work here: {why}"
            )))
        }
    }
}

fn version(version: TlsVersion) -> &'static str {
    match version {
        TlsVersion::V1_2 => "TLSv1_2",
        TlsVersion::V1_3 => "TLSv1_3",
    }
}

fn socket(address: SocketAddr) -> Value {
    json!({"socket_address": ip(address.ip(), address.port())})
}

fn ip(ip: IpAddr, port: u16) -> Value {
    json!({"address": ip.to_string(), "port_value": port})
}

/// Whether a provider signed any handshakes, judging by its histogram of batches.
pub fn provider_signs(statistics: &Statistics, provider: KeyProvider) -> Option<bool> {
    match provider {
        KeyProvider::Cryptomb => signs(&statistics.page("/stats?filter=cryptomb")?),
        // It has no statistics, but without a fallback it signs every handshake.
        KeyProvider::Qat => Some(true),
    }
}

fn signs(page: &str) -> Option<bool> {
    let mut queues = page.lines().filter(|line| line.contains("_queue_sizes: "));
    let first = queues.next()?;
    Some(std::iter::once(first).chain(queues).any(|line| !line.contains("No recorded values")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_that_signs_has_batches() {
        let page = |rsa: &str| {
            format!(
                "listener.web.cryptomb.ecdsa_queue_sizes: No recorded values\n\
                     listener.web.cryptomb.rsa_queue_sizes: {rsa}\n"
            )
        };
        assert_eq!(signs(&page("P0(1,1) P25(nan,2)")), Some(true));
        assert_eq!(signs(&page("No recorded values")), Some(false));
        assert_eq!(signs(""), None);
    }

    #[test]
    fn a_provider_has_the_key_and_nobody_else() {
        let key = json!({"filename": "key.pem"});
        let of = |which| provider(which, key.clone());
        assert_eq!(of(KeyProvider::Cryptomb)["provider_name"], "cryptomb");
        let qat = of(KeyProvider::Qat);
        assert_eq!(qat["typed_config"]["private_key"], key);
        assert!(qat["fallback"].is_null());
    }

    #[test]
    fn statistics_are_read_by_their_whole_names() {
        let page = "HTTP/1.1 200 OK\r\n\r\nhttp.web.downstream_rq_total: 12\n\
                    listener.web.downstream_cx_total: 3\nlistener.web.ssl.handshake: 2\n\
                    listener.web.worker_0.downstream_cx_total: 9\n";
        let passed = ProxyCounts {
            requests: Some(12),
            connections: Some(3),
            handshakes: Some(2),
            resumed: Some(0),
            without_certificate: Some(0),
        };
        assert_eq!(read(page, true), Some(passed));
        assert_eq!(read(page, false), Some(ProxyCounts { requests: None, ..passed }));
        assert_eq!(read("HTTP/1.1 404", true), None);
    }
}
