//! Sidecars, gateways, a bypass: in the path and proven, and every lie about them is detected.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tare_io::process::{PidFd, signal};
use tare_io::{DurationNs, Random};
use tare_model::Metric;
use tare_report::load::guards::Severity;
use tare_report::run::RunReport;

use crate::layered::{HEAD, on_host, variant};
use crate::left::{left_by, proven};
use crate::runs::{Desk, guard, no_guard};
use crate::util::{can_run, not_void, str};
use crate::wait::let_pass;

/// Returns the proof of a variant for a kind of layer.
#[track_caller]
fn proof<'a>(report: &'a RunReport, name: &str, layer: &str) -> &'a str {
    let proofs = &report.variant(name).unwrap().proofs;
    let found = proofs.iter().find(|proof| proof.starts_with(layer));
    found.unwrap_or_else(|| panic!("{name}: no {layer} in {proofs:#?}"))
}

/// The run is void because of this fault of a layer.
#[track_caller]
fn found_out(report: &RunReport, name: &str, wrong: &str) {
    let found = guard(report, "not-proven");
    assert_eq!(found.variant.as_deref(), Some(name), "{:#?}", report.guards);
    assert_eq!(found.severity, Severity::Void);
    assert!(found.text.contains(wrong), "{}", found.text);
}

#[test]
fn sidecars_of_three_programs_are_proven_and_paid_for() {
    if !can_run("a network namespace") {
        return;
    }
    let desk = Desk::new("sidecars");
    let mut text = HEAD.to_owned() + &variant("none", "");
    for program in ["envoy", "nginx", "haproxy"] {
        for (way, more) in [("", ""), (" mtls", ", tls = \"mtls\"")] {
            let layer = format!("{{ proxy = \"{program}\", side = \"both\"{more} }}");
            text += &variant(&format!("{program}{way}"), &layer);
        }
    }
    let report = desk.run(&text);
    not_void(&report);
    for program in ["envoy", "nginx", "haproxy"] {
        let layer = format!("sidecar {program}");
        proven(&report, program, &layer);
        let plain = proof(&report, program, &layer);
        assert!(plain.contains("passed through the client's"), "{plain}");
        assert!(plain.contains("passed through the server's"), "{plain}");
        assert!(plain.contains("asked by its sidecar (127.0.0.6)"), "{plain}");
        let mtls = proof(&report, &format!("{program} mtls"), &layer);
        for seen in [
            "held in 2 of 2",
            "plain text is refused",
            "without a certificate is refused",
            "TLSv1.3 by its RSA-2048 certificate",
            "connections were redirected to the client's",
            "connections were redirected to the server's",
        ] {
            assert!(mtls.contains(seen), "{program}: no '{seen}' in {mtls}");
        }
    }
    let of = |name: &str, metric| report.variant(name).unwrap().metric(metric).map(|e| e.point);
    assert_eq!(of("none", Metric::LayersCpu), None);
    let (whole, layers) = (of("envoy", Metric::ServerCpu), of("envoy", Metric::LayersCpu));
    assert!(layers > whole.map(|ns| ns * 0.4) && layers < whole, "{layers:?} of {whole:?}");
    assert!(of("envoy", Metric::LayersRss).unwrap() > 20e6, "two Envoys");
    let envoy = report.variant("envoy").unwrap();
    let names: Vec<&str> = envoy.parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(names, ["client's sidecar envoy", "server's sidecar envoy", "server"]);
    let part = |name: &str| envoy.metric_of(name, Metric::ServerCpu).unwrap().point;
    let sum: f64 = names.iter().map(|name| part(name)).sum();
    assert!((sum / whole.unwrap() - 1.0).abs() < 0.05, "{sum} of {whole:?}");
    assert_eq!(desk.tare(&["clean"]).success().stdout, "nothing was left behind\n");
}

