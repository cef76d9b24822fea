//! `tare compare` and what becomes of its runs.

use tare_model::Metric;
use tare_report::run::RunReport;
use tare_stats::Verdict;
use tare_tidy::skips::not_run;

use crate::runs::{BRIEF, Desk, asked, guard, launches, no_guard, read};
use crate::util::{Server, str};

fn owned<'a>(launches: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    launches.iter().map(String::as_str).chain(more.iter().copied()).collect()
}

#[test]
fn a_planted_cost_is_found_and_covered() {
    let desk = Desk::new("planted");
    // 1 ms of the queue's one worker against 2 ms: half the throughput, whatever the machine.
    let pair = launches("--service-time 1ms", "--service-time 2ms");
    let report = desk.compare(&owned(
        &pair,
        &["--rounds", "20", "--slice", "40ms", "--cycles", "2", "-c", "4", "--no-sustained"],
    ));
    let comparison = asked(&report);
    assert_eq!(comparison.verdict, Verdict::Slower, "{comparison:#?}");
    let loss = comparison.overhead_percent;
    // Beside other tests the machine is anything but still; what is true of a still one is for
    // `bench/method` and simulation.
    assert!((loss.point - 50.0).abs() < 25.0, "{loss:?}");
    assert_eq!((report.run.rounds, report.run.stopped_by.as_str()), (20, "rounds"));
    assert_eq!(report.run.slices_per_round, 2);
    let slow = report.variant("b").unwrap();
    assert_eq!((slow.launches, slow.baseline), (20, false));
    assert_eq!(slow.status.keys().collect::<Vec<_>>(), ["200"]);
    let p50 = slow.metric(Metric::LatencyP50).unwrap();
    assert!(p50.lower <= p50.point && p50.point <= p50.upper && p50.n == 20, "{p50:?}");
    for metric in [Metric::ServerCpu, Metric::ServerRss, Metric::ServerSwitches] {
        assert!(slow.metric(metric).is_some(), "{metric:?}: {:?}", slow.metrics);
    }
    no_guard(&report, "single-launch");
    no_guard(&report, "few-rounds");
}

/// Cold servers are asked only where that is the question.
#[test]
fn only_the_first_load_counts_where_that_is_asked() {
    let desk = Desk::new("cold");
    // Four times the work, as long as anybody asks here.
    let pair = launches("--busy 100us", "--busy 100us --warm-requests 1000:300us");
    let cold = ["--cold", "400", "--rounds", "3", "-c", "4"];
    let report = desk.compare(&owned(&pair, &cold));
    let loss = asked(&report).overhead_percent.point;
    assert!((loss - 75.0).abs() < 15.0, "{loss}");
    assert_eq!(report.run.slices_per_round, 1);
    let exposure = &report.variant("b").unwrap().exposure;
    assert!((390..=410).contains(&exposure.requests), "{exposure:?}");
    assert_eq!((exposure.warmup_ns, exposure.sustained_launches), (0, 0));
    let text = desk.tare(&["report", "last"]).success().stdout;
    assert!(text.contains("each launch: its first ") && text.contains(" and no more"), "{text}");
    let mut timed = owned(&pair, &["--rounds", "3", "-c", "4"]);
    timed.extend(["--cold", "30ms"]);
    let report = desk.compare(&timed);
    let exposure = &report.variant("a").unwrap().exposure;
    assert!((30_000_000..60_000_000).contains(&exposure.load_ns), "{exposure:?}");
    let both = [&["compare"], &timed[..], &["--warmup", "1s"]].concat();
    desk.tare(&both).fails(2, "'--warmup <DURATION>'");
    let up = ["compare", "http://127.0.0.1:9/", "http://127.0.0.1:9/x", "--cold", "200ms"];
    desk.tare(&up).fails(2, "cold: tare does not start");
    desk.tare(&[&up[..3], &["--cold", "soon"]].concat()).fails(2, "a number of requests (5000)");
}

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
    let shown = desk.tare(&all).success();
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
    assert!(markdown.starts_with("## twins\n\n|  | requests/s | p50 |"), "{markdown}");
    let csv = desk.tare(&["report", "last", "--csv"]).success().stdout;
    assert!(csv.lines().any(|line| line.starts_with("1,b,false,throughput_per_s,")), "{csv}");
    let listed = desk.tare(&["runs", "TWIN"]).success().stdout;
    assert!(listed.contains(" rounds ") && listed.trim_end().ends_with("twins"), "{listed}");
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
    assert_eq!(asked(&report).verdict, Verdict::Unresolved, "six rounds conclude nothing");
    assert!(guard(&report, "few-rounds").text.contains("a verdict needs at least 20"));
}

