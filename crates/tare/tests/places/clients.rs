//! Variants loaded from elsewhere, by one client or several.

use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

use tare_io::process::signal;
use tare_report::run::RunReport;

use crate::parity::ROWS;
use crate::runs::{Desk, guard, read};
use crate::util::{can_run, str};
use crate::wait::{until, until_some};

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

#[test]
fn what_is_known_of_a_load_from_here_is_known_of_one_from_elsewhere() {
    if !can_run("a client in a namespace") {
        return;
    }
    let desk = Desk::new("parity");
    for row in ROWS {
        let report = desk.run(&experiment(
            row.load,
            row.server,
            &[
                ("here", "baseline = true"),
                ("client", "client = \"netns\""),
                ("both", "place = \"netns\"\nclient = \"netns\""),
                ("beside", "place = \"netns\"\nclient = \"same_as_server\""),
            ],
        ));
        row.sets_off(&report);
        let here = &report.variants[0];
        report.variants[1..].iter().for_each(|other| row.same(here, other));
    }
}

#[test]
fn several_clients_make_one_load_and_tell_how_well_they_kept_together() {
    if !can_run("a client in a namespace") {
        return;
    }
    let desk = Desk::new("several");
    let load = "connections = 16\nrate = 2000";
    // A client may be late by a tenth of a slice.
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

/// Finds the agent of the second client by its network namespace.
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
    tare_lab::machine::processes::all().into_iter().find(is_in)
}

/// Kills the second client after the first round; returns how tare ended, and its output.
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
    // The first round is complete once part of a second one is stored.
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
