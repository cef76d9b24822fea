//! `tare compare`, and what happens to its runs.

use tare_model::Metric;
use tare_report::run::RunReport;
use tare_stats::Verdict;
use tare_tidy::skips::not_run;

use crate::runs::{BRIEF, Desk, asked, guard, launches, owned, read};
use crate::util::{Server, str};

#[test]
fn what_intervals_are_made_of_can_be_had() {
    let desk = Desk::new("rounds-csv");
    let report = desk.compare(&owned(&launches("", ""), &BRIEF));
    let csv = desk.tare(&["report", "last", "--format", "rounds-csv"]).success().stdout;
    let rows = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let rows: Vec<_> = rows.filter(|r| r[2] == "b" && r[4] == "throughput_per_s").collect();
    assert_eq!(rows.len(), report.run.rounds as usize, "{csv}");
    let numbers = |at: usize| rows.iter().map(move |row| row[at].parse::<f64>().unwrap());
    assert!((numbers(7).sum::<f64>() - 1.0).abs() < 1e-9, "{csv}");
    let mean: f64 = numbers(6).zip(numbers(7)).map(|(ratio, weight)| ratio * weight).sum();
    assert!((mean.exp() - asked(&report).ratio.point).abs() < 1e-9, "{mean} {csv}");
}

#[test]
fn the_report_is_made_from_the_store_alone_and_always_the_same() {
    let desk = Desk::new("same-report");
    let pair = launches("", "");
    let json = desk.folder.file("first.json");
    let mut args = owned(&pair, &BRIEF);
    args.extend(["--json", str(&json), "--seed", "42", "--name", "twins"]);
    let all: Vec<&str> = std::iter::once("compare").chain(args).collect();
    let shown = desk.tare(&all).measured();
    assert!(shown.stdout.contains("stored as run 1 in "), "{}", shown.story());
    let first = std::fs::read_to_string(&json).unwrap();
    for which in ["1", "last"] {
        let again = desk.tare(&["report", which, "--json"]).success();
        assert_eq!(again.stdout, first);
    }
    let report: RunReport = serde_json::from_str(&first).unwrap();
    assert_eq!((report.run.seed, report.run.name.as_str()), (42, "twins"));
    assert_eq!(report.json(), first, "nothing is lost in reading it");
    let text = desk.tare(&["report", "last"]).success().stdout;
    assert!(shown.stdout.starts_with(&text), "{text}");
    let markdown = desk.tare(&["report", "last", "--markdown"]).success().stdout;
    assert!(markdown.starts_with("## twins\n\n- b against a"), "{markdown}");
    let csv = desk.tare(&["report", "last", "--csv"]).success().stdout;
    assert!(csv.lines().any(|line| line.starts_with("1,b,false,throughput_per_s,")), "{csv}");
    let listed = desk.tare(&["runs", "TWIN"]).success().stdout;
    assert!(listed.contains(" rounds ") && listed.contains(" twins: "), "{listed}");
    let log = desk.tare(&["runs", "--events", "1"]).success().stdout;
    assert!(log.contains("tare: ended: rounds; CPU "), "{log}");
    let deleted = desk.tare(&["runs", "--delete", "1"]).success().stdout;
    assert_eq!(deleted, "deleted run 1: twins\n");
    desk.tare(&["report", "1"]).fails(2, "there is no run 1 in ");
    desk.tare(&["runs", "--delete", "1"]).fails(2, "there is no run 1 in ");
}

#[test]
fn bare_urls_are_compared_and_it_says_what_that_does_not_cover() {
    let desk = Desk::new("bare");
    let (a, b) = (Server::start(Default::default()), Server::start(Default::default()));
    let (a, b) = (format!("mine={}", a.url()), format!("theirs={}", b.url()));
    let mut args = vec![a.as_str(), b.as_str()];
    args.extend(BRIEF);
    let report = desk.compare(&args);
    let told = guard(&report, "single-launch");
    assert!(told.text.contains("--launch mine='command'"), "{told:?}");
    assert_eq!(report.variant("theirs").unwrap().launches, 0);
    // Noise alone may forbid a verdict.
    let verdict = asked(&report).verdict;
    assert!(matches!(verdict, Verdict::Unresolved | Verdict::Void), "two rounds conclude nothing");
    assert!(guard(&report, "few-rounds").text.contains("a verdict needs at least 3"));
}