#[test]
fn gates_judge_by_intervals() {
    let desk = Desk::new("gates");
    let pair = launches("--service-time 1ms", "--service-time 2ms");
    let base = ["compare", "--rounds", "20", "--slice", "20ms", "--cycles", "2", "-c", "4"];
    let mut args: Vec<&str> = owned(&pair, &base[1..]);
    args.extend(["-q", "--no-sustained"]);
    let with = |gates: &[&str]| {
        let all: Vec<&str> = ["compare"].iter().chain(&args).chain(gates).copied().collect();
        desk.tare(&all)
    };
    let passed = with(&["--fail-if", "throughput > 70%"]).success().stdout;
    assert!(passed.contains("gate passed: throughput > 70%: b throughput "), "{passed}");
    let failed = with(&["--fail-if", "throughput > 20%"]);
    failed.fails(1, "gate failed: b: throughput +");
    let report = |gate: &str| desk.tare(&["report", "last", "--fail-if", gate]);
    report("throughput > 20%").fails(1, "is > 20 %");
    report("b: p50 < 0%").success();
    report("p99.9 > 5%").fails(1, "p99.9 was not measured");
    report("c: p50 > 0%").fails(2, "gates are about what is compared with the baseline: b");
    with(&["--precision", "0.001%", "--fail-if", "unresolved"])
        .fails(5, "unresolved: b not known to ± 0.001 %");
}

#[test]
fn a_gate_does_not_pass_because_a_variant_gave_nothing() {
    let desk = Desk::new("gate-broken");
    let pair = launches("", "");
    let broken = pair[1].replacen("--launch=b=", "--launch=c=", 1) + " --error-rate 1 --status 403";
    let mut args = vec!["compare", &pair[0], &pair[1], &broken, "-q"];
    args.extend(BRIEF);
    args.extend(["--fail-if", "throughput > 1000%"]);
    desk.tare(&args).fails(1, "gate failed: c: throughput was not measured");
    desk.tare(&["report", "last", "--fail-if", "unresolved"])
        .fails(5, "unresolved: b, c not known");
}

#[test]
fn what_is_changed_when_a_run_is_resumed_counts() {
    let desk = Desk::new("resume-change");
    let pair = launches("", "");
    let mut args = vec!["compare", &pair[0], &pair[1], "-q"];
    args.extend(BRIEF);
    desk.tare(&args).success();
    let more = ["run", "--resume", "last", "-q", "--rounds", "8", "--precision", "1%"];
    let more: Vec<&str> = more.into_iter().chain(["--metric", "p50", "--json", "-"]).collect();
    let report = read(desk.tare(&more).success());
    assert_eq!((report.run.rounds, report.run.precision, report.run.tolerance), (8, 0.01, 0.01));
    assert_eq!(asked(&report).metric, Metric::LatencyP50);
    desk.tare(&["run", "--resume", "last", "--slice", "9ms"])
        .fails(2, "cannot be changed of a run that is resumed");
    let untouched = desk.file("keep.json", "precious");
    desk.tare(&["run", "--resume", "99", "--json", str(&untouched)]).fails(2, "there is no run 99");
    assert_eq!(std::fs::read_to_string(untouched).unwrap(), "precious");
}

#[test]
fn mistakes_about_servers_get_one_line() {
    let desk = Desk::new("mistakes");
    let [good, _] = launches("", "");
    let compare = |more: &[&str]| {
        let all: Vec<&str> = ["compare", &good].iter().chain(more).copied().collect();
        desk.tare(&all)
    };
    compare(&[]).fails(2, "a comparison needs two variants or more");
    compare(&["--launch", "b=true"]).fails(2, "variant 'b': tare chooses a port for it");
    compare(&["--launch", "nothing"]).fails(2, "write NAME='command'");
    compare(&["--launch", "a=true {port}"]).fails(2, "this name is launched twice");
    compare(&["b=http://127.0.0.1:{port}/"]).fails(2, "{port} needs a server that tare starts");
    compare(&["b=ftp://x/"]).fails(2, "scheme 'ftp' is not supported");
    compare(&["--launch", "b=true {port}", "--baseline", "c"])
        .fails(2, "--baseline c: choose among a, b");
    compare(&["--launch", "b=true {port}", "--fail-if", "a: p99 > 5%"])
        .fails(2, "gates are about what is compared with the baseline: b");
    compare(&["--launch", "b=no-such-program {port}"]).fails(3, "is the program installed?");
    compare(&["--launch", "b=sleep 1000 & : {port}"]).fails(3, "if it went into the background");
    compare(&["b=http://127.0.0.1:1/"])
        .fails(4, "b: no reply from 127.0.0.1:1: connection refused");
    compare(&["--launch", "b=sleep 1000; : {port}", "--ready-within", "300ms"])
        .fails(3, "no good reply from 127.0.0.1:");
    compare(&["--launch", "b=true {port}", "--precision", "2"]).fails(2, "write 2% or 0.5%");
    compare(&["--launch", "b=true {port}", "--poisson"]).fails(2, "--poisson needs an open loop");
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
        .args(["-t", "tmpfs", "-o", "size=18m", "tmpfs", str(&disk)])
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
    // It has room to begin; something else takes that while it runs.
    let child = desk
        .command(&args)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let watched = tare_io::process::Watched::new(child.id()).unwrap();
    assert!(!watched.ends_within(tare_io::DurationNs::from_ms(1500)));
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
    assert!(read(report.success()).run.rounds > 0);
    assert_eq!(before.code, Some(3), "no room, no run: {}", before.story());
}