#[test]
fn sidecars_stand_on_one_side_or_pass_bytes_alone_or_are_asked_directly() {
    if !can_run("a network namespace") {
        return;
    }
    let desk = Desk::new("sidecar-sides");
    let with = |more: &str| format!("{{ proxy = \"envoy\", {more} }}");
    let report = desk.run(
        &(HEAD.to_owned()
            + &variant("none", "")
            + &variant("client", &with("side = \"client\""))
            + &variant("server", &with("side = \"server\""))
            + &variant("direct", &with("side = \"both\", intercept = \"direct\""))
            + &variant("tcp", &with("side = \"both\", mode = \"tcp\", tls = \"tls\""))
            + &variant("runc", &with("side = \"server\""))
                .replace("place = \"netns\"", "place = { oci = \"runc\" }")),
    );
    not_void(&report);
    let of = |name: &str| proof(&report, name, "sidecar envoy").to_owned();
    assert!(!of("client").contains("server's") && !of("server").contains("client's"));
    assert!(!of("direct").contains("redirected"), "{}", of("direct"));
    assert!(of("tcp").contains("connections passed through the client's"), "{}", of("tcp"));
    assert!(of("tcp").contains("certificate"), "{}", of("tcp"));
    assert!(of("runc").contains("redirected to the server's"), "{}", of("runc"));
}

/// Envoy's configuration as a user might write it, with these parts inserted.
fn own_envoy(listener: Value, upstream: Value, log: Value) -> String {
    let typed = |name: &str, kind: &str, mut more: Value| {
        more["@type"] = json!(format!("type.googleapis.com/envoy.extensions.{kind}"));
        json!({"name": name, "typed_config": more})
    };
    let router = typed("router", "filters.http.router.v3.Router", json!({}));
    let manager = typed(
        "http",
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        json!({
            "stat_prefix": "web", "http_filters": [router], "access_log": log,
            "route_config": {"virtual_hosts": [{"name": "any", "domains": ["*"], "routes": [
                {"match": {"prefix": "/"}, "route": {"cluster": "to"}}]}]},
        }),
    );
    let at = |ip: &str, port: &str| json!({"socket_address": {"address": ip, "port_value": port}});
    let mut chain = json!({"filters": [manager]});
    if !listener.is_null() {
        let kind = "transport_sockets.tls.v3.DownstreamTlsContext";
        chain["transport_socket"] = typed("envoy.transport_sockets.tls", kind, listener);
    }
    let endpoint = json!({"endpoint": {"address": at("{to_ip}", "{to_port}")}});
    let mut cluster = json!({
        "name": "to", "type": "STATIC", "connect_timeout": "5s",
        "load_assignment": {"cluster_name": "to", "endpoints": [{"lb_endpoints": [endpoint]}]},
    });
    if !upstream.is_null() {
        let kind = "transport_sockets.tls.v3.UpstreamTlsContext";
        cluster["transport_socket"] = typed("envoy.transport_sockets.tls", kind, upstream);
    }
    let config = json!({
        "admin": {"address": at("{admin_ip}", "{admin_port}")},
        "static_resources": {
            "listeners": [{"name": "web", "stat_prefix": "web",
                "address": at("0.0.0.0", "{listen_port}"), "filter_chains": [chain]}],
            "clusters": [cluster],
        },
    });
    // Ports must be numbers.
    let text = config.to_string();
    ["to", "admin", "listen"].iter().fold(text, |text, name| {
        text.replace(&format!("\"{{{name}_port}}\""), &format!("{{{name}_port}}"))
    })
}

#[test]
fn mutual_tls_that_is_silently_off_is_found_out() {
    if !can_run("a network namespace") {
        return;
    }
    let desk = Desk::new("sidecar-plain");
    desk.file("plain.json", &own_envoy(Value::Null, Value::Null, json!([])));
    let lying = "{ proxy = \"envoy\", side = \"both\", tls = \"mtls\", config = \"plain.json\" }";
    let honest = "{ proxy = \"envoy\", side = \"both\", config = \"plain.json\" }";
    let text = HEAD.to_owned() + &variant("honest", honest) + &variant("lying", lying);
    let report = desk.run(&text);
    found_out(&report, "lying", "a request in plain text is served");
    let honest = proof(&report, "honest", "sidecar envoy");
    assert!(honest.contains("held in 2 of 2") && honest.contains("0 TLS handshakes"), "{honest}");
}

#[test]
fn a_sidecar_that_logs_every_request_is_told() {
    if !can_run("a network namespace") {
        return;
    }
    let desk = Desk::new("sidecar-logs");
    let kind = "type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog";
    let log = json!([{"name": "stdout", "typed_config": {"@type": kind}}]);
    desk.file("logs.json", &own_envoy(Value::Null, Value::Null, log));
    let logs = "{ proxy = \"envoy\", side = \"server\", config = \"logs.json\" }";
    let report = desk.run(&(HEAD.to_owned() + &variant("none", "") + &variant("logs", logs)));
    assert_eq!(guard(&report, "chatty").variant.as_deref(), Some("logs"), "{:#?}", report.guards);
}

