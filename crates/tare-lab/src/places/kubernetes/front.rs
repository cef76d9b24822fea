//! The proxy in front of a Service: an Ingress controller or a Gateway. Which program it is depends
//! on the cluster.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tare_io::DurationNs;
use tare_io::time::monotonic_now;
use tare_kube::{Kind, KubeError};
use tare_model::places::{KubernetesSpec, Via};
use tare_model::plain;

use super::ground::{ClusterNamespace, FRONT_OF, kube, service_address};
use super::node_meter::NodeMeter;
use super::path::SERVICE_PORT;
use super::reach::LOOK;
use crate::journal::Journal;
use crate::journal::prefix::OURS;
use crate::launch::injected;
use crate::machine::commands;
use tare_model::Failure;

/// Port for plain HTTP of Ingress controllers and Gateways.
const HTTP_PORT: u16 = 80;

#[derive(Clone, Debug)]
pub struct ClusterProxy {
    pub entry: SocketAddr,
    /// In words: `Gateway tare-1/tare-1-0 of class istio`.
    pub words: String,
    /// The pods that forward requests, if the cluster names them.
    pub pods: Vec<FrontPod>,
}

#[derive(Clone, Debug)]
pub struct FrontPod {
    pub name: String,
    pub uid: String,
    pub node: String,
    pub ip: IpAddr,
    /// The node's address, which peers see if pods' addresses are masqueraded.
    pub node_ip: Option<IpAddr>,
    pub meter: Option<Arc<NodeMeter>>,
}

/// Returns the host name with which clients request a place's server.
pub fn host(tag: &str, namespace: &str) -> String {
    format!("{tag}.{namespace}.tare.test")
}

/// Creates the objects that route a host's requests to a place's Service, once.
pub fn make(
    spec: &KubernetesSpec,
    ground: &ClusterNamespace,
    tag: &str,
    journal: &Journal,
) -> Result<(), Failure> {
    let make = |kind: Kind, annotations: Value, body: Value| {
        // No `PLACE` label: a Gateway's pods may inherit labels, but are not the place's servers.
        let labels = json!({OURS.0: OURS.1, FRONT_OF: tag});
        let metadata = json!({"name": tag, "labels": labels, "annotations": annotations});
        let object = json!({"metadata": metadata, "spec": body});
        ground.make(kind, tag, object, journal).map(drop)
    };
    let host = host(tag, &ground.namespace);
    match spec.via {
        Via::Ingress => {
            let service = json!({"name": tag, "port": {"number": SERVICE_PORT}});
            let path = json!({"path": "/", "pathType": "Prefix", "backend": {"service": service}});
            let mut body = json!({"rules": [{"host": host, "http": {"paths": [path]}}]});
            if let Some(class) = &spec.ingress_class {
                body["ingressClassName"] = json!(class);
            }
            make(Kind::Ingress, json!({}), body)
        }
        Via::Gateway => {
            let (namespace, name) = gateway(spec, ground, tag);
            if let Some(class) = &spec.gateway_class {
                let statistics = json!({"proxyStatsMatcher": injected::statistics()}).to_string();
                let body = json!({
                    "gatewayClassName": class,
                    "listeners": [{"name": "http", "port": HTTP_PORT, "protocol": "HTTP"}],
                    "infrastructure": {"annotations": {"proxy.istio.io/config": statistics}},
                });
                // A ClusterIP, as a cluster without load balancers would assign no other address.
                make(
                    Kind::Gateway,
                    json!({"networking.istio.io/service-type": "ClusterIP"}),
                    body,
                )?;
            }
            let body = json!({
                "parentRefs": [{"namespace": namespace, "name": name}],
                "hostnames": [host],
                "rules": [{"backendRefs": [{"name": tag, "port": SERVICE_PORT}]}],
            });
            make(Kind::HTTPRoute, json!({}), body)
        }
        _ => Ok(()),
    }
}

