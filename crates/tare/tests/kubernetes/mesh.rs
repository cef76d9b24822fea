//! Sidecars that a mesh injects: proven by their own counts, and every planted lie is detected.
//! Needs a mesh in the cluster: `make test-mesh`.

use std::process::Stdio;

use tare_report::run::{RunGuard, RunReport};

use crate::support::{Desk, Namespace, apply, kubectl, proven, try_kubectl, within};
use crate::util::{not_void, str};

/// A variant behind a Service with a client in a pod, and further settings of each place.
fn variant(server: &str, client: &str, layer: &str) -> String {
    format!(
        "server = \"web\"\n\
         place = {{ kubernetes = {{ image = \"nginx:1\", via = \"cluster-ip\"{server} }} }}\n\
         client = {{ kubernetes = {{ same_node_as = \"server\"{client} }} }}\n{layer}"
    )
}

const BOTH: &str = "layers = [{ mesh = \"istio\" }]";
const PLAIN: &str = "layers = [{ mesh = \"istio\", mtls = \"disable\" }]";

#[test]
#[ignore = "needs a mesh: make test-mesh"]
fn sidecars_of_each_side_are_proven_and_paid_for() {
    let desk = Desk::new("mesh-sides");
    let client = "layers = [{ mesh = \"istio\", inject = \"client\" }]";
    let server = "layers = [{ mesh = \"istio\", inject = \"server\" }]";
    let report = desk.run(&[
        ("none", &variant("", "", "baseline = true")),
        ("client", &variant("", "", client)),
        ("server", &variant("", "", server)),
        ("plain", &variant("", "", PLAIN)),
        ("mutual", &variant("", "", BOTH)),
    ]);
    not_void(&report);
    proven(&report, "client", &["mesh istio: held in 2 of 2", "passed through the client's"]);
    proven(&report, "server", &["passed through the server's", "0 TLS handshakes for "]);
    let stock = "is stock Envoy 1.40.0 of Istio 1.31.1 (localhost/proxyv2:1)";
    proven(&report, "plain", &["0 TLS handshakes for", stock, "sidecar (127.0.0.6)"]);
    proven(&report, "mutual", &["a request in plain text is refused", " TLS handshakes for 4 "]);
    let metric = |name: &str, key: &str| {
        report.variant(name).unwrap().metrics.get(key).map_or(0.0, |value| value.point)
    };
    for name in ["client", "server", "plain", "mutual"] {
        let (all, layers) =
            ("server_cpu_ns_per_request", metric(name, "layers_cpu_ns_per_request"));
        assert!(layers > 0.0 && layers < metric(name, all), "{name}: {layers}");
        assert!(metric(name, all) > metric("none", all));
    }
    assert!(metric("none", "layers_cpu_ns_per_request") < f64::EPSILON);
}

#[track_caller]
fn void(name: &str, server: &str, client: &str, layer: &str, told: &str) {
    let desk = Desk::new(name);
    let report = desk.run(&[
        ("none", &variant("", "", "baseline = true")),
        ("lie", &variant(server, client, layer)),
    ]);
    let text = &guard(&report, "lie", "not-proven").text;
    assert!(text.contains(told), "{text}");
}

#[track_caller]
fn guard<'a>(report: &'a RunReport, variant: &str, code: &str) -> &'a RunGuard {
    let mut of = report.guards.iter().filter(|guard| guard.variant.as_deref() == Some(variant));
    let found = of.find(|guard| guard.code == code);
    found.unwrap_or_else(|| panic!("{variant}: no {code} among {:#?}", report.guards))
}

#[test]
#[ignore = "needs a mesh: make test-mesh"]
fn a_sidecar_that_nothing_passes_is_found_out() {
    // The mesh's rules exclude the port of the server, or of its Service.
    let annotation = |key: &str, value: &str| {
        format!(", annotations = {{ \"traffic.sidecar.istio.io/{key}\" = \"{value}\" }}")
    };
    let server = annotation("includeInboundPorts", "");
    void("mesh-in", &server, "", PLAIN, "0 passed through the server's");
    let client = annotation("excludeOutboundPorts", "80");
    void("mesh-out", "", &client, PLAIN, "0 passed through the client's");
    // It claims to encrypt, but answers requests in plain text.
    let layer = "layers = [{ mesh = \"istio\" }]\nmay_differ = [\"status\", \"body\", \"headers\"]";
    void("mesh-plain", &server, "", layer, "a request in plain text is served");
}

