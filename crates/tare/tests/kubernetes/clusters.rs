//! A mesh over two clusters, set up by the procedures that are shipped: `make test-mesh`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tare_io::process::{PidFd, signal};
use tare_io::{DurationNs, Random};
use tare_report::steps::StepsReport;
use tare_shop::graph::{SHOP, Service};
use tare_shop::visit::{Wanted, visit};

use crate::support::{Desk, kubectl, try_kubectl, within};
use crate::util::str;

const VISITS: u64 = 50;

fn procedures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/deploy-mesh")
}

/// Returns what a command prints in a container of a service's pod.
fn within_pod(service: &Service, container: &str, command: &[&str]) -> String {
    let context = format!("cluster{}", service.cluster);
    let deployment = format!("deployment/{}", service.name);
    let exec = ["--context", &context, "-n", "shop", "exec", &deployment, "-c", container, "--"];
    kubectl(&[&exec[..], command].concat())
}

/// Returns how many requests each service has served, by its own count and by its sidecar's.
fn counts() -> Vec<[u64; 2]> {
    let last = |text: &str| -> u64 {
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let at = digits.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
        digits[at..].parse().unwrap_or_else(|_| panic!("no number: {text}"))
    };
    let of = |service: &Service| {
        let ask = ["tare-shop", "ask", "127.0.0.1:8080", "/counts"];
        let page = "stats?filter=^cluster\\.inbound.*upstream_rq_total$";
        let sidecar = ["pilot-agent", "request", "GET", page];
        let passed = within_pod(service, "istio-proxy", &sidecar);
        let passed = passed.lines().filter(|line| line.contains("upstream_rq_total"));
        [last(&within_pod(service, "shop", &ask)), passed.map(last).sum()]
    };
    SHOP.iter().map(of).collect()
}

/// Visits the shop; each service must have served its share, and its sidecar must agree.
fn visit_and_count() {
    let address = "jsonpath={.status.loadBalancer.ingress[0].ip}";
    let service = ["-n", "istio-system", "get", "service", "istio-ingressgateway", "-o", address];
    let host = kubectl(&[&["--context", "cluster1"], &service[..]].concat()) + ":80";
    let before = counts();
    visit(&host, VISITS, Wanted { split: true, mtls: Some("shop") }).unwrap();
    for ((service, before), after) in SHOP.iter().zip(before).zip(counts()) {
        let more = [after[0] - before[0], after[1] - before[1]];
        assert_eq!(
            more,
            [VISITS * service.share; 2],
            "{}: its own and its sidecar's",
            service.name
        );
    }
}

fn assert_clean() {
    let site = procedures().join("site");
    let done = Command::new(site).arg("clean").output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}

#[test]
#[ignore = "make test-mesh: needs two clusters"]
fn a_mesh_over_two_clusters_is_visited_counted_and_gone() {
    let desk = Desk::new("clusters");
    for file in ["by-hand.toml", "one-manifest.toml"] {
        let path = procedures().join(file);
        let args = ["steps", str(&path), "-r", "1", "-q", "--json", "-", "--keep"];
        let ran = desk.tare(&args).success();
        let report: StepsReport = serde_json::from_str(&ran.stdout).unwrap();
        let objects: u32 = report.repetitions[0].steps.iter().map(|step| step.objects).sum();
        assert!(objects > 60, "{file}: {}", ran.stdout);
        visit_and_count();
    }
    let path = procedures().join("by-hand.toml");
    let mut random = Random::stream(u64::from(std::process::id()), "clusters-kill", 0);
    for kill in 0..3 {
        let mut command = desk.command(&["steps", str(&path), "-r", "1", "-q"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        within(60, "something is there", || {
            let space = ["--context", "cluster1", "get", "namespace", "istio-system"];
            try_kubectl(&space).status.success()
        });
        let moment = DurationNs::from_ms(random.below(12_000));
        let ended = PidFd::new(child.id()).unwrap().wait_timeout(moment);
        assert!(!ended, "kill {kill} after {moment}: it ended");
        signal(child.id(), libc::SIGKILL).unwrap();
        child.wait().unwrap();
        let cleaned = desk.tare(&["clean"]);
        assert_eq!(cleaned.code, Some(0), "{}", cleaned.story());
        assert_clean();
    }
    desk.tare(&["steps", str(&path), "-r", "1", "-q"]).success();
    assert_clean();
}
