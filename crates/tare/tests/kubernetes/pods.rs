//! Pods that serve and make load: runtimes, routes, nodes, manifests.

use tare_model::Metric;
use tare_tidy::skips::not_run;

use crate::support::{Desk, Namespace, kubectl, proven};
use crate::util::{not_void, str};

#[test]
fn runtimes_serve_and_are_proven_by_the_kernel_inside() {
    let desk = Desk::new("kube-runtimes");
    let report = desk.run(&[
        ("host", "server = \"web\"\nbaseline = true"),
        ("runc", "server = \"web\"\nplace = { kubernetes = { image = \"nginx:1\", cpus = 1, memory = \"256M\" } }"),
        ("crun", "server = \"web\"\nplace = { kubernetes = { image = \"nginx:1\", runtime_class = \"crun\" } }"),
        ("gvisor", "server = \"web\"\nplace = { kubernetes = { image = \"nginx:1\", runtime_class = \"gvisor\" } }"),
        ("httpd", "server = \"apache\"\nmay_differ = [\"headers\"]\nplace = { kubernetes = { image = \"httpd:2\" } }"),
        ("target", "server = \"target\"\nmay_differ = [\"headers\", \"body\"]\nplace = \"kubernetes\""),
    ]);
    proven(&report, "runc", &["no runtime class", "under its node's kernel"]);
    proven(&report, "crun", &["class crun", "under its node's kernel"]);
    proven(&report, "gvisor", &["gvisor", "a kernel of its own", "by its pod's control group"]);
    proven(&report, "httpd", &[]);
    proven(&report, "target", &[]);
    not_void(&report);
    let cpu = |name: &str| report.variant(name).unwrap().metric(Metric::ServerCpu).unwrap().point;
    assert!(cpu("gvisor") > 2.0 * cpu("runc"), "{} of {}", cpu("gvisor"), cpu("runc"));
    assert!(cpu("runc") > 0.0);
    // A run that ends removes its namespace.
    let left =
        kubectl(&["get", "namespace", "-l", "app.kubernetes.io/managed-by=tare", "-o", "name"]);
    let own = report.variant("runc").unwrap().proofs.join(" ");
    let name = left.lines().find(|line| own.contains(line.trim_start_matches("namespace/")));
    assert!(
        name.is_none()
            || kubectl(&["get", name.unwrap(), "-o", "jsonpath={.status.phase}"]) == "Terminating"
    );
}

#[test]
fn every_way_is_proven_by_what_the_server_saw() {
    let desk = Desk::new("kube-ways");
    let way = |keys: &str| {
        format!("server = \"web\"\nplace = {{ kubernetes = {{ image = \"nginx:1\", {keys} }} }}")
    };
    let keys = [
        ("straight", way("via = \"pod-ip\"") + "\nbaseline = true"),
        ("node", way("via = \"node-port\"")),
        ("other", way("via = \"node-port\", enter = \"other-node\"")),
        ("local", way("via = \"node-port\", policy = \"local\"")),
        ("host-port", way("via = \"host-port\"")),
        ("host-network", way("host_network = true")),
        (
            "cluster",
            way("via = \"cluster-ip\"")
                + "\nclient = { kubernetes = { same_node_as = \"server\" } }",
        ),
    ];
    let variants: Vec<(&str, &str)> =
        keys.iter().map(|(name, keys)| (*name, keys.as_str())).collect();
    let report = desk.run(&variants);
    proven(&report, "straight", &["pod: held in 2 of 2"]);
    proven(&report, "node", &["its own node), policy Cluster", "4 from "]);
    proven(&report, "other", &["another node), policy Cluster", "4 from "]);
    proven(&report, "local", &["policy Local", "(its client)"]);
    proven(&report, "host-port", &["hostPort"]);
    proven(&report, "host-network", &["host network: held in 2 of 2"]);
    proven(&report, "cluster", &["ClusterIP", "(its client)", "client in pod"]);
    not_void(&report);
}

#[test]
fn clients_run_on_the_node_that_is_asked_for() {
    let desk = Desk::new("kube-nodes");
    let server = "server = \"target\"\nplace = { kubernetes = { node = \"node1\" } }\n";
    let client = |keys: &str| format!("{server}client = {{ kubernetes = {{ {keys} }} }}");
    let (same, other) =
        (client("same_node_as = \"server\""), client("other_node_than = \"server\""));
    let within = format!("{server}client = \"same_as_server\"");
    let report = desk.run(&[
        ("same", &(same + "\nbaseline = true")),
        ("other", &other),
        ("within", &within),
    ]);
    proven(&report, "same", &["is on node1"]);
    proven(&report, "other", &["is on node1", "is on node2"]);
    assert!(!report.variant("same").unwrap().proofs.join(" ").contains("node2"));
    not_void(&report);
}

