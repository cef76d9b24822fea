//! Leftovers in a cluster after tare is killed.

use std::process::Stdio;
use std::sync::{Mutex, MutexGuard};

use crate::support::{Desk, kubectl, within};
use crate::util::str;
use crate::wait::let_pass;

/// `clean --context` would remove what the other test has left in the cluster.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner())
}

fn ours() -> String {
    kubectl(&[
        "get",
        "namespace",
        "-l",
        "app.kubernetes.io/managed-by=tare",
        "-o",
        "jsonpath={range .items[?(@.status.phase==\"Active\")]}{.metadata.name}\n{end}",
    ])
}

#[test]
fn after_a_kill_pods_end_by_themselves_and_clean_removes_the_rest() {
    let _alone = alone();
    let desk = Desk::new("kube-kill");
    let keys = "server = \"target\"\nplace = \"kubernetes\"";
    let path = desk.experiment(&[("here", "server = \"target\"\nbaseline = true"), ("pod", keys)]);
    let text = std::fs::read_to_string(&path).unwrap().replace("rounds = 2", "rounds = 10000");
    std::fs::write(&path, text).unwrap();
    // Killed when its namespace exists, while its pod starts, and under load.
    for wait_ms in [0, 1500, 6000] {
        let mut command = desk.command(&["run", str(&path), "-q"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mark = format!("tare-{}-", child.id());
        let own = || ours().lines().find(|line| line.starts_with(&mark)).map(str::to_owned);
        within(30, "its namespace", || own().is_some());
        let namespace = own().unwrap();
        let_pass(std::time::Duration::from_millis(wait_ms));
        child.kill().unwrap();
        child.wait().unwrap();
        if wait_ms == 6000 {
            within(70, "its pod ends by itself", || {
                let phases =
                    ["get", "pods", "-n", &namespace, "-o", "jsonpath={.items[*].status.phase}"];
                let phases = kubectl(&phases);
                !phases.contains("Running") && !phases.contains("Pending")
            });
        }
        let cleaned = desk.tare(&["clean"]);
        assert_eq!(cleaned.code, Some(0), "{}", cleaned.story());
        assert!(
            cleaned.stdout.contains(&format!("removed namespace {namespace}")),
            "{}",
            cleaned.story()
        );
        within(60, "the namespace is gone", || !ours().contains(&namespace));
    }
}

#[test]
fn clean_of_a_cluster_removes_what_no_journal_tells_and_nothing_else() {
    let _alone = alone();
    let desk = Desk::new("kube-clean");
    let name = format!("tare-1-2-{}", std::process::id());
    let theirs = format!("theirs-{}", std::process::id());
    for namespace in [&name, &theirs] {
        kubectl(&["create", "namespace", namespace]);
        kubectl(&["label", "namespace", namespace, "app.kubernetes.io/managed-by=tare"]);
    }
    let context = kubectl(&["config", "current-context"]);
    // A new namespace may belong to a run that has just begun.
    let first = desk.tare(&["clean", "--context", context.trim()]);
    assert!(
        first.stdout.contains(&format!("{name}: in use, or created a moment ago")),
        "{}",
        first.story()
    );
    within(60, "it is removed", || {
        let cleaned = desk.tare(&["clean", "--context", context.trim()]);
        assert_eq!(cleaned.code, Some(0), "{}", cleaned.story());
        cleaned.stdout.contains(&format!("removed namespace {name}"))
    });
    // It has the label but not the name, so it is not tare's.
    let phase = kubectl(&["get", "namespace", &theirs, "-o", "jsonpath={.status.phase}"]);
    assert_eq!(phase, "Active");
    kubectl(&["delete", "namespace", &theirs, "--wait=false"]);
}

#[test]
fn doctor_tells_what_a_cluster_allows() {
    let desk = Desk::new("kube-doctor");
    let context = kubectl(&["config", "current-context"]);
    let said = desk.tare(&["doctor", "--context", context.trim()]);
    assert_eq!(said.code, Some(0), "{}", said.story());
    for words in [
        "Kubernetes v",
        "node1: ready",
        "gvisor (runsc: gVisor's kernel)",
        "all 17 that tare may need",
    ] {
        assert!(said.stdout.contains(words), "{words}: {}", said.story());
    }
}