/// Returns the Gateway's namespace and name.
fn gateway<'a>(
    spec: &'a KubernetesSpec,
    ground: &'a ClusterNamespace,
    tag: &'a str,
) -> (&'a str, &'a str) {
    let own = ground.namespace.as_str();
    match &spec.gateway {
        Some(name) => name.split_once('/').unwrap_or((own, name)),
        None => (own, tag),
    }
}

/// Waits until the proxy is ready and routes to the place.
pub fn wait(
    spec: &KubernetesSpec,
    ground: &ClusterNamespace,
    tag: &str,
    within: DurationNs,
    stop: &AtomicBool,
) -> Result<ClusterProxy, Failure> {
    let limit = monotonic_now() + within;
    loop {
        let looked = match spec.via {
            Via::Ingress => look_at_ingress(spec, ground, tag)?,
            _ => look_at_gateway(spec, ground, tag)?,
        };
        let why = match looked {
            Ok((entry, words)) => {
                let pods = pods_behind(ground, entry).map_err(kube)?;
                if !pods.is_empty() || spec.gateway_class.is_none() {
                    return Ok(ClusterProxy { entry, words, pods });
                }
                "no pod of it runs".to_owned()
            }
            Err(why) => why,
        };
        let why = plain::short(&why, WHY_CHARS_MAX);
        let what = spec.via.word();
        if stop.load(Ordering::Relaxed) || commands::is_stopped() {
            return Err(Failure::environment(format!("kubernetes: {what}: interrupted")));
        }
        if monotonic_now() > limit {
            return Err(Failure::environment(format!(
                "kubernetes: {what}: after {within} (start_within) {why}"
            )));
        }
        std::thread::park_timeout(LOOK);
    }
}

const WHY_CHARS_MAX: usize = 400;

type EntryLookup = Result<(SocketAddr, String), String>;

fn look_at_ingress(
    spec: &KubernetesSpec,
    ground: &ClusterNamespace,
    tag: &str,
) -> Result<EntryLookup, Failure> {
    let ingress = ground.read(Kind::Ingress, tag)?.unwrap_or_default();
    let class = ingress["spec"]["ingressClassName"].as_str().unwrap_or("the cluster's default");
    let words = format!("Ingress {}/{tag} of class {class}", ground.namespace);
    if let Some(entry) = spec.entry {
        return Ok(Ok((entry, words)));
    }
    let first = &ingress["status"]["loadBalancer"]["ingress"][0];
    let told = first["ip"].as_str().or(first["hostname"].as_str());
    let Some(told) = told else {
        let text = "no controller gave it an address (one that tells none: entry = \"ADDRESS:80\")";
        return Ok(Err(text.into()));
    };
    Ok(address(ground, told, HTTP_PORT)?.map(|entry| (entry, words)))
}

fn look_at_gateway(
    spec: &KubernetesSpec,
    ground: &ClusterNamespace,
    tag: &str,
) -> Result<EntryLookup, Failure> {
    let (namespace, name) = gateway(spec, ground, tag);
    let gateway = ground.cluster.read(Kind::Gateway, namespace, name).map_err(kube)?;
    let Some(gateway) = gateway else {
        return Ok(Err(format!("there is no Gateway {namespace}/{name}")));
    };
    let route = ground.read(Kind::HTTPRoute, tag)?.unwrap_or_default();
    let parents = route["status"]["parents"].as_array().into_iter().flatten();
    let mut answers = parents.map(|parent| &parent["conditions"]);
    if !answers.any(|all| condition(all, "Accepted").is_ok()) {
        let parents = route["status"]["parents"].as_array().into_iter().flatten();
        let why = parents.filter_map(|p| condition(&p["conditions"], "Accepted").err()).next();
        let why = why.unwrap_or_else(|| "nobody answered for it".into());
        return Ok(Err(format!("its HTTPRoute is not accepted: {why}")));
    }
    let class = gateway["spec"]["gatewayClassName"].as_str().unwrap_or("none");
    let words = format!("Gateway {namespace}/{name} of class {}", plain::short(class, 100));
    if let Some(entry) = spec.entry {
        return Ok(Ok((entry, words)));
    }
    let mut listeners = gateway["spec"]["listeners"].as_array().into_iter().flatten();
    let port = listeners.find(|l| l["protocol"] == "HTTP").and_then(|l| l["port"].as_u64());
    let Some(port) = port.and_then(|port| u16::try_from(port).ok()) else {
        return Ok(Err("it has no listener for plain HTTP".into()));
    };
    if let Err(why) = condition(&gateway["status"]["conditions"], "Programmed") {
        return Ok(Err(format!("it is not programmed: {why}")));
    }
    match gateway["status"]["addresses"][0]["value"].as_str() {
        Some(told) => Ok(address(ground, told, port)?.map(|entry| (entry, words))),
        None => Ok(Err("it has no address (one that tells none: entry = \"ADDRESS:PORT\")".into())),
    }
}