#[test]
#[ignore = "needs a mesh: make test-mesh"]
fn who_got_no_sidecar_is_told() {
    let desk = Desk::new("mesh-none");
    let refuses = ", labels = { \"sidecar.istio.io/inject\" = \"false\" }";
    let (code, said) = desk.refused(&[
        ("none", &variant("", "", "baseline = true")),
        ("lie", &variant(refuses, "", BOTH)),
    ]);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("its pod has no sidecar, though it asked for one"), "{said}");
}

/// In a namespace where every pod gets a sidecar.
#[test]
#[ignore = "needs a mesh: make test-mesh"]
fn a_sidecar_that_no_layer_names_is_found_out() {
    let desk = Desk::new("mesh-unasked");
    let namespace = Namespace::new("mesh-unasked");
    kubectl(&["label", "namespace", &namespace.0, "istio-injection=enabled"]);
    let own = format!(", namespace = \"{}\"", namespace.0);
    let refused = format!("{own}, labels = {{ \"sidecar.istio.io/inject\" = \"false\" }}");
    let report = desk.run(&[
        ("refused", &variant(&refused, "", "baseline = true")),
        ("unasked", &variant(&own, "", "may_differ = [\"headers\"]")),
    ]);
    proven(&report, "refused", &["pod, cluster-ip: held in 2 of 2"]);
    let text = &guard(&report, "unasked", "not-proven").text;
    assert!(text.contains("a sidecar into its pod that no layer names"), "{text}");
}

/// Access logs of a namespace that another user switched on.
#[test]
#[ignore = "needs a mesh: make test-mesh"]
fn a_sidecar_that_logs_every_request_is_told() {
    let (desk, namespace) = (Desk::new("mesh-logs"), Namespace::new("mesh-logs"));
    let name = &namespace.0;
    apply(
        &desk,
        "logs.yaml",
        &format!(
            "apiVersion: telemetry.istio.io/v1\nkind: Telemetry\n\
             metadata: {{name: logs, namespace: {name}}}\n\
             spec: {{accessLogging: [{{providers: [{{name: envoy}}]}}]}}\n"
        ),
    );
    let own = format!(", namespace = \"{name}\"");
    let report = desk.run(&[
        ("quiet", &variant("", "", &format!("baseline = true\n{PLAIN}"))),
        ("logs", &variant(&own, &own, PLAIN)),
    ]);
    let text = &guard(&report, "logs", "chatty").text;
    assert!(text.contains("writes 2.0"), "of either side one: {text}");
    let is_chatty = |guard: &RunGuard| guard.code == "chatty";
    assert_eq!(report.guards.iter().filter(|guard| is_chatty(guard)).count(), 1);
}

/// Another user's rule that switches encryption off for a whole namespace.
#[test]
#[ignore = "needs a mesh: make test-mesh"]
fn a_policy_of_somebody_elses_does_not_switch_encryption_off_unseen() {
    let desk = Desk::new("mesh-policy");
    let namespace = Namespace::new("mesh-policy");
    let name = &namespace.0;
    apply(
        &desk,
        "policy.yaml",
        &format!(
            "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\n\
             metadata: {{name: old, namespace: {name}}}\n\
             spec: {{selector: {{matchLabels: {{app: web}}}}, mtls: {{mode: PERMISSIVE}}}}\n"
        ),
    );
    let server = format!(", namespace = \"{name}\", labels = {{ app = \"web\" }}");
    let client = format!(", namespace = \"{name}\"");
    void("mesh-policy-run", &server, &client, BOTH, "a request in plain text is served");
}

#[test]
#[ignore = "needs a mesh: make test-mesh"]
fn killed_a_run_leaves_no_policy() {
    let desk = Desk::new("mesh-kill");
    let namespace = Namespace::new("mesh-kill");
    let own = format!(", namespace = \"{}\"", namespace.0);
    let path = desk.experiment(&[
        ("none", &variant("", "", "baseline = true")),
        ("mesh", &variant(&own, &own, BOTH)),
    ]);
    let policies = || {
        let kinds = "peerauthentications,destinationrules,services,pods";
        kubectl(&["-n", &namespace.0, "get", kinds, "-o", "name"])
    };
    let mut command = desk.command(&["run", str(&path), "-q"]);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    within(60, "its policies are there", || {
        let found = policies();
        found.contains("peerauthentication") && found.contains("destinationrule")
    });
    run.kill().unwrap();
    run.wait().unwrap();
    desk.tare(&["clean"]).success();
    within(60, "nothing is left", || policies().is_empty());
    // The baseline's objects are in a namespace of the run.
    let id = format!("namespace/tare-{}-", run.id());
    within(60, "its namespace is gone", || {
        let left = try_kubectl(&["get", "namespace", "-o", "name"]).stdout;
        !String::from_utf8_lossy(&left).contains(&id)
    });
}
