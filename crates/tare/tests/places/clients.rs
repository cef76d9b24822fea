//! Variants that are loaded from elsewhere, by one client or by several.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

use tare_io::process::signal;
use tare_report::run::{RunReport, Variant};

use crate::runs::{Desk, guard, read};
use crate::util::{can_run, str};
use crate::wait::{until, until_some};

/// What says of a variant only what chance, or what else runs here, made of it.
const BY_CHANCE: [&str; 9] = [
    "noisy",
    "client-bound",
    "not-saturated",
    "busy-while-idle",
    "short-of-cpus",
    "uneven-workers",
    "not-steady",
    "unconfirmed",
    "deferred-work",
];
/// What a place has of its own.
const OF_PLACES: [&str; 2] = ["place-launches", "clients"];

fn experiment(load: &str, server: &str, variants: &[(&str, &str)]) -> String {
    let head = format!(
        "name = \"clients\"\n[load]\nthreads = 1\n{load}\n[stop]\nrounds = 3\n[slices]\n\
         window = \"100ms\"\ncycles = 3\n[server.web]\ntarget = {{ {server} }}\n"
    );
    let tables = variants
        .iter()
        .map(|(name, keys)| format!("[[variant]]\nname = \"{name}\"\nserver = \"web\"\n{keys}\n"));
    head + &tables.collect::<String>()
}

fn guards(variant: &Variant) -> BTreeSet<&str> {
    let codes = variant.guards.iter().map(String::as_str);
    codes.filter(|code| !BY_CHANCE.contains(code) && !OF_PLACES.contains(code)).collect()
}

fn metrics(variant: &Variant) -> BTreeSet<&str> {
    // Only a place has a link of its own, and the kernel divides CPU time into user's and its own by
    // looking now and then.
    let left_out = [
        "packets_per_request",
        "server_cpu_user_ns_per_request",
        "server_cpu_system_ns_per_request",
    ];
    variant.metrics.keys().map(String::as_str).filter(|key| !left_out.contains(key)).collect()
}

/// Each row: what is asked, of which server, and the guard that it sets off.
const ROWS: [(&str, &str, Option<&str>); 9] = [
    ("connections = 4", "", None),
    ("connections = 4", "error_rate = 0.2", Some("errors")),
    ("connections = 4", "close_after = 20", Some("reconnects")),
    ("connections = 4\nnew_connections = true", "", None),
    ("connections = 4\nnew_connections = true\ntls_resume = true", "tls = true", None),
    ("connections = 4\npaths = [\"/a\", \"/b\", \"/c\"]", "", None),
    ("connections = 8\nrate = 2000\npoisson = true", "", None),
    ("connections = 1\nrate = 2000", "delay = \"5ms\"", Some("rate-missed")),
    ("connections = 4\nmethod = \"POST\"\nbody = \"x\"", "body_bytes = 3000", None),
];

#[test]
fn what_is_known_of_a_load_from_here_is_known_of_one_from_elsewhere() {
    if !can_run("a client in a namespace") {
        return;
    }
    let desk = Desk::new("parity");
    for (load, server, sets_off) in ROWS {
        let report = desk.run(&experiment(
            load,
            server,
            &[
                ("here", "baseline = true"),
                ("client", "client = \"netns\""),
                ("both", "place = \"netns\"\nclient = \"netns\""),
                ("beside", "place = \"netns\"\nclient = \"same_as_server\""),
            ],
        ));
        let here = &report.variants[0];
        if let Some(code) = sets_off {
            assert!(guards(here).contains(code), "{load}, {server}: {:#?}", report.guards);
        }
        for other in &report.variants[1..] {
            let name = format!("{load}, {server}, {}", other.name);
            assert_eq!(metrics(here), metrics(other), "{name}");
            assert_eq!(guards(here), guards(other), "{name}: {:#?}", report.guards);
            let (own, its) = (&here.exposure, &other.exposure);
            assert_eq!(own.warm_after_ns.is_some(), its.warm_after_ns.is_some(), "{name}");
            let kinds = |variant: &Variant| -> BTreeSet<String> {
                variant.status.keys().chain(variant.errors.keys()).cloned().collect()
            };
            assert_eq!(kinds(here), kinds(other), "{name}");
        }
    }
}

