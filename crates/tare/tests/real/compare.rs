//! `tare compare` where the truth is known, and experiments with real servers.

use tare_model::Metric;
use tare_stats::Verdict;

use crate::runs::{Desk, asked, launches, no_guard, owned};

#[test]
fn a_planted_cost_is_found_and_covered() {
    let desk = Desk::new("planted");
    // 1 ms per request in the queue's one worker against 2 ms: half the throughput on any machine.
    let pair = launches("--service-time 1ms", "--service-time 2ms");
    let report = desk.compare(&owned(
        &pair,
        &["--rounds", "20", "--slice", "40ms", "--cycles", "2", "-c", "4", "--no-sustained"],
    ));
    let comparison = asked(&report);
    assert_eq!(comparison.verdict, Verdict::Slower, "{comparison:#?}");
    let loss = comparison.overhead_percent;
    // Beside other tests the machine is noisy; `bench/method` and simulation check the precision.
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

/// Only `--cold` measures cold servers.
#[test]
fn only_the_first_load_counts_where_that_is_asked() {
    let desk = Desk::new("cold");
    // Four times the work, for longer than this test sends requests.
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
    assert!(text.contains("3 launches, cold: the first "), "{text}");
    let why = desk.tare(&["report", "last", "--why"]).success().stdout;
    assert!(why.contains("each launch: its first ") && why.contains("and no more"), "{why}");
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
        assert!(
            !variant.guards.iter().any(|code| *code == "count-mismatch"),
            "{:#?}",
            report.guards
        );
    }
    let tls = report.variant("tls").unwrap().probe.as_ref().unwrap();
    assert!(tls.tls.as_ref().unwrap().starts_with("TLSv1.3 TLS13_"), "{tls:?}");
}
