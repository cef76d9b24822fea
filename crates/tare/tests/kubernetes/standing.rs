//! A user's Deployment: loaded by pods, and restarted by rollouts.

use tare_report::load::LoadReport;

use crate::support::{Desk, Namespace, apply, kubectl, within};
use crate::util::{not_void, str};

const WEB: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NAMESPACE}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: busybox:1
        command:
        - /bin/sh
        - -c
        - mkdir /tmp/www; echo hello > /tmp/www/index.html; exec httpd -f -p 8000 -h /tmp/www
        readinessProbe: {tcpSocket: {port: 8000}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: NAMESPACE}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8000}]}
";

/// Applies the Deployment; returns its namespace and the address of its Service. This machine is
/// not a node and cannot reach addresses that only nodes know.
fn stands(desk: &Desk, name: &str) -> (Namespace, String) {
    let namespace = Namespace::new(name);
    apply(desk, "web.yaml", &WEB.replace("NAMESPACE", &namespace.0));
    let of = |what: &str, path: &str| {
        kubectl(&["get", what, "-n", &namespace.0, "-o", &format!("jsonpath={{{path}}}")])
    };
    within(60, "the Deployment", || of("deployment/web", ".status.readyReplicas") == "1");
    let node = of("node/node1", ".status.addresses[?(@.type==\"InternalIP\")].address");
    let port = of("service/web", ".spec.ports[0].nodePort");
    (namespace, format!("{node}:{port}"))
}

#[test]
fn pods_load_a_service_by_its_name() {
    let desk = Desk::new("kube-load");
    let (namespace, _) = stands(&desk, "load");
    let url = format!("http://web.{}.svc/", namespace.0);
    let load = ["load", &url, "-d", "1s", "--new-connections"];
    let ran = desk.tare(
        &[&load[..], &["-c", "8", "--kubernetes", "count=2,cpus=0.5", "--json", "-"]].concat(),
    );
    let report: LoadReport = serde_json::from_str(&ran.success().stdout).unwrap();
    let clients = report.clients.as_ref().unwrap();
    assert_eq!(clients.each.len(), 2);
    assert_eq!(clients.each.iter().map(|client| client.good).sum::<u64>(), report.requests.good);
    for client in &clients.each {
        assert!(client.good > 0 && client.seen.as_ref().unwrap().contains("is on"), "{clients:?}");
    }
    assert_eq!(report.status.get("200"), Some(&report.requests.completed), "{report:?}");
    let connects = report.latency.connect.as_ref().unwrap().count;
    assert!(connects >= report.requests.good && connects <= report.connections.opened + 8);
    assert!(report.bytes.sent > report.requests.good * 20, "{:?}", report.bytes);
    let p50 = report.latency.from_sent.as_ref().unwrap().ns_p50.unwrap();
    assert!(p50 > 0 && report.asked.connections == 8);
    let few = [&load[..], &["-c", "1", "--kubernetes", "count=2"]].concat();
    desk.tare(&few).fails(2, "connections = 1: 2 clients divide them");
    let wrong = [&load[..], &["--kubernetes", "pots=2"]].concat();
    desk.tare(&wrong).fails(2, "unknown field `pots`");
}

#[test]
fn a_rollout_is_a_launch_of_a_deployment() {
    let desk = Desk::new("kube-rollout");
    let (namespace, entry) = stands(&desk, "rollout");
    let kubectl_here = std::env::var("TARE_KUBECTL").unwrap_or_else(|_| "kubectl".into());
    let rollout =
        |word: &str| format!("{kubectl_here} rollout {word} deployment/web -n {}", namespace.0);
    let text = format!(
        "name = \"rollout\"\n[load]\nconnections = 2\nnew_connections = true\n[stop]\nrounds = 2\n\
         [slices]\nwindow = \"50ms\"\ncycles = 2\nno_sustained = true\n[server.web]\n\
         standing = {{ relaunch = \"{} && {}\" }}\nurl = \"http://{entry}/\"\n[server.up]\n\
         url = \"http://{entry}/\"\n[[variant]]\nname = \"up\"\nserver = \"up\"\nbaseline = true\n\
         [[variant]]\nname = \"web\"\nserver = \"web\"\n",
        rollout("restart"),
        rollout("status")
    );
    let path = desk.file("rollout.toml", &text);
    let ran = desk.tare(&["run", str(&path), "--json", "-", "-q"]).measured();
    let report = serde_json::from_str(&ran.stdout).unwrap();
    not_void(&report);
    let revision = kubectl(&[
        "get",
        "deployment",
        "web",
        "-n",
        &namespace.0,
        "-o",
        "jsonpath={.metadata.annotations.deployment\\.kubernetes\\.io/revision}",
    ]);
    assert_eq!(revision, (report.run.rounds + 1).to_string(), "a rollout a round");
}