#[test]
fn several_clients_make_one_load_and_tell_how_well_they_kept_together() {
    if !can_run("a client in a namespace") {
        return;
    }
    let desk = Desk::new("several");
    let load = "connections = 16\nrate = 2000";
    // A tenth of a slice is what a client may be late by.
    let text = experiment(
        load,
        "",
        &[
            ("one", "client = \"netns\"\nbaseline = true"),
            ("two", "client = { netns = {}, count = 2 }"),
            ("eight", "client = { netns = {}, count = 8 }"),
            ("mixed", "client = [\"host\", \"netns\", { oci = \"runc\" }]"),
        ],
    );
    let report = desk.run(&text.replace("100ms", "200ms"));
    for (name, n) in [("two", 2), ("eight", 8), ("mixed", 3)] {
        let variant = report.variant(name).unwrap();
        let clients = variant.clients.as_ref().unwrap();
        assert_eq!(clients.each.len(), n, "{name}");
        let good: u64 = clients.each.iter().map(|client| client.good).sum();
        assert!(good > 0 && good <= variant.requests, "{name}: {clients:?}");
        assert!(clients.each.iter().all(|client| client.good > 0), "{name}: {clients:?}");
        assert!(clients.clock_error_ns > 0 && clients.start_skew_ns_p99 > 0, "{name}: {clients:?}");
        let told = report.guards.iter().any(|guard| {
            guard.code == "clients"
                && guard.variant.as_deref() == Some(name)
                && guard.text.contains(&format!("{n} clients"))
        });
        assert!(told, "{name}: {:#?}", report.guards);
    }
    let proofs = report.variant("eight").unwrap().proofs.join("\n");
    assert!(proofs.contains("client 1 of 8 in netns") && proofs.contains("client 8 of 8 in netns"));
    assert_eq!(report.variant("mixed").unwrap().client, "host, netns, runc");
    assert_eq!(report.variant("one").unwrap().clients, None);
    assert_eq!(desk.tare(&["clean"]).success().stdout, "nothing was left behind\n");
}

/// The agent of that tare's second client, by the network namespace that it is in.
fn second_client(tare: u32) -> Option<u32> {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let mut paths = entries.map(|entry| entry.path());
    let own = format!("tare-{tare}-");
    let path = paths.find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with(&own) && name.ends_with("c1")
    })?;
    let wanted = std::fs::metadata(path).ok()?.ino();
    let is_in = |pid: &u32| {
        let namespace = std::fs::metadata(format!("/proc/{pid}/ns/net"));
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        namespace.is_ok_and(|namespace| namespace.ino() == wanted)
            && String::from_utf8_lossy(&command).contains("tare-agent")
    };
    tare_lab::processes::all().into_iter().find(is_in)
}

/// Kills the second client after the first round; how tare ended, and what it said.
fn with_a_client_killed(name: &str, flags: &[&str]) -> (Option<i32>, String, String) {
    let desk = Desk::new(name);
    let text = experiment(
        "connections = 4",
        "",
        &[("a", "baseline = true"), ("b", "client = { netns = {}, count = 2 }")],
    );
    let text = text.replace("rounds = 3", "rounds = 8").replace("100ms", "200ms");
    let path = desk.file("killed.toml", &text);
    let args = [&["run", str(&path), "--json", "-", "-q"], flags].concat();
    let mut command = desk.command(&args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    desk.wait_for_a_round(&mut child, &[]);
    // The first is whole once there is something of a second.
    let rounds = || read(desk.tare(&["report", "last", "--json"])).run.rounds;
    until("a second round", || rounds() > 1);
    let client = until_some("the second client", || second_client(child.id()));
    signal(client, libc::SIGKILL).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(desk.tare(&["clean"]).success().stdout, "nothing was left behind\n");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), said(&output.stdout), said(&output.stderr))
}

#[test]
fn a_client_that_is_killed_is_named_and_ends_the_run_or_only_its_round() {
    if !can_run("a client in a namespace") {
        return;
    }
    let (code, _, told) = with_a_client_killed("killed-client", &[]);
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains("b, client 2 of 2: "), "{told}");
    let (code, json, told) = with_a_client_killed("lost-client", &["--lost-rounds", "1"]);
    assert!(matches!(code, Some(0 | 6)), "{code:?}: {told}");
    let report: RunReport = serde_json::from_str(&json).unwrap();
    assert_eq!(report.run.rounds, 8);
    let lost = guard(&report, "lost-rounds");
    assert!(lost.text.contains("1 round was lost") && lost.text.contains("b, client 2 of 2: "));
}
