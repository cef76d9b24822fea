//! Layers that are processes between client and server: in the path, proven, charged, removed.

use tare_model::Metric;
use tare_report::load::guards::Severity;

use crate::layered::{HEAD, layered};
use crate::runs::{Desk, guard, read};
use crate::util::{can_run, not_void, str};

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
        assert_eq!(layered.proofs.len(), count as usize, "one for each hop: {story}");
        assert!(layered.proofs.iter().all(|p| p.contains("passed through it")), "{story}");
        assert!(report.guards.iter().all(|guard| guard.code != "not-proven"), "{story}");
        // The chain's CPU time counts as the variant's.
        let cpu = |at: usize| report.variants[at].metric(Metric::ServerCpu).unwrap().point;
        assert!(cpu(1) > cpu(0) * (1.0 + 0.4 * f64::from(count)), "{} and {}", cpu(0), cpu(1));
    }
    assert_eq!(desk.tare(&["clean"]).success().stdout, "nothing was left behind\n");
}

/// The proxy runs on this machine, wherever the server is.
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

/// A variant with a server on this machine, over TLS if `server` says so, and these layers.
fn hop(name: &str, server: &str, layers: &str) -> String {
    format!(
        "[[variant]]\nname = \"{name}\"\nserver = \"{server}\"\nlayers = [{layers}]\n\
         may_differ = [\"headers\", \"tls\"]\n"
    )
}

const WITH_TLS: &str = "[server.secret]\nnginx = { workers = 1, body_bytes = 65, tls = true }\n";

#[test]
fn a_hop_has_a_place_limits_and_tls_on_both_sides() {
    if !can_run("a network namespace") {
        return;
    }
    let desk = Desk::new("hop-places");
    let mut text = HEAD.to_owned() + WITH_TLS + &hop("none", "web", "");
    for program in ["nginx", "haproxy", "envoy"] {
        let place = "place = { netns = { cpus = 0.3, memory = \"256M\" } }";
        let layer =
            format!("{{ proxy = \"{program}\", tls = \"tls\", key = \"ecdsa-p256\", {place} }}");
        text += &hop(program, "secret", &layer);
    }
    text += &hop("gateway", "secret", "{ gateway = \"nginx\", place = { oci = \"runc\" } }");
    text += &hop("here", "secret", "{ proxy = \"nginx\", cpus = 0.3 }");
    let chain = "{ proxy = \"haproxy\", place = \"netns\" }, { proxy = \"haproxy\" }";
    text += &(hop("chain", "web", chain) + "client = \"netns\"\n");
    let report = desk.run(&text);
    not_void(&report);
    for program in ["nginx", "haproxy", "envoy"] {
        let variant = report.variant(program).unwrap();
        let [hop, server] = variant.parts.as_slice() else { panic!("{:?}", variant.parts) };
        let name = format!("proxy {program}");
        assert_eq!((&*hop.name, &*hop.place, &*server.place), (&*name, "netns", "host"));
        let of = |part: &str, metric| variant.metric_of(part, metric).unwrap().point;
        let sum = of(&name, Metric::ServerCpu) + of("server", Metric::ServerCpu);
        let whole = variant.metric(Metric::ServerCpu).unwrap().point;
        assert!((sum / whole - 1.0).abs() < 0.05, "{sum} of {whole}");
        assert!(of(&name, Metric::ServerRss) > 2e6 && of("server", Metric::ServerRss) > 2e6);
        let proofs = variant.proofs.join("; ");
        for seen in [
            "plain text is refused",
            "by its ECDSA P-256 certificate",
            "plain text behind it is refused",
            "passed through it",
            "in netns: held in 2 of 2",
        ] {
            assert!(proofs.contains(seen), "{program}: no '{seen}' in {proofs}");
        }
        let of_quota = |guard: &&tare_report::run::RunGuard| {
            guard.code == "throttled" && guard.variant.as_deref() == Some(program)
        };
        let guards: Vec<_> = report.guards.iter().filter(of_quota).collect();
        assert!(guards[0].text.contains(&format!("stopped its {name} in")), "{guards:?}");
    }
    let places = |name: &str| {
        let parts = report.variant(name).unwrap().parts.iter();
        parts.map(|part| (part.name.clone(), part.place.clone())).collect::<Vec<_>>()
    };
    let of = |all: &[(&str, &str)]| -> Vec<(String, String)> {
        all.iter().map(|(name, place)| ((*name).into(), (*place).into())).collect()
    };
    assert_eq!(places("gateway"), of(&[("gateway nginx", "runc"), ("server", "host")]));
    assert_eq!(places("here"), of(&[("proxy nginx", "host"), ("server", "host")]));
    let chain = [("proxy haproxy", "netns"), ("proxy haproxy 2", "host"), ("server", "host")];
    assert_eq!(places("chain"), of(&chain));
    assert_eq!(desk.tare(&["clean"]).success().stdout, "nothing was left behind\n");
}

/// The first proxy answers by itself, so the second one, in another place, sees nothing.
#[test]
fn a_hop_that_requests_pass_by_is_void_by_its_name() {
    if !can_run("a network namespace") {
        return;
    }
    let desk = Desk::new("hop-passed-by");
    let config = "daemon off;\nevents {}\nhttp {\n server { listen {listen_ip}:{listen_port};\n \
                  location / { return 200 'short'; } }\n server { listen {admin_ip}:{admin_port};\n \
                  location / { stub_status; } }\n}\n";
    let config = desk.file("alone.conf", config);
    let first = format!("{{ proxy = \"nginx\", config = \"{}\" }}", str(&config));
    let layers = format!("{first}, {{ proxy = \"haproxy\", place = \"netns\" }}");
    let text = HEAD.to_owned() + &hop("none", "web", "") + &hop("lied to", "web", &layers);
    let file = desk.file("passed-by.toml", &text);
    let ran = desk.tare(&["run", str(&file), "--json", "-", "-q"]);
    let report = read(ran);
    let found = guard(&report, "not-proven");
    assert_eq!((found.variant.as_deref(), found.severity), (Some("lied to"), Severity::Void));
    assert!(found.text.starts_with("proxy haproxy is not proven to be in the path"), "{found:?}");
    assert!(found.text.contains("0 passed through it"), "{}", found.text);
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