#[test]
fn a_gate_does_not_pass_because_a_variant_gave_nothing() {
    let desk = Desk::new("gate-broken");
    let pair = launches("", "");
    let broken = pair[1].replacen("--launch=b=", "--launch=c=", 1) + " --error-rate 1 --status 403";
    let mut args = vec!["compare", &pair[0], &pair[1], &broken, "-q"];
    args.extend(BRIEF);
    args.extend(["--allow-void", "--fail-if", "throughput > 1000%"]);
    desk.tare(&args).fails(1, "c: throughput was not measured in two rounds");
    desk.tare(&["report", "last", "--fail-if", "unresolved"])
        .fails(5, "unresolved: no verdict to ± 2 % on b, c");
}

#[test]
fn what_is_changed_when_a_run_is_resumed_counts() {
    let desk = Desk::new("resume-change");
    let pair = launches("", "");
    let mut args = vec!["compare", &pair[0], &pair[1], "-q"];
    args.extend(BRIEF);
    desk.tare(&args).measured();
    let more = ["run", "--resume", "last", "-q", "--rounds", "8", "--precision", "1%"];
    let more: Vec<&str> = more.into_iter().chain(["--metric", "p50", "--json", "-"]).collect();
    let report = read(desk.tare(&more).measured());
    assert_eq!((report.run.rounds, report.run.precision, report.run.tolerance), (8, 0.01, 0.01));
    assert_eq!(asked(&report).metric, Metric::LatencyP50);
    desk.tare(&["run", "--resume", "last", "--slice", "9ms"])
        .fails(2, "cannot be changed of a run that is resumed");
    let untouched = desk.file("keep.json", "precious");
    desk.tare(&["run", "--resume", "99", "--json", str(&untouched)]).fails(2, "there is no run 99");
    assert_eq!(std::fs::read_to_string(untouched).unwrap(), "precious");
}

#[test]
fn a_server_alone_is_measured_and_compared_with_nothing() {
    let desk = Desk::new("alone");
    let [alone, _] = launches("", "");
    let report = desk.compare(&[&[alone.as_str()][..], &BRIEF, &["--metric", "p50"]].concat());
    assert!(report.comparisons.is_empty() && report.variants.len() == 1);
    let value = report.variants[0].metric(Metric::LatencyP50).unwrap();
    assert_eq!(value.n, report.run.rounds);
    assert!(value.lower < value.point && value.point < value.upper, "{value:?}");
    let text = desk.tare(&["report", "last"]).success().stdout;
    // Busy neighbours may forbid a verdict.
    let is_told = |text: &str| text.contains("a: p50 ") || text.contains("a is void");
    assert!(is_told(&text) && text.contains("replies good"), "{text}");
    let html = desk.tare(&["report", "last", "--html", "-"]).success().stdout;
    assert!(is_told(&html), "{html}");
    desk.tare(&["report", "last", "--fail-if", "p50 > 3%"]).fails(2, "give a second variant");
    let own = env!("CARGO_BIN_EXE_tare");
    let toml = format!(
        "name = \"s\"\n[stop]\nrounds = 3\n[slices]\nwindow = \"5ms\"\ncycles = 2\n\
         [sweep]\nconnections = [1, 2]\n[server.t]\n\
         command = \"exec {own} target --listen 127.0.0.1:{{port}}\"\n\
         [[variant]]\nname = \"only\"\nserver = \"t\"\n"
    );
    let path = desk.file("sweep.toml", &toml);
    let text = desk.tare(&["run", str(&path), "-q"]).measured().stdout;
    let rows = text.lines().filter(|line| line.starts_with("  connections "));
    assert_eq!(rows.filter(|row| row.contains(" ± ")).count(), 2, "{text}");
    // With a status that is not good, there is no value.
    let [bad, _] = launches("--error-rate 0.5 --status 503", "");
    let all = [&["compare", bad.as_str(), "-q"][..], &BRIEF].concat();
    desk.tare(&all).fails(6, "void: no verdict is allowed on a");
}