/// Checks that a condition holds; the error is the reason that it does not.
fn condition(all: &Value, kind: &str) -> Result<(), String> {
    let found = all.as_array().into_iter().flatten().find(|one| one["type"] == kind);
    match found {
        Some(one) if one["status"] == "True" => Ok(()),
        Some(one) => Err(one["message"].as_str().unwrap_or("no reason is told").to_owned()),
        None => Err("no controller answered".into()),
    }
}

/// Parses an address, or resolves a name in the cluster or on this machine.
fn address(
    ground: &ClusterNamespace,
    told: &str,
    port: u16,
) -> Result<Result<SocketAddr, String>, Failure> {
    if let Ok(ip) = told.parse() {
        return Ok(Ok(SocketAddr::new(ip, port)));
    }
    if let Some(ip) = service_address(ground.cluster.context.as_deref(), told)? {
        return Ok(Ok(SocketAddr::new(ip, port)));
    }
    let found = (told, port).to_socket_addrs().ok().and_then(|mut all| all.next());
    Ok(found.ok_or_else(|| format!("its address {told:?} is not known here")))
}

/// Returns the pods of the Service at `entry`; none if tare may not list them.
fn pods_behind(ground: &ClusterNamespace, entry: SocketAddr) -> Result<Vec<FrontPod>, KubeError> {
    let services = match ground.cluster.list(Kind::Service, "", "") {
        Err(KubeError::Forbidden { .. }) => return Ok(Vec::new()),
        services => services?,
    };
    let Some(service) = services.iter().find(|service| is_entered(service, entry)) else {
        return Ok(Vec::new());
    };
    let selector = service["spec"]["selector"].as_object().into_iter().flatten();
    let labels: Vec<String> =
        selector.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?))).collect();
    let namespace = service["metadata"]["namespace"].as_str().unwrap_or_default();
    if labels.is_empty() {
        return Ok(Vec::new());
    }
    match ground.cluster.list(Kind::Pod, namespace, &labels.join(",")) {
        Err(KubeError::Forbidden { .. }) => Ok(Vec::new()),
        pods => Ok(pods?.iter().filter_map(front_pod).collect()),
    }
}

fn is_entered(service: &Value, entry: SocketAddr) -> bool {
    let (spec, ip) = (&service["spec"], entry.ip().to_string());
    let external = spec["externalIPs"].as_array().into_iter().flatten();
    let given = service["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten();
    let mut all = external.chain(given.map(|one| &one["ip"])).chain([&spec["clusterIP"]]);
    let mut ports = spec["ports"].as_array().into_iter().flatten();
    all.any(|one| *one == ip.as_str()) && ports.any(|one| one["port"] == entry.port())
}

/// Reads a pod; `None` unless it runs.
fn front_pod(pod: &Value) -> Option<FrontPod> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    (pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null())
        .then_some(())?;
    Some(FrontPod {
        name: text(&pod["metadata"]["name"])?,
        uid: text(&pod["metadata"]["uid"])?,
        node: text(&pod["spec"]["nodeName"])?,
        ip: pod["status"]["podIP"].as_str()?.parse().ok()?,
        node_ip: pod["status"]["hostIP"].as_str().and_then(|ip| ip.parse().ok()),
        meter: None,
    })
}

