//! Procedures on a real cluster: the shop is deployed, and failing steps are handled.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tare_io::process::{PidFd, signal};
use tare_io::{DurationNs, Random};
use tare_report::steps::StepsReport;
use tare_shop::graph::SHOP;
use tare_shop::visit::{Wanted, visit};
use tare_shop::{Callee, Client};
use tare_tidy::skips::not_run;

use crate::support::{Desk, Namespace, kubectl, within};
use crate::util::{Temporary, ran, str};

/// Returns the program of the shop, if the cluster's nodes have it as an image.
fn shop() -> Option<String> {
    let shop = std::env::var("TARE_SHOP").ok();
    if shop.is_none() {
        not_run("needs the shop's image in the cluster, which scripts/cluster/with brings there");
    }
    shop
}

const VISITS: u64 = 20;

/// Writes a procedure that deploys the shop into a namespace of this test, with these steps before
/// it is visited. The cluster has no DNS: callers get the addresses of Services.
fn procedure(desk: &Desk, shop: &str, name: &str, steps: &str) -> PathBuf {
    let kubectl = std::env::var("TARE_KUBECTL").unwrap_or_else(|_| "kubectl".into());
    desk.file(
        &format!("{name}.toml"),
        &format!(
            r#"name = "{name}"
[env]
SHOP = "{shop}"
K = "{kubectl}"
SPACE = "{space}"
[reset]
run = "$K delete namespace $SPACE --ignore-not-found --timeout=100s"
clean = 'found=$($K get namespace $SPACE --ignore-not-found -o name) && [ -z "$found" ]'
within = "2m"
[[step]]
name = "namespace"
run = "$K create namespace $SPACE"
[[step]]
name = "services"
run = '''
$SHOP manifest 0 localhost/shop:1 >shop.yaml
awk 'BEGIN {{ RS = "---\n"; ORS = RS }} /kind: Service\n/' shop.yaml | $K apply -n $SPACE -f -
'''
[[step]]
name = "shop"
run = '''
$K -n $SPACE get services -o jsonpath='{{range .items[*]}}s;http://{{.metadata.name}}:80;http://{{.spec.clusterIP}}:80;{{"\n"}}{{end}}' >addresses
sed -f addresses shop.yaml | $K apply -n $SPACE -f -
'''
{steps}
[[step]]
name = "pods are ready"
wait = {{ run = "$K -n $SPACE wait --for=condition=Available deployment --all --timeout=20s" }}
[[step]]
name = "its front"
run = "$K -n $SPACE get pod -l app=frontend -o jsonpath={{.items[0].status.podIP}}"
gives = "address"
[[step]]
name = "a visit is answered"
wait = {{ run = "$SHOP visit $address:8080" }}
[[step]]
name = "visits"
kind = "verify"
run = "$SHOP visit $address:8080 3"
"#,
            space = space(),
        ),
    )
}

fn space() -> String {
    format!("test-deploy-{}", std::process::id())
}

fn is_gone() -> bool {
    kubectl(&["get", "namespace", &space(), "--ignore-not-found", "-o", "name"]).is_empty()
}

/// Returns what each service has served by its own count, and its pod's address.
fn counts() -> Vec<(String, String, u64)> {
    let each = "jsonpath={range .items[*]}{.metadata.labels.app} {.status.podIP}{\"\\n\"}{end}";
    let told = kubectl(&["-n", &space(), "get", "pods", "-o", each]);
    let pairs = told.lines().filter_map(|line| line.split_once(' '));
    pairs.map(|(name, ip)| count(name.to_owned(), format!("{ip}:8080"))).collect()
}

fn count(name: String, host: String) -> (String, String, u64) {
    let callee = Callee { name: name.clone(), host: host.clone() };
    let told = Client::default().get(&callee, "/counts").unwrap();
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["service"], *name);
    (name, host, told["served"].as_u64().unwrap())
}

/// Checks by how much visits raise the counts; earlier requests do not matter.
fn visit_and_count() {
    let before = counts();
    assert_eq!(before.len(), SHOP.len(), "{before:?}");
    let front = before.iter().find(|(name, ..)| name == "frontend").unwrap();
    visit(&front.1, VISITS, Wanted::default()).unwrap();
    for (name, host, served) in before {
        let service = SHOP.iter().find(|service| service.name == name).unwrap();
        let more = count(name, host).2 - served;
        assert_eq!(more, VISITS * service.share, "{}", service.name);
    }
}

/// A single test, because all of it uses one namespace.
#[test]
fn the_shop_is_deployed_counted_and_gone_whatever_happens() {
    let Some(shop) = shop() else { return };
    let desk = Desk::new("deploy");
    // It is removed whatever fails here.
    let _namespace = Namespace(space());
    let good = procedure(&desk, &shop, "good", "");
    // The output of failed steps is kept there.
    let temporary = Temporary::new();
    let steps = |path: &PathBuf, more: &[&str]| {
        let args = ["steps", str(path), "-r", "1", "-q", "--json", "-"];
        ran(desk.command(&[&args[..], more].concat()).env("TMPDIR", &temporary.0))
    };
    let ran = steps(&good, &["--keep"]).success();
    let report: StepsReport = serde_json::from_str(&ran.stdout).unwrap();
    // A Deployment and an account for each service, eleven Services, a namespace.
    let objects: u32 = report.repetitions[0].steps.iter().map(|step| step.objects).sum();
    assert_eq!(objects, 34, "{}", ran.stdout);
    visit_and_count();
    assert!(!is_gone(), "it was to be kept");

    let half = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n---\n\
                apiVersion: nobody.example/v1\nkind: Unknown\nmetadata: {name: two}\n";
    let half = desk.file("half.yaml", half);
    let apply = format!("run = \"$K apply -n $SPACE -f {}\"", half.display());
    let hang =
        "run = \"$K -n $SPACE wait --for=create secret/nobody --timeout=1h\"\nwithin = \"3s\"";
    for (name, broken, told) in [
        ("half", apply.as_str(), "half: step 'broken' failed: "),
        ("hangs", hang, "hangs: step 'broken' failed: it did not end within 3s"),
    ] {
        let step = format!("[[step]]\nname = \"broken\"\n{broken}");
        let ran = steps(&procedure(&desk, &shop, name, &step), &[]);
        assert_eq!(ran.code, Some(4), "{}", ran.story());
        let said: Vec<&str> = ran.stderr.lines().filter(|l| l.starts_with("tare: ")).collect();
        assert!(said.len() == 1 && said[0].contains(told), "{}", ran.story());
        assert!(is_gone(), "{name}: {}", ran.story());
    }
    steps(&good, &[]).success();
    assert!(is_gone(), "what was made is taken back");
    killed(&desk, &good);
    steps(&good, &[]).success();
    assert!(is_gone());
}

/// Kills it at a random moment, with a signal that cannot be caught.
fn killed(desk: &Desk, good: &Path) {
    let mut random = Random::stream(u64::from(std::process::id()), "deploy-kill", 0);
    for kill in 0..3 {
        let mut command = desk.command(&["steps", str(good), "-r", "1", "-q"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        within(60, "something is there", || !is_gone());
        let moment = DurationNs::from_ms(random.below(1500));
        let ended = PidFd::new(child.id()).unwrap().wait_timeout(moment);
        assert!(!ended, "kill {kill} after {moment}: it ended");
        signal(child.id(), libc::SIGKILL).unwrap();
        child.wait().unwrap();
        let cleaned = desk.tare(&["clean"]);
        assert_eq!(cleaned.code, Some(0), "{}", cleaned.story());
        assert!(is_gone(), "kill {kill}: {}", cleaned.story());
    }
}