#[test]
fn mistakes_about_servers_get_one_line() {
    let desk = Desk::new("mistakes");
    let [good, _] = launches("", "");
    let compare = |more: &[&str]| {
        let all: Vec<&str> = ["compare", &good].iter().chain(more).copied().collect();
        desk.tare(&all)
    };
    compare(&["--fail-if", "throughput > 3 %"]).fails(2, "give a second variant to compare with");
    compare(&["--launch", "nothing"]).fails(2, "write NAME='command'");
    compare(&["--launch", "a=true {port}"]).fails(2, "two variants are called 'a'");
    compare(&["b=http://127.0.0.1:{port}/"]).fails(2, "{port} needs a server that tare starts");
    compare(&["b=ftp://x/"]).fails(2, "scheme 'ftp' is not supported");
    compare(&["--launch", "b=true {port}", "--baseline", "c"])
        .fails(2, "--baseline c: choose among a, b");
    compare(&["--launch", "b=true {port}", "--fail-if", "a: p99 > 5%"])
        .fails(2, "gates are about what is compared with the baseline: b");
    compare(&["--launch", "b=no-such-program {port}"]).fails(3, "is the program installed?");
    compare(&["--launch", "b=sleep 1000 & : {port}"]).fails(4, "if it went into the background");
    compare(&["b=http://127.0.0.1:1/"])
        .fails(4, "b: no reply from 127.0.0.1:1: connection refused");
    compare(&["--launch", "b=sleep 1000; : {port}", "--ready-within", "300ms"])
        .fails(3, "no good reply from 127.0.0.1:");
    compare(&["--launch", "b=true {port}", "--precision", "2"]).fails(2, "write 2% or 0.5%");
    compare(&["--launch", "b=true {port}", "--poisson"]).fails(2, "poisson needs an open loop");
    let nowhere = desk.folder.file("no/such/folder/x.json");
    compare(&["--launch", "b=true {port}", "--json", str(&nowhere)])
        .fails(3, "--json: cannot write");
    let folder = desk.folder.0.clone();
    compare(&["--launch", "b=true {port}", "--store", str(&folder)])
        .fails(3, "cannot use the store");
    desk.tare(&["run", "no-such.toml"]).fails(2, "no-such.toml: No such file or directory");
    assert_eq!(std::fs::read_dir(desk.folder.file("tare/journal")).unwrap().count(), 0);
}

#[test]
fn a_full_disk_stops_a_run_and_keeps_what_was_measured() {
    let desk = Desk::new("full");
    let disk = desk.folder.file("disk");
    std::fs::create_dir(&disk).unwrap();
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=18m,mode=700", "tmpfs", str(&disk)])
        .status();
    if !mount.is_ok_and(|status| status.success()) {
        not_run("needs root to mount a small disk");
        return;
    }
    let store = disk.join("tare.db");
    let pair = launches("", "");
    let mut args = vec!["compare", &pair[0], &pair[1], "-q", "--store", str(&store)];
    args.extend(["--slice", "2ms", "--cycles", "50", "--precision", "0.01%", "--max-time", "60s"]);
    args.push("--no-sustained");
    // There is room to begin; another program takes it while the run goes on.
    let mut child = desk
        .command(&args)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    desk.wait_for_a_round(&mut child, &["--store", str(&store)]);
    let mut filler = std::fs::File::create(disk.join("filler")).unwrap();
    while std::io::Write::write_all(&mut filler, &[0; 4096]).is_ok() {}
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let before = desk.tare(&["compare", &pair[0], &pair[1], "--store", str(&disk.join("x.db"))]);
    drop(filler);
    std::fs::remove_file(disk.join("filler")).unwrap();
    let report = desk.tare(&["report", "last", "--store", str(&store), "--json"]);
    std::process::Command::new("umount").arg(&disk).status().unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("the disk is full"), "{said}");
    assert!(read(report.measured()).run.rounds > 0);
    assert_eq!(before.code, Some(3), "no room, no run: {}", before.story());
}

#[test]
fn headers_may_be_of_one_variant_only() {
    let desk = Desk::new("headers");
    let pair = launches("", "");
    let mut args = owned(&pair, &BRIEF);
    args.extend(["-H", "X-All: 1", "-H", "b:X-Own: 2"]);
    let report = desk.compare(&args);
    assert_eq!(report.plan.parts.load.http().unwrap().headers, ["X-All: 1"]);
    assert_eq!(report.plan.parts.variants[1].headers, ["X-Own: 2"]);
    assert_eq!(report.plan.parts.variants[0].headers, [] as [&str; 0]);
}