/// The key is of a different kind, and sessions are resumed although they should not be.
#[test]
fn a_gateway_is_who_it_should_be_and_forgets_its_clients() {
    let desk = Desk::new("gateway-lies");
    // Servers that drop root must still reach their files.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&desk.folder.0, open).unwrap();
    let config = |name: &str, cert: &str, key: &str, tickets: &str| {
        let text = format!(
            "daemon off; worker_processes 1; pid {name}.pid; error_log stderr;\n\
             events {{ }} http {{ access_log off; ssl_session_tickets {tickets};\n\
             ssl_protocols TLSv1.2 TLSv1.3;\n\
             server {{ listen {{listen_ip}}:{{listen_port}} ssl; ssl_certificate {cert};\n\
             ssl_certificate_key {key};\n\
             location / {{ proxy_pass http://{{to_ip}}:{{to_port}}; }} }}\n\
             server {{ listen {{admin_ip}}:{{admin_port}}; location / {{ stub_status; }} }} }}\n"
        );
        desk.file(name, &text);
    };
    let other = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let cert = desk.file("other.pem", &other.cert.pem());
    let key = desk.file("other.key", &other.signing_key.serialize_pem());
    config("other.conf", str(&cert), str(&key), "off");
    config("remembers.conf", "{cert}", "{key}", "on");
    config("honest.conf", "{cert}", "{key}", "off");
    let gateway = |file: &str| {
        format!("{{ gateway = \"nginx\", tls = {{ resume = false }}, config = \"{file}\" }}")
    };
    for (file, wrong) in [
        ("other.conf", "its certificate is not the RSA-2048 one that was made"),
        ("remembers.conf", "it takes sessions up again, which was not asked"),
    ] {
        let text = HEAD.to_owned()
            + &on_host("honest", &gateway("honest.conf"))
            + &on_host("lying", &gateway(file));
        let report = desk.run(&text.replace("[load]\n", "[load]\nnew_connections = true\n"));
        found_out(&report, "lying", wrong);
    }
}

#[test]
fn gateways_speak_what_was_asked_and_count_handshakes() {
    let desk = Desk::new("gateways");
    let mut text = HEAD.replace("[load]\n", "[load]\nnew_connections = true\n");
    for (name, gateway, tls) in [
        ("nginx", "nginx", "key = \"rsa2048\", min = \"1.3\", resume = false"),
        ("old", "nginx", "key = \"ecdsa-p256\", max = \"1.2\", resume = false"),
        ("haproxy", "haproxy", "key = \"ecdsa-p256\", resume = false"),
        ("envoy", "envoy", "key = \"ecdsa-p256\""),
    ] {
        text += &on_host(name, &format!("{{ gateway = \"{gateway}\", tls = {{ {tls} }} }}"));
    }
    let report = desk.run(&text);
    not_void(&report);
    let of = |name: &str| proof(&report, name, "gateway").to_owned();
    assert!(of("nginx").contains("TLSv1.3 by its RSA-2048 certificate"), "{}", of("nginx"));
    assert!(of("old").contains("TLSv1.2 by its ECDSA P-256 certificate"), "{}", of("old"));
    assert!(of("haproxy").contains("TLSv1.3 by its ECDSA"), "{}", of("haproxy"));
    assert!(of("envoy").contains("TLS handshakes for"), "{}", of("envoy"));
    let handshake = report.variant("envoy").unwrap().metric(Metric::HandshakeP50).unwrap();
    assert!(handshake.point > 0.0);
    no_guard(&report, "resumed");
}

