//! The rights in docs/kubernetes-rights.yaml are enough, and each of them is needed.

use crate::support::{Desk, Namespace, apply, kubectl, proven};
use crate::util::{not_void, str};

const MANIFEST: &str = include_str!("../../../../docs/kubernetes-rights.yaml");

/// A kubeconfig for an account that has the rights of this text.
fn account(desk: &Desk, namespace: &str, rights: &str) -> String {
    let mine = rights.replace("namespace: default", &format!("namespace: {namespace}"));
    let mine = mine.replace("name: tare\n", &format!("name: {namespace}\n"));
    apply(desk, "rights.yaml", &mine);
    let token = kubectl(&["create", "token", namespace, "-n", namespace]);
    let raw = |path: &str| {
        kubectl(&["config", "view", "--raw", "--minify", "-o", &format!("jsonpath={{{path}}}")])
    };
    let server = raw(".clusters[0].cluster.server");
    let authority = raw(".clusters[0].cluster.certificate-authority");
    let config = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, \
         user: u}}}}], clusters: [{{name: c, cluster: {{server: \"{server}\", certificate-authority: \
         \"{authority}\"}}}}], users: [{{name: u, user: {{token: \"{}\"}}}}]}}",
        token.trim()
    );
    str(&desk.file("kubeconfig", &config)).to_owned()
}

#[test]
fn the_published_rights_are_enough_and_each_is_needed() {
    let desk = Desk::new("kube-rights");
    let namespace = Namespace::new("rights");
    let name = namespace.0.as_str();
    let kubeconfig = account(&desk, name, MANIFEST);
    let place = "place = { kubernetes = { via = \"node-port\", enter = \"other-node\", runtime_class = \"crun\" } }\nclient = { kubernetes = { count = 2 } }";
    let path = desk.experiment(&[
        ("here", "server = \"target\"\nbaseline = true"),
        ("pod", &format!("server = \"target\"\n{place}")),
    ]);
    let run = || {
        let mut command = desk.command(&["run", str(&path), "--json", "-", "-q"]);
        crate::util::ran(command.env("KUBECONFIG", &kubeconfig))
    };
    let whole = run().measured();
    let report =
        serde_json::from_str(&whole.stdout).unwrap_or_else(|e| panic!("{e}: {}", whole.story()));
    proven(&report, "pod", &["another node", "class crun"]);
    not_void(&report);
    for (rule, less, words) in [
        (
            "verbs: [create, delete, get] # namespaces",
            "verbs: [delete, get]",
            "not allowed to create namespaces",
        ),
        (
            "verbs: [create, delete, get, list] # pods",
            "verbs: [delete, get, list]",
            "not allowed to create pods",
        ),
        ("verbs: [create, get] # exec", "verbs: [watch]", "not allowed to exec pods/exec"),
        (
            "verbs: [create, delete, get] # services",
            "verbs: [get]",
            "not allowed to create services",
        ),
        ("verbs: [get, list] # nodes", "verbs: [get]", "not allowed to list nodes"),
    ] {
        assert!(MANIFEST.contains(rule), "{rule}");
        account(&desk, name, &MANIFEST.replace(rule, less));
        let refused = run();
        assert_eq!(refused.code, Some(3), "{rule}: {}", refused.story());
        assert!(refused.stderr.contains(words), "{less}: {}", refused.story());
    }
    kubectl(&["delete", "clusterrole,clusterrolebinding", name]);
}
