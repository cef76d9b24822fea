//! Layers that are processes between client and server: in the path, proven, paid for, removed.

use crate::layered::layered;
use crate::runs::{Desk, read};
use crate::util::{can_run, str};

#[test]
fn a_proxy_is_in_the_path_and_paid_for() {
    let desk = Desk::new("layers-proxy");
    for (layers, count) in [
        ("[{ proxy = \"haproxy\" }]", 1),
        ("[{ proxy = \"haproxy\" }, { proxy = \"haproxy\", threads = 1 }]", 2),
        ("[{ proxy = \"nginx\" }]", 1),
        ("[{ proxy = \"envoy\" }]", 1),
    ] {
        let file = desk.file("layers.toml", &layered(layers, ""));
        let ran = desk.tare(&["run", str(&file), "--json", "-", "-q"]).measured();
        let story = ran.story();
        let report = read(ran);
        let [plain, layered] = report.variants.as_slice() else { panic!("{story}") };
        assert!(plain.proofs.is_empty(), "{story}");
        assert_eq!(layered.proofs.len(), 1, "one sentence for a kind of layer: {story}");
        assert!(layered.proofs[0].contains("passed through it"), "{story}");
        assert!(report.guards.iter().all(|guard| guard.code != "not-proven"), "{story}");
        // The chain's CPU time is the variant's.
        let cpu =
            |at: usize| report.variants[at].metric(tare_model::Metric::ServerCpu).unwrap().point;
        assert!(cpu(1) > cpu(0) * (1.0 + 0.4 * f64::from(count)), "{} and {}", cpu(0), cpu(1));
    }
    assert_eq!(desk.tare(&["clean"]).success().stdout, "nothing was left behind\n");
}

/// The proxy runs here, wherever its server does.
#[test]
fn a_proxy_stands_before_a_server_in_a_place() {
    if !can_run("a network namespace") {
        return;
    }
    let desk = Desk::new("layers-place");
    let place = "place = \"netns\"";
    let file = desk.file("place.toml", &layered("[{ proxy = \"haproxy\" }]", place));
    let ran = desk.tare(&["run", str(&file), "--json", "-", "-q"]).measured();
    let story = ran.story();
    let report = read(ran);
    let proofs = report.variants[1].proofs.join("; ");
    assert!(proofs.contains("passed through it"), "{story}");
    assert!(report.guards.iter().all(|guard| guard.code != "not-proven"), "{story}");
}

/// A filter's proof asks through the proxy, which must not count that as load.
#[test]
fn a_proxy_and_a_filter_are_both_proven() {
    let desk = Desk::new("layers-both");
    let filter = "{ filter = \"library\", prefix = \"/aaaa\" }";
    let proxy = "{ proxy = \"haproxy\" }";
    for layers in [format!("[{proxy}, {filter}]"), format!("[{filter}, {proxy}]")] {
        let toml = layered(&layers, "").replace("target = {}", "nginx = {}");
        let toml = toml.replace("[load]\n", "[load]\npath = \"/aaaa\"\n");
        let file = desk.file("both.toml", &toml);
        let ran = desk.tare(&["run", str(&file), "--json", "-", "-q"]).measured();
        let story = ran.story();
        let report = read(ran);
        let proofs = report.variants[1].proofs.join("; ");
        assert!(proofs.contains("passed through it") && proofs.contains("refused"), "{story}");
        assert!(report.guards.iter().all(|guard| guard.code != "not-proven"), "{story}");
    }
}
