//! A cluster's service mesh. Pods request its sidecars by labels, policies set whether they
//! encrypt, and the sidecars' own statistics show what passed.

use serde_json::{Value, json};
use tare_kube::Kind;
use tare_model::layers::{KeyKind, LayerFacts, MeshSpec, TlsVersion};
use tare_model::plain;

use super::evidence::{Counting, Expected, HopsProof};
use super::proxies::{ProxyCounts, TlsTerms};
use super::{HopPosition, LayerKind, LayerProof, PodParts, PodSeat, ProofContext};
use crate::launch::Launched;
use crate::launch::hop::Hop;
use crate::launch::injected::{self, Injected};
use tare_model::Failure;

/// Prefix of Envoy's statistics of a server's inbound listener.
const COMING: &str = "listener.0.0.0.0_15006.";
/// Prefix of Envoy's statistics of connections to the server beside it.
const INBOUND: &str = "cluster.inbound|";
/// Prefix of Envoy's statistics of connections to other servers, without the control plane.
const OUTBOUND: &str = "cluster.outbound|";

/// Istio's parameters between sidecars. The mesh's own authority issues the certificates.
const MUTUAL: TlsTerms = TlsTerms {
    key: KeyKind::Rsa2048,
    is_mutual: true,
    min: TlsVersion::V1_2,
    max: TlsVersion::V1_3,
    resumes: true,
};

impl LayerKind for MeshSpec {
    fn describe(&self) -> Result<String, Failure> {
        let whose = match (self.inject.has_client(), self.inject.has_server()) {
            (true, true) => "beside it and its client",
            (true, false) => "beside its client",
            _ => "beside it",
        };
        let tls = match (self.is_mutual_tls(), self.inject.has_client()) {
            (true, true) => ", mutual TLS between them",
            (true, false) => ", mutual TLS between the mesh's gateway and it",
            _ => "",
        };
        Ok(format!("{whose} sidecars that Istio injects{tls}"))
    }

