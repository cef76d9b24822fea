//! `tare compare` and what becomes of its runs.

use tare_report::run::RunReport;
use tare_stats::{Metric, Verdict};

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
    let report = desk
        .compare(&owned(&pair, &["--rounds", "20", "--slice", "40ms", "--cycles", "2", "-c", "4"]));
    let comparison = asked(&report);
    assert_eq!(comparison.verdict, Verdict::Slower, "{comparison:#?}");
    let loss = comparison.overhead_percent;
    assert!((loss.point - 50.0).abs() < 5.0, "{loss:?}");
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

#[test]
fn the_report_is_made_from_the_store_alone_and_always_the_same() {
    let desk = Desk::new("same-report");
    let pair = launches("", "");
    let json = desk.folder.file("first.json");
    let mut args = owned(&pair, &BRIEF);
    args.extend(["--json", str(&json), "--seed", "42", "--name", "twins"]);
    let all: Vec<&str> = std::iter::once("compare").chain(args).collect();
    let shown = desk.tare(&all).success();
    assert!(shown.stdout.contains("kept as run 1 in "), "{}", shown.story());
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
    assert!(guard(&report, "few-rounds").text.contains("before 20 nothing is concluded"));
}

#[test]
fn gates_judge_by_intervals() {
    let desk = Desk::new("gates");
    let pair = launches("--service-time 1ms", "--service-time 2ms");
    let base = ["compare", "--rounds", "20", "--slice", "20ms", "--cycles", "2", "-c", "4", "-q"];
    let args: Vec<&str> = owned(&pair, &base[1..]);
    let with = |gates: &[&str]| {
        let all: Vec<&str> = ["compare"].iter().chain(&args).chain(gates).copied().collect();
        desk.tare(&all)
    };
    with(&["--fail-if", "throughput > 70%"]).success();
    let failed = with(&["--fail-if", "throughput > 20%"]);
    failed.fails(1, "gate failed: b: throughput +");
    let report = |gate: &str| desk.tare(&["report", "last", "--fail-if", gate]);
    report("throughput > 20%").fails(1, "is > 20 %");
    report("b: p50 < 0%").success();
    report("p99.9 > 5%").fails(1, "p99.9 was not measured");
    report("c: p50 > 0%").fails(2, "there is no variant of that name; there are [\"a\", \"b\"]");
    with(&["--precision", "0.001%", "--fail-if", "unresolved"])
        .fails(5, "unresolved: b not known to ± 0.001 %");
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

#[test]
fn an_interrupted_run_keeps_what_it_measured_and_goes_on() {
    let desk = Desk::new("interrupt");
    let pair = launches("", "");
    let args = owned(&pair, &["--slice", "5ms", "--cycles", "2", "--max-time", "60s"]);
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
    assert!(text.contains("; interrupted; seed 9") && text.contains("kept as run 1"), "{text}");
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
