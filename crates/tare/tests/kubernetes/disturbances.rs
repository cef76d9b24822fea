//! Disturbances of the whole cluster, in tests that run alone (`--ignored --test-threads=1`) and
//! only in the cluster that the tests start.

use std::time::Duration;

use tare_io::DurationNs;
use tare_io::process::signal;
use tare_io::time::monotonic_now;
use tare_tidy::skips::not_run;

use crate::failures::{ended, under_way};
use crate::support::{Desk, Namespace, kubectl, within};
use crate::util::str;
use crate::wait::let_pass;

/// Returns processes of the test cluster with these words in their commands.
fn of_cluster(words: &[&str]) -> Vec<u32> {
    if !std::path::Path::new("/var/lib/tare-cluster").exists() {
        not_run("a cluster of the user's is not disturbed");
        return Vec::new();
    }
    let has = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        // Not the shell that restarts it.
        command.starts_with('/')
            && words.iter().all(|word| command.contains(word))
            && !command.starts_with("/bin/bash")
            && !command.starts_with("/usr/bin/env")
    };
    tare_lab::machine::processes::all().into_iter().filter(has).collect()
}

#[test]
#[ignore = "it holds the API server up"]
fn a_slow_api_holds_a_run_up_and_does_not_end_it() {
    let servers = of_cluster(&["kube-apiserver"]);
    let [server] = servers[..] else { return };
    let desk = Desk::new("kube-slow");
    let keys = "server = \"target\"\nplace = \"kubernetes\"";
    let path = desk.experiment(&[("here", "server = \"target\"\nbaseline = true"), ("pod", keys)]);
    let mut command = desk.command(&["run", str(&path), "-q"]);
    let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    // During its start or its first slices.
    let_pass(Duration::from_millis(2500));
    signal(server, libc::SIGSTOP).unwrap();
    let_pass(Duration::from_secs(6));
    signal(server, libc::SIGCONT).unwrap();
    let (code, said) = ended(child);
    assert!(matches!(code, Some(0 | 6)), "{said}");
}

#[test]
#[ignore = "it ends the API server"]
fn when_the_api_server_is_restarted_a_run_ends_in_one_line_or_goes_on() {
    let servers = of_cluster(&["kube-apiserver"]);
    let [server] = servers[..] else { return };
    let desk = Desk::new("kube-restart");
    let namespace = Namespace::new("restart");
    let (child, _) = under_way(&desk, &namespace.0);
    signal(server, libc::SIGKILL).unwrap();
    let began = monotonic_now();
    let (code, said) = ended(child);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("the place is gone"), "{said}");
    assert!(monotonic_now().since(began) < DurationNs::from_secs(60));
    within(60, "the API server answers again", || {
        crate::support::try_kubectl(&["get", "--raw", "/readyz"]).status.success()
    });
    // This removes the rest.
    let cleaned = desk.tare(&["clean"]);
    assert_eq!(cleaned.code, Some(0), "{}", cleaned.story());
    within(60, "its pods are gone", || {
        kubectl(&["get", "pods", "-n", &namespace.0, "-o", "name"]).is_empty()
    });
}

#[test]
#[ignore = "it holds a node up"]
fn a_node_that_is_not_heard_of_is_named() {
    let kubelets = of_cluster(&["kubelet", "--hostname-override=node2"]);
    let [kubelet] = kubelets[..] else { return };
    let desk = Desk::new("kube-node");
    let namespace = Namespace::new("node");
    let (child, _) = crate::failures::under_way_at(&desk, &namespace.0, "node = \"node2\"");
    signal(kubelet, libc::SIGSTOP).unwrap();
    let began = monotonic_now();
    let (code, said) = ended(child);
    signal(kubelet, libc::SIGCONT).unwrap();
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("node2"), "{said}");
    assert!(monotonic_now().since(began) < DurationNs::from_secs(150));
    within(60, "the node is ready again", || {
        let path = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
        kubectl(&["get", "node", "node2", "-o", path]) == "True"
    });
}