    /// Always passes: whether a cluster has a mesh shows only when a pod is created.
    fn check_machine(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn is_injected(&self) -> bool {
        true
    }

    fn pod_parts(&self, seat: &PodSeat<'_>) -> PodParts {
        let inject = self.hop_positions().contains(&seat.stand);
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let mut parts = PodParts::default();
        parts.labels.push(label("sidecar.istio.io/inject", if inject { "true" } else { "false" }));
        if inject {
            parts.labels.extend(self.revision.as_deref().map(|name| label("istio.io/rev", name)));
            let config = json!({
                "concurrency": self.threads,
                "proxyStatsMatcher": injected::statistics(),
            });
            parts.annotations.push(label("proxy.istio.io/config", &config.to_string()));
        }
        if seat.stand == HopPosition::BesideServer {
            parts.objects = policies(self.is_mutual_tls(), seat);
        }
        parts
    }

    fn begin_proof(
        &self,
        _: &Launched,
        hops: &[&Hop],
        _: &mut ProofContext<'_>,
    ) -> Result<Option<Box<dyn LayerProof>>, Failure> {
        let expected = Expected {
            layer: self.name(),
            is_http: true,
            tls: self.is_mutual_tls().then_some(MUTUAL),
        };
        let mut proof = HopsProof::begin(expected, hops, &|hop| match &hop.injected {
            Some(sidecar) => {
                let (sidecar, stand) = (sidecar.clone(), hop.stand);
                Box::new(SidecarCounting { sidecar, stand, is_mutual: self.is_mutual_tls() })
            }
            None => Box::new(Nothing),
        })?;
        for hop in hops {
            let Some(sidecar) = &hop.injected else { continue };
            let what = sidecar.admin_page("/server_info").as_deref().and_then(program);
            proof.add_observation(format!(
                "{} is {} ({})",
                hop.stand.word(),
                what.as_deref().unwrap_or("a program that does not say its version"),
                plain::short(&sidecar.image, 100)
            ));
        }
        Ok(Some(Box::new(proof)))
    }
}

/// Policies for what the server's sidecar accepts, and what its clients' sidecars send.
fn policies(is_mutual_tls: bool, seat: &PodSeat<'_>) -> Vec<(Kind, Value)> {
    let (takes, sends) = match is_mutual_tls {
        true => ("STRICT", "ISTIO_MUTUAL"),
        false => ("DISABLE", "DISABLE"),
    };
    let labels = json!({"matchLabels": seat.selector});
    let host = format!("{}.{}.svc.cluster.local", seat.tag, seat.namespace);
    let rule = json!({"host": host, "trafficPolicy": {"tls": {"mode": sends}}});
    vec![
        (Kind::PeerAuthentication, json!({"selector": labels, "mtls": {"mode": takes}})),
        (Kind::DestinationRule, rule),
    ]
}

/// Returns the versions of Envoy and the mesh from `server_info`.
fn program(page: &str) -> Option<String> {
    let info: Value = serde_json::from_str(page.split_once("\r\n\r\n")?.1).ok()?;
    // Format: commit/version/state/kind/library.
    let envoy = info["version"].as_str()?.split('/').nth(1)?;
    let mesh = info["node"]["metadata"]["ISTIO_VERSION"].as_str();
    let mesh = mesh.map_or(String::new(), |mesh| format!(" of Istio {mesh}"));
    // Istio's own build has filters that the stock one lacks.
    let extended = page.contains("\"istio.stats\"") || envoy.contains("-dev");
    let kind = if extended { "Istio's Envoy" } else { "stock Envoy" };
    Some(plain::short(&format!("{kind} {envoy}{mesh}"), 100))
}

#[derive(Debug)]
struct SidecarCounting {
    sidecar: Injected,
    stand: HopPosition,
    is_mutual: bool,
}

impl Counting for SidecarCounting {
    fn passed(&self) -> Option<ProxyCounts> {
        // `usedonly` leaves out statistics that never counted.
        let page = self.sidecar.admin_page("/stats?usedonly")?;
        page.contains(" 200 OK\r\n").then(|| read(&page, self.stand, self.is_mutual))
    }

    fn outlasts(&self) -> bool {
        true
    }
}

/// Counting for a hop without a sidecar.
#[derive(Debug)]
struct Nothing;

impl Counting for Nothing {
    fn passed(&self) -> Option<ProxyCounts> {
        None
    }
}

/// Connections and handshakes are counted at the client's sidecar. The server's sidecar also counts
/// connections that it refused, so with mutual TLS its counts of these are left out.
fn read(page: &str, stand: HopPosition, is_mutual: bool) -> ProxyCounts {
    let all = || page.lines().filter_map(|line| line.rsplit_once(": "));
    let sum = |start: &str, end: &str| -> u64 {
        let named = all().filter(|(key, _)| key.starts_with(start) && key.ends_with(end));
        named.filter_map(|(_, value)| value.trim().parse::<u64>().ok()).sum()
    };
    if stand == HopPosition::BesideClient {
        let of = |end: &str| Some(sum(OUTBOUND, end));
        return ProxyCounts {
            requests: of(".upstream_rq_total"),
            connections: of(".upstream_cx_total"),
            handshakes: of(".ssl.handshake"),
            resumed: of(".ssl.session_reused"),
            without_certificate: None,
        };
    }
    let plain = !is_mutual;
    ProxyCounts {
        requests: Some(sum(INBOUND, ".upstream_rq_total")),
        connections: plain.then(|| sum(COMING, "downstream_cx_total")),
        handshakes: plain.then(|| sum(COMING, "ssl.handshake")),
        resumed: None,
        without_certificate: Some(sum(COMING, "ssl.no_certificate")),
    }
}

#[cfg(test)]
mod tests {
    use tare_model::layers::{MeshProgram, MeshTls, Side};

    use super::*;

    fn mesh(inject: Side, mtls: Option<MeshTls>) -> MeshSpec {
        MeshSpec { mesh: MeshProgram::Istio, inject, mtls, revision: None, threads: 1 }
    }

