//! Ingresses and Gateways as routes to a pod, through the ingress gateway of a real mesh: `make
//! test-mesh`.

use tare_report::load::guards::Severity;
use tare_report::run::RunGuard;

use crate::support::{Desk, proven};
use crate::util::not_void;

/// A server that is reached this way, and a client in a pod.
fn via(way: &str, more: &str) -> String {
    format!(
        "server = \"web\"\n\
         place = {{ kubernetes = {{ image = \"nginx:1\"{way} }} }}\n\
         client = {{ kubernetes = {{ same_node_as = \"server\" }} }}\n{more}"
    )
}

const OWN: &str = ", via = \"gateway\", gateway_class = \"istio\"";
const EDGE: &str = ", via = \"gateway\", gateway = \"istio-system/edge\"";
const INGRESS: &str = ", via = \"ingress\", ingress_class = \"istio\"";

#[test]
#[ignore = "needs a mesh: make test-mesh"]
fn ingresses_and_gateways_are_proven_and_paid_for() {
    let desk = Desk::new("front");
    let mutual = "layers = [{ mesh = \"istio\", inject = \"server\", mtls = \"strict\" }]";
    let report = desk.run(&[
        ("pod", &via("", "baseline = true")),
        ("own", &via(OWN, "")),
        ("edge", &via(EDGE, "")),
        ("ingress", &via(INGRESS, "")),
        ("mutual", &via(OWN, mutual)),
    ]);
    not_void(&report);
    proven(
        &report,
        "own",
        &["gateway: held in 2 of 2", " passed through it", " of class istio at "],
    );
    proven(&report, "edge", &["gateway: held in 2 of 2", " (istio-ingressgateway-"]);
    proven(&report, "ingress", &["ingress: held in 2 of 2", " of class istio at 10.98.0.11:80"]);
    proven(&report, "mutual", &["a request in plain text is refused", "TLS handshakes for "]);
    let metric = |name: &str, key: &str| {
        report.variant(name).unwrap().metrics.get(key).map_or(0.0, |value| value.point)
    };
    for name in ["own", "edge", "ingress", "mutual"] {
        let layers = metric(name, "layers_cpu_ns_per_request");
        assert!(layers > metric("pod", "server_cpu_ns_per_request") / 2.0, "{name}: {layers}");
    }
}

/// Clients are sent to the edge, but the route belongs to another Gateway.
#[test]
#[ignore = "needs a mesh: make test-mesh"]
fn a_gateway_that_nothing_passes_is_found_out() {
    let desk = Desk::new("front-past");
    let lie = format!("{OWN}, entry = \"10.98.0.11:80\"");
    let may = "may_differ = [\"status\", \"body\", \"headers\"]";
    let report = desk.run(&[("pod", &via("", "baseline = true")), ("lie", &via(&lie, may))]);
    let is_it = |guard: &&RunGuard| guard.severity == Severity::Void && guard.code == "not-proven";
    let text = &report.guards.iter().find(is_it).expect("not void").text;
    assert!(text.contains("no connection was open to see who asks"), "{text}");
}

#[test]
#[ignore = "needs a mesh: make test-mesh"]
fn who_does_not_lead_there_is_told() {
    let desk = Desk::new("front-none");
    let within = ", start_within = \"4s\"";
    for (way, told) in [
        (", via = \"gateway\", gateway = \"nobody/nothing\"", "there is no Gateway nobody/nothing"),
        (", via = \"gateway\", gateway_class = \"none\"", "its HTTPRoute is not accepted: nobody"),
        (", via = \"ingress\", ingress_class = \"none\"", "no controller gave it an address"),
    ] {
        let (code, said) = desk.refused(&[
            ("pod", &via("", "baseline = true")),
            ("lie", &via(&format!("{way}{within}"), "")),
        ]);
        assert_eq!(code, 3, "{said}");
        assert!(said.contains(told), "{said}");
    }
}
