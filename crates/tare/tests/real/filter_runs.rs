//! Filters as layers of an experiment: proven, measured, and caught when they cheat.

use serde_json::Value;
use tare_model::Metric;
use tare_report::load::guards::Severity;
use tare_report::run::RunReport;
use tare_stats::Verdict;

use crate::filters::compile;
use crate::runs::{Desk, guard, no_guard};
use crate::util::{ran, str};

const BRIEF: [&str; 6] = ["--rounds", "6", "--slice", "5ms", "--cycles", "2"];

fn experiment(layers: &[(&str, &str)]) -> String {
    let mut text = "name = \"filters\"\n[load]\npath = \"/aaaa\"\nconnections = 8\n\
                    [server.web]\nnginx = { body_bytes = 100 }\n"
        .to_owned();
    for (name, layer) in layers {
        let layers = if layer.is_empty() { String::new() } else { format!("{{ {layer} }}") };
        text.push_str(&format!(
            "[[variant]]\nname = \"{name}\"\nserver = \"web\"\nlayers = [{layers}]\n"
        ));
    }
    text
}

fn brief(desk: &Desk, toml: &str) -> RunReport {
    let path = desk.file("experiment.toml", toml);
    let mut args = vec!["run", str(&path), "--json", "-", "-q"];
    args.extend(BRIEF);
    crate::runs::read(desk.tare(&args).measured())
}

/// A plug-in written only from the published interface.
fn plugin(desk: &Desk, name: &str, filter: &str) -> String {
    let source = format!(
        "#include <stdint.h>\n#include <stdio.h>\n#include <string.h>\n
         static char prefix[64]; static uint64_t yes, no;
         int module_initialize(const char *p) {{ strncpy(prefix, p, 63); return 0; }}
         int module_url_filter(const char *url) {{ {filter} }}
         void module_get_counters(uint64_t *a, uint64_t *r) {{ *a = yes; *r = no; }}"
    );
    let path = compile(desk, name, &source, &[]);
    format!("filter = \"library\", prefix = \"/aaaa\", path = \"{}\"", path.display())
}

const HONEST: &str =
    "if (strncmp(url, prefix, strlen(prefix)) == 0) { yes++; return 1; } no++; return 0;";