/// Counts of what the proxy's pods sent to a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCounts {
    pub requests: u64,
    pub connections: u64,
    pub handshakes: u64,
}

impl ClusterProxy {
    /// Sums the counts of all its pods; `None` if any reports none.
    pub fn passed(&self, service: &str) -> Option<ServiceCounts> {
        let mut sum = ServiceCounts::default();
        for pod in &self.pods {
            let site = pod.meter.as_ref()?.site();
            let address = SocketAddr::new(pod.ip, injected::STATISTICS_PORT);
            let page = injected::page(&site, address, injected::STATISTICS_PATH)?;
            let one = read(&page, service)?;
            sum.requests += one.requests;
            sum.connections += one.connections;
            sum.handshakes += one.handshakes;
        }
        (!self.pods.is_empty()).then_some(sum)
    }
}

/// Reads one Service's counts from Envoy's statistics; `None` if they are absent.
fn read(page: &str, service: &str) -> Option<ServiceCounts> {
    let (one, other) = (format!("||{service}\""), format!("||{service};\""));
    let of = |name: &str| -> Option<u64> {
        let is_its = |line: &&str| {
            let labels = line.strip_prefix(name).filter(|rest| rest.starts_with('{'));
            labels.is_some_and(|labels| labels.contains(&one) || labels.contains(&other))
        };
        let named = page.lines().filter(is_its);
        let numbers = named.filter_map(|line| line.rsplit_once(' ')?.1.trim().parse::<u64>().ok());
        numbers.reduce(|sum, n| sum + n)
    };
    Some(ServiceCounts {
        requests: of("envoy_cluster_upstream_rq_total")?,
        connections: of("envoy_cluster_upstream_cx_total")?,
        handshakes: of("envoy_cluster_ssl_handshake").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_that_is_entered_is_known_by_any_of_its_addresses() {
        let service = json!({
            "spec": {"clusterIP": "10.96.0.5", "externalIPs": ["10.98.0.11"],
                     "ports": [{"port": 15021}, {"port": 80}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}},
        });
        let is = |entry: &str| is_entered(&service, entry.parse().unwrap());
        assert!(is("10.96.0.5:80") && is("10.98.0.11:80") && is("192.0.2.7:80"));
        assert!(!is("10.96.0.5:443") && !is("10.96.0.6:80"));
    }

    #[test]
    fn statistics_are_those_of_one_service() {
        let line = |name: &str, service: &str, n: u32| {
            format!("{name}{{cluster_name=\"outbound|80||{service}\"}} {n}\n")
        };
        let page = "# TYPE envoy_cluster_upstream_rq_total counter\n".to_owned()
            + &line("envoy_cluster_upstream_rq_total", "a.b.svc.cluster.local", 7)
            + &line("envoy_cluster_upstream_rq_total", "a.b.svc.cluster.local;", 2)
            + &line("envoy_cluster_upstream_rq_total", "other.b.svc.cluster.local", 5)
            + &line("envoy_cluster_upstream_rq_total_more", "a.b.svc.cluster.local", 3)
            + &line("envoy_cluster_upstream_cx_total", "a.b.svc.cluster.local", 2)
            + &line("envoy_cluster_ssl_handshake", "a.b.svc.cluster.local", 1);
        let expected = ServiceCounts { requests: 9, connections: 2, handshakes: 1 };
        assert_eq!(read(&page, "a.b.svc.cluster.local"), Some(expected));
        assert_eq!(read("HTTP/1.1 404 Not Found\r\n\r\n", "a.b.svc.cluster.local"), None);
    }

    #[test]
    fn conditions_hold_or_say_why() {
        let all = json!([{"type": "Accepted", "status": "False", "message": "no such listener"},
                         {"type": "Programmed", "status": "True"}]);
        assert_eq!(condition(&all, "Programmed"), Ok(()));
        assert_eq!(condition(&all, "Accepted"), Err("no such listener".into()));
        assert!(condition(&Value::Null, "Accepted").is_err());
    }
}