/// Connections that are opened after the rules are removed bypass the sidecar.
#[test]
fn rules_that_are_taken_away_are_found_out() {
    if !can_run("a network namespace") {
        return;
    }
    let desk = Desk::new("sidecar-rules");
    let text = HEAD.to_owned()
        + &variant("none", "")
        + &variant("bare", "{ proxy = \"envoy\", side = \"client\" }");
    let text = text.replace("[load]\n", "[load]\nnew_connections = true\n");
    let path = desk.file("rules.toml", &text.replace("rounds = 2", "rounds = 12"));
    let mut command = desk.command(&["run", str(&path), "--json", "-", "-q"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mark = format!("tare-{}-", child.id());
    let mut taken = 0;
    while child.try_wait().unwrap().is_none() {
        for name in names(Path::new("/run/netns")).iter().filter(|name| name.contains(&mark)) {
            let flush = ["netns", "exec", name, "iptables", "-t", "nat", "-F"];
            let _ = Command::new("ip").args(flush).stderr(Stdio::null()).status();
            taken += 1;
        }
        let_pass(Duration::from_millis(20));
    }
    assert!(taken > 0);
    let printed = child.wait_with_output().unwrap().stdout;
    let report: RunReport = serde_json::from_slice(&printed).unwrap();
    found_out(&report, "bare", "passed through the client's");
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[test]
fn a_bypass_carries_every_message_between_sidecar_and_application() {
    if !can_run("BPF") {
        return;
    }
    let desk = Desk::new("bypass");
    let both = "{ proxy = \"envoy\", side = \"both\" }";
    let bypass = "{ bypass = \"sockmap\" }";
    let report = desk.run(
        &(HEAD.to_owned()
            + &variant("none", "")
            + &variant("idle", bypass)
            + &variant("both", both)
            + &variant("past", &format!("{both}, {bypass}"))),
    );
    not_void(&report);
    let past = proof(&report, "past", "bypass sockmap");
    assert!(past.contains("held in 2 of 2") && past.contains(" 0 found the other end gone"));
    let idle = proof(&report, "idle", "bypass sockmap");
    assert!(idle.contains(" 0.00 a request"), "{idle}");
    assert!(report.variant("both").unwrap().proofs.iter().all(|p| !p.contains("bypass")));
}

/// If the CPU lacks the feature, the variant is left out with a reason.
#[test]
fn a_feature_of_the_cpu_is_masked_for_a_gateway() {
    let desk = Desk::new("crypto");
    let gateway = "{ gateway = \"nginx\", tls = { resume = false } }";
    let masked = on_host("masked", &format!("{gateway}, {{ crypto = \"no-aes\" }}"));
    let text = HEAD.to_owned() + &on_host("whole", gateway) + &masked + "optional = true\n";
    let report = desk.run(&text);
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    if cpu.lines().any(|line| line.starts_with("flags") && line.contains(" aes ")) {
        let seen = proof(&report, "masked", "crypto no-aes");
        assert!(seen.contains("held in 2 of 2"), "{seen}");
        assert!(seen.contains("sees the CPU without that feature"), "{seen}");
    } else {
        assert!(report.skipped[0].reason.contains("a null experiment"), "{:?}", report.skipped);
    }
}

#[test]
fn killed_at_any_moment_sidecars_leave_nothing() {
    if !can_run("a network namespace") {
        return;
    }
    let desk = Desk::new("sidecar-kill");
    let layers = "{ proxy = \"envoy\", side = \"both\", tls = \"mtls\" }, { bypass = \"sockmap\" }";
    let hop = "{ proxy = \"haproxy\", place = { netns = { cpus = 0.5 } } }";
    let text = HEAD.to_owned()
        + &variant("none", "")
        + &variant("both", layers)
        + &variant("hop", hop)
        + &variant("boxed", "{ proxy = \"nginx\", place = { oci = \"runc\" } }");
    let path = desk.file("kill.toml", &text.replace("rounds = 2", "rounds = 1000"));
    let mut random = Random::stream(u64::from(std::process::id()), "sidecar-kill", 0);
    for kill in 0..4 {
        let mut command = desk.command(&["run", str(&path), "-q"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let moment = DurationNs::from_ms(100 + random.below(2000));
        assert!(!PidFd::new(child.id()).unwrap().wait_timeout(moment), "kill {kill}: it ended");
        signal(child.id(), libc::SIGKILL).unwrap();
        child.wait().unwrap();
        let cleaned = desk.tare(&["clean"]).success();
        assert_eq!(left_by(&[child.id()]), Vec::<String>::new(), "{}", cleaned.story());
    }
}

#[test]
fn a_provider_of_keys_that_envoy_lacks_is_told_before_load() {
    let desk = Desk::new("sidecar-provider");
    for provider in ["cryptomb", "qat"] {
        let tls = format!("{{ provider = \"{provider}\" }}");
        let gateway = on_host("v", &format!("{{ gateway = \"envoy\", tls = {tls} }}"));
        let both = HEAD.to_owned() + &gateway + &on_host("other", "{ gateway = \"nginx\" }");
        let file = desk.file("provider.toml", &both);
        let ran = desk.tare(&["run", str(&file), "-q"]);
        ran.fails(3, &format!("lacks the private key provider {provider}: builds with"));
    }
}