    fn seat(stand: HopPosition) -> PodSeat<'static> {
        PodSeat { stand, tag: "tare-1-0", namespace: "tare-1", selector: json!({"a": "b"}) }
    }

    #[test]
    fn who_asks_for_a_sidecar_gets_one_and_nobody_else() {
        let of = |inject, stand| mesh(inject, None).pod_parts(&seat(stand)).labels[0].1.clone();
        assert_eq!(of(Side::Both, HopPosition::BesideClient), "true");
        assert_eq!(of(Side::Server, HopPosition::BesideClient), "false");
        assert_eq!(of(Side::Client, HopPosition::BesideServer), "false");
    }

    #[test]
    fn policies_take_and_send_the_same() {
        let of = |inject, mtls| {
            let objects = mesh(inject, mtls).pod_parts(&seat(HopPosition::BesideServer)).objects;
            let text = |at: usize, path: &str| objects[at].1.pointer(path).unwrap().to_string();
            (text(0, "/mtls/mode"), text(1, "/trafficPolicy/tls/mode"), text(1, "/host"))
        };
        let (takes, sends, host) = of(Side::Both, None);
        assert_eq!((&*takes, &*sends), ("\"STRICT\"", "\"ISTIO_MUTUAL\""));
        assert_eq!(host, "\"tare-1-0.tare-1.svc.cluster.local\"");
        for (inject, mtls) in [(Side::Both, Some(MeshTls::Disable)), (Side::Server, None)] {
            let (takes, sends, _) = of(inject, mtls);
            assert_eq!((&*takes, &*sends), ("\"DISABLE\"", "\"DISABLE\""));
        }
        assert!(
            mesh(Side::Both, None).pod_parts(&seat(HopPosition::BesideClient)).objects.is_empty()
        );
    }

    #[test]
    fn statistics_are_those_of_one_direction() {
        let page = "HTTP/1.1 200 OK\r\n\r\n\
            cluster.inbound|20001||;.upstream_rq_total: 7\n\
            cluster.outbound|80||tare-1-0.tare-1.svc.cluster.local;.upstream_rq_total: 12\n\
            cluster.xds-grpc.upstream_rq_total: 3\n\
            cluster.outbound|80||tare-1-0.tare-1.svc.cluster.local;.upstream_cx_total: 4\n\
            cluster.outbound|80||tare-1-0.tare-1.svc.cluster.local;.ssl.handshake: 4\n\
            listener.0.0.0.0_15006.downstream_cx_total: 5\n\
            listener.0.0.0.0_15001.downstream_cx_total: 9\n";
        let server = read(page, HopPosition::BesideServer, false);
        assert_eq!((server.requests, server.connections), (Some(7), Some(5)));
        assert_eq!(server.handshakes, Some(0));
        assert_eq!(read(page, HopPosition::BesideServer, true).connections, None);
        let client = read(page, HopPosition::BesideClient, true);
        assert_eq!((client.requests, client.connections), (Some(12), Some(4)));
        assert_eq!((client.handshakes, client.resumed), (Some(4), Some(0)));
    }

    #[test]
    fn programs_say_what_they_are() {
        let page = |version: &str| {
            format!(
                "HTTP/1.1 200 OK\r\n\r\n{{\"version\": \"{version}\", \"node\": {{\"metadata\": {{\"ISTIO_VERSION\": \"1.31.1\"}}}}}}"
            )
        };
        let of = |version: &str| program(&page(version));
        assert_eq!(
            of("abc/1.40.0/Clean/RELEASE/BoringSSL").as_deref(),
            Some("stock Envoy 1.40.0 of Istio 1.31.1")
        );
        assert_eq!(
            of("abc/1.40.1-dev/Clean/RELEASE/BoringSSL").as_deref(),
            Some("Istio's Envoy 1.40.1-dev of Istio 1.31.1")
        );
        assert_eq!(program("HTTP/1.1 404"), None);
    }
}