#[test]
fn headers_may_be_of_one_variant_only() {
    let desk = Desk::new("headers");
    let pair = launches("", "");
    let mut args = owned(&pair, &BRIEF);
    args.extend(["-H", "X-All: 1", "-H", "b:X-Own: 2"]);
    let report = desk.compare(&args);
    assert_eq!(report.plan["load"]["headers"], serde_json::json!(["X-All: 1"]));
    assert_eq!(report.plan["variants"][1]["headers"], serde_json::json!(["X-Own: 2"]));
    assert_eq!(report.plan["variants"][0]["headers"], serde_json::json!([]));
}

#[test]
fn every_kind_of_load_can_be_compared() {
    let desk = Desk::new("kinds");
    let pair = launches("", "");
    let kinds: [&[&str]; 4] = [
        &["--rate", "8000", "-c", "5"],
        &["--rate", "8000", "--poisson", "-c", "5"],
        &["--new-connections", "-c", "5"],
        &["-X", "POST", "-b", "hello", "--reactor", "epoll"],
    ];
    for kind in kinds {
        let mut args = owned(&pair, &BRIEF);
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
fn an_experiment_runs_with_nginx_httpd_and_tls() {
    let desk = Desk::new("experiment");
    let report = desk.run(
        "name = 'servers'\nseed = 5\n[load]\npath = '/aaaa'\nconnections = 4\n\
         [stop]\nrounds = 3\nmetrics = ['throughput', 'cpu']\n\
         [slices]\nwindow = '5ms'\ncycles = 2\n\
         [server.plain]\nnginx = {}\n[server.tls]\nnginx = { tls = true }\n\
         [server.apache]\nhttpd = {}\n[server.own]\ntarget = { tls = true }\n\
         [[variant]]\nname = 'plain'\nserver = 'plain'\n\
         [[variant]]\nname = 'tls'\nserver = 'tls'\n\
         [[variant]]\nname = 'apache'\nserver = 'apache'\n\
         [[variant]]\nname = 'own'\nserver = 'own'\nmay_differ = ['body']\n",
    );
    assert_eq!(report.run.rounds, 3);
    for name in ["plain", "tls", "apache", "own"] {
        let variant = report.variant(name).unwrap();
        assert!(variant.requests > 0 && variant.errors.is_empty(), "{variant:#?}");
        assert_eq!(variant.body_bytes_per_reply, Some(612.0));
        assert!(!variant.guards.contains(&"count-mismatch".to_owned()), "{:#?}", report.guards);
    }
    let tls = report.variant("tls").unwrap().probe.as_ref().unwrap();
    assert!(tls.tls.as_ref().unwrap().starts_with("TLSv1.3 TLS13_"), "{tls:?}");
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

/// As `timeout` does: once to the process, once to its group.
#[test]
fn two_signals_at_once_are_one_wish() {
    let desk = Desk::new("signals");
    let pair = launches("--delay 300ms", "--delay 300ms");
    let args = owned(&pair, &["--slice", "2s", "--max-time", "60s", "-q"]);
    let all: Vec<&str> = ["compare"].iter().chain(&args).copied().collect();
    let mut child = desk.command(&all).stdout(std::process::Stdio::null()).spawn().unwrap();
    let watched = tare_io::process::Watched::new(child.id()).unwrap();
    assert!(!watched.ends_within(tare_io::DurationNs::from_ms(1000)));
    for _ in 0..2 {
        tare_io::process::signal(child.id(), libc::SIGTERM).unwrap();
        assert!(!watched.ends_within(tare_io::DurationNs::from_ms(20)));
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
    desk.tare(&["compare", "-q", &good, "--launch", &other, "--rounds", "2"]).success();
    for pid in tare_lab::processes::all() {
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
    let child = desk
        .command(&all)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let watched = tare_io::process::Watched::new(child.id()).unwrap();
    assert!(!watched.ends_within(tare_io::DurationNs::from_ms(1500)));
    tare_io::process::signal(child.id(), libc::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("; interrupted; seed 9") && text.contains("stored as run 1"), "{text}");
    let rounds = read(desk.tare(&["report", "1", "--json"]).success()).run.rounds;
    assert!(rounds > 0);
    let more = (rounds + 3).to_string();
    let resumed =
        desk.tare(&["run", "--resume", "1", "--rounds", &more, "--json", "-", "-q"]).success();
    let report = read(resumed);
    assert_eq!((report.run.id, report.run.seed), (1, 9));
    assert_eq!(report.run.rounds, rounds + 3);
    assert_eq!(std::fs::read_dir(desk.folder.file("tare/journal")).unwrap().count(), 0);
}