#[test]
fn every_filter_is_proven_and_judged_in_the_ready_made_experiment() {
    let desk = Desk::new("all-filters");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/nginx-filters.toml");
    let mut args = vec!["run", path, "--json", "-", "-q"];
    args.extend(BRIEF);
    let report = crate::runs::read(desk.tare(&args).measured());
    let has_keys = crate::filters::has_protection_keys();
    assert_eq!(report.variants.len(), if has_keys { 10 } else { 9 });
    assert_eq!(report.skipped.len(), usize::from(!has_keys));
    for variant in &report.variants {
        let name = &variant.name;
        assert!(report.why_void(name).is_none(), "{name}: {:?}", report.guards);
        if name == "none" {
            assert!(variant.proofs.is_empty() && variant.metric(Metric::FilterCall).is_none());
            continue;
        }
        let [proof] = variant.proofs.as_slice() else { panic!("{name}: {:?}", variant.proofs) };
        let held = format!("filter {name}: held in 6 of 6 launches");
        assert!(proof.starts_with(&held), "{proof}");
        assert!(name == "identity" || proof.contains("/aaab was refused; of "), "{proof}");
        let call = variant.metric(Metric::FilterCall).unwrap();
        assert!(call.point > 0.1 && call.point < 100_000.0, "{name}: {call:?}");
        let of_variant = || report.asked_of(name);
        assert_eq!(of_variant().count(), 2, "{name}");
        assert!(of_variant().all(|comparison| comparison.predicted_percent.is_some()), "{name}");
    }
    let events = desk.tare(&["runs", "--events", "last"]).success().stdout;
    assert!(events.contains("ebpf, controller: ended: accepted "), "{events}");
    assert_eq!(desk.tare(&["clean"]).success().stdout, "nothing was left behind\n");

    let other = desk.tare(&["report", "last", "--json", "--baseline", "lua"]).success();
    let other = crate::runs::read(other);
    assert!(other.variant("lua").unwrap().baseline && other.asked_of("none").count() == 2);
    let forth = report.asked_of("lua").next().unwrap().ratio.point;
    let back = other.asked_of("none").next().unwrap().ratio.point;
    assert!((forth * back - 1.0).abs() < 1e-9, "{forth} {back}");
    desk.tare(&["report", "last", "--baseline", "x"]).fails(2, "--baseline x: choose among none,");

    let published = desk.tare(&["report", "last", "--format", "bpftime-json"]).success().stdout;
    let published: Value = serde_json::from_str(&published).unwrap();
    assert_eq!(published["benchmark_info"]["connections"], 20);
    assert_eq!(published["benchmark_info"]["url_path"], "/aaaa");
    for name in ["no_module", "baseline", "wasm", "lua", "bpftime", "rlbox", "erim"] {
        if name == "erim" && !has_keys {
            continue;
        }
        let rps = published["average_results"][name]["rps"].as_f64().unwrap();
        let all = published["iterations"][name]["requests_per_sec"].as_array().unwrap();
        let sum: f64 = all.iter().map(|value| value.as_f64().unwrap()).sum();
        assert!((sum / all.len() as f64 - rps).abs() < 1e-6 * rps, "{name}");
        assert_eq!(published["average_results"][name]["iterations"], 6);
        assert!(published["standard_deviation"][name]["rps"].as_f64().unwrap() > 0.0);
        let latency = published["average_results"][name]["latency_avg"].as_str().unwrap();
        assert!(latency.strip_suffix("ms").unwrap().parse::<f64>().unwrap() > 0.0);
    }
    let overhead = published["overheads"]["bpftime_vs_no_module"].as_str().unwrap();
    assert!(overhead.strip_suffix('%').unwrap().parse::<f64>().is_ok());
}

#[test]
fn a_plugin_by_somebody_else_loads_unchanged() {
    let desk = Desk::new("plugin");
    let layer = plugin(&desk, "honest", HONEST);
    let report = brief(&desk, &experiment(&[("none", ""), ("theirs", &layer)]));
    no_guard(&report, "not-proven");
    let proof = &report.variant("theirs").unwrap().proofs[0];
    assert!(proof.contains("held in 6 of 6 launches"), "{proof}");
}

#[test]
fn filters_that_cheat_are_caught() {
    for (name, filter, complaint) in [
        ("lax", "yes++; return 1;", "it let /aaab through (status 200)"),
        (
            "idle",
            "return strncmp(url, prefix, strlen(prefix)) == 0;",
            "times, and counted 0 accepted and 0 refused",
        ),
        (
            "lazy",
            "if (strncmp(url, prefix, strlen(prefix))) { no++; return 0; } \
             if (++yes % 10 == 0) yes--; return 1;",
            "and the filter counted ",
        ),
    ] {
        let desk = Desk::new(name);
        let layer = plugin(&desk, name, filter);
        let report = brief(&desk, &experiment(&[("none", ""), (name, &layer)]));
        let found = guard(&report, "not-proven");
        assert_eq!((found.severity, found.variant.as_deref()), (Severity::Void, Some(name)));
        assert!(found.text.contains(complaint), "{found:?}");
        assert!(report.comparisons.iter().all(|c| c.verdict == Verdict::Void));
    }
}

#[test]
fn a_cost_that_the_call_does_not_have_is_flagged() {
    let desk = Desk::new("unexplained");
    // Slow in nginx, fast when timed alone.
    let slow = "static int in_nginx = -1; if (in_nginx < 0) { char name[32] = { 0 }; \
                FILE *f = fopen(\"/proc/self/comm\", \"r\"); fgets(name, 31, f); fclose(f); \
                in_nginx = strncmp(name, \"nginx\", 5) == 0; } \
                if (in_nginx) for (volatile int i = 0; i < 60000; i++) {}";
    let layer = plugin(&desk, "slow", &format!("{slow} {HONEST}"));
    let report = brief(&desk, &experiment(&[("none", ""), ("slow", &layer)]));
    let found = guard(&report, "unexplained");
    assert_eq!((found.severity, found.variant.as_deref()), (Severity::Warn, Some("slow")));
    assert!(found.text.contains("something other than the calls"), "{found:?}");
}

