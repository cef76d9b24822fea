//! Failures in clusters: each ends with one clear line, and in time.

use std::process::{Child, Stdio};

use tare_io::process::signal;

use crate::support::{Desk, Namespace, kubectl, within};
use crate::util::str;
use crate::wait::let_pass;

const HERE: (&str, &str) = ("here", "server = \"target\"\nbaseline = true");

/// Returns the error line for a pod with these settings.
fn pod_refused(desk: &Desk, settings: &str) -> (i32, String) {
    let keys = format!("server = \"target\"\nplace = {{ kubernetes = {{ {settings} }} }}");
    desk.refused(&[HERE, ("pod", &keys)])
}

#[test]
fn pods_that_do_not_start_say_why() {
    let desk = Desk::new("kube-no-start");
    for (settings, words) in [
        ("image = \"localhost/none:1\", start_within = \"40s\"", "localhost/none:1"),
        (
            "node_selector = { no = \"such\" }, start_within = \"4s\"",
            "it is not scheduled: 0/2 nodes",
        ),
        ("cpus = 64, start_within = \"4s\"", "Insufficient cpu"),
        ("runtime_class = \"none\"", "has no RuntimeClass 'none'"),
        ("node = \"none\"", "has no Node 'none'"),
        ("context = \"none\"", "context 'none' is not in the kubeconfig"),
        ("namespace = \"none\"", "not found"),
    ] {
        let (code, said) = pod_refused(&desk, settings);
        assert!(code == 3 || code == 2, "{settings}: {code}: {said}");
        assert!(said.contains(words), "{settings}: {said}");
    }
}

#[test]
fn a_quota_is_named() {
    let desk = Desk::new("kube-quota");
    let namespace = Namespace::new("quota");
    kubectl(&["create", "quota", "small", "--hard=pods=0", "-n", &namespace.0]);
    let (code, said) = pod_refused(&desk, &format!("namespace = \"{}\"", namespace.0));
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("exceeded quota: small"), "{said}");
}

#[test]
fn a_server_that_runs_out_of_memory_is_told() {
    let desk = Desk::new("kube-memory");
    let path = desk.file(
        "memory.toml",
        "name = \"memory\"\n[stop]\nrounds = 2\n[server.target]\ntarget = {}\n[server.eater]\n\
         command = \"tail -f /dev/zero; echo {port}\"\n[[variant]]\nname = \"here\"\nserver = \"target\"\n\
         baseline = true\n[[variant]]\nname = \"pod\"\nserver = \"eater\"\n\
         place = { kubernetes = { memory = \"64M\" } }\n",
    );
    let ran = desk.tare(&["run", str(&path), "-q"]);
    assert_eq!(ran.code, Some(3), "{}", ran.story());
    assert!(ran.stderr.contains("its pod ran out of memory"), "{}", ran.story());
}

/// Starts a run; returns its process, and the name of its pod.
pub fn under_way(desk: &Desk, namespace: &str) -> (Child, String) {
    under_way_at(desk, namespace, "host_network = false")
}

/// Like [`under_way`], with further settings of its pod.
pub fn under_way_at(desk: &Desk, namespace: &str, settings: &str) -> (Child, String) {
    let keys = format!(
        "server = \"target\"\nplace = {{ kubernetes = {{ namespace = \"{namespace}\", {settings} }} }}"
    );
    let path = desk.experiment(&[HERE, ("pod", &keys)]);
    let text = std::fs::read_to_string(&path).unwrap().replace("rounds = 2", "rounds = 10000");
    let text = text.replace("\"20ms\"\ncycles = 2", "\"1s\"\ncycles = 50");
    std::fs::write(&path, text).unwrap();
    let mut command = desk.command(&["run", str(&path), "-q"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let store = desk.folder.0.join("tare/tare.db");
    within(60, "the first rounds", || {
        store.exists()
            && {
                let count = desk.tare(&["runs"]);
                count.stdout.contains(" 2 ") || count.stdout.contains("rounds")
            }
            && !kubectl(&[
                "get",
                "pods",
                "-n",
                namespace,
                "--field-selector=status.phase=Running",
                "-o",
                "name",
            ])
            .is_empty()
    });
    let_pass(std::time::Duration::from_secs(3));
    let pod = kubectl(&["get", "pods", "-n", namespace, "-o", "name"]).trim().to_owned();
    (child, pod)
}

pub fn ended(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_pod_that_is_deleted_under_load_ends_the_run_in_one_line() {
    let desk = Desk::new("kube-deleted");
    let namespace = Namespace::new("deleted");
    let (child, pod) = under_way(&desk, &namespace.0);
    kubectl(&["delete", &pod, "-n", &namespace.0, "--wait=false"]);
    let (code, said) = ended(child);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("the place is gone: pod tare-") && said.contains("deleted"), "{said}");
}

#[test]
fn a_stream_that_is_cut_ends_the_run_in_one_line() {
    let desk = Desk::new("kube-cut");
    let namespace = Namespace::new("cut");
    let (child, _) = under_way(&desk, &namespace.0);
    let children = tare_lab::machine::processes::tree(child.id());
    let carries = |pid: &&u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains("kubernetes\0exec")
    };
    let carrier = *children.iter().find(carries).expect("a process that carries the stream");
    signal(carrier, libc::SIGKILL).unwrap();
    let (code, said) = ended(child);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("the place is gone"), "{said}");
    let left = kubectl(&["get", "pods", "-n", &namespace.0, "-o", "name"]);
    assert_eq!(left, "", "what it made is removed all the same");
}

#[test]
fn a_pod_that_its_node_evicts_ends_the_run_in_one_line() {
    let desk = Desk::new("kube-evicted");
    let namespace = Namespace::new("evicted");
    let manifest = desk.file(
        "pod.yaml",
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: tare\n    image: busybox:1\n    \
         volumeMounts: [{name: small, mountPath: /small}]\n  volumes:\n  - name: small\n    \
         emptyDir: {sizeLimit: 1Mi}\n",
    );
    let settings = format!("manifest = \"{}\"", str(&manifest));
    let (child, pod) = under_way_at(&desk, &namespace.0, &settings);
    let fill = ["dd", "if=/dev/zero", "of=/small/file", "bs=1M", "count=8"];
    let exec = ["exec", &pod, "-n", &namespace.0, "-c", "tare", "--"];
    kubectl(&[&exec[..], &fill[..]].concat());
    let (code, said) = ended(child);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("Evicted") && said.contains("exceeds the limit"), "{said}");
}