#[test]
fn every_kind_of_load_can_be_compared() {
    let desk = Desk::new("kinds");
    let pair = launches("", "");
    let kinds: [&[&str]; 4] = [
        &["--rate", "1000", "-c", "5"],
        &["--rate", "1000", "--poisson", "-c", "5"],
        &["--new-connections", "-c", "5"],
        &["-X", "POST", "-b", "hello", "--reactor", "epoll"],
    ];
    // In a slice this long, even a busy machine answers something.
    let brief = ["--rounds", "2", "--slice", "100ms", "--cycles", "2"];
    for kind in kinds {
        let mut args = owned(&pair, &brief);
        args.extend(kind);
        let report = desk.compare(&args);
        assert!(report.variants.iter().all(|v| v.requests > 0 && v.errors.is_empty()), "{kind:?}");
        let decides = asked(&report).metric;
        let open = kind[0] == "--rate";
        assert_eq!(decides, if open { Metric::LatencyP50 } else { Metric::Throughput });
        if kind[0] == "--new-connections" {
            assert!(report.variants[0].metric(Metric::ConnectP50).is_some());
        }
    }
}

#[test]
fn a_dry_run_starts_nothing_and_shows_everything() {
    let desk = Desk::new("dry");
    let path = desk.file(
        "x.toml",
        "name = 'dry'\n[server.w]\ntarget = { busy = '3us' }\n\
         [[variant]]\nname = 'a'\nserver = 'w'\n[[variant]]\nname = 'b'\nserver = 'w'\n",
    );
    let shown = desk.tare(&["run", str(&path), "--dry-run", "--precision", "1%"]).success().stdout;
    assert!(shown.contains("\"precision\": 0.01") && shown.contains("\"tolerance\": 0.01"));
    assert!(shown.contains("a: starts: tare target --busy 3us, asked at http://127.0.0.1:{port}/"));
    assert!(!desk.folder.file("tare/tare.db").exists(), "no run was begun");
}

/// Like `timeout`: one signal to the process, one to its group.
#[test]
fn two_signals_at_once_are_one_wish() {
    let desk = Desk::new("signals");
    let pair = launches("--delay 300ms", "--delay 300ms");
    let args = owned(&pair, &["--slice", "2s", "--max-time", "60s", "-q"]);
    let all: Vec<&str> = ["compare"].iter().chain(&args).copied().collect();
    let mut child = desk.command(&all).stdout(std::process::Stdio::null()).spawn().unwrap();
    let watched = tare_io::process::PidFd::new(child.id()).unwrap();
    assert!(!watched.wait_timeout(tare_io::DurationNs::from_ms(1000)));
    for _ in 0..2 {
        tare_io::process::signal(child.id(), libc::SIGTERM).unwrap();
        watched.wait_timeout(tare_io::DurationNs::from_ms(20));
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(desk.tare(&["clean"]).success().stdout, "nothing was left behind\n");
}

#[test]
fn a_daemon_does_not_outlive_its_run() {
    let desk = Desk::new("daemon");
    let [good, _] = launches("", "");
    let marker = format!("{}", 100_000 + std::process::id());
    let other = format!("b=setsid -f sleep {marker}; {}", good.split_once('=').unwrap().1);
    desk.tare(&["compare", "-q", &good, "--launch", &other, "--rounds", "2"]).measured();
    for pid in tare_lab::machine::processes::all() {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&command).contains(&marker), "process {pid} was left");
    }
}

#[test]
fn an_interrupted_run_keeps_what_it_measured_and_goes_on() {
    let desk = Desk::new("interrupt");
    let pair = launches("", "");
    let flags = ["--slice", "5ms", "--cycles", "2", "--max-time", "60s", "--no-sustained"];
    let args = owned(&pair, &flags);
    let all: Vec<&str> =
        ["compare", "--precision", "0.01%", "--seed", "9"].iter().chain(&args).copied().collect();
    let mut child = desk
        .command(&all)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    desk.wait_for_a_round(&mut child, &[]);
    tare_io::process::signal(child.id(), libc::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("interrupted after ")
            && text.contains("seed 9")
            && text.contains("stored as run 1"),
        "{text}"
    );
    let rounds = read(desk.tare(&["report", "1", "--json"]).success()).run.rounds;
    assert!(rounds > 0);
    let more = (rounds + 3).to_string();
    let resumed =
        desk.tare(&["run", "--resume", "1", "--rounds", &more, "--json", "-", "-q"]).measured();
    let report = read(resumed);
    assert_eq!((report.run.id, report.run.seed), (1, 9));
    assert_eq!(report.run.rounds, rounds + 3);
    assert_eq!(std::fs::read_dir(desk.folder.file("tare/journal")).unwrap().count(), 0);
}