#[test]
fn what_is_missing_or_broken_gets_one_line() {
    let desk = Desk::new("broken-filters");
    let garbage = desk.file("garbage.wasm", "not WebAssembly");
    let half = compile(&desk, "half", "int module_initialize(const char *p) { return 0; }", &[]);
    let deny = compile(&desk, "deny", "int pkey_alloc(unsigned f, unsigned r) { return -1; }", &[]);
    let try_with = |layer: &str, env: &[(&str, &str)], dry: bool| {
        let toml = experiment(&[("none", ""), ("filter", layer)]);
        let path = desk.file("broken.toml", &toml);
        let mut args = vec!["run", str(&path), "-q"];
        args.extend(BRIEF);
        args.extend(dry.then_some("--dry-run"));
        ran(desk.command(&args).envs(env.iter().copied()))
    };
    let prefix = "prefix = \"/aaaa\"";
    let long = format!("filter = \"lua\", prefix = \"/{}\"", "a".repeat(199));
    for (layer, complaint) in [
        (long.as_str(), "its prefix has 200 bytes; 2 to 127 are allowed"),
        ("filter = \"lua\"", "prefix '': write a slash"),
        (
            "filter = \"lua\", prefix = \"/aaaa\", code = \"no-such.lua\"",
            "no-such.lua is not a file",
        ),
        ("filter = \"mpk\", prefix = \"/aaaa\", path = \"x.so\"", "path goes with the filter"),
        ("filter = \"mpk\", prefix = \"/aaaa\", code = \"x.so\"", "code goes with the filters"),
        ("filter = \"wasn\", prefix = \"/aaaa\"", "unknown word 'wasn'; did you mean 'wasm'?"),
    ] {
        try_with(layer, &[], true).fails(2, complaint);
    }
    let broken = format!("filter = \"wasm\", {prefix}, code = \"{}\"", garbage.display());
    try_with(&broken, &[], false).fails(3, "garbage.wasm: ");
    let half = format!("filter = \"library\", {prefix}, path = \"{}\"", half.display());
    try_with(&half, &[], false).fails(3, "has no function module_url_filter");
    let mpk = format!("filter = \"mpk\", {prefix}");
    try_with(&mpk, &[("LD_PRELOAD", str(&deny))], false).fails(3, "protection keys cannot be used");
    let nowhere = format!("filter = \"lua\", {prefix}");
    try_with(&nowhere, &[("TARE_FILTERS", "/no/such")], true)
        .fails(3, "is not built: make filters");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/aaaa", taken.local_addr().unwrap());
    let toml = experiment(&[("none", ""), ("filter", &nowhere)])
        .replace("nginx = {", &format!("url = \"{url}\"\nnginx = {{"));
    let path = desk.file("taken.toml", &toml);
    desk.tare(&["run", str(&path), "-q"]).fails(3, "something already answers on");
    let other = "name = \"x\"\n[server.t]\ntarget = {}\n[[variant]]\nname = \"a\"\nserver = \"t\"\n\
                 [[variant]]\nname = \"b\"\nserver = \"t\"\n\
                 layers = [{ filter = \"lua\", prefix = \"/a\" }]\n";
    let path = desk.file("other.toml", other);
    desk.tare(&["run", str(&path)]).fails(2, "a filter needs a server of kind nginx");
    assert_eq!(desk.tare(&["clean"]).success().stdout, "nothing was left behind\n");
}

