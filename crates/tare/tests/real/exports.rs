//! Exports, read by the tools that they are made for: benchstat and Apache Otava.

use std::path::PathBuf;
use std::process::Command;

use crate::runs::Desk;
use crate::util::str;

/// A server, and one that burns twice as much CPU time for each request.
fn experiment(first_us: u32, second_us: u32) -> String {
    format!(
        "name = \"exports\"\n[load]\nconnections = 4\n\
         [stop]\nrounds = 6\nmax_time = \"60s\"\nmetrics = [\"throughput\", \"cpu\"]\n\
         [slices]\nwindow = \"5ms\"\ncycles = 3\nno_sustained = true\n\
         [server.plain]\ntarget = {{ busy = \"{first_us}us\" }}\n\
         [server.more]\ntarget = {{ busy = \"{second_us}us\" }}\n\
         [[variant]]\nname = \"plain\"\nserver = \"plain\"\nbaseline = true\n\
         [[variant]]\nname = \"more\"\nserver = \"more\"\n"
    )
}

/// Runs a tool that `scripts/install-peers` has installed.
fn told(program: &str, args: &[&str]) -> String {
    let peers = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/bin");
    let output = Command::new(peers.join(program)).args(args).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; run 'make setup'"));
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn benchstat_compares_launches() {
    let desk = Desk::new("exports-benchstat");
    desk.run(&experiment(50, 100));
    let text = desk.tare(&["report", "1", "--format", "go-bench"]).success().stdout;
    let file = desk.file("run.txt", &text);
    let told =
        told("benchstat", &["-col", "/variant", "-filter", ".unit:throughput_per_s", str(&file)]);
    // A column for each variant, and a comparison of six launches with six.
    for part in ["plain", "more", "n=6", "throughput_per_s"] {
        assert!(told.contains(part), "{part} is missing\n{told}");
    }
    let line = told.lines().find(|line| line.contains("n=6")).unwrap();
    let percent = line.split_whitespace().find(|word| word.starts_with('-') && word.ends_with('%'));
    let percent: f64 = percent.unwrap().trim_end_matches('%').parse().unwrap();
    assert!((-60.0..-20.0).contains(&percent), "{line}");
}

#[test]
fn otava_finds_the_run_in_which_a_variant_became_slower() {
    let desk = Desk::new("exports-otava");
    for run in 0..12 {
        let second_us = if run < 6 { 60 } else { 120 };
        desk.run(&experiment(50, second_us));
    }
    let csv = desk.folder.file("trend.csv");
    desk.tare(&["runs", "--trend", "exports", "--otava-csv", str(&csv)]).success();
    let config = desk.file(
        "otava.yaml",
        &format!(
            "tests:\n  tare:\n    type: csv\n    file: {}\n    time_column: time\n\
             \x20   attributes: [run, commit, version]\n\
             \x20   metrics: [more.throughput_per_s, plain.throughput_per_s]\n\
             \x20   csv_options:\n      delimiter: \",\"\n      quotechar: \"\\\"\"\n",
            csv.display()
        ),
    );
    let told = told("otava", &["analyze", "tare", "--config-file", str(&config)]);
    // The change is marked between the sixth run and the seventh.
    let lines: Vec<&str> = told.lines().collect();
    let run = |wanted: &str| {
        let is_run = |line: &&str| line.split_whitespace().nth(3) == Some(wanted);
        lines.iter().position(is_run).unwrap_or_else(|| panic!("no run {wanted}\n{told}"))
    };
    let between = &lines[run("6")..run("7")];
    let is_drop = |line: &&str| {
        line.split_whitespace().any(|word| word.starts_with("-") && word.ends_with('%'))
    };
    assert!(between.iter().any(is_drop), "{told}");
}