#[test]
fn a_pod_of_the_users_own_may_have_no_root_and_no_writable_files() {
    let desk = Desk::new("kube-manifest");
    let namespace = Namespace::new("manifest");
    desk.file(
        "pod.yaml",
        "kind: Pod\nmetadata: {labels: {team: web}, annotations: {note: kept}}\nspec:\n  \
         securityContext: {runAsNonRoot: true, runAsUser: 1000, \
         seccompProfile: {type: RuntimeDefault}}\n  \
         containers:\n  - name: web\n    image: busybox:1\n    args: [\"sleep\", \"1\"]\n    \
         livenessProbe: {httpGet: {port: 9999, path: /}}\n    securityContext: \
         {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}\n",
    );
    let place = format!(
        "place = {{ kubernetes = {{ manifest = \"pod.yaml\", namespace = \"{}\", labels = {{ tier = \"b\" }} }} }}",
        namespace.0
    );
    let report = desk.run(&[
        ("here", "server = \"target\"\nbaseline = true"),
        ("pod", &format!("server = \"target\"\n{place}")),
    ]);
    proven(&report, "pod", &["address"]);
    not_void(&report);
    // In a namespace that is not tare's, its objects are removed one by one.
    let left = kubectl(&["get", "pods,services", "-n", &namespace.0, "-o", "name"]);
    assert_eq!(left, "");
}

#[test]
fn others_pods_are_a_reason_to_refuse_a_namespace() {
    let desk = Desk::new("kube-others");
    let namespace = Namespace::new("others");
    let pod = "kind: Pod\napiVersion: v1\nmetadata: {name: theirs}\nspec: {containers: \
               [{name: a, image: busybox:1, command: [sleep, \"600\"]}]}\n";
    let path = desk.file("theirs.yaml", pod);
    kubectl(&["apply", "-n", &namespace.0, "-f", str(&path)]);
    let place = |more: &str| {
        format!(
            "server = \"target\"\nplace = {{ kubernetes = {{ namespace = \"{}\"{more} }} }}",
            namespace.0
        )
    };
    let here = ("here", "server = \"target\"\nbaseline = true");
    let (code, said) = desk.refused(&[here, ("pod", &place(""))]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("theirs") && said.contains("beside_others = true"), "{said}");
    let report = desk.run(&[here, ("pod", &place(", beside_others = true"))]);
    proven(&report, "pod", &[]);
    assert_eq!(kubectl(&["get", "pods", "-n", &namespace.0, "-o", "name"]).trim(), "pod/theirs");
}

#[test]
fn pods_make_one_load_together() {
    let desk = Desk::new("kube-together");
    let place = "server = \"target\"\nplace = { kubernetes = { node = \"node1\" } }\n";
    let (one, four) = ("client = { kubernetes = {} }", "client = { kubernetes = { count = 4 } }");
    let text = std::fs::read_to_string(desk.experiment(&[
        ("one", &format!("{place}{one}\nbaseline = true")),
        ("four", &format!("{place}{four}")),
    ]));
    // A pod may be late by a tenth of a slice.
    let text = text.unwrap().replace("connections = 4", "connections = 10");
    let path = desk.file("together.toml", &text.replace("20ms", "300ms"));
    let ran = desk.tare(&["run", str(&path), "--json", "-", "-q"]).measured();
    let report =
        serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {}", ran.story()));
    proven(&report, "four", &["client 1 of 4 in pod", "client 4 of 4 in pod"]);
    not_void(&report);
    let note = report.guards.iter().find(|guard| guard.code == "clients").unwrap();
    assert!(note.text.contains("4 clients") && note.text.contains("clock error"), "{}", note.text);
}

#[test]
fn fewer_connections_than_pods_are_refused() {
    let desk = Desk::new("kube-few");
    let keys =
        "server = \"target\"\nclient = { kubernetes = { count = 5 } }\nplace = \"kubernetes\"";
    let (code, said) =
        desk.refused(&[("here", "server = \"target\"\nbaseline = true"), ("pods", keys)]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("connections = 4") && said.contains("at least 5"), "{said}");
}

/// Folder of the cluster that these tests start; images are loaded only there.
const NODES: &str = "/var/lib/tare-cluster";

#[test]
fn an_image_brings_the_agent_to_where_there_is_no_shell() {
    let desk = Desk::new("kube-image");
    let (name, path) = ("localhost/tare-agent:test", desk.folder.file("agent.tar"));
    desk.tare(&["agent", "image", str(&path), "--name", name]).success();
    let nodes = std::fs::read_dir(NODES).into_iter().flatten().flatten().map(|entry| entry.path());
    let sockets = nodes.map(|node| node.join("run/containerd/containerd.sock"));
    let sockets: Vec<_> = sockets.filter(|socket| socket.exists()).collect();
    if sockets.is_empty() {
        return not_run("images cannot be loaded into a cluster of the user's");
    }
    for socket in sockets {
        let mut ctr = std::process::Command::new("ctr");
        ctr.args(["-a", str(&socket), "-n", "k8s.io", "images", "import", str(&path)]);
        let done = ctr.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    let place = format!(
        "place = {{ kubernetes = {{ image = \"localhost/pause:1\", agent_image = \"{name}\" }} }}"
    );
    let report = desk.run(&[
        ("here", "server = \"target\"\nbaseline = true"),
        ("pod", &format!("server = \"target\"\n{place}")),
    ]);
    proven(&report, "pod", &["is on node"]);
    not_void(&report);
}