#[test]
fn calls_are_timed_and_cheats_are_named() {
    let desk = Desk::new("bench");
    let args = ["filter", "bench", "library", "lua", "--max-time", "5s", "--precision", "50%"];
    let told = desk.tare(&[&args[..], &["--json", "-", "--url-length", "100"]].concat()).success();
    let report: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!((&report["schema"], &report["url_bytes"]), (&"tare.filter/1".into(), &100.into()));
    for filter in report["filters"].as_array().unwrap() {
        for kind in ["accept_ns", "refuse_ns"] {
            let at = |key: &str| filter[kind][key].as_f64().unwrap();
            assert!(0.1 < at("lower") && at("lower") < at("point") && at("point") < at("upper"));
        }
        assert!(filter["wrong"].is_null());
    }
    let layer = plugin(&desk, "lax", "yes++; return 1;");
    let path = layer.rsplit('"').nth(1).unwrap();
    let lax = desk.tare(&["filter", "bench", path, "--max-time", "1s"]);
    assert_eq!(lax.code, Some(4), "{}", lax.story());
    assert!(lax.stderr.contains("URLs that should be refused it accepted "), "{}", lax.story());
    desk.tare(&["filter", "bench", "off"]).fails(2, "there is nothing to call");
    desk.tare(&["filter", "bench", "x"]).fails(2, "'x' is not a filter; choose among off,");
    desk.tare(&["filter", "bench", "lua", "--url-length", "3"]).fails(2, "shorter than the prefix");
    // Published plug-ins print on every call.
    let loud = "printf(\"accepted\\n\"); fflush(stdout); fprintf(stderr, \"%s\\n\", url);";
    let loud = plugin(&desk, "loud", &format!("{loud} {HONEST}"));
    let path = loud.rsplit('"').nth(1).unwrap();
    let told = desk.tare(&["filter", "ask", path, "/aaaa", "/b"]).success().stdout;
    assert_eq!(told, "accepted  /aaaa\nrefused   /b\ncounted 1 accepted, 1 refused\n");
    desk.tare(&["filter", "bench", path, "--max-time", "1s"]).success();
    let odd = plugin(&desk, "odd", "return -7;");
    let path = odd.rsplit('"').nth(1).unwrap();
    let told = desk.tare(&["filter", "ask", path, "/aaaa"]);
    assert!(told.code == Some(4) && told.stdout.starts_with("failed    /aaaa"), "{}", told.story());
    let hangs = plugin(&desk, "hangs", "for (;;);");
    let path = hangs.rsplit('"').nth(1).unwrap();
    desk.tare(&["filter", "ask", path, "/aaaa"]).fails(3, "a call did not return within 10s");
    let crash = plugin(&desk, "crash", "return *(volatile char *) 8;");
    let path = crash.rsplit('"').nth(1).unwrap();
    desk.tare(&["filter", "bench", path]).fails(3, "signal: 11");
}

#[test]
fn a_sweep_over_url_lengths_has_a_cell_for_each() {
    let desk = Desk::new("sweep");
    let toml = experiment(&[("none", ""), ("lua", "filter = \"lua\", prefix = \"/aaaa\"")]);
    let path = desk.file("sweep.toml", &format!("{toml}\n[sweep]\nurl_length = [6, 1000]\n"));
    let mut args = vec!["run", str(&path), "-q", "--json", "-"];
    args.extend(BRIEF);
    let sweep = desk.tare(&args).measured().stdout;
    let sweep: tare_report::sweep::cells::Sweep = serde_json::from_str(&sweep).unwrap();
    let labels: Vec<String> = sweep.cells.iter().map(|cell| cell.label()).collect();
    assert_eq!(labels, ["url_length 6", "url_length 1000"]);
    assert!(sweep.cells.iter().all(|cell| cell.report.run.rounds == 6));
    let text = desk.tare(&[&args[..3], &BRIEF].concat()).measured().stdout;
    assert!(text.contains("Overhead, throughput (~ is unresolved):"), "{text}");
    let bad = desk.file("bad.toml", &format!("{toml}\n[sweep]\nurl_length = [3]\n"));
    desk.tare(&["run", str(&bad)]).fails(2, "bad.toml:17: sweep: url_length = 3: shorter than");
    let bad = desk.file("bad.toml", &format!("{toml}\n[sweep]\nspeed = [3]\n"));
    desk.tare(&["run", str(&bad)])
        .fails(2, "sweep: speed = 3: it cannot be swept; connections, rate, threads");
}
